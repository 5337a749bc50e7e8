package sim

import (
	"iter"
	"math/rand/v2"
	"time"
)

// Limits are the limits of one room. A visitor counts as active from its admission until Session
// after its last request.
type Limits struct {
	Active  int64         // total active users
	Session time.Duration // session duration
	New     int64         // new users per Window
	Window  time.Duration // a minute
}

// A Delay is the one-way delay of a message: Least plus an exponentially distributed part, with a
// mean of Mean in total.
type Delay struct{ Least, Mean time.Duration }

// Draw returns a random delay.
func (d Delay) Draw(r *rand.Rand) time.Duration {
	if d.Mean <= d.Least {
		return d.Least
	}
	return d.Least + time.Duration(r.ExpFloat64()*float64(d.Mean-d.Least))
}

// A Datacenter is a data center.
type Datacenter struct {
	Name    string
	Workers int
	Local   Delay // between a worker and its data center's counter
	Home    Delay // between the data center and the home of Anywhere
}

// An Arrival is the first request of one visitor.
type Arrival struct {
	At         time.Duration // since the start
	Datacenter int32         // index of the data center
	Worker     int32         // worker of that site for the first request
	Dwell      time.Duration // from the admission to the last request
}

// A Scenario is the traffic of one room, and the environment.
type Scenario struct {
	Name        string
	About       string // one line for people
	Source      string // where its parameters come from, or "chosen"
	Limits      Limits
	Datacenters []Datacenter
	Length      time.Duration
	StateLag    time.Duration // until a change has reached the snapshots of all data centers
	// Arrivals returns the arrivals in order of time. They are the same for the same seed.
	Arrivals func(seed uint64) iter.Seq[Arrival]
	Faults   Faults
}

// A Strategy creates a model for a scenario. Source names what it is based on.
type Strategy struct {
	Name   string
	About  string
	Source string
	Spread bool // spaces admissions Window/New apart while anyone waits
	Ends   bool // its model ends sessions itself, by World.Leave
	Make   func(s *Scenario, w *World) Model
}

// A Model makes decisions. The World that it was created for calls its methods in order of virtual
// time. The model calls back with Admit and Wait, immediately or later.
type Model interface {
	// Arrive handles the first request of a visitor at its worker.
	Arrive(v ID)
	// Left reports that the session of a visitor has ended, one session duration after its last
	// request. A strategy with its own accounting may ignore it.
	Left(v ID)
	// Event handles an event that the model has requested with At or After.
	Event(kind, a int32, b int64)
}

// An ID names a visitor while it waits or is inside. After that it is reused.
type ID = int32
