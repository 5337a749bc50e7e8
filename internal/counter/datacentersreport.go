package counter

import (
	"math"
	"time"
)

// CentersState is where a room that is one over several data centres stands, as the
// data centre that was asked knows it.
type DatacentersReport struct {
	Own         string             `json:"own"`
	Home        string             `json:"home"`                // where the slots are that belong to none
	Moves       uint64             `json:"moves"`               // how often they have moved
	Uncertainty float64            `json:"uncertainty_seconds"` // of the order between data centres
	Anywhere    AnywhereState      `json:"anywhere"`
	Sites       []DatacenterReport `json:"sites"` // by name
}

// AnywhereState is what of the limit of users at once belongs to no data centre.
type AnywhereState struct {
	Age float64 `json:"age_seconds"` // -1: never heard of
	AnywhereTotals
}

// CenterState is where one data centre stands.
type DatacenterReport struct {
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

// Centers says where the data centres stand, nil with one.
func (s *DatacentersState) Report() *DatacentersReport {
	if s == nil {
		return nil
	}
	d := &DatacentersReport{
		Own: s.Own, Home: s.Home.Site, Moves: s.Home.Moves,
		Uncertainty: millis(s.Unsure), Anywhere: AnywhereState{Age: -1},
	}
	if l := s.Lends; l != nil {
		d.Anywhere = AnywhereState{Age: RoundTenths(s.Heard), AnywhereTotals: *l}
	}
	for i := range s.All {
		x := &s.All[i]
		y := DatacenterReport{
			Name: x.Site, Age: -1, Active: x.Active, Waiting: x.Waiting, Called: x.Called, Held: x.Held,
			Unused: x.Unused, New: x.New, Traffic: append([]int64{}, x.Minutes...), Workers: x.Workers,
			Calls: x.Rate, OldestWait: RoundTenths(x.Oldest), RoundTrip: millis(x.RoundTrip),
		}
		if x.Age >= 0 {
			y.Age = RoundTenths(x.Age)
		}
		d.Sites = append(d.Sites, y)
	}
	return d
}

// millis is d in seconds, to the tenth of a millisecond.
func millis(d time.Duration) float64 { return d.Round(100 * time.Microsecond).Seconds() }

// Tenths is d in seconds, to the tenth of a second.
func RoundTenths(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }
