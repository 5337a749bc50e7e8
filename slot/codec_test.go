package slot

import (
	"os"
	"reflect"
	"testing"
	"time"
)

func codecSample() *Record {
	r := NewRecord(9, &Upper{Loan: 4, Granted: 20, Returned: Each{3, 5}},
		Limit{AtOnce, 200, 5 * time.Minute}, Limit{PerWindow, 200, time.Minute})
	r.Name = WriteName{9, 2, 77}
	r.Host, r.Time, r.LimitRev, r.Next, r.Frontier, r.Waiting = "h1", 123456, 3, 512, 300, true
	for i := range 400 {
		r.Limits[0].Ends.Add(Tau(1000+i*750), int64(i+1))
	}
	r.Loans = []Loan{{ID: 5, Borrower: "w", Seq: Seq{0, 8}, Granted: 9, Returned: Each{1, 3}, Opened: 2,
		Over: 5, Back: [MaxLimits]Tau{6, 7}}}
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

// A record of format 1, with one number returned for all limits, as the program
// before this one wrote it.
func TestRecordOfFormat1IsRead(t *testing.T) {
	b, err := os.ReadFile("testdata/record-1.bin")
	if err != nil {
		t.Fatal(err)
	}
	want := codecSample()
	want.Up.Returned, want.Loans[0].Returned, want.Unnamed = evenly(3), evenly(1), Never
	var got Record
	if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(&got, want) {
		t.Fatalf("got  %+v\nwant %+v, %v", got, *want, err)
	}
}

func TestDamagedRecordIsRefused(t *testing.T) {
	b, _ := codecSample().AppendBinary(nil)
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
