package demo

import (
	"fmt"
	"strings"
	"time"
)

// A scene is everything that the picture shows.
type scene struct {
	URL    string
	Since  time.Duration // from the start
	Now    time.Time
	Limits Limits
	State  state
	Up     bool // State is current
	Shop   report
	Seen   finding
	People []guest
	Keys   bool // there are keys
	Note   string
	Tick   int // animates the water
	Width  int // of the terminal; 0: wide enough

	// Of a cluster:
	Nodes []nodeScene // empty: the room is one process
	Open  bool        // visitors come
	News  []news      // since the last scene

	World *worldScene // nil: the room is in one data center
}

// draw makes the picture of a scene.
func draw(s *scene) *canvas {
	c := &canvas{}
	if s.World != nil {
		s.drawWorld(c)
		return c
	}
	if len(s.Nodes) > 0 {
		s.drawCluster(c)
		return c
	}
	s.drawHead(c, "headgate demo")
	s.drawPond(c)
	s.drawLine(c)
	s.drawFlow(c, 11)
	s.drawVerdict(c, 14)
	s.drawLastKill(c, 19)
	s.drawFoot(c)
	return c
}

func (s *scene) drawHead(c *canvas, title string) {
	c.put(1, 0, bold, title)
	s.drawClock(c, columns-1)
	x := c.put(1, 2, plain, "Join the line: ")
	c.put(x, 2, you, s.URL)
}

// drawClock draws how long the demo has run, in the first row, ending before column end.
func (s *scene) drawClock(c *canvas, end int) {
	clock := fmt.Sprintf("%d:%02d", int(s.Since.Minutes()), int(s.Since.Seconds())%60)
	c.put(end-len(clock), 0, soft, clock)
}

// drawPond draws the slots: taken, and free.
func (s *scene) drawPond(c *canvas) {
	x := c.put(1, 4, soft, "inside  ")
	most, active := s.State.AtOnce, s.State.Active
	const width = 48
	per := max(1, (most+width-1)/width) // slots per mark
	for i := 0; i < most; i += per {
		if i < active {
			x = c.put(x, 4, good, "■")
		} else {
			x = c.put(x, 4, soft, "□")
		}
	}
	x = c.put(x+2, 4, bold, fmt.Sprintf("%d of %d", active, most))
	if s.Shop.Guests > 0 {
		c.put(x+2, 4, you, "you are in!")
	}
}

// These are the measures of the line. The gate is on the right, and the next visitor is beside it.
const (
	ducks     = 8
	duckWidth = 8
	gateAt    = 4 + ducks*duckWidth
	lineTop   = 7
)

// drawLine draws the line as ducks on the water, and the rest as a number.
func (s *scene) drawLine(c *canvas) {
	for x := range columns {
		wave := "~"
		if (x+s.Tick)%7 == 0 {
			wave = "-"
		}
		c.put(x, lineTop+1, water, wave)
	}
	mine := map[int64]bool{}
	for _, g := range s.People {
		mine[g.Position] = true
	}
	n := s.Seen.Waiting + len(s.People)
	for i := range min(ducks, n) {
		x, tint := gateAt-(i+1)*duckWidth, duck
		if mine[int64(i+1)] {
			tint = you
			c.put(x+2, lineTop-1, you, "you")
		}
		c.put(x, lineTop, tint, `__(')>`)
		if (s.Tick+7*i)%29 == 0 {
			c.put(x+3, lineTop, tint, "-") // it blinks
		}
		c.put(x, lineTop+1, tint, `\___)`)
	}
	if n > ducks {
		c.put(1, lineTop-1, soft, fmt.Sprintf("… %d more", n-ducks))
	}
	s.drawGate(c)
	s.drawPeople(c)
}

func (s *scene) drawGate(c *canvas) {
	for y := lineTop - 1; y <= lineTop+1; y++ {
		c.put(gateAt, y, plain, "║  ║")
	}
	c.put(gateAt, lineTop-2, plain, "╦══╦")
	switch {
	case !s.Up && len(s.Nodes) > 0:
		c.put(gateAt-1, lineTop, bad, " wait ")
	case !s.Up:
		c.put(gateAt-1, lineTop, bad, "killed")
	case s.State.QueueAll:
		c.put(gateAt+1, lineTop-1, bad, "▓▓")
		c.put(gateAt+1, lineTop, bad, "▓▓")
		c.put(gateAt+1, lineTop+1, bad, "▓▓")
		c.put(gateAt+5, lineTop-1, bad, "held")
	default:
		c.put(gateAt+1, lineTop-1, good, "▒▒")
	}
}

// drawPeople draws where the people are that joined with a browser.
func (s *scene) drawPeople(c *canvas) {
	x := 1
	for i, g := range s.People {
		if i == 3 {
			c.put(x, lineTop+2, you, fmt.Sprintf("and %d more of you", len(s.People)-i))
			break
		}
		text := fmt.Sprintf("you: %s", ordinal(g.Position))
		if g.Expected >= 0 {
			text += ", about " + short(g.Expected)
		}
		x = c.put(x, lineTop+2, you, text) + 3
	}
}

// drawFlow draws how many wait and how many are admitted.
func (s *scene) drawFlow(c *canvas, y int) {
	x := c.put(1, y, soft, "waiting ")
	x = c.put(x, y, bold, fmt.Sprint(s.Seen.Waiting+len(s.People)))
	if s.Seen.Expected >= 0 {
		c.put(x+2, y, soft, "the last in line is told "+short(s.Seen.Expected))
	}
	x = c.put(1, y+1, soft, "let in  ")
	c.put(x, y+1, bold, fmt.Sprintf("%d in the last minute", s.Shop.LastMinute))
	c.put(columns-1-len(s.Shop.Let), y+1, good, spark(s.Shop.Let))
}

// drawVerdict draws what the shop and the visitors saw.
func (s *scene) drawVerdict(c *canvas, y int) {
	c.put(1, y, bold, "As the shop saw it")
	c.put(41, y, bold, "As the visitors saw it")
	fact := func(x, y int, name, value string, ok bool) {
		tint := good
		if !ok {
			tint = bad
		}
		c.put(x, y, soft, name)
		c.put(x+24, y, tint, value)
	}
	t, f := s.Shop.Tight, s.Shop.Fresh
	fact(1, y+1, "most inside at once", fmt.Sprintf("%d of %d", t.n, t.of), t.n <= t.of)
	fact(1, y+2, "most new in a minute", fmt.Sprintf("%d of %d", f.n, f.of), f.n <= f.of)
	fact(1, y+3, "let in over a limit", fmt.Sprint(s.Shop.Over), s.Shop.Over == 0)
	v := &s.Seen
	fact(41, y+1, "overtaken", fmt.Sprintf("%d of %d", v.Overtaken, v.Tickets), v.Overtaken == 0)
	fact(41, y+2, "places lost", fmt.Sprintf("%d of %d", v.Lost, v.Tickets), v.Lost == 0)
	fact(41, y+3, "sent back from inside", fmt.Sprint(v.SentBack), v.SentBack == 0)
}

// drawLastKill describes the last kill, in two lines, or in one for a cluster.
func (s *scene) drawLastKill(c *canvas, y int) {
	n := len(s.Seen.Kills)
	if n == 0 {
		return
	}
	k := &s.Seen.Kills[n-1]
	tint := good
	if k.lost > 0 {
		tint = bad
	}
	x := c.put(1, y, bold, "killed "+times(n))
	if k.who != "" {
		c.put(x, y, tint, ", last "+k.who+": "+k.kept())
		return
	}
	c.put(x, y, plain, fmt.Sprintf(", the last time %s ago: %s", short(k.age), k.outage()))
	c.put(1, y+1, tint, k.places())
}

// drawFoot draws the first fault and the keys.
func (s *scene) drawFoot(c *canvas) {
	c.put(1, 21, bad, s.Seen.First)
	c.put(1, 23, bad, s.Note)
	if !s.Keys {
		return
	}
	c.keys([][2]string{{"k", "kill the room"}, {"u d", "raise or lower the limit"},
		{"space", "hold the line"}, {"q", "quit"}})
}

// spark draws a row of bars.
func spark(values []int) string {
	most := 1
	for _, v := range values {
		most = max(most, v)
	}
	marks := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(marks[v*(len(marks)-1)/most])
	}
	return b.String()
}

// short formats a duration in few letters.
func short(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s < 60 {
		return fmt.Sprintf("%d s", s)
	}
	return fmt.Sprintf("%d:%02d min", s/60, s%60)
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

func ordinal(n int64) string {
	switch {
	case n == 1:
		return "next"
	case n%100/10 == 1:
		return fmt.Sprintf("%dth", n)
	}
	switch n % 10 {
	case 1:
		return fmt.Sprintf("%dst", n)
	case 2:
		return fmt.Sprintf("%dnd", n)
	case 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
