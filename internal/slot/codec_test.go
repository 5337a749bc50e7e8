package slot

import (
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func codecSample() *Record {
	r := NewRecord(9, &ParentLoan{Loan: 4, Granted: 20, Returned: PerLimit{3, 5}},
		Limit{AtOnce, 200, 5 * time.Minute}, Limit{PerWindow, 200, time.Minute})
	r.Name = WriteName{9, 2, 77}
	r.Host, r.Time, r.LimitRev, r.Next, r.Frontier, r.Waiting = "h1", 123456, 3, 512, 300, true
	for i := range 400 {
		r.Limits[0].Ends.Add(Time(1000+i*750), int64(i+1))
	}
	r.Loans = []Loan{{ID: 5, Borrower: "w", Seq: Seq{0, 8}, Granted: 9, Returned: PerLimit{1, 3}, Opened: 2,
		Over: 5, Back: [MaxLimits]Time{6, 7}}}
	r.Skipped = []Run{{290, 3}}
	r.Claimed, r.Unnamed = []Claimed{{301, 1, 2}}, 77
	return r
}

func TestRecordSurvivesTheCodec(t *testing.T) {
	want := codecSample()
	b, err := want.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got Record
	if err := got.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, *want)
	}
	if len(b) > 5<<10 {
		t.Errorf("%d bytes, want at most 5 KB", len(b))
	}
}

// A record of format 1, with one number returned for all limits, as version 1 wrote it.
func TestRecordOfFormat1IsRead(t *testing.T) {
	b, err := os.ReadFile("testdata/record-1.bin")
	if err != nil {
		t.Fatal(err)
	}
	want := codecSample()
	want.Parent.Returned, want.Loans[0].Returned, want.Unnamed = evenly(3), evenly(1), Never
	var got Record
	if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
}

// A line of two million of which every other ticket was drawn. One run for each ticket would exceed
// the size of a NATS message, and then no record could be written.
func TestRecordOfALargeDrawIsSmall(t *testing.T) {
	want := codecSample()
	want.Frontier, want.Next, want.Skipped = 1<<40+2_000_000, 1<<40+2_000_000, nil
	random := rand.New(rand.NewPCG(4, 4))
	for n := want.Frontier - 1; n >= 1<<40; n-- {
		if random.IntN(2) == 0 {
			want.Skipped = appendMerged(want.Skipped, []Run{{n, 1}})
		}
	}
	b, err := want.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got Record
	if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("%d runs are read back as %d, %v", len(want.Skipped), len(got.Skipped), err)
	}
	if len(b) > 300<<10 {
		t.Errorf("%d bytes for %d runs, want 300 KB at most", len(b), len(want.Skipped))
	}
}

// TestARecordWithDraws checks that a record with draws survives, and that earlier versions can read
// one without.
func TestARecordWithDraws(t *testing.T) {
	want := codecSample()
	want.Draws = []Draw{{Event: "old", Start: 5, Seed: seedOf("a"), From: 10, To: 300},
		{Event: "new", Seed: seedOf("b"), From: 300}, {Event: "next", Seed: seedOf("c")}}
	b, err := want.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 4 || got.UnmarshalBinary(b) != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
	if b, _ = codecSample().AppendBinary(nil); b[0] >= 4 {
		t.Errorf("without draws it is of format %d", b[0])
	}
}

// TestARecordWithMovedPlaces checks that a record with moved places survives, and that earlier
// versions can read one without.
func TestARecordWithMovedPlaces(t *testing.T) {
	want := codecSample()
	want.Moved = []Moved{{Number: 12, Key: 1, Held: 90}, {Number: 300, Key: 1 << 63, Held: 50}}
	b, err := want.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 6 || got.UnmarshalBinary(b) != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
	for _, bad := range [][]Moved{{{Number: 12}}, {{Number: 12, Key: 1}, {Number: 12, Key: 2}}} {
		want.Moved = bad
		if b, _ = want.AppendBinary(nil); got.UnmarshalBinary(b) == nil {
			t.Errorf("%v is read", bad)
		}
	}
	if b, _ = codecSample().AppendBinary(nil); b[0] >= 6 {
		t.Errorf("without them it is of format %d", b[0])
	}
}

// TestARecordWithReleasedTickets checks that a record with released tickets survives, and that earlier
// versions can read one without.
func TestARecordWithReleasedTickets(t *testing.T) {
	want := codecSample()
	want.Released = []Released{{Number: 12, Used: true, Held: 90}, {Number: firstOf(1) + 3, Held: 50}}
	b, err := want.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 11 || got.UnmarshalBinary(b) != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
	for n := range b {
		if got.UnmarshalBinary(b[:n]) == nil {
			t.Fatalf("cut at %d of %d was read", n, len(b))
		}
	}
	for _, bad := range [][]Released{{{Number: 0}}, {{Number: 12}, {Number: 12}}, {{Number: RoamerBit}}} {
		want.Released = bad
		if b, _ = want.AppendBinary(nil); got.UnmarshalBinary(b) == nil {
			t.Errorf("%v is read", bad)
		}
	}
	for _, id := range []SessionID{12, 12 | RoamerBit} { // used in its lane, or as released
		r := codecSample()
		r.Released = []Released{{Number: 12}, {Number: 13}}
		shared := r.Released
		r.useReleased(id)
		r.putReleased([]Released{{Number: 12}, {Number: 13}, {Number: 14}})
		if shared[0].Used || !r.Released[0].Used || r.Released[1].Used || r.Released[2].Used {
			t.Errorf("%x: %+v", id, r.Released)
		}
	}
	if b, _ = codecSample().AppendBinary(nil); b[0] >= 11 {
		t.Errorf("without them it is of format %d", b[0])
	}
}

// TestARecordWithThoseWhoLeft checks that a record with early leaves survives, and that earlier
// versions can read one without.
func TestARecordWithThoseWhoLeft(t *testing.T) {
	want := codecSample()
	want.Left = []EarlyLeave{{ID: 12, End: 90}, {ID: 1 << 63, End: 9e18}, {ID: 3, End: 80}}
	b, err := want.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 7 || got.UnmarshalBinary(b) != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
	var log goneLog
	for id := range SessionID(mostLeft + 100) {
		log.add(EarlyLeave{ID: id, End: 100})
	}
	before := log.latest(100)
	log.add(EarlyLeave{ID: 1 << 40, End: 100}) // after the write
	want.Left = before
	if b, err = want.AppendBinary(nil); err != nil || got.UnmarshalBinary(b) != nil ||
		len(got.Left) != mostLeft || got.Left[mostLeft-1].ID != mostLeft+99 {
		t.Errorf("%d are kept, %v", len(got.Left), err)
	}
	if n := len(log.latest(101)); n != 0 {
		t.Errorf("%d are kept that are over", n)
	}
	want.Left = make([]EarlyLeave, mostLeft+1)
	if b, _ = want.AppendBinary(nil); got.UnmarshalBinary(b) == nil {
		t.Errorf("%d are read", len(want.Left))
	}
}

// TestARecordWithFoundLimits checks that a record with what was learned survives, that earlier versions
// can read one without, and that nobody writes what nobody could read.
func TestARecordWithFoundLimits(t *testing.T) {
	want := codecSample()
	want.Found = []byte("learned")
	b, err := want.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 9 || got.UnmarshalBinary(b) != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
	want.Found = make([]byte, MaxFound+1)
	if b, _ = want.AppendBinary(nil); got.UnmarshalBinary(b) == nil {
		t.Errorf("%d bytes are read", len(want.Found))
	}
	if b, _ = codecSample().AppendBinary(nil); b[0] >= 9 {
		t.Errorf("without them it is of format %d", b[0])
	}
	first := NewRecord(1, nil, Limit{AtOnce, 5, time.Minute})
	p := NewPool(Params{}, "h", first)
	p.Takeover(0)
	p.Confirm(0)
	p.SetFound([]byte("more"))
	p.SetFound(make([]byte, MaxFound+1))
	_, wr := p.Begin(time.Second, true)
	if string(wr.Found) != "more" {
		t.Errorf("%q is written", wr.Found)
	}
	p.Confirm(time.Second)
	if next := NewPool(Params{}, "i", p.Record()).Takeover(0); string(next.Found) != "more" {
		t.Errorf("the next host knows %q", next.Found)
	}
}

func TestDamagedRecordIsRefused(t *testing.T) {
	whole := codecSample()
	whole.Draws = []Draw{{Event: "old", Start: 5, From: 10, To: 300}}
	whole.Moved = []Moved{{Number: 301, Key: 1 << 60, Held: 7}}
	whole.Left = []EarlyLeave{{ID: 12, End: 90}, {ID: 1 << 63, End: 9e18}}
	whole.Found = []byte{1, 2, 3}
	b, _ := whole.AppendBinary(nil)
	var r Record
	for n := range b {
		if r.UnmarshalBinary(b[:n]) == nil {
			t.Fatalf("cut at %d of %d was read", n, len(b))
		}
	}
	if r.UnmarshalBinary(append([]byte{Version + 1}, b[1:]...)) == nil {
		t.Fatal("another version was read")
	}
}

func FuzzRecord(f *testing.F) {
	b, _ := codecSample().AppendBinary(nil)
	f.Add(b)
	laned := codecSample()
	laned.Lanes = []LanePart{{Lane: Lane{"a", 30}, Next: firstOf(1) + 9, Issued: firstOf(1) + 8,
		Frontier: firstOf(1) + 7, Skipped: []Run{{firstOf(1) + 2, 3}}, Heads: []byte{1}}}
	b, _ = laned.AppendBinary(nil)
	f.Add(b)
	moved := codecSample()
	moved.Moved = []Moved{{Number: 12, Key: 1, Held: 90}, {Number: 300, Key: 1 << 63, Held: 50}}
	b, _ = moved.AppendBinary(nil)
	f.Add(b)
	left := codecSample()
	left.Left = []EarlyLeave{{ID: 12, End: 90}, {ID: 1 << 63, End: 9e18}}
	b, _ = left.AppendBinary(nil)
	f.Add(b)
	released := codecSample()
	released.Released = []Released{{Number: 12, Used: true, Held: 90}, {Number: firstOf(1) + 3, Held: 50}}
	b, _ = released.AppendBinary(nil)
	f.Add(b)
	found := codecSample()
	found.Found = []byte(strings.Repeat("x", MaxFound))
	b, _ = found.AppendBinary(nil)
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r, again Record
		if r.UnmarshalBinary(b) != nil {
			return
		}
		out, _ := r.AppendBinary(nil)
		if err := again.UnmarshalBinary(out); err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v is read back as %+v, %v", r, again, err)
		}
	})
}

// TestARecordWithTheBuiltInLane checks that a record with this lane survives, and that earlier
// versions can read one without.
func TestARecordWithTheBuiltInLane(t *testing.T) {
	want := codecSample()
	for i := 1; i <= MaxLanes; i++ {
		want.Lanes = append(want.Lanes, LanePart{Lane: Lane{Name: string(rune('a' + i)), Share: i},
			Next: firstOf(i) + 7, Issued: firstOf(i) + 3, Frontier: firstOf(i) + 2})
	}
	want.Lanes[OwnLanes].Lane = NetworkLane()
	b, err := want.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 8 || got.UnmarshalBinary(b) != nil || len(got.Lanes) != MaxLanes ||
		!reflect.DeepEqual(got.Lanes[OwnLanes].Lane, NetworkLane()) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
	want.Lanes = want.Lanes[:OwnLanes]
	if b, err = want.AppendBinary(nil); err != nil || b[0] >= 8 {
		t.Errorf("with lanes of before it is of format %d, %v", b[0], err)
	}
}
