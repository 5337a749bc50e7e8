package counter

import (
	"math"
	"time"
)

// DatacentersReport is the state of a room that several data centers share, as the data center that
// answers knows it.
type DatacentersReport struct {
	Own         string             `json:"own"`
	Home        string             `json:"home"`                // data center of the unassigned slots
	Moves       uint64             `json:"moves"`               // how often Anywhere has moved
	Uncertainty float64            `json:"uncertainty_seconds"` // of the order between data centers
	Anywhere    AnywhereState      `json:"anywhere"`
	Datacenters []DatacenterReport `json:"datacenters"` // by name
}

// AnywhereState is the part of the limit of users at once that is lent to no data center.
type AnywhereState struct {
	Age float64 `json:"age_seconds"` // -1: never received
	AnywhereTotals
}

// DatacenterReport is the state of one data center.
type DatacenterReport struct {
	Name       string  `json:"name"`
	Age        float64 `json:"age_seconds"` // of its snapshot; -1: none received
	Active     int64   `json:"active"`
	Waiting    int64   `json:"waiting"`
	Called     int64   `json:"called"`
	Held       int64   `json:"held"`   // slots of users at once lent to it
	Unused     int64   `json:"unused"` // of Held: used by nobody
	New        int64   `json:"new_last_minute"`
	Traffic    []int64 `json:"traffic_by_minute"` // new users, the newest minute first
	Workers    int     `json:"workers"`
	Calls      float64 `json:"calls_per_second"`
	OldestWait float64 `json:"oldest_wait_seconds"`
	RoundTrip  float64 `json:"round_trip_seconds"` // to it; 0: not measured
}

// Report returns the report of the data centers, nil with only one.
func (s *DatacentersState) Report() *DatacentersReport {
	if s == nil {
		return nil
	}
	d := &DatacentersReport{
		Own: s.Own, Home: s.Home.Datacenter, Moves: s.Home.Moves,
		Uncertainty: millis(s.Unsure), Anywhere: AnywhereState{Age: -1},
	}
	if l := s.Lends; l != nil {
		d.Anywhere = AnywhereState{Age: RoundTenths(s.Heard), AnywhereTotals: *l}
	}
	for i := range s.All {
		x := &s.All[i]
		y := DatacenterReport{
			Name: x.Datacenter, Age: -1, Active: x.Active, Waiting: x.Waiting, Called: x.Called, Held: x.Held,
			Unused: x.Unused, New: x.New, Traffic: append([]int64{}, x.Minutes...), Workers: x.Workers,
			Calls: x.Rate, OldestWait: RoundTenths(x.Oldest), RoundTrip: millis(x.RoundTrip),
		}
		if x.Age >= 0 {
			y.Age = RoundTenths(x.Age)
		}
		d.Datacenters = append(d.Datacenters, y)
	}
	return d
}

// millis returns d in seconds, rounded to a tenth of a millisecond.
func millis(d time.Duration) float64 { return d.Round(100 * time.Microsecond).Seconds() }

// RoundTenths returns d in seconds, rounded to a tenth of a second.
func RoundTenths(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }
