package sim

import (
	"iter"
	"math/rand/v2"
	"time"
)

// Limits are those of one room. A visitor counts as active from its admission
// until Session after its last request.
type Limits struct {
	Active  int64         // total active users
	Session time.Duration // session duration
	New     int64         // new users per Window
	Window  time.Duration // a minute
}

// A Delay is how long a message takes one way: Least, and exponentially
// distributed more, on average Mean in all.
type Delay struct{ Least, Mean time.Duration }

// Draw draws one delay.
func (d Delay) Draw(r *rand.Rand) time.Duration {
	if d.Mean <= d.Least {
		return d.Least
	}
	return d.Least + time.Duration(r.ExpFloat64()*float64(d.Mean-d.Least))
}

// A Site is a data centre.
type Site struct {
	Name    string
	Workers int
	Local   Delay // between a worker and its data centre's counter
	Home    Delay // between the data centre and where Anywhere lives
}

// An Arrival is the first request of one visitor.
type Arrival struct {
	At     time.Duration // since the start
	Site   int32         // index of the data centre
	Worker int32         // of that site, that the first request reaches
	Dwell  time.Duration // from the admission to the last request
}

// A Scenario is traffic before one room, and the world it meets.
type Scenario struct {
	Name     string
	About    string // one line for people
	Source   string // where its parameters come from, or "chosen"
	Limits   Limits
	Sites    []Site
	Length   time.Duration
	StateLag time.Duration // until a change has reached every data centre's picture
	// Arrivals are in order of time and the same for the same seed.
	Arrivals func(seed uint64) iter.Seq[Arrival]
	Faults   Faults
}

// A Strategy makes a model for a scenario. Source names what it is modelled on.
type Strategy struct {
	Name   string
	About  string
	Source string
	Spread bool // while anyone waits it spaces admissions Window/New apart
	Ends   bool // its model ends sessions itself, by World.Leave
	Make   func(s *Scenario, w *World) Model
}

// A Model decides. Its methods are called in order of virtual time by the world
// that it was made for; it calls back with Admit and Wait, then or later.
type Model interface {
	// Arrive is the first request of a visitor at its worker.
	Arrive(v ID)
	// Left tells that the session of a visitor is over: its last request is a
	// session ago. A strategy that keeps its own books may ignore it.
	Left(v ID)
	// Event is one that the model has asked for with At or After.
	Event(kind, a int32, b int64)
}

// An ID names a visitor while it waits or is inside; then it is used again.
type ID = int32
