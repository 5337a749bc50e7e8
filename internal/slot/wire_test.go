package slot

import (
	"encoding"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// message is what a Sync and an Answer have in common.
type message interface {
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

// messages returns functions that make an empty message of each type.
func messages() []func() message {
	return []func() message{
		func() message { return new(Sync) },
		func() message { return new(Answer) },
	}
}

// randomMessage fills every field of a message, including fields added in the future.
func randomMessage(rng *rand.Rand, m message) message {
	scatter(rng, reflect.ValueOf(m).Elem())
	return m
}

func scatter(rng *rand.Rand, v reflect.Value) {
	wide := rng.Uint64() >> rng.IntN(65) // of any length, and sometimes 0
	if v.Type() == reflect.TypeFor[Op]() {
		v.SetUint(uint64(Open) + wide%uint64(Answered))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			scatter(rng, field)
		}
	case reflect.Slice:
		if n := rng.IntN(6); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			scatter(rng, v.Index(i))
		}
	case reflect.String:
		v.SetString(strings.Repeat("w", int(wide%(maxText+1))))
	case reflect.Bool:
		v.SetBool(wide%2 == 1)
	case reflect.Uint64:
		v.SetUint(wide)
	default:
		v.SetInt(int64(wide))
	}
}

func bytesOf(t testing.TB, m message) []byte {
	t.Helper()
	b, err := m.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMessagesSurviveTheWire(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		for _, empty := range messages() {
			want, got := randomMessage(rng, empty()), empty()
			b := bytesOf(t, want)
			if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %+v\nwant %+v, %v", got, want, err)
			}
			clear(b) // the receiver's buffer is used again
			if !reflect.DeepEqual(got, want) {
				t.Fatal("the message shares memory with its bytes")
			}
		}
	}
}

func TestDamagedMessageIsRefused(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		for _, empty := range messages() {
			b, m := bytesOf(t, randomMessage(rng, empty())), empty()
			for n := range b {
				if err := m.UnmarshalBinary(b[:n]); !errors.Is(err, ErrMessage) {
					t.Fatalf("%T cut at %d of %d: %v", m, n, len(b), err)
				}
			}
			if m.UnmarshalBinary(append(b, 0)) == nil {
				t.Fatalf("%T with a byte behind it was read", m)
			}
			if !reflect.DeepEqual(m, empty()) {
				t.Fatalf("refused bytes have changed the message: %+v", m)
			}
		}
	}
}

func TestMessageOfAnotherFormatIsRefused(t *testing.T) {
	for _, empty := range messages() {
		b := bytesOf(t, empty())
		b[0] = wireFormat + 6
		err := empty().UnmarshalBinary(b)
		want := fmt.Sprintf("format %d, this program reads up to %d: upgrade the older program first",
			wireFormat+6, siteFormat)
		if !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestMessageTooLongForTheWireIsRefused(t *testing.T) {
	full := Sync{Items: make([]Item, maxItems), Queue: make([]Time, maxQueue),
		Borrower: strings.Repeat("w", maxText)}
	for i := range full.Items {
		full.Items[i].Op = Leave
	}
	var got Sync
	if err := got.UnmarshalBinary(bytesOf(t, &full)); err != nil || !reflect.DeepEqual(got, full) {
		t.Fatalf("a full Sync: %v", err)
	}
	items, queue, text, op := full, full, full, full
	items.Items = append(items.Items, Item{Op: Leave})
	queue.Queue = append(queue.Queue, 1)
	text.Borrower += "w"
	op.Items = []Item{{Op: Answered + 1}}
	for _, m := range []message{&items, &queue, &text, &op,
		&Answer{Results: make([]Result, maxItems+1)},
		&Answer{Gone: make([]EarlyLeave, maxGone+1)},
		&Answer{Sure: make([]Span, mostSpans+1)},
	} {
		if b, err := m.AppendBinary([]byte("x")); !errors.Is(err, ErrMessage) || string(b) != "x" {
			t.Errorf("%T: %d bytes, %v", m, len(b), err)
		}
	}
}

// A reader trusts no writer: it rejects lists that are one entry too long, here of zero bytes.
func TestMessageWithTooLongAListIsRefused(t *testing.T) {
	for _, tt := range []struct {
		m     message // empty: its bytes end with the counts of its lists
		list  string
		after int // lists behind this one
		most  int
		entry string
	}{
		{new(Sync), "queue", 1, maxQueue, "\x00"},
		{new(Sync), "items", 0, maxItems, "\x03\x00"},
		{new(Answer), "results", 2, maxItems, "\x00\x00"},
		{new(Answer), "gone", 1, maxGone, "\x00\x00"},
		{new(Answer), "sure", 0, mostSpans, "\x00\x00\x00"},
	} {
		b := bytesOf(t, tt.m)
		for _, n := range []int{tt.most, tt.most + 1} {
			long := codec.AppendUint(slices.Clone(b[:len(b)-tt.after-1]), uint64(n))
			long = append(append(long, strings.Repeat(tt.entry, n)...), b[len(b)-tt.after:]...)
			if err := tt.m.UnmarshalBinary(long); (err == nil) != (n == tt.most) {
				t.Errorf("%T with %d %s: %v", tt.m, n, tt.list, err)
			}
		}
	}
}

// If you change the bytes, change wireFormat.
func TestMessageOfFormat1HasTheseBytes(t *testing.T) {
	for _, tt := range []struct {
		m    message
		want string
	}{
		{&Sync{
			Loan: 1, Borrower: "w", Seq: Seq{2, 3}, Seen: WriteName{4, 5, 6}, Est: 7,
			Granted: 8, Returned: PerLimit{9, 10}, Opened: 11, Settled: 12, Need: 13, Want: 14,
			Queue: []Time{15, 16}, Items: []Item{
				{Open, 17, 0, 0, 18, 19, 0}, {Renew, 20, 21, 22, 0, 0, 23},
				{Renew, 24, 22, 21, 0, 0, 0},
			},
		}, "0101017702030405060710121416181a1c021e0203611124269a142a2c2e1a180201"},
		{&Answer{
			Name: WriteName{1, 2, 3}, Seq: Seq{4, 5}, Loan: 6, Over: true, Time: 7, Granted: 8,
			Term: 9, GiveBack: true, Results: []Result{{10, 11}, {12, 0}, {13, 12}},
			Gone: []EarlyLeave{{14, 15}},
			Sure: []Span{{16, 17, 18}}, Latest: 19,
		}, "010102030405060101000e101226030a160c150d02010e0601102224"},
	} {
		if got := fmt.Sprintf("%x", bytesOf(t, tt.m)); wireFormat == 1 && got != tt.want {
			t.Errorf("%T: got  %s\nwant %s", tt.m, got, tt.want)
		}
	}
}

// Each number of a message in turn is replaced by the maximum length of a list, and no entries
// follow.
func TestDamagedMessageAsksForNoMemory(t *testing.T) {
	for _, empty := range messages() {
		b := bytesOf(t, empty())
		for i := 1; i < len(b); i++ {
			lie := append(append([]byte{}, b[:i]...), 0xff, 0xff, 3) // 65,535
			m := empty()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := m.UnmarshalBinary(lie)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > 16<<10 {
				t.Errorf("%T of %d bytes took %d bytes of memory, %v", m, len(lie), n, err)
			}
		}
	}
}

// renewals returns a Sync of n visitors seen within a second, by tickets or random IDs.
func renewals(n int, tickets bool) *Sync {
	rng := rand.New(rand.NewPCG(1, 2))
	stay := 5 * time.Minute
	now, grid := Time(40*time.Hour), Time(stay)/400
	x := &Sync{Loan: LoanID(rng.Uint64()), Borrower: "w-0a1b2c3d", Settled: now, Granted: 900}
	for i := range n {
		at := now + Time(i)*Time(time.Second)/Time(n) + Time(rng.IntN(1e6))
		it := Item{Op: Renew, ID: SessionID(rng.Uint64()), At: at}
		if tickets {
			it.ID = SessionID(1_000_000 + rng.IntN(100_000))
		}
		it.From = (at + Time(rng.Int64N(int64(stay)))) / grid * grid
		x.Items = append(x.Items, it)
	}
	return x
}

// results returns an Answer to them.
func results(x *Sync) *Answer {
	a := &Answer{Loan: x.Loan, Time: x.Settled, Granted: 900, Term: 15 * time.Second}
	for _, it := range x.Items {
		a.Results = append(a.Results, Result{it.ID, it.From.Add(time.Minute)})
	}
	return a
}

// A message allocates one block for each of its lists, and the borrower's name.
func TestWireAllocatesNothingForEachItem(t *testing.T) {
	if testing.Short() {
		return // the race detector allocates
	}
	x := renewals(1000, true)
	for _, m := range []message{x, results(x)} {
		b := bytesOf(t, m)
		buf := make([]byte, 0, 64<<10)
		if n := testing.AllocsPerRun(100, func() { buf, _ = m.AppendBinary(buf[:0]) }); n > 0 {
			t.Errorf("to write %T: %v allocations", m, n)
		}
		if n := testing.AllocsPerRun(100, func() { _ = m.UnmarshalBinary(b) }); n > 2 {
			t.Errorf("to read %T: %v allocations, want at most 2", m, n)
		}
	}
}

// fuzzMessage reads arbitrary bytes as a message, and reads again what it could read.
func fuzzMessage(t *testing.T, b []byte, once, twice message) {
	if once.UnmarshalBinary(b) != nil {
		return
	}
	out, err := once.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := twice.UnmarshalBinary(out); err != nil || !reflect.DeepEqual(once, twice) {
		t.Fatalf("%+v is read back as %+v, %v", once, twice, err)
	}
}

func FuzzSync(f *testing.F) {
	f.Add(bytesOf(f, renewals(3, true)))
	f.Add(bytesOf(f, randomMessage(rand.New(rand.NewPCG(3, 4)), new(Sync))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x, again Sync
		fuzzMessage(t, b, &x, &again)
		if len(x.Items)+len(x.Queue)+len(x.Borrower) > len(b) {
			t.Fatalf("%d bytes made %+v", len(b), x)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(bytesOf(f, results(renewals(3, false))))
	f.Add(bytesOf(f, randomMessage(rand.New(rand.NewPCG(3, 4)), new(Answer))))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a, again Answer
		fuzzMessage(t, b, &a, &again)
		if len(a.Results)+len(a.Gone)+len(a.Sure) > len(b) {
			t.Fatalf("%d bytes made %+v", len(b), a)
		}
	})
}

func BenchmarkWire(b *testing.B) {
	const items = 1000
	tickets, random := renewals(items, true), renewals(items, false)
	for _, c := range []struct {
		name        string
		from, empty message
	}{
		{"sync/tickets", tickets, new(Sync)},
		{"sync/random", random, new(Sync)},
		{"answer/tickets", results(tickets), new(Answer)},
		{"answer/random", results(random), new(Answer)},
	} {
		buf := bytesOf(b, c.from)
		run := func(name string, f func()) {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/items, "ns/item")
				b.ReportMetric(float64(len(buf))/items, "B/item")
			})
		}
		run("write", func() { buf, _ = c.from.AppendBinary(buf[:0]) })
		run("read", func() { _ = c.empty.UnmarshalBinary(buf) })
	}
}
