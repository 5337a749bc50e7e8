package headgate

import (
	"time"

	"github.com/headgate/headgate/internal/counter"
)

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
	Age      float64 `json:"age_seconds"` // -1: never heard of
	Limit    int64   `json:"limit"`
	Free     int64   `json:"free"`
	Presumed int64   `json:"presumed"` // lent to data centres that nobody hears
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
		d.Anywhere = StatusAnywhere{Age: roundSeconds(s.Heard), Limit: l.Limit, Free: l.Free, Presumed: l.Presumed}
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
