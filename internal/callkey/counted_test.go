package callkey

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCounted(t *testing.T) {
	long := strings.Repeat("k", MaxCounted+1)
	const hash = "~sha256:85zcJYR1jJnPgcH0HSVy9U4X"
	for key, want := range map[string]string{
		"": "", "bob": "bob", long[1:]: long[1:],
		long:       strings.Repeat("k", 32) + hash,
		"é" + long: "é" + strings.Repeat("k", 30) + Counted("é" + long)[32:],
		strings.Repeat("k", 31) + "é" + long: strings.Repeat("k", 31) +
			Counted(strings.Repeat("k", 31) + "é" + long)[31:],
		"~sha256:" + long[:24-1]:     "~sha256:" + long[:24-1], // not a hash: too short
		"~sha256:" + long[:23] + "+": "~sha256:" + long[:23] + "+",
	} {
		if got := Counted(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Counted("bob"); Find("bob") }); n != 0 {
		t.Errorf("a short key: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { Counted(long) }); n > 1 {
		t.Errorf("a long key: %v allocations", n)
	}
}

// A client that sends a hash is not counted as the key with that hash; an operator can look the key
// up by it.
func TestCountedHashCannotBeSent(t *testing.T) {
	long := strings.Repeat("secret ", 100)
	shown := Counted(long)
	if sent := Counted(shown); sent == shown || len(sent) > MaxCounted {
		t.Errorf("%q is counted as %q", shown, sent)
	}
	if Find(shown) != shown || Find(long) != shown {
		t.Error("an operator does not find the key")
	}
}

// Different keys are counted separately, whatever they are, with at most MaxCounted bytes.
func FuzzCounted(f *testing.F) {
	long := strings.Repeat("k", MaxCounted+1)
	f.Add("bob", "alice")
	f.Add(long, Counted(long))
	f.Add(Counted(long), Counted(Counted(long)))
	f.Add("~sha256:"+long[:24], strings.Repeat("\x80", 70))
	f.Add(strings.Repeat("é", 33), strings.Repeat("é", 34))
	f.Fuzz(func(t *testing.T, a, b string) {
		if same := Counted(a) == Counted(b); same != (a == b) {
			t.Errorf("%q and %q: same %v", a, b, same)
		}
		for _, key := range []string{a, b} {
			got := Counted(key)
			if len(got) > MaxCounted || utf8.ValidString(key) && !utf8.ValidString(got) {
				t.Errorf("%q: %q", key, got)
			}
			if len(key) <= MaxCounted && !isHashed(key) && got != key {
				t.Errorf("%q is short, and counted as %q", key, got)
			}
			if Find(got) != got || !isHashed(key) && Find(key) != got {
				t.Errorf("%q: found as %q and %q, want %q", key, Find(got), Find(key), got)
			}
		}
	})
}
