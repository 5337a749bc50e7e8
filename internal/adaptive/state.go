package adaptive

import (
	"errors"
	"math"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// A State is what a controller has learned. It is opaque to all but this package.
type State struct {
	active    int64   // the last limit
	perMinute int64   // the last limit of new users
	knee      float64 // requests a second that the origin answers within its target; 0: not known
	perPerson float64 // requests a second of a person inside; 0: not known
	broke     float64 // requests a second at which the origin was last overloaded; 0: never
	routes    []base  // at most MaxRoutes
}

// A base is what a route takes when the origin is not loaded.
type base struct {
	class uint64 // hash of the class
	mean  time.Duration
	p95   time.Duration
	share float64 // of the requests, over some minutes
}

// MaxState is the greatest length of a state in bytes.
const MaxState = 2048

// Known reports whether anything is learned.
func (s *State) Known() bool { return s.active > 0 }

// SetLimits sets the limits with which New goes on.
func (s *State) SetLimits(active, perMinute int64) { s.active, s.perMinute = active, perMinute }

// Limits returns total_active_users and new_users_per_minute.
func (s *State) Limits() (active, perMinute int64) { return s.active, s.perMinute }

// version is the first byte of a state. Another one is read as nothing learned.
const version = 2

var errState = errors.New("adaptive: the learned state is damaged or of another version")

// MarshalBinary returns the state in at most MaxState bytes. It never fails.
func (s State) MarshalBinary() ([]byte, error) {
	b := codec.AppendInt([]byte{version}, s.active, s.perMinute)
	for _, f := range []float64{s.knee, s.perPerson, s.broke} {
		b = codec.AppendFixed(b, math.Float64bits(f))
	}
	b = codec.AppendUint(b, uint64(len(s.routes)))
	for _, r := range s.routes {
		b = codec.AppendFixed(b, r.class)
		b = codec.AppendUint(b, uint64(r.mean/time.Microsecond), uint64(r.p95/time.Microsecond),
			uint64(math.Round(r.share*1e6)))
	}
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary has written. After an error, the state has learned nothing.
func (s *State) UnmarshalBinary(b []byte) error {
	r := codec.NewReader(b)
	if r.Byte() != version {
		r.Fail()
	}
	*s = State{active: r.Int(), perMinute: r.Int()}
	s.knee, s.perPerson, s.broke = readFloat(&r), readFloat(&r), readFloat(&r)
	for range r.Count(MaxRoutes) {
		s.routes = append(s.routes, base{class: r.Fixed(), mean: readMicros(&r), p95: readMicros(&r),
			share: float64(r.UpTo(1e6)) / 1e6})
	}
	if !r.Done() || s.active < 0 || s.perMinute < 0 {
		*s = State{}
		return errState
	}
	return nil
}

// readFloat reads a number that is not negative and that arithmetic can use.
func readFloat(r *codec.Reader) float64 {
	f := math.Float64frombits(r.Fixed())
	if !(f >= 0 && f < 1e12) { // NaN is neither
		r.Fail()
		return 0
	}
	return f
}

func readMicros(r *codec.Reader) time.Duration {
	return time.Duration(r.UpTo(uint64(time.Hour/time.Microsecond))) * time.Microsecond
}
