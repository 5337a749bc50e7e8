package sim

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/suggest"
)

// These are the sources of the scenarios' parameters.
const (
	cloudflare2023 = `Cloudflare, "How Waiting Room makes queueing decisions" (2023)`
	chosen         = "chosen"
)

// near returns the delay within a data center. Delays are as in the document of 2023: a counter
// costs under 10 ms inside a data center, Anywhere 60 to 70 ms.
func near() Delay { return Delay{Least: time.Millisecond, Mean: 3 * time.Millisecond} }
func far() Delay  { return Delay{Least: 25 * time.Millisecond, Mean: 32 * time.Millisecond} }

// ThreeDatacenters returns San Jose, London and Delhi, with ten workers in total, as in the document.
func ThreeDatacenters() []Datacenter {
	atHome := Delay{Least: time.Millisecond, Mean: 2 * time.Millisecond} // chosen
	return []Datacenter{
		{Name: "sjc", Workers: 3, Local: near(), Home: atHome},
		{Name: "lhr", Workers: 5, Local: near(), Home: far()},
		{Name: "del", Workers: 2, Local: near(), Home: far()},
	}
}

func oneSite(workers int) []Datacenter {
	return []Datacenter{{Name: "sjc", Workers: workers, Local: near()}}
}

// Limits200 returns the limits of the document's customer. The session duration is chosen.
func Limits200() Limits {
	return Limits{Active: 200, Session: 5 * time.Minute, New: 200, Window: time.Minute}
}

// stateLag is "within seconds" in the document of 2023.
const stateLag = 3 * time.Second

// Scenarios returns the general scenarios, in the order of --list.
func Scenarios() []Scenario {
	return []Scenario{
		worldSpike(), steady(), ramp(), flashCrowd(), twoDays(), hotSite(), hotWorker(),
		movingHotSpot(), burstAfterIdle(),
	}
}

// Find returns the scenario with this name. The error names the nearest one.
func Find(list []Scenario, name string) (*Scenario, error) {
	names := make([]string, len(list))
	for i := range list {
		if names[i] = list[i].Name; names[i] == name {
			return &list[i], nil
		}
	}
	return nil, Unknown("scenario", name, names)
}

// Unknown returns the error that there is no scenario or strategy with this name. Its hint has the
// valid names, or only the nearest one if one is near.
func Unknown(kind, name string, known []string) error {
	do := "there are " + strings.Join(known, ", ")
	if near := suggest.Nearest(name, known); near != "" {
		do = fmt.Sprintf("do you mean %s?", near)
	}
	return &hint.Error{Text: fmt.Sprintf("unknown %s %q", kind, name), Do: do}
}

// constant returns a constant rate.
func constant(perMinute float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return perMinute }
}

// between returns one rate between two times, and another outside.
func between(from, to time.Duration, inside, outside float64) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		if t >= from && t < to {
			return inside
		}
		return outside
	}
}

// dwell is the mean time that visitors spend on the site. Chosen.
const dwell = 2 * time.Minute

// with returns s with this traffic to all its data centers, for its whole length.
func (s Scenario) with(t Traffic) Scenario {
	s.Arrivals = t.Over(s.Datacenters, s.Length)
	return s
}

// worldSpike is 10 % of the room's limit, then everybody everywhere at once. According to the
// document, adaptive split overshoots here.
func worldSpike() Scenario {
	return Scenario{
		Name: "world-spike", About: "low use, then a spike everywhere at once",
		Source: cloudflare2023 + `: limits, sites, delays and the case; rates are chosen`,
		Limits: Limits200(), Datacenters: ThreeDatacenters(), Length: time.Hour, StateLag: stateLag,
	}.with(Traffic{Rate: between(10*time.Minute, 10*time.Minute+30*time.Second, 3000, 3), Dwell: dwell})
}

func steady() Scenario {
	return Scenario{
		Name: "steady", About: "four fifths of what the room takes, all the time", Source: chosen,
		Limits:      Limits{Active: 2000, Session: 5 * time.Minute, New: 1000, Window: time.Minute},
		Datacenters: ThreeDatacenters(), Length: time.Hour, StateLag: stateLag,
	}.with(Traffic{Rate: constant(228), Dwell: dwell})
}

func ramp() Scenario {
	return Scenario{
		Name: "ramp", About: "from a fifth to one and a half of what the room takes, and back",
		Source:      chosen,
		Limits:      Limits{Active: 2000, Session: 5 * time.Minute, New: 1000, Window: time.Minute},
		Datacenters: ThreeDatacenters(), Length: 90 * time.Minute, StateLag: stateLag,
	}.with(Traffic{Rate: func(t time.Duration) float64 {
		x := min(t.Minutes(), 80-t.Minutes()) / 40
		return 285 * (0.2 + 1.3*max(0, x))
	}, Dwell: dwell})
}

// flashCrowd has 10,000 visitors inside and many more in the line.
func flashCrowd() Scenario {
	return Scenario{
		Name: "flash-crowd", About: "100,000 people in eight minutes want what 10,000 can have at once", Source: chosen,
		Limits:      Limits{Active: 10_000, Session: 2 * time.Minute, New: 5000, Window: time.Minute},
		Datacenters: ThreeDatacenters(), Length: 45 * time.Minute, StateLag: stateLag,
	}.with(Traffic{
		Rate: between(5*time.Minute, 13*time.Minute, 12_500, 500), Dwell: time.Minute,
	})
}

// twoDays has the shape shown in the document: quiet nights, a first spike at 11:45 of the second
// day until about 12:30, and a second one at about 15:00.
func twoDays() Scenario {
	s := Scenario{
		Name: "two-days", About: "two days with two spikes, 200 at once and 200 a minute",
		Source: cloudflare2023 + `: limits and the times of the spikes; rates are chosen`,
		Limits: Limits200(), Datacenters: ThreeDatacenters(), Length: 48 * time.Hour, StateLag: stateLag,
	}
	spike := func(t, at time.Duration, most float64, up, down time.Duration) float64 {
		switch d := t - at; {
		case d < -up || d > down:
			return 0
		case d < 0:
			return most * float64(d+up) / float64(up)
		default:
			return most * float64(down-d) / float64(down)
		}
	}
	s.Arrivals = Traffic{Rate: func(t time.Duration) float64 {
		day := 10 - 7*math.Cos(2*math.Pi*(t.Hours()-4)/24)
		return day + spike(t, 35*time.Hour+48*time.Minute, 40, 9*time.Minute, 30*time.Minute) +
			spike(t, 39*time.Hour+6*time.Minute, 30, 12*time.Minute, 50*time.Minute)
	}, Dwell: dwell}.Over(s.Datacenters, s.Length)
	return s
}

func hotSite() Scenario {
	return Scenario{
		Name: "hot-site", About: "nine of ten visitors come to one data center", Source: chosen,
		Limits: Limits200(), Datacenters: ThreeDatacenters(), Length: time.Hour, StateLag: stateLag,
	}.with(Traffic{
		Rate: constant(24), Dwell: dwell, // 84 % of 200 inside
		Datacenters: func(time.Duration) []float64 { return []float64{5, 90, 5} },
	})
}

func hotWorker() Scenario {
	return Scenario{
		Name: "hot-worker", About: "one of ten workers gets half of all visitors", Source: chosen,
		Limits: Limits200(), Datacenters: oneSite(10), Length: time.Hour, StateLag: stateLag,
	}.with(Traffic{
		Rate: constant(24), Dwell: dwell,
		Worker: func(time.Duration, int) Hot { return Hot{Worker: 4, Share: 0.5} },
	})
}

func movingHotSpot() Scenario {
	return Scenario{
		Name: "moving-hot-spot", About: "one worker gets four fifths, another one every ten seconds",
		Source: "reference toy run of moving hot spots; times are chosen",
		Limits: Limits200(), Datacenters: oneSite(6), Length: time.Hour, StateLag: stateLag,
	}.with(Traffic{
		Rate: constant(24), Dwell: dwell,
		Worker: func(t time.Duration, _ int) Hot {
			return Hot{Worker: int(t/(10*time.Second)) * 7 % 6, Share: 0.8}
		},
	})
}

func burstAfterIdle() Scenario {
	return Scenario{
		Name: "burst-after-idle", About: "nobody for ten minutes, then 190 in two seconds, twice",
		Source: chosen,
		Limits: Limits200(), Datacenters: ThreeDatacenters(), Length: 40 * time.Minute, StateLag: stateLag,
	}.with(Traffic{Rate: func(t time.Duration) float64 {
		if t >= 10*time.Minute && t < 10*time.Minute+2*time.Second ||
			t >= 30*time.Minute && t < 30*time.Minute+2*time.Second {
			return 170 * 30
		}
		return 0
	}})
}
