package ticket

import (
	"errors"
	"strings"
	"testing"
	"time"
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
	unsolved := Token{Kind: Ticket, ID: 9, Work: 5, First: 8, Key: 7}
	far := Token{Kind: Ticket, Home: strings.Repeat("x", 32)}
	for _, want := range []Token{sample, unsolved, {Kind: Ticket}, far} {
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

// Each data center numbers its own keys, so the same number means another key.
func TestKeysOfOthersOpenAndNeverSeal(t *testing.T) {
	numbered := func(of byte, ids ...byte) map[byte]Key {
		m := map[byte]Key{}
		for _, id := range ids {
			m[id] = Key{id, of}
		}
		return m
	}
	ring := func(sealer byte, own map[byte]Key, others ...map[byte]Key) *Ring {
		t.Helper()
		r, err := NewRing(sealer, own, others...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	sjc, lhr, del := numbered('s', 1, 2), numbered('l', 1, 3), numbered('d', 1, 4)
	all := ring(2, sjc, lhr, del)
	for name, from := range map[string]*Ring{
		"own": ring(1, sjc), "lhr, by a number of ours": ring(1, lhr), "lhr": ring(3, lhr),
		"del, by a number of all": ring(1, del), "del": ring(4, del),
	} {
		var got Token
		s := from.Seal(nil, "shop", &sample)
		if err := all.Open(&got, "shop", string(s)); err != nil || got != sample {
			t.Errorf("%s: %v", name, err)
		}
		s[len(s)/2] ^= 1 // a bit of the sealed part
		if err := all.Open(&got, "shop", string(s)); !errors.Is(err, ErrToken) {
			t.Errorf("%s, changed: %v", name, err)
		}
	}
	var got Token
	s := string(ring(1, lhr).Seal(nil, "shop", &sample))
	if err := ring(1, sjc).Open(&got, "shop", s); !errors.Is(err, ErrToken) {
		t.Errorf("of one who is unknown: %v", err)
	}
	s = string(all.Seal(nil, "shop", &sample))
	if ring(1, sjc).Open(&got, "shop", s) != nil || ring(1, lhr, del).Open(&got, "shop", s) == nil {
		t.Error("not sealed with the own key")
	}
	if _, err := NewRing(3, sjc, lhr); err == nil {
		t.Error("a key of others seals")
	}
}

func TestOpenAllocatesNothing(t *testing.T) {
	r := ring(t, 1)
	s := string(r.Seal(nil, "shop", &sample))
	got := Token{Home: "lhr"}
	if n := testing.AllocsPerRun(100, func() { _ = r.Open(&got, "shop", s) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	r, err := NewRing(1, map[byte]Key{1: {9}}, map[byte]Key{1: {1, 1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { err = r.Open(&got, "shop", s) }); n > 0 || err != nil {
		t.Errorf("of others: %v allocations, %v", n, err)
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

// BenchmarkOpenAmong opens tokens while two others have keys with the same numbers.
func BenchmarkOpenAmong(b *testing.B) {
	own, lhr, del := map[byte]Key{1: {1}}, map[byte]Key{1: {2}}, map[byte]Key{1: {3}}
	all, err := NewRing(1, own, lhr, del)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		keys map[byte]Key
	}{{"own", own}, {"second", del}, {"nobody", map[byte]Key{1: {4}}}} {
		from, err := NewRing(1, c.keys)
		if err != nil {
			b.Fatal(err)
		}
		s := string(from.Seal(nil, "shop", &sample))
		t := Token{Home: "lhr"}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := all.Open(&t, "shop", s); (err == nil) != (c.name != "nobody") {
					b.Fatal(err)
				}
			}
		})
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

// The first ticket of a visitor is known only in its own line, and while no challenge of it is solved.
func TestTheFirstTicketOfAVisitor(t *testing.T) {
	for _, tt := range []struct {
		of         Token
		life, want uint64
	}{
		{Token{Kind: Ticket, Life: 3, ID: 9, Work: 1}, 3, 9},
		{Token{Kind: Ticket, Life: 3, ID: 9, Work: 1, First: 4}, 3, 4},
		{Token{Kind: Ticket, Life: 3, ID: 9, Work: 1, First: 4}, 5, 0},
		{Token{Kind: Ticket, Life: 3, ID: 9, First: 4}, 3, 0},
		{Token{Kind: Pass, Life: 3, ID: 9, Work: 1}, 3, 0},
		{Token{Kind: Ticket, Life: 3, ID: 9, First: 4, Refused: true}, 3, 4},
		{Token{Kind: Ticket, Life: 3, ID: 9, Work: 1, Refused: true}, 3, 0},
	} {
		if got := tt.of.FirstIn(tt.life); got != tt.want {
			t.Errorf("%+v in life %d: %d, want %d", tt.of, tt.life, got, tt.want)
		}
		if tt.of.Seen = 1; tt.of.IsOrdered() != (tt.of.First == 0) {
			t.Errorf("%+v is ordered among data centers: %v", tt.of, tt.of.IsOrdered())
		}
	}
}

// A link that moves a place knows its deadline, its key and the first ticket of the visitor.
func TestALinkKeepsTheFirstTicket(t *testing.T) {
	r, until := ring(t, 1), time.Unix(1_800_000_000, 0)
	want := Token{Kind: Ticket, Life: 3, ID: 9, First: 4, Key: 7}
	var got Token
	to, at, err := r.OpenMove(&got, "shop", r.SealMove("shop", &want, until, 5))
	if err != nil || to != 5 || !at.Equal(until) || got != want {
		t.Errorf("%+v, %d, %v, %v", got, to, at, err)
	}
}

// A refused ticket keeps its number and its visitor's first one, which is worth nothing once its cookie is
// old. Its sealed form has the length of any other, and there are no refused passes.
func TestARefusedTicket(t *testing.T) {
	r, now := ring(t, 1), time.Unix(1_800_000_000, 0)
	for _, wrong := range []bool{false, true} {
		x := Token{Kind: Ticket, Life: 3, ID: 9, Work: 7, Checked: now.Unix()}
		plain := len(r.Seal(nil, "shop", &x))
		x.Refuse(wrong)
		if x.First != 9 || !x.Refused || (x.Work == 0) != wrong {
			t.Fatalf("%+v", x)
		}
		sealed := r.Seal(nil, "shop", &x)
		var got Token
		if err := r.Open(&got, "shop", string(sealed)); err != nil || got != x || len(sealed) != plain {
			t.Errorf("%+v, want %+v, %v, %d bytes instead of %d", got, x, err, len(sealed), plain)
		}
		x.Refuse(wrong)
		for after, first := range map[time.Duration]uint64{
			0: 9, time.Minute: 9, 6 * time.Minute: 9, 6*time.Minute + time.Second: 0,
		} {
			old := x
			anew := old.Refresh(now.Add(after), 5*time.Minute)
			if anew != (after >= time.Minute) || old.First != first {
				t.Errorf("after %v: %v, %+v", after, anew, old)
			}
		}
		if x.Forget(now.Add(time.Second)); x.Refused || x.Work != 0 || x.First != 0 {
			t.Errorf("%+v", x)
		}
	}
	pass := Token{Kind: Pass, Life: 3, ID: 9, Checked: 1, Refused: true}
	if r.Open(&pass, "shop", string(r.Seal(nil, "shop", &pass))) != nil || pass.Refused || pass.Refresh(now, 0) {
		t.Errorf("%+v", pass)
	}
	text := (&Token{Kind: Pass}).encode(nil)
	if text[0] |= isRefused; new(Token).decode(text) == nil {
		t.Error("a refused pass is read")
	}
}
