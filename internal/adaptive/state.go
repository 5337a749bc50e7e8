package adaptive

import (
	"math"

	"github.com/headgate/headgate/internal/codec"
)

// A State is what a controller has learned. It takes less than 2 KB.
type State struct {
	Active int64   // the last limit
	Knee   float64 // requests a second that the origin answers within its target
}

// Append appends the state in binary.
func (s *State) Append(b []byte) []byte {
	return codec.AppendFixed(codec.AppendInt(b, s.Active), math.Float64bits(s.Knee))
}

// ReadState reads what Append has written. Damaged bytes give the zero State, and false.
func ReadState(b []byte) (State, bool) {
	r := codec.NewReader(b)
	s := State{Active: r.Int(), Knee: math.Float64frombits(r.Fixed())}
	if !r.Done() {
		return State{}, false
	}
	return s, true
}
