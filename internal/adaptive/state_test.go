package adaptive

import (
	"reflect"
	"testing"
	"time"
)

// wholeState returns a state with all routes and great numbers.
func wholeState() State {
	s := State{active: 1 << 60, perMinute: 1 << 60, knee: 83.5, perPerson: 0.08, broke: 91}
	for i := range MaxRoutes {
		s.routes = append(s.routes, base{uint64(i) << 50, time.Hour, time.Hour - time.Microsecond, 1})
	}
	return s
}

func TestStateIsReadAsWritten(t *testing.T) {
	for _, s := range []State{{}, wholeState()} {
		b, err := s.MarshalBinary()
		if err != nil || len(b) > MaxState {
			t.Fatal(len(b), err)
		}
		var got State
		if err := got.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("read %v, %v, want %v", got, err, s)
		}
	}
}

func TestDamagedStateIsNothingLearned(t *testing.T) {
	whole := wholeState()
	b, _ := whole.MarshalBinary()
	other := append([]byte{version + 1}, b[1:]...)
	for name, b := range map[string][]byte{
		"nothing": nil, "short": b[:len(b)-1], "long": append(b[:len(b):len(b)], 0), "other version": other,
		"NaN": append([]byte{version, 0, 1, 0, 0, 0, 0, 0, 0xf8, 0x7f}, make([]byte, 17)...),
	} {
		got := wholeState()
		if err := got.UnmarshalBinary(b); err == nil || !reflect.DeepEqual(got, State{}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// FuzzState reads any bytes. What is read is in bounds and is written as it was read, and a controller
// that continues from it keeps min and max.
func FuzzState(f *testing.F) {
	for _, s := range []State{{}, wholeState()} {
		b, _ := s.MarshalBinary()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again State
		if s.UnmarshalBinary(b) != nil {
			return
		}
		out, _ := s.MarshalBinary()
		err := again.UnmarshalBinary(out)
		if err != nil || len(out) > MaxState || !reflect.DeepEqual(s, again) {
			t.Fatalf("%v was read as %v, %v, of %d bytes", s, again, err, len(out))
		}
		if d := New(Settings{Min: 5, Max: 9}, s).Step(Sample{}); d.Active < 5 || d.Active > 9 {
			t.Fatal(d)
		}
	})
}
