package demo

import (
	"fmt"
	"time"
)

// draw makes the picture of a scene.
func draw(s *scene) *canvas {
	c := &canvas{}
	switch {
	case s.World != nil && s.isNarrow():
		s.drawTriangle(c)
	case s.World != nil:
		s.drawWorld(c)
	case len(s.Nodes) > 0:
		s.drawCluster(c)
	default:
		s.drawAlone(c)
	}
	return c
}

// line returns the state as a log line, after what happened since the last one.
func (s *scene) line(begun time.Time) string {
	switch {
	case s.World != nil:
		return s.worldLine(begun)
	case len(s.Nodes) > 0:
		return s.clusterLine(begun)
	}
	inside := "down"
	if s.Up {
		inside = fmt.Sprintf("%d of %d", s.State.Active, s.State.AtOnce)
	}
	return s.newsLines(begun).String() + "inside " + inside + "  " + s.flowLine()
}

// drawAlone draws a room of one process.
func (s *scene) drawAlone(c *canvas) {
	s.drawHead(c, "headgate demo")
	s.drawPond(c)
	s.drawLine(c)
	s.drawFlow(c, 11)
	s.drawVerdict(c, 14)
	s.drawLastKill(c, 19)
	c.put(1, 21, bad, s.Seen.First)
	c.put(1, 23, bad, s.Note)
	if s.Keys {
		c.keys([][2]string{{"k", "kill the room"}, {"u d", "raise or lower the limit"},
			{"space", "hold the line"}, {"q", "quit"}})
	}
}
