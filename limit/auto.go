package limit

import "time"

// An Auto is how the Amount of a Concurrency rule is found by what an origin answers. Packages limit and
// ratelimit enforce the Amount that they get; headgate finds it. The zero Auto finds none.
type Auto struct {
	Mode     string // AutoOn, AutoShadow or AutoFrozen; "": Amount is a number
	Min, Max int64
	Start    int64 // the Amount while nothing is learned, and in AutoShadow

	TargetP95    time.Duration // 95 of 100 answers take at most this long; 0: learned
	TargetErrors float64       // share of the calls that may fail; 0: 0.01
}

// The modes of an Auto.
const (
	AutoOn     = "on"
	AutoShadow = "shadow" // what is found is shown, and changes nothing
	AutoFrozen = "frozen" // the amount stays as it is
)

// IsFound reports whether the amount in force is one that was found.
func (a *Auto) IsFound() bool { return a.Mode == AutoOn || a.Mode == AutoFrozen }
