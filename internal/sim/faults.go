package sim

import "time"

// Faults are what the world does to those who can be hurt: their messages and
// their processes. The zero value is a world without any.
type Faults struct {
	Lose, Repeat float64       // shares of messages lost, and delivered twice
	Crash        time.Duration // mean time between crashes of a process; 0 never
	Down         time.Duration // mean time until it is started again
	Pause        time.Duration // mean time between pauses (SIGSTOP) of a process; 0 never
	Paused       time.Duration // mean length of a pause
	Cut          time.Duration // mean time between cuts of a data centre from the rest; 0 never
	Cuts         time.Duration // mean length of a cut
	Drift        float64       // clocks run at 1 ± this share
	Offset       time.Duration // clocks begin at up to this
}

// None reports whether nothing ever goes wrong.
func (f *Faults) None() bool {
	return f.Lose == 0 && f.Repeat == 0 && f.Crash == 0 && f.Pause == 0 && f.Cut == 0 && f.Drift == 0
}
