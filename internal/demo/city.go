package demo

import (
	"bufio"
	"bytes"
	"context"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// A place is the location of a data center.
type place struct {
	name  string // of the data center
	title string
	x, y  int     // on the map
	noon  float64 // its busiest time, as a share of a day
}

// places returns the data centers of the demo from west to east. The first one is the home of
// Anywhere. The day begins in Delhi, as the sun moves.
func places() []place {
	return []place{
		{name: "sjc", title: "San Jose", x: 10, y: 5, noon: 5. / 6},
		{name: "lhr", title: "London", x: 37, y: 3, noon: 3. / 6},
		{name: "del", title: "Delhi", x: 56, y: 6, noon: 1. / 6},
	}
}

// busy returns the load of a city, from 0 to 1, where 1 is its busiest hour. The time of day goes
// from 0 to 1 and wraps around. The city is busy for a third of the day and quiet for the rest.
func (p *place) busy(day float64) float64 {
	return math.Pow(max(0, math.Cos(2*math.Pi*(day-p.noon))), 3)
}

// A city is one data center of the demo: its process, its crowd, and what the crowd saw. The mutex
// of its node guards all.
type city struct {
	*node
	place place
	judge *judge

	at     time.Time // of the last report
	taken  int       // unused slots that newcomers have taken since then
	off    time.Time // start of the cut; zero: not cut off
	mended time.Time // when it was last joined again
	held   []holding // recent, the oldest first
	sent   map[string]tally
	came   newcomers
}

// An outlook is all data centers as one of them sees them.
type outlook struct {
	Home     string  `json:"home"`
	Doubt    float64 `json:"uncertainty_seconds"`
	Anywhere struct {
		Age float64 `json:"age_seconds"` // -1: never received
	} `json:"anywhere"`
	Centers []center `json:"datacenters"`
}

// A center is one data center as itself or another one sees it.
type center struct {
	Name    string  `json:"name"`
	Age     float64 `json:"age_seconds"` // of the snapshot; -1: never received
	Active  int     `json:"active"`
	Waiting int     `json:"waiting"`
	Held    int     `json:"held"`
	Unused  int     `json:"unused"`
}

// of returns what is known of a data center. It returns the zero value for an unknown one.
func (s *saying) of(name string) center {
	if s.World != nil {
		for _, c := range s.World.Centers {
			if c.Name == name {
				return c
			}
		}
	}
	return center{Name: name, Age: -1}
}

// A holding is how many slots a data center held at a moment.
type holding struct {
	at time.Time
	n  int
}

// A tally counts messages since a given time.
type tally struct {
	from, to time.Time
	first, n float64
}

// perSecond returns the messages per second, and false if the rate is not known.
func (t tally) perSecond() (float64, bool) {
	took := t.to.Sub(t.from).Seconds()
	return (t.n - t.first) / took, took > 0
}

// newcomers are the times of first answers, grouped by what the data center could do when the
// visitor came.
type newcomers [3][]time.Duration

const (
	hadSlot = iota // admitted; an unused slot was known
	gotSlot        // admitted; no unused slot was known
	hadToWait
)

func newCity(at place, n *node) *city {
	c := &city{place: at, node: n, judge: newJudge(), sent: map[string]tally{}}
	n.heard = func() { c.hears(time.Now()) }
	return c
}

// flowOver is the time over which the picture shows how slots move.
const flowOver = 1500 * time.Millisecond

// hears takes in a report of the city's data center. The caller holds mu.
func (c *city) hears(now time.Time) {
	c.at, c.taken = now, 0
	c.held = append(c.held, holding{now, c.says.of(c.name).Held})
	for len(c.held) > 1 && now.Sub(c.held[0].at) > flowOver {
		c.held = c.held[1:]
	}
}

// newcomer is called when a visitor comes. It returns a function that records how long the first
// answer took.
func (c *city) newcomer() func(*crowd.Poll) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// An unused slot at the last look that no other newcomer has taken since.
	had := c.taken < c.says.of(c.name).Unused
	if had {
		c.taken++
	}
	return func(p *crowd.Poll) {
		if p.Err != "" || p.AnswerAt == crowd.Never {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		kind := gotSlot
		switch {
		case p.State != "":
			kind = hadToWait
		case had:
			kind = hadSlot
		}
		c.came[kind] = append(c.came[kind], p.AnswerAt-p.SentAt)
	}
}

// sentTo matches a counter of messages sent over the link to another data center.
const sentTo = `^headgate_datacenter_messages_total\{[^}]*to="([^"]+)"[^}]*\} (\S+)$`

// count reads how many messages the data center has sent to others.
func (c *city) count(ctx context.Context) {
	var text bytes.Buffer
	if c.get(ctx, "/metrics", tellTimeout, &text) != nil {
		return
	}
	line := regexp.MustCompile(sentTo)
	for in := bufio.NewScanner(&text); in.Scan(); {
		m := line.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		if n, err := strconv.ParseFloat(m[2], 64); err == nil {
			c.counted(m[1], n, time.Now())
		}
	}
}

func (c *city) counted(to string, n float64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.sent[to]
	if !ok {
		t.from, t.first = now, n
	}
	t.to, t.n = now, n
	c.sent[to] = t
}

// setOff records whether the city is cut off from all others.
func (c *city) setOff(off bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off = (time.Time{}); off {
		c.off = now
	} else {
		c.mended = now
	}
}

// isOff reports whether the city is cut off.
func (c *city) isOff() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.off.IsZero()
}

// joined reports whether the data center has received messages from Anywhere and from all others.
func (c *city) joined() bool {
	_, _, s := c.now()
	return s.World != nil && s.World.Anywhere.Age >= 0 &&
		!slices.ContainsFunc(s.World.Centers, func(o center) bool { return o.Age < 0 })
}

// A cityScene is what the picture shows of one city.
type cityScene struct {
	place
	Up      bool
	Active  int
	Waiting int
	Held    int
	Unused  int
	Flow    int           // slots received recently; below 0: returned
	Age     float64       // of its snapshot in the home of Anywhere, in seconds; -1: none
	Off     time.Duration // time since it was cut off; 0: not cut
	Mended  time.Duration // time since it was joined again; 0: never cut off
	LetIn   int           // through it, counted by the shop
}

// scene returns what the picture shows of the city.
func (c *city) scene(now time.Time) cityScene {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.says.of(c.name)
	s := cityScene{place: c.place, Up: c.ready, Active: own.Active, Waiting: own.Waiting,
		Held: own.Held, Unused: own.Unused}
	if !c.off.IsZero() {
		s.Off = max(1, now.Sub(c.off))
	}
	if !c.mended.IsZero() {
		s.Mended = max(1, now.Sub(c.mended))
	}
	if n := len(c.held); n > 0 {
		s.Flow = c.held[n-1].n - c.held[0].n
	}
	return s
}

// heardAt returns the time of the last report.
func (c *city) heardAt() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}
