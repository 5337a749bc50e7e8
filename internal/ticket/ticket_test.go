package ticket

import (
	"errors"
	"strings"
	"testing"
)

func ring(t testing.TB, ids ...byte) *Ring {
	t.Helper()
	keys := map[byte]Key{}
	for _, id := range ids {
		keys[id] = Key{id, 1, 2, 3}
	}
	r, err := NewRing(ids[len(ids)-1], keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var sample = Token{
	Kind: Pass, Life: 7, ID: 1 << 60, End: 12345, Hard: -1, Epoch: 5, Seen: 6, Pending: 8,
	Arrived: 1, Checked: 2, Accepted: 3,
	Joined: 99, Shown: 4, Home: "lhr",
}

func TestSealedTokenOpens(t *testing.T) {
	r := ring(t, 1)
	for _, want := range []Token{sample, {Kind: Ticket}, {Kind: Ticket, Home: strings.Repeat("x", 32)}} {
		var got Token
		s := r.Seal(nil, "shop", &want)
		if err := r.Open(&got, "shop", string(s)); err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		if len(s) > MaxLen {
			t.Fatalf("%d bytes, MaxLen says %d", len(s), MaxLen)
		}
	}
}

func TestEveryChangedByteIsRefused(t *testing.T) {
	r := ring(t, 1)
	s := r.Seal(nil, "shop", &sample)
	for i := range s {
		for _, c := range []byte{'A', 'z', '_', '=', ' '} {
			if s[i] == c {
				continue
			}
			bad := []byte(string(s))
			bad[i] = c
			var got Token
			if err := r.Open(&got, "shop", string(bad)); !errors.Is(err, ErrToken) {
				t.Fatalf("byte %d as %q: %v", i, c, err)
			}
		}
	}
	for n := range s {
		var got Token
		if err := r.Open(&got, "shop", string(s[:n])); !errors.Is(err, ErrToken) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestTokenOfAnotherRoomOrKeyIsRefused(t *testing.T) {
	r := ring(t, 1)
	s := string(r.Seal(nil, "shop", &sample))
	var got Token
	for name, err := range map[string]error{
		"other room": r.Open(&got, "shop2", s),
		"other key":  ring(t, 2).Open(&got, "shop", s),
		"1 MB":       r.Open(&got, "shop", strings.Repeat("A", 1<<20)),
	} {
		if !errors.Is(err, ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOldKeyStillOpensAfterRotation(t *testing.T) {
	s := string(ring(t, 1).Seal(nil, "shop", &sample))
	var got Token
	both := ring(t, 1, 2)
	if err := both.Open(&got, "shop", s); err != nil {
		t.Fatal(err)
	}
	if err := ring(t, 2).Open(&got, "shop", string(both.Seal(nil, "shop", &sample))); err != nil {
		t.Fatalf("the newest key must seal: %v", err)
	}
}

func TestOpenAllocatesNothing(t *testing.T) {
	r := ring(t, 1)
	s := string(r.Seal(nil, "shop", &sample))
	got := Token{Home: "lhr"}
	if n := testing.AllocsPerRun(100, func() { _ = r.Open(&got, "shop", s) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzOpen(f *testing.F) {
	r := ring(f, 1)
	f.Add(string(r.Seal(nil, "shop", &sample)))
	f.Add("")
	f.Add(strings.Repeat("A", MaxLen))
	f.Fuzz(func(t *testing.T, s string) {
		var tok Token
		if err := r.Open(&tok, "shop", s); err == nil && tok != sample {
			t.Fatalf("forged: %+v", tok)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(sample.encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var tok Token
		if tok.decode(b) == nil && string(tok.encode(nil)) != string(b) {
			t.Fatalf("%x decodes to %+v and back to %x", b, tok, tok.encode(nil))
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	r := ring(b, 1)
	s := string(r.Seal(nil, "shop", &sample))
	t := Token{Home: "lhr"}
	b.ReportAllocs()
	for b.Loop() {
		if r.Open(&t, "shop", s) != nil {
			b.Fatal("not opened")
		}
	}
}

func BenchmarkSeal(b *testing.B) {
	r := ring(b, 1)
	buf := make([]byte, 0, MaxLen)
	b.ReportAllocs()
	for b.Loop() {
		buf = r.Seal(buf[:0], "shop", &sample)
	}
}
