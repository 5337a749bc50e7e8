package counter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
)

// A wire is one kind of message, with functions to make a random one, encode it and decode it.
type wire struct {
	name  string
	make  func(*rand.Rand) any
	write func(any) []byte
	read  func([]byte) (any, error)
}

func wires() []wire {
	return []wire{
		{"requests", func(rng *rand.Rand) any { return randomRequests(rng) },
			func(v any) []byte { return appendRequests(nil, v.([]request)) },
			func(b []byte) (any, error) { return parseRequests(b) }},
		{"replies", func(rng *rand.Rand) any { return randomReplies(rng) },
			func(v any) []byte { return appendReplies(nil, v.([]reply)) },
			func(b []byte) (any, error) { return parseReplies(b) }},
		{"settings", func(rng *rand.Rand) any { return randomSettings(rng) },
			func(v any) []byte { s := v.(Settings); return appendSettings(nil, &s) },
			func(b []byte) (any, error) { return parseSettings(b) }},
	}
}

// scatter fills every field of what v points to, including fields that are added later.
func scatter(rng *rand.Rand, v reflect.Value) {
	wide := rng.Uint64() >> rng.IntN(65) // of any length, sometimes 0
	switch v.Kind() {
	case reflect.Pointer:
		scatter(rng, v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			// Each process has AutoLimit in its own configuration.
			if field.Type() != reflect.TypeFor[status.AutoLimit]() {
				scatter(rng, field)
			}
		}
	case reflect.Bool:
		v.SetBool(wide%2 == 1)
	case reflect.Uint8: // a status or a kind of limit
		v.SetUint(1 + wide%3)
	case reflect.Uint64:
		v.SetUint(wide)
	case reflect.String:
		v.SetString("lane"[:wide%5])
	case reflect.Slice: // the sender of a slice knows its element type
	default:
		v.SetInt(int64(wide))
	}
}

func randomRequests(rng *rand.Rand) (rs []request) {
	for range rng.IntN(6) {
		r := request{op: opJoin + op(rng.IntN(int(opRelease)))}
		for _, p := range []any{&r.id, &r.life, &r.more[0], &r.more[1], &r.more[2]} {
			scatter(rng, reflect.ValueOf(p))
		}
		if r.op == opPerson {
			r.person = &personOf{ID: [16]byte{byte(rng.Uint32())}, number: rng.Uint64(), key: 1,
				find: rng.IntN(2) == 0, use: rng.IntN(2) == 0}
			if rng.IntN(2) == 0 {
				r.person.Invitation = persons.Invitation{Until: 1 + rng.Uint32()/2,
					Uses: uint16(rng.Uint32()), Code: [16]byte{15: byte(rng.Uint32())}}
			}
		}
		rs = append(rs, r)
	}
	return rs
}

func randomReplies(rng *rand.Rand) (rs []reply) {
	for range rng.IntN(6) {
		r := reply{op: opJoin + op(rng.IntN(int(opRelease))), fault: fault(rng.IntN(len(faults())))}
		switch r.op {
		case opJoin, opPoll, opRoam:
			scatter(rng, reflect.ValueOf(&r.place))
		case opClaim:
			scatter(rng, reflect.ValueOf(&r.claim))
		case opPerson:
			scatter(rng, reflect.ValueOf(&r.place))
			scatter(rng, reflect.ValueOf(&r.claim))
		case opTrace:
			scatter(rng, reflect.ValueOf(&r.trace))
			r.trace.Number = 0 // the sender of the request knows it
		}
		rs = append(rs, r)
	}
	return rs
}

func randomSettings(rng *rand.Rand) (s Settings) {
	scatter(rng, reflect.ValueOf(&s))
	s.DrawWeight, s.Endless, s.AtClaim = 0, false, false // each process has its own, too
	for _, l := range []*slot.Limit{&s.Active, &s.New} {
		l.N, l.Per = rng.Int64N(1<<40), 1+time.Duration(rng.Int64N(int64(time.Hour)))
	}
	for i := range rng.IntN(slot.OwnLanes + 1) {
		s.Lanes = append(s.Lanes, slot.Lane{Name: strings.Repeat("x", i+1), Share: 1 + rng.IntN(29)})
	}
	return s
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestWireKeepsWhatIsSent(t *testing.T) {
	for _, w := range wires() {
		t.Run(w.name, func(t *testing.T) {
			rng := seeded(t)
			for range 3000 {
				want := w.make(rng)
				if got, err := w.read(w.write(want)); err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("got  %+v\nwant %+v, %v", got, want, err)
				}
			}
		})
	}
}

func TestWireRefusesDamage(t *testing.T) {
	for _, w := range wires() {
		t.Run(w.name, func(t *testing.T) {
			rng := seeded(t)
			for range 100 {
				b := w.write(w.make(rng))
				for n := range b {
					if _, err := w.read(b[:n]); !errors.Is(err, slot.ErrMessage) {
						t.Fatalf("cut at %d of %d: %v", n, len(b), err)
					}
				}
				if _, err := w.read(append(b, 0)); !errors.Is(err, slot.ErrMessage) {
					t.Fatalf("with a byte behind it: %v", err)
				}
			}
		})
	}
	limit := slot.Limit{Kind: slot.AtOnce, N: 1, Per: 1}
	for _, bad := range []any{
		[]request{{op: opRelease + 1}}, []request{{}},
		slices.Repeat([]request{{op: opLeave}}, mostRequests+1),
		slices.Repeat([]reply{{op: opLeave}}, mostRequests+1),
		[]reply{{op: opRelease + 1}}, []reply{{}},
		[]reply{{op: opLeave, fault: fault(len(faults()))}},
		[]reply{{op: opPoll, place: PlaceInfo{Status: slot.TicketGone + 1}}},
		Settings{Active: limit}, Settings{New: limit}, // no limit is of kind 0
	} {
		for _, w := range wires() {
			if reflect.TypeOf(w.make(rand.New(rand.NewPCG(3, 4)))) != reflect.TypeOf(bad) {
				continue
			}
			if _, err := w.read(w.write(bad)); !errors.Is(err, slot.ErrMessage) {
				t.Errorf("%.60s was read: %v", fmt.Sprintf("%+v", bad), err)
			}
		}
	}
}

func TestWireRefusesAnotherFormat(t *testing.T) {
	for _, w := range wires() {
		b := w.write(w.make(rand.New(rand.NewPCG(3, 4))))
		b[0] = wireFormat + 6
		_, err := w.read(b)
		want := fmt.Sprintf("format %d, this program reads %d: upgrade the older program first",
			wireFormat+6, wireFormat)
		if !errors.Is(err, slot.ErrMessage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", w.name, err, want)
		}
	}
}

// A change of these bytes requires a new wireFormat.
func TestWireOfFormat1HasTheseBytes(t *testing.T) {
	eta := ETA{Known: true, Exact: true, Expect: 1, Low: 2, High: 3}
	place := PlaceInfo{
		slot.TicketCalled, 4, 5, 0, 6, 7, 8, 9, 10, eta, true, true, 0, false, false, false, false, 0, 0,
	}
	next := place
	next.Number, next.Position, next.ETA, next.Held = 6, 7, ETA{}, false
	for i, tt := range []struct {
		v    any
		want string
	}{
		{[]request{
			joinRequest{hold: 1, left: 6}.request(), ticketRequest{life: 3, number: 2}.request(opPoll),
			claimRequest{ticketRequest{life: 3, number: 4}, 5}.request(),
			{op: opSuspect},
			Move{Life: 3, Number: 4, From: 1, To: 2}.request(),
		}, "01052c020c4302067304000ac0018f0204000402"},
		{[]reply{
			{op: opPoll, place: place}, {op: opJoin, place: next},
			{op: opLeave, fault: faultOf(ErrFull)},
			{op: opClaim, claim: slot.ClaimReply{ID: 1, Epoch: 4, End: 2, Win: 3}},
			{op: opTrace, trace: TicketTrace{Status: slot.TicketLate, Place: true, Position: 1, Silent: 2,
				Kept: 3, Left: 4, ETA: eta}},
		}, "0105100307080a0c0e1012143002040608030204000e0e00001422180104040628020c0204060830020406"},
		{Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 1, Per: 2},
			New:    slot.Limit{Kind: slot.Bucket, N: 3, Per: 4},
			Spread: true, Line: LineConfig{5, 6, 7, 8, 9},
		}, "01010301020406080a0c0e1012"},
	} {
		if got := fmt.Sprintf("%x", wires()[i].write(tt.v)); wireFormat == 1 && got != tt.want {
			t.Errorf("%T: got  %s\nwant %s", tt.v, got, tt.want)
		}
	}
	lanes := Settings{Active: slot.Limit{Kind: 1, N: 1, Per: 2}}
	lanes.Lanes = []slot.Lane{{Name: "vip", Share: 5}}
	if got := fmt.Sprintf("%x", appendSettings(nil, &lanes)); got != "010100080503766970020400000000000000" {
		t.Errorf("got %s", got)
	}
}

// Each operation decodes what it has encoded.
func TestRequestsOfOperations(t *testing.T) {
	join, roam := joinRequest{1, 2, 3, 4}, roamRequest{1, 2}
	ticket := ticketRequest{life: 1, number: 2, key: 3}
	unproven, refused := ticketRequest{1, 2, 3, true, false, 4}, ticketRequest{1, 2, 3, true, true, 4}
	claim, move := claimRequest{ticket, 4}, Move{Life: 1, Number: 2, From: 3, To: 4}
	for _, tt := range []struct{ got, want any }{
		{new(join.request()).join(), join},
		{new(ticket.request(opLeave)).ticket(), ticket},
		{new(unproven.request(opPoll)).ticket(), unproven},
		{new(refused.request(opPoll)).ticket(), refused},
		{new(claim.request()).claim(), claim},
		{new(roam.request()).roam(), roam},
		{new(move.request()).move(), move},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%T: got %v, want %v", tt.want, tt.got, tt.want)
		}
	}
}

// A count of 4,095 with nothing behind it must not allocate memory.
func TestWireTakesNoMemoryForDamage(t *testing.T) {
	for _, w := range wires() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := w.read([]byte{wireFormat, 0xff, 0x1f, 8})
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > 16<<10 {
			t.Errorf("%s: %d bytes of memory, %v", w.name, n, err)
		}
	}
}

func TestFaultsTellTheSameOnBothSides(t *testing.T) {
	for _, tt := range []struct{ err, want error }{
		{nil, nil}, {ErrFenced, ErrFenced}, {ErrFull, ErrFull}, {ErrSlow, ErrSlow},
		{ErrNotCalled, ErrNotCalled}, {ErrNoTicket, ErrNoTicket},
		{fmt.Errorf("room: %w", ErrFull), ErrFull},
		{io.ErrUnexpectedEOF, ErrSlow}, {context.Canceled, ErrSlow},
	} {
		if got := faultOf(tt.err).err(); got != tt.want {
			t.Errorf("%v arrives as %v, want %v", tt.err, got, tt.want)
		}
	}
}

// polls returns n requests and their replies: a crowd far from its turn.
func polls(n int) (asked []request, told []reply) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		r := ticketRequest{number: 1_000_000 + rng.Uint64N(100_000), life: 1 << 63}
		asked = append(asked, r.request(opPoll))
		told = append(told, reply{op: opPoll, place: PlaceInfo{
			Status: slot.TicketWaiting, Number: r.number, Life: r.life,
			Position: int64(r.number) - 990_000, Ahead: int64(r.number) - 990_001, Waiting: 110_000,
			Served: 990_000, PollAfter: 30*time.Second + time.Duration(rng.Int64N(1e9)),
			ETA: ETA{Known: true, Expect: time.Hour, Low: time.Hour - 1e9, High: time.Hour + 1e9},
		}})
	}
	return asked, told
}

func FuzzRequests(f *testing.F) {
	asked, _ := polls(3)
	f.Add(appendRequests(nil, asked))
	f.Add(appendRequests(nil, randomRequests(rand.New(rand.NewPCG(3, 4)))))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := parseRequests(b)
		if err != nil {
			return
		}
		again, err := parseRequests(appendRequests(nil, rs))
		if err != nil || !reflect.DeepEqual(rs, again) {
			t.Fatalf("%+v is read back as %+v, %v", rs, again, err)
		}
		if len(rs) > min(len(b), mostRequests) {
			t.Fatalf("%d bytes made %d requests", len(b), len(rs))
		}
	})
}

func FuzzReplies(f *testing.F) {
	_, told := polls(3)
	f.Add(appendReplies(nil, told))
	f.Add(appendReplies(nil, randomReplies(rand.New(rand.NewPCG(3, 4)))))
	f.Fuzz(func(t *testing.T, b []byte) {
		rs, err := parseReplies(b)
		if err != nil {
			return
		}
		again, err := parseReplies(appendReplies(nil, rs))
		if err != nil || !reflect.DeepEqual(rs, again) {
			t.Fatalf("%+v is read back as %+v, %v", rs, again, err)
		}
		if len(rs) > min(len(b), mostRequests) {
			t.Fatalf("%d bytes made %d replies", len(b), len(rs))
		}
	})
}

func BenchmarkWire(b *testing.B) {
	const n = 500
	asked, told := polls(n)
	requests, replies := appendRequests(nil, asked), appendReplies(nil, told)
	buf := bytes.Clone(replies)
	for _, c := range []struct {
		name string
		size int
		f    func()
	}{
		{"requests/write", len(requests), func() { buf = appendRequests(buf[:0], asked) }},
		{"requests/read", len(requests), func() { _, _ = parseRequests(requests) }},
		{"replies/write", len(replies), func() { buf = appendReplies(buf[:0], told) }},
		{"replies/read", len(replies), func() { _, _ = parseReplies(replies) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
			b.ReportMetric(float64(c.size)/n, "B/item")
		})
	}
}
