package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// A city is a data centre of the world, its process, its crowd, and what that saw. It
// may be used by many goroutines at once.
type city struct {
	place
	node  *node
	judge *judge

	mu     sync.Mutex
	ready  bool
	says   outlook
	at     time.Time // when it said so
	taken  int       // unused slots that newcomers since then count as theirs
	off    time.Time // since when it is cut off; zero: it is not
	mended time.Time // when it was joined again last
	held   []holding // of late, the oldest first
	sent   map[string]tally
	came   newcomers
}

// An outlook is the room as one data centre sees it.
type outlook struct {
	state
	World *struct {
		Own      string  `json:"own"`
		Home     string  `json:"home"`
		Doubt    float64 `json:"uncertainty_seconds"`
		Anywhere struct {
			Age      float64 `json:"age_seconds"` // -1: never heard
			Limit    int     `json:"limit"`
			Free     int     `json:"free"`
			Presumed int     `json:"presumed"`
		} `json:"anywhere"`
		Sites []site `json:"sites"`
	} `json:"datacenters"`
}

// A site is one data centre as another, or itself, sees it.
type site struct {
	Name    string  `json:"name"`
	Age     float64 `json:"age_seconds"` // of the picture; -1: never heard
	Active  int     `json:"active"`
	Waiting int     `json:"waiting"`
	Held    int     `json:"held"`
	Unused  int     `json:"unused"`
}

// of is what is seen of a data centre; nothing is seen of one that is unknown.
func (o *outlook) of(name string) site {
	if o.World != nil {
		for _, s := range o.World.Sites {
			if s.Name == name {
				return s
			}
		}
	}
	return site{Name: name, Age: -1}
}

// A holding is how many slots a data centre held at a moment.
type holding struct {
	at time.Time
	n  int
}

// A tally counts messages since a moment.
type tally struct {
	from, to time.Time
	first, n float64
}

// perSecond is how many there were a second; false if that is not known.
func (t tally) perSecond() (float64, bool) {
	took := t.to.Sub(t.from).Seconds()
	return (t.n - t.first) / took, took > 0
}

func newCity(at place, g *gate) *city {
	return &city{place: at, node: newNode(at.name, g), judge: newJudge(), sent: map[string]tally{}}
}

// How often a city is looked at. Chosen: twice as often as the picture needs to show
// how slots move, and the count of its messages seldom.
const (
	cityEvery  = 250 * time.Millisecond
	countEvery = 4 // looks
	flowOver   = 1500 * time.Millisecond
)

// look asks the city's data centre how it stands, again and again, until ctx is done.
func (c *city) look(ctx context.Context) error {
	for n := 0; ; n++ {
		c.lookOnce(ctx)
		if n%countEvery == 0 {
			c.count(ctx)
		}
		if !rest(ctx, cityEvery) {
			return nil
		}
	}
}

func (c *city) lookOnce(ctx context.Context) {
	if !c.isReady() {
		_, err := c.node.ask(ctx, "/readyz", lookTimeout)
		if err != nil {
			return
		}
	}
	text, err := c.node.ask(ctx, "/v1/rooms/"+roomName, tellTimeout)
	var o outlook
	if err != nil || json.Unmarshal(text, &o) != nil {
		return
	}
	c.saw(&o, time.Now())
}

func (c *city) isReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}

// saw keeps what the city's data centre said.
func (c *city) saw(o *outlook, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready, c.says, c.at, c.taken = true, *o, now, 0
	c.held = append(c.held, holding{now, o.of(c.name).Held})
	for len(c.held) > 1 && now.Sub(c.held[0].at) > flowOver {
		c.held = c.held[1:]
	}
}

// takeUnused reports whether the city's data centre had an unused slot at the last look, one that
// no other newcomer since that look counts as its own.
func (c *city) takeUnused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken >= c.says.of(c.name).Unused {
		return false
	}
	c.taken++
	return true
}

// sentTo matches a counter of messages sent over the link to another data centre.
const sentTo = `^headgate_site_messages_total\{[^}]*to="([^"]+)"[^}]*\} (\S+)$`

// count reads how many messages the data centre has sent to others.
func (c *city) count(ctx context.Context) {
	text, err := c.node.ask(ctx, "/metrics", tellTimeout)
	if err != nil {
		return
	}
	line := regexp.MustCompile(sentTo)
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
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

// setOff notes that the city is cut off from all others, or is no more.
func (c *city) setOff(off bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off = (time.Time{}); off {
		c.off = now
	} else {
		c.mended = now
	}
}

// isOff tells whether the city is cut off.
func (c *city) isOff() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.off.IsZero()
}

// joined reports whether the data centre has heard Anywhere, and all others.
func (c *city) joined() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ready || c.says.World == nil || c.says.World.Anywhere.Age < 0 {
		return false
	}
	for _, s := range c.says.World.Sites {
		if s.Age < 0 {
			return false
		}
	}
	return true
}

// busy is how much of its busiest hour a city is at, from 0 to 1, at a time of day from
// 0 to 1, which goes round. A third of the day it is busy, the rest it sleeps.
func (p *place) busy(day float64) float64 {
	return math.Pow(max(0, math.Cos(2*math.Pi*(day-p.noon))), 3)
}

// last is what the city's data centre said last, and when.
func (c *city) last() (outlook, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.says, c.at
}

// homeNow is where Anywhere lives, as the city's data centre has heard, "" unknown.
func (c *city) homeNow() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.says.World == nil {
		return ""
	}
	return c.says.World.Home
}

// holds is how many slots the city's data centre held when it was asked last.
func (c *city) holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.says.of(c.name).Held
}

// scene is what the picture shows of the city.
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
