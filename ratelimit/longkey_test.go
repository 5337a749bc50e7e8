package ratelimit

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCounted(t *testing.T) {
	long := strings.Repeat("k", maxCounted+1)
	const hash = "~sha256:85zcJYR1jJnPgcH0HSVy9U4X"
	for key, want := range map[string]string{
		"": "", "bob": "bob", long[1:]: long[1:],
		long:       strings.Repeat("k", 32) + hash,
		"é" + long: "é" + strings.Repeat("k", 30) + countedKey("é" + long)[32:],
		strings.Repeat("k", 31) + "é" + long: strings.Repeat("k", 31) +
			countedKey(strings.Repeat("k", 31) + "é" + long)[31:],
		"~sha256:" + long[:24-1]:     "~sha256:" + long[:24-1], // not a hash: too short
		"~sha256:" + long[:23] + "+": "~sha256:" + long[:23] + "+",
	} {
		if got := countedKey(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { countedKey("bob"); findKey("bob") }); n != 0 {
		t.Errorf("a short key: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { countedKey(long) }); n > 1 {
		t.Errorf("a long key: %v allocations", n)
	}
}

// A client that sends a hash is not counted as the key with that hash; an operator can look the key
// up by it.
func TestCountedHashCannotBeSent(t *testing.T) {
	long := strings.Repeat("secret ", 100)
	shown := countedKey(long)
	if sent := countedKey(shown); sent == shown || len(sent) > maxCounted {
		t.Errorf("%q is counted as %q", shown, sent)
	}
	if findKey(shown) != shown || findKey(long) != shown {
		t.Error("an operator does not find the key")
	}
}

// Different keys are counted separately, whatever they are, with at most maxCounted bytes.
func FuzzCounted(f *testing.F) {
	long := strings.Repeat("k", maxCounted+1)
	f.Add("bob", "alice")
	f.Add(long, countedKey(long))
	f.Add(countedKey(long), countedKey(countedKey(long)))
	f.Add("~sha256:"+long[:24], strings.Repeat("\x80", 70))
	f.Add(strings.Repeat("é", 33), strings.Repeat("é", 34))
	f.Fuzz(func(t *testing.T, a, b string) {
		if same := countedKey(a) == countedKey(b); same != (a == b) {
			t.Errorf("%q and %q: same %v", a, b, same)
		}
		for _, key := range []string{a, b} {
			got := countedKey(key)
			if len(got) > maxCounted || utf8.ValidString(key) && !utf8.ValidString(got) {
				t.Errorf("%q: %q", key, got)
			}
			if len(key) <= maxCounted && !isHashed(key) && got != key {
				t.Errorf("%q is short, and counted as %q", key, got)
			}
			if findKey(got) != got || !isHashed(key) && findKey(key) != got {
				t.Errorf("%q: found as %q and %q, want %q", key, findKey(got), findKey(key), got)
			}
		}
	})
}
