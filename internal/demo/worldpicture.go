package demo

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// used returns how many of its slots are in use.
func (c *cityScene) used() int { return max(0, c.Held-c.Unused) }

// worldMap returns the north of the earth from Alaska to the Pacific, 4.55 degrees a column and ten
// a row, and marks the land.
func worldMap() []string {
	return []string{
		" ░░░░░░ ░░░░░░░░░ ░░░░░  ░░░░░░░░░       ░░░░   ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░",
		"  ░░░░ ░░░░░░░░░░   ░░░░   ░░         ░░░░ ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░",
		"         ░░░░░░░░░░░░░░░░░          ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  ░░",
		"          ░░░░░░░░░░░░             ░░░  ░░░░░░░░░░░░░░░░░░░░░░░░ ░  ░",
		"            ░░░░░░░░░              ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░",
		"   ░          ░░░ ░ ░░            ░░░░░░░░░░░░░░░░░  ░░░░ ░░░░  ░",
		"                   ░ ░░░░          ░░░░░░░░░░░░░      ░░   ░░░  ░░",
		"                    ░░░░░░░            ░░░░░░░░░           ░░ ░░░ ░░░",
	}
}

// Rows of the picture of the world.
const (
	mapTop      = 2
	cityTop     = 10
	cityWidth   = 27
	cityBar     = 24
	worldBarRow = 15
	wordsRow    = 16
	worldFacts  = 18
)

// narrow is the width in columns below which the picture is a triangle and not a map.
const narrow = columns

func (s *scene) isNarrow() bool { return s.Width > 0 && s.Width < narrow }

func (s *scene) drawWorld(c *canvas) {
	c.put(1, 0, bold, "headgate demo --datacenters: three data centers, one room")
	s.drawClock(c, columns-1)
	c.put(1, 1, "Join the line in San Jose: ", you, s.URL)
	for y, line := range worldMap() {
		c.put(0, mapTop+y, soft, line)
	}
	s.drawWays(c)
	for i := range s.World.Cities {
		one := &s.World.Cities[i]
		c.put(one.x, one.y, verdict(one.Off == 0 && one.Up), "◉")
		c.put(one.x-1, one.y-1, bold, one.name)
		s.drawCity(c, 1+i*cityWidth, cityTop, one)
	}
	s.drawAll(c, 1, worldBarRow, 60)
	text, tint := s.worldWords()
	c.put(1, wordsRow, tint, text)
	s.drawVerdict(c, worldFacts)
	s.drawWorldFoot(c)
}

// drawWays draws the connections between the cities, and what flows there.
func (s *scene) drawWays(c *canvas) {
	all := s.World.Cities
	for i := range all {
		for j := i + 1; j < len(all); j++ {
			a, b := &all[i], &all[j]
			path := way(a.x, a.y, b.x, b.y, bend(a, b))
			cut := a.Off > 0 || b.Off > 0
			for k, p := range path {
				switch {
				case cut && k == len(path)/2:
					c.put(p[0], p[1], bad, "╳")
				case cut && k%3 == 0:
					c.put(p[0], p[1], bad, "·")
				case !cut:
					c.put(p[0], p[1], water, "·")
				}
			}
			if !cut {
				s.drawFlowOn(c, path, a, b)
			}
		}
	}
}

// bend returns by how many rows the connection of two cities is curved. The longest one goes around
// the others.
func bend(a, b *cityScene) int {
	if b.x-a.x > columns/2 {
		return 7
	}
	return 0
}

// way returns a curve between two points that does not touch them.
func way(x0, y0, x1, y1, bend int) (path [][2]int) {
	for x := x0 + 2; x <= x1-2; x++ {
		t := float64(x-x0) / float64(x1-x0)
		y := float64(y0)*(1-t) + float64(y1)*t + float64(bend)*2*t*(1-t)
		path = append(path, [2]int{x, int(math.Round(y))})
	}
	return path
}

// drawFlowOn draws moving marks on the way from Anywhere to a city, or back: one for two slots, and
// no more than a reader can tell apart.
func (s *scene) drawFlowOn(c *canvas, path [][2]int, a, b *cityScene) {
	if len(path) == 0 || a.name != s.World.Home && b.name != s.World.Home {
		return
	}
	flow, east := a.Flow, false // at the other end
	if a.name == s.World.Home {
		flow, east = b.Flow, true
	}
	if flow == 0 {
		return
	}
	if flow < 0 {
		flow, east = -flow, !east
	}
	mark, by := "»", 2*s.Tick
	if !east {
		mark, by = "«", -2*s.Tick
	}
	n := min((flow+1)/2, 6)
	for i := range n {
		at := ((by+i*len(path)/n)%len(path) + len(path)) % len(path)
		c.put(path[at][0], path[at][1], you, mark)
	}
}

// drawCity draws what a city has.
func (s *scene) drawCity(c *canvas, x, y int, one *cityScene) {
	at := c.put(x, y, bold, one.title)
	if one.name == s.World.Home {
		at = c.put(at+1, y, you, "♥")
	}
	if s.Keys && s.Open {
		key := slices.IndexFunc(s.World.Cities, func(o cityScene) bool { return o.name == one.name })
		text := " cuts it off"
		if one.Off > 0 {
			text = " joins it"
		}
		c.put(at+1, y, bold, key+1, soft, text)
	}
	if !one.Up {
		c.put(x, y+1, soft, "wakes up")
		return
	}
	wait, width, unused := "  waiting ", cityBar, ""
	switch {
	case s.isNarrow():
		wait, width = " wait ", triangleBar
	case one.Unused > 0:
		unused = fmt.Sprintf(", %d unused", one.Unused)
	}
	c.put(x, y+1, soft, "inside ", bold, one.Active, soft, wait, bold, one.Waiting)
	c.bar(x, y+2, s.Limits.AtOnce, width, part{one.used(), good, "■"}, part{one.Unused, you, "□"})
	c.put(x, y+3, soft, "holds ", bold, one.Held, you, flowText(one.Flow), soft, unused)
	text, tint := one.seen(s.World.Home)
	c.put(x, y+4, tint, text)
}

// flowText returns the slots that a city received or returned recently, as text.
func flowText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" %+d", n)
}

// seen returns the age of the city's snapshot in the home of Anywhere, as text.
func (c *cityScene) seen(home string) (string, style) {
	switch {
	case c.Off > 0:
		return "cut off for " + short(c.Off), bad
	case c.name == home:
		return "Anywhere lives here", soft
	case c.Age < 0:
		return "not seen yet", soft
	case c.Age > freshFor:
		return fmt.Sprintf("seen %.1f s ago", c.Age), you
	}
	return fmt.Sprintf("seen %.1f s ago", c.Age), soft
}

// freshFor is the age in seconds above which a snapshot counts as old. Chosen: they arrive about
// twice a second, and the distance is long.
const freshFor = 3

// drawAll draws the limit of the world: used, lent but unused, and free.
func (s *scene) drawAll(c *canvas, x, y, width int) {
	used, unused := 0, 0
	for i := range s.World.Cities {
		used += s.World.Cities[i].used()
		unused += s.World.Cities[i].Unused
	}
	x = c.bar(x, y, s.Limits.AtOnce, width, part{used, good, "■"}, part{unused, you, "□"})
	c.put(x+1, y, bold, used, " of ", s.Limits.AtOnce, " used")
}

// worldWords returns one line on what happens now.
func (s *scene) worldWords() (string, style) {
	w := s.World
	var off, back, most, waits *cityScene
	flow := &cityScene{}
	for i := range w.Cities {
		c := &w.Cities[i]
		switch {
		case c.Off > 0:
			off = c
		case c.Mended > 0 && c.Mended < tellBack:
			back = c
		}
		if abs(c.Flow) > abs(flow.Flow) {
			flow = c
		}
		if most == nil || c.Active > most.Active {
			most = c
		}
		if waits == nil || c.Waiting > waits.Waiting {
			waits = c
		}
	}
	switch {
	case !s.Open:
		return "Three data centers wake up and find each other …", soft
	case off != nil && off.Off < tellCut:
		return fmt.Sprintf("%s is cut off, and nobody knows it yet.", off.title), you
	case off != nil && off.name == w.Home:
		return fmt.Sprintf("%s is cut off, and Anywhere with it: all go on with what they hold.",
			off.title), you
	case off != nil:
		return fmt.Sprintf("%s is cut off: it goes on with the %d slots it holds, %d of them in use.",
			off.title, off.Held, off.used()), you
	case back != nil && back.Age > freshFor:
		return fmt.Sprintf("%s can be reached again, and is dialed.", back.title), you
	case back != nil:
		return fmt.Sprintf("%s is back: its slots can be lent to all again.", back.title), good
	case flow.Flow >= tellFlow:
		return fmt.Sprintf("Anywhere lends %s %d more slots: people come there.", flow.title, flow.Flow), good
	case flow.Flow <= -tellFlow:
		return fmt.Sprintf("%s gives %d slots back to Anywhere.", flow.title, -flow.Flow), good
	case waits != nil && waits.Waiting > 0:
		return fmt.Sprintf("Full: %d wait in %s, in one line with all others in the world.",
			waits.Waiting, waits.title), good
	case most != nil && most.Active > 0:
		return fmt.Sprintf("Nobody waits: %s holds %d slots for who comes next.", most.title, most.Unused), good
	}
	return "The first people come …", soft
}

// These constants define when an event is shown. Chosen: the ends of a link detect a cut after some
// seconds, and a few slots move all the time.
const (
	tellCut  = 1500 * time.Millisecond
	tellBack = 4 * time.Second
	tellFlow = 3
)

func abs(n int) int { return max(n, -n) }

func (s *scene) drawWorldFoot(c *canvas) {
	cut := "cut a city off, or join it again"
	if s.isNarrow() {
		cut = "cut it off, or join it"
	}
	s.drawFoot(c, [2]string{"1 2 3", cut}, [2]string{"q", "quit"})
}

// worldLine returns the state as a log line.
func (s *scene) worldLine(begun time.Time) string {
	b := s.newsLines(begun)
	if !s.Open {
		text, _ := s.worldWords()
		b.WriteString(text + "\n")
		return b.String()
	}
	for i := range s.World.Cities {
		c := &s.World.Cities[i]
		fmt.Fprintf(b, "%s %d in, %d wait, %d held%s", c.title, c.Active, c.Waiting, c.Held,
			flowText(c.Flow))
		if c.Off > 0 {
			b.WriteString(", cut off")
		}
		b.WriteString("  ")
	}
	t, f := s.Shop.Tight, s.Seen
	fmt.Fprintf(b, "most in %d of %d  over %d  overtaken %d  lost %d\n", t.n, t.of, s.Shop.Over,
		f.Overtaken, f.Lost+f.SentBack)
	return b.String()
}
