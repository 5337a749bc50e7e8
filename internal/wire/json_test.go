package wire

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestTimesWithMilliseconds(t *testing.T) {
	zone := time.FixedZone("", 9*3600+1800)
	for _, x := range []time.Time{
		time.Unix(0, 0), time.Unix(1, 999_999_999), time.Unix(951_782_400, 1_000_000), // 2000-02-29
		time.Date(2026, 12, 31, 23, 59, 59, 42_700_000, zone), time.Date(9999, 12, 31, 1, 2, 3, 0, zone),
	} {
		want := x.UTC().Format("2006-01-02T15:04:05.000Z")
		got := string(AppendMillis([]byte("x"), x))
		if got != "x"+want || len(want) != MillisLen {
			t.Errorf("%q, want x%s", got, want)
		}
	}
}

// The result is JSON for the text, with U+FFFD for invalid bytes, and contains nothing special to
// HTML.
func FuzzJSONText(f *testing.F) {
	for _, s := range []string{"", "plain", `a"b\c`, "</script>&", "é\x00\x7f\u2028", "plain\xff", "\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := AppendJSONText(nil, s)
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %s: %v", s, b, err)
		}
		if want := string([]rune(s)); got != want { // each invalid byte is U+FFFD
			t.Errorf("%q, want %q", got, want)
		}
		if strings.ContainsAny(string(b), "<>&\u2028\u2029\x7f") {
			t.Errorf("%s", b)
		}
	})
}
