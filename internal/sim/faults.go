package sim

import "time"

// Faults define what goes wrong with messages and processes. The zero value is a world without
// faults.
type Faults struct {
	Lose, Repeat float64       // shares of messages lost, and delivered twice
	Crash        time.Duration // mean time between crashes of a process; 0 never
	Down         time.Duration // mean time until it restarts
	Pause        time.Duration // mean time between pauses (SIGSTOP) of a process; 0 never
	Paused       time.Duration // mean length of a pause
	Cut          time.Duration // mean time between cuts of a data center from the rest; 0 never
	Cuts         time.Duration // mean length of a cut
	Drift        float64       // clocks run at 1 ± this share
	Offset       time.Duration // clocks start with an offset up to this
}

// None reports whether there are no faults.
func (f *Faults) None() bool {
	return f.Lose == 0 && f.Repeat == 0 && f.Crash == 0 && f.Pause == 0 && f.Cut == 0 && f.Drift == 0
}
