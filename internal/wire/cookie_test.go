package wire

import (
	"slices"
	"strings"
	"testing"
)

// Cookie finds every cookie of a name that a simple parser finds, in order, and terminates.
func FuzzCookie(f *testing.F) {
	for _, line := range []string{"", "n=1", "a=b; n=1;n=2; n=", "xn=0; n=1; nn=2; n",
		"a=\"; n=1\"", "n=n=n", "; ; n"} {
		f.Add(line, "n")
	}
	f.Add("__Host-a=1; a=2", "a")
	f.Fuzz(func(t *testing.T, line, name string) {
		if name == "" || strings.ContainsAny(name, "; =") {
			return
		}
		var want, found []string
		for part := range strings.SplitSeq(line, ";") {
			if v, ok := strings.CutPrefix(strings.TrimLeft(part, " "), name+"="); ok {
				want = append(want, v)
			}
		}
		for rest, value := line, ""; rest != ""; {
			before := len(rest)
			if value, rest = Cookie(rest, name); value == "" && rest == "" {
				if len(want) > 0 && want[len(want)-1] == "" {
					found = append(found, "") // an empty one at the end does not count
				}
				break
			}
			if len(rest) >= before || strings.Contains(value, ";") {
				t.Fatalf("%q in %q: %q, then %q", name, line, value, rest)
			}
			found = append(found, value)
		}
		for _, v := range want {
			i := slices.Index(found, v)
			if i < 0 {
				t.Fatalf("%q in %q: found %q, want %q", name, line, found, want)
			}
			found = found[i+1:]
		}
	})
}
