package demo

import "fmt"

// Measures of the triangle: it fits 40 columns.
const (
	triangleWidth = 40
	triangleBar   = 18
	triangleTop   = 2
	triangleBase  = 9
)

// drawTriangle draws the picture for a narrow terminal: the middle city above, the others below it
// on the left and the right.
func (s *scene) drawTriangle(c *canvas) {
	c.put(1, 0, bold, "headgate demo --datacenters")
	s.drawClock(c, triangleWidth-1)
	c.put(1, 1, you, s.URL)
	keys := s.Keys
	s.Keys = false // drawn below
	at := [][2]int{{1, triangleBase}, {11, triangleTop}, {22, triangleBase}}
	for i := range s.World.Cities {
		if i < len(at) {
			s.drawCity(c, at[i][0], at[i][1], &s.World.Cities[i])
		}
	}
	s.Keys = keys
	if len(s.World.Cities) == len(at) {
		s.drawSides(c)
	}
	s.drawAll(c, 1, triangleBase+6, 24)
	text, tint := s.worldWords()
	for i, line := range wrapped(text, triangleWidth-2) {
		c.put(1, triangleBase+7+i, tint, line)
	}
	s.drawShortVerdict(c, triangleBase+11)
	s.drawWorldFoot(c)
}

// drawSides draws the sides of the triangle.
func (s *scene) drawSides(c *canvas) {
	all := s.World.Cities
	side := func(a, b *cityScene, x, y int, mark string) {
		tint := water
		if a.Off > 0 || b.Off > 0 {
			tint, mark = bad, "╳"
		}
		c.put(x, y, tint, mark)
	}
	side(&all[0], &all[1], 13, triangleBase-2, "╱")
	side(&all[0], &all[1], 12, triangleBase-1, "╱")
	side(&all[1], &all[2], 25, triangleBase-2, "╲")
	side(&all[1], &all[2], 26, triangleBase-1, "╲")
	for x := 13; x < 21; x += 2 {
		side(&all[0], &all[2], x, triangleBase, "·")
	}
}

// drawShortVerdict draws in three lines what the shop and the visitors saw.
func (s *scene) drawShortVerdict(c *canvas, y int) {
	t, v := s.Shop.Tight, &s.Seen
	tint := verdict(s.Shop.Over+v.Overtaken+v.Lost+v.SentBack == 0)
	c.put(1, y, tint, fmt.Sprintf("most inside %d of %d, over %d", t.n, t.of, s.Shop.Over))
	c.put(1, y+1, tint, fmt.Sprintf("lost %d, overtaken %d of %d", v.Lost+v.SentBack, v.Overtaken, v.Tickets))
}
