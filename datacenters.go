package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/counter"
)

// ErrDatacenter is wrapped by every error about a data centre that a command names.
var ErrDatacenter = errors.New("no such data centre for this")

// StatusDatacenters is where a room that is one over several data centres stands, as the
// data centre that was asked knows it.
type StatusDatacenters struct {
	Own         string           `json:"own"`
	Home        string           `json:"home"`                // where the slots are that belong to none
	Moves       uint64           `json:"moves"`               // how often they have moved
	Uncertainty float64          `json:"uncertainty_seconds"` // of the order between data centres
	Anywhere    StatusAnywhere   `json:"anywhere"`
	Sites       []StatusOfCenter `json:"sites"` // by name
}

// StatusAnywhere is what of the limit of users at once belongs to no data centre.
type StatusAnywhere struct {
	Age float64 `json:"age_seconds"` // -1: never heard of
	counter.Lends
}

// StatusOfCenter is where one data centre stands.
type StatusOfCenter struct {
	Name       string  `json:"name"`
	Age        float64 `json:"age_seconds"` // of its picture; -1: none has come
	Active     int64   `json:"active"`
	Waiting    int64   `json:"waiting"`
	Called     int64   `json:"called"`
	Held       int64   `json:"held"`   // slots of users at once that are lent to it
	Unused     int64   `json:"unused"` // of them in nobody's use
	New        int64   `json:"new_last_minute"`
	Traffic    []int64 `json:"traffic_by_minute"` // new users, the newest minute first
	Workers    int     `json:"workers"`
	Calls      float64 `json:"calls_per_second"`
	OldestWait float64 `json:"oldest_wait_seconds"`
	RoundTrip  float64 `json:"round_trip_seconds"` // to it; 0: not measured
}

// datacenters says where the data centres stand, nil with one.
func datacenters(s *counter.SitesState) *StatusDatacenters {
	if s == nil {
		return nil
	}
	d := &StatusDatacenters{
		Own: s.Own, Home: s.Home.Site, Moves: s.Home.Moves,
		Uncertainty: millis(s.Unsure), Anywhere: StatusAnywhere{Age: -1},
	}
	if l := s.Lends; l != nil {
		d.Anywhere = StatusAnywhere{Age: roundSeconds(s.Heard), Lends: *l}
	}
	for i := range s.All {
		x := &s.All[i]
		y := StatusOfCenter{
			Name: x.Site, Age: -1, Active: x.Active, Waiting: x.Waiting, Called: x.Called, Held: x.Held,
			Unused: x.Unused, New: x.New, Traffic: append([]int64{}, x.Minutes...), Workers: x.Workers,
			Calls: x.Rate, OldestWait: roundSeconds(x.Oldest), RoundTrip: millis(x.RoundTrip),
		}
		if x.Age >= 0 {
			y.Age = roundSeconds(x.Age)
		}
		d.Sites = append(d.Sites, y)
	}
	return d
}

// millis is d in seconds, to the tenth of a millisecond.
func millis(d time.Duration) float64 { return d.Round(100 * time.Microsecond).Seconds() }

// MoveAnywhere moves the slots of the room that belong to no data centre to another one: the
// first step of two, for each room. gone says that their home is off and will not come back
// as it was: only an operator can know. Then all slots are presumed lent until each data
// centre has said what it holds, and this must be done in the one that is to be their home.
// Repeated it does what is left to do.
func (r *Room) MoveAnywhere(ctx context.Context, to string, gone bool) error {
	e := r.face.Load().cfg.Engine
	switch {
	case e.sites == nil:
		return fmt.Errorf("%w: there is but one", ErrDatacenter)
	case to == e.sites.Home():
		return nil
	case to != e.sites.Own() && !slices.Contains(e.sites.Names(), to):
		return fmt.Errorf("%w: %q", ErrDatacenter, to)
	case !gone:
		return e.sites.Move(ctx, r.Config().Name, to)
	case to != e.sites.Own():
		return fmt.Errorf("%w: a home that is gone is replaced at a node of %s itself", ErrDatacenter, to)
	}
	return r.above.Presume(ctx, r.counter.State(0, 0))
}

// Reaches reports why a data centre does not answer, nil if it does.
func (e *Engine) Reaches(ctx context.Context, site string) error {
	switch {
	case e.sites == nil:
		return fmt.Errorf("%w: there is but one", ErrDatacenter)
	case site != e.sites.Own() && !slices.Contains(e.sites.Names(), site):
		return fmt.Errorf("%w: %q", ErrDatacenter, site)
	}
	return e.sites.Reaches(ctx, site)
}

// AnywhereHome is the data centre where the slots live that belong to none; "" with one.
func (e *Engine) AnywhereHome() string {
	if e.sites == nil {
		return ""
	}
	return e.sites.Home()
}

// AnywhereMoved is the second step of a move: it tells all data centres.
func (e *Engine) AnywhereMoved(ctx context.Context, to string) error {
	if e.sites == nil || to == e.sites.Home() {
		return nil
	}
	return e.sites.AnywhereIs(ctx, to)
}

// DatacentersOff takes back what the room has lent to data centres that an operator knows to
// be off: it returns when the last of their stays has surely ended. missing are others that
// have not said what they hold since Anywhere was moved.
func (r *Room) DatacentersOff(ctx context.Context, off []string) (missing []string, err error) {
	e := r.face.Load().cfg.Engine
	if e.sites == nil {
		return nil, fmt.Errorf("%w: there is but one", ErrDatacenter)
	}
	for _, site := range off {
		if !slices.Contains(e.sites.Names(), site) {
			return nil, fmt.Errorf("%w: %q", ErrDatacenter, site)
		}
	}
	return e.sites.Off(ctx, r.Config().Name, off)
}

// SentTo is how many messages this process has sent to each other data centre.
func (e *Engine) SentTo() map[string]int64 {
	if e.sites == nil {
		return nil
	}
	m := map[string]int64{}
	for _, name := range e.sites.Names() {
		m[name] = e.sites.Said(name)
	}
	return m
}
