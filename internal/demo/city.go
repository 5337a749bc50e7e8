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

// A city is one data center of the demo: its process, its crowd, and what the crowd saw. It may be
// used by many goroutines at once.
type city struct {
	place
	node  *node
	judge *judge

	mu     sync.Mutex
	ready  bool
	says   outlook
	at     time.Time // when the data center reported it
	taken  int       // unused slots that newcomers have taken since then
	off    time.Time // start of the cut; zero: not cut off
	mended time.Time // when it was last joined again
	held   []holding // recent, the oldest first
	sent   map[string]tally
	came   newcomers
}

// An outlook is the room as one data center sees it.
type outlook struct {
	state
	World *struct {
		Own      string  `json:"own"`
		Home     string  `json:"home"`
		Doubt    float64 `json:"uncertainty_seconds"`
		Anywhere struct {
			Age      float64 `json:"age_seconds"` // -1: never received
			Limit    int     `json:"limit"`
			Free     int     `json:"free"`
			Presumed int     `json:"presumed"`
		} `json:"anywhere"`
		Centers []site `json:"datacenters"`
	} `json:"datacenters"`
}

// A site is one data center as itself or another one sees it.
type site struct {
	Name    string  `json:"name"`
	Age     float64 `json:"age_seconds"` // of the snapshot; -1: never received
	Active  int     `json:"active"`
	Waiting int     `json:"waiting"`
	Held    int     `json:"held"`
	Unused  int     `json:"unused"`
}

// of returns what is known of a data center. It returns the zero value for an unknown one.
func (o *outlook) of(name string) site {
	if o.World != nil {
		for _, s := range o.World.Centers {
			if s.Name == name {
				return s
			}
		}
	}
	return site{Name: name, Age: -1}
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

func newCity(at place, g *gate) *city {
	return &city{place: at, node: newNode(at.name, g), judge: newJudge(), sent: map[string]tally{}}
}

// lookEvery is the interval between two looks at a city. Chosen: twice as often as the picture
// needs to show how slots move. Messages are counted less often.
const (
	cityEvery  = 250 * time.Millisecond
	countEvery = 4 // looks
	flowOver   = 1500 * time.Millisecond
)

// look requests the state of the city's data center, again and again, until ctx is done.
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

// saw stores what the city's data center reported.
func (c *city) saw(o *outlook, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready, c.says, c.at, c.taken = true, *o, now, 0
	c.held = append(c.held, holding{now, o.of(c.name).Held})
	for len(c.held) > 1 && now.Sub(c.held[0].at) > flowOver {
		c.held = c.held[1:]
	}
}

// takeUnused reports whether the city's data center had an unused slot at the last look that no
// other newcomer has taken since.
func (c *city) takeUnused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken >= c.says.of(c.name).Unused {
		return false
	}
	c.taken++
	return true
}

// sentTo matches a counter of messages sent over the link to another data center.
const sentTo = `^headgate_datacenter_messages_total\{[^}]*to="([^"]+)"[^}]*\} (\S+)$`

// count reads how many messages the data center has sent to others.
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ready || c.says.World == nil || c.says.World.Anywhere.Age < 0 {
		return false
	}
	for _, s := range c.says.World.Centers {
		if s.Age < 0 {
			return false
		}
	}
	return true
}

// busy returns the load of a city, from 0 to 1, where 1 is its busiest hour. The time of day goes
// from 0 to 1 and wraps around. The city is busy for a third of the day and quiet for the rest.
func (p *place) busy(day float64) float64 {
	return math.Pow(max(0, math.Cos(2*math.Pi*(day-p.noon))), 3)
}

// last returns the last report of the city's data center, and its time.
func (c *city) last() (outlook, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.says, c.at
}

// homeNow returns the data center that hosts Anywhere, as the city's data center knows it; "" if
// unknown.
func (c *city) homeNow() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.says.World == nil {
		return ""
	}
	return c.says.World.Home
}

// holds returns how many slots the city's data center held at the last look.
func (c *city) holds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.says.of(c.name).Held
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
