package demo

import (
	"cmp"
	"fmt"
	"io"
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

	// Of several processes:
	Nodes []nodeScene // of a cluster
	World *worldScene // nil: the room is in one data center
	Open  bool        // visitors come
	News  []news      // since the last scene
}

// A nodeScene is what the picture shows of a node.
type nodeScene struct {
	Name   string
	Stands standing
	Hosts  bool          // the room
	Leads  bool          // the records
	For    time.Duration // how long it has stood so
	LetIn  int           // through this node, counted by the shop
}

// A worldScene is what the picture shows of the data centers.
type worldScene struct {
	Home   string // the data center that hosts Anywhere
	Cities []cityScene
}

func (s *scene) drawHead(c *canvas, title string) {
	c.put(1, 0, bold, title)
	s.drawClock(c, columns-1)
	c.put(1, 2, "Join the line: ", you, s.URL)
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
	x = c.put(x+2, 4, bold, active, " of ", most)
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
		c.put(1, lineTop-1, soft, "… ", n-ducks, " more")
	}
	s.drawGate(c)
	s.drawPeople(c)
}

func (s *scene) drawGate(c *canvas) {
	c.put(gateAt, lineTop-2, "╦══╦")
	for y := lineTop - 1; y <= lineTop+1; y++ {
		c.put(gateAt, y, "║  ║")
		if s.Up && s.State.QueueAll {
			c.put(gateAt+1, y, bad, "▓▓")
		}
	}
	switch {
	case !s.Up && len(s.Nodes) > 0:
		c.put(gateAt-1, lineTop, bad, " wait ")
	case !s.Up:
		c.put(gateAt-1, lineTop, bad, "killed")
	case s.State.QueueAll:
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
			c.put(x, lineTop+2, you, "and ", len(s.People)-i, " more of you")
			break
		}
		text := "you: " + ordinal(g.Position)
		if g.Expected >= 0 {
			text += ", about " + short(g.Expected)
		}
		x = c.put(x, lineTop+2, you, text) + 3
	}
}

// drawFlow draws how many wait and how many are admitted.
func (s *scene) drawFlow(c *canvas, y int) {
	x := c.put(1, y, soft, "waiting ", bold, s.Seen.Waiting+len(s.People))
	if s.Seen.Expected >= 0 {
		c.put(x+2, y, soft, "the last in line is told "+short(s.Seen.Expected))
	}
	c.put(1, y+1, soft, "let in  ", bold, s.Shop.LastMinute, " in the last minute")
	c.put(columns-1-len(s.Shop.Let), y+1, good, spark(s.Shop.Let))
}

// drawVerdict draws what the shop and the visitors saw.
func (s *scene) drawVerdict(c *canvas, y int) {
	c.put(1, y, bold, "As the shop saw it")
	c.put(41, y, bold, "As the visitors saw it")
	fact := func(x, y int, name, value string, ok bool) {
		c.put(x, y, soft, name)
		c.put(x+24, y, verdict(ok), value)
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
	x := c.put(1, y, bold, "killed "+times(n))
	if k.who != "" {
		c.put(x, y, verdict(k.lost == 0), ", last "+k.who+": "+k.kept())
		return
	}
	c.put(x, y, fmt.Sprintf(", the last time %s ago: %s", short(k.age), k.outage()))
	c.put(1, y+1, verdict(k.lost == 0), k.places())
}

// drawFoot draws, for several processes, the first fault or the result of the last key, and what
// the keys do. Before the room is open, only the last one does something.
func (s *scene) drawFoot(c *canvas, keys ...[2]string) {
	c.put(1, 23, bad, cmp.Or(s.Seen.First, s.Note))
	if !s.Open {
		keys = keys[len(keys)-1:]
	}
	if s.Keys {
		c.keys(keys)
	}
}

// newsLines begins a log line with what happened since the last one.
func (s *scene) newsLines(begun time.Time) *strings.Builder {
	var b strings.Builder
	writeNews(&b, s.News, begun)
	fmt.Fprintf(&b, "%3.0f s  ", s.Since.Seconds())
	return &b
}

func writeNews(w io.Writer, all []news, begun time.Time) {
	for _, n := range all {
		fmt.Fprintf(w, "%3.0f s  %s\n", n.at.Sub(begun).Seconds(), n.text)
	}
}

// flowLine returns the state of a room in one place as the end of a log line.
func (s *scene) flowLine() string {
	t, f := s.Shop.Tight, s.Seen
	return fmt.Sprintf("waiting %d  let in %d a minute  most inside %d of %d  over %d  overtaken %d  lost %d  "+
		"kills %d\n", f.Waiting, s.Shop.LastMinute, t.n, t.of, s.Shop.Over, f.Overtaken, f.Lost+f.SentBack,
		len(f.Kills))
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
	if n == 1 {
		return "next"
	}
	if last := n % 10; last >= 1 && last <= 3 && n%100/10 != 1 {
		return fmt.Sprint(n, []string{"st", "nd", "rd"}[last-1])
	}
	return fmt.Sprint(n, "th")
}
