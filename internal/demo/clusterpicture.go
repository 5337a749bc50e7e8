package demo

import (
	"fmt"
	"strings"
	"time"
)

// Rows of the picture of a cluster.
const (
	flowTop    = 10
	nodesTop   = 13
	truthRow   = nodesTop + storeNodes
	verdictTop = 17
)

// drawCluster draws a room of several nodes.
func (s *scene) drawCluster(c *canvas) {
	s.drawHead(c, "headgate demo --cluster: three nodes, one room")
	s.drawPond(c)
	s.drawLine(c)
	if s.Open {
		s.drawFlow(c, flowTop)
	}
	for i := range s.Nodes {
		s.drawNode(c, nodesTop+i, &s.Nodes[i])
	}
	text, tint := s.truth()
	c.put(1, truthRow, tint, text)
	s.drawVerdict(c, verdictTop)
	s.drawLastKill(c, verdictTop+4)
	s.drawFoot(c, [2]string{"1 2 3", "kill a node or start it again"}, [2]string{"k", "kill the host"},
		[2]string{"q", "quit"})
}

// drawNode draws a node as a duck: swimming if up, waking if starting, under water if killed.
func (s *scene) drawNode(c *canvas, y int, n *nodeScene) {
	c.put(1, y, bold, n.Name)
	figure, tint, text, of := `__(')>`, good, "up", plain
	switch {
	case n.Stands == down:
		figure, tint, text, of = `~°o ~`, bad, "killed "+short(n.For)+" ago", bad
	case n.Stands == starting:
		figure, tint, text, of = `__(-)>`, soft, "wakes up, for "+short(n.For), soft
	case n.Hosts && n.Leads:
		tint, text = you, "hosts the room, leads the records"
	case n.Hosts:
		tint, text = you, "hosts the room"
	case n.Leads:
		text = "leads the records"
	}
	c.put(5, y, tint, figure)
	if n.Hosts {
		c.put(12, y, you, "♥")
	}
	c.put(15, y, of, text)
	c.put(51, y, soft, "let in ", bold, n.LetIn)
	if s.Keys && s.Open {
		text := " kills it"
		if n.Stands == down {
			text = " starts it"
		}
		c.put(65, y, bold, strings.TrimPrefix(n.Name, "n"), soft, text)
	}
}

// truth returns one line on the present state of the room.
func (s *scene) truth() (string, style) {
	ups, downs, leader := 0, 0, false
	for i := range s.Nodes {
		leader = leader || s.Nodes[i].Leads
		switch s.Nodes[i].Stands {
		case up:
			ups++
		case down:
			downs++
		}
	}
	switch {
	case !s.Open && ups < len(s.Nodes):
		return "They wake up and elect a leader, which takes some 4 to 12 s …", soft
	case !s.Open:
		return "They agree on who hosts the room …", soft
	case downs == len(s.Nodes):
		return "All ducks dived: nobody answers, nothing is forgotten. Start two of them.", bad
	case ups == 0:
		return "Nobody answers yet, nothing is forgotten: two are needed.", bad
	case ups == 1 && downs > 1:
		return "One is not enough: who has a pass stays in, nobody new, till one more is up.", bad
	case ups == 1:
		return "Who has a pass stays in, nobody new, till one more has woken up.", bad
	case !s.Up:
		return "The others take over. Who is inside does not notice.", you
	case s.Seen.Idle.Now >= tellIdle && !leader:
		return "Nobody new for " + short(s.Seen.Idle.Now) + ": they elect who leads the records.", you
	case s.Seen.Idle.Now >= tellIdle:
		return "Nobody new for " + short(s.Seen.Idle.Now) +
			": the host waits to hear who is first in line.", you
	case downs > 0:
		return "Two carry on. One more must not go, or nobody new comes in.", good
	case ups < len(s.Nodes):
		return "Two carry on while the third catches up.", good
	}
	return "All is well: go on, kill one.", good
}

// tellIdle is the shortest pause in admissions that is shown. Chosen: polling alone takes as long.
const tellIdle = 3 * time.Second

// String returns the node as part of a log line.
func (n *nodeScene) String() string {
	switch {
	case n.Hosts:
		return n.Name + " hosts"
	case n.Stands == up:
		return n.Name + " up"
	case n.Stands == starting:
		return n.Name + " starting"
	}
	return n.Name + " down"
}

// clusterLine returns the state as a log line.
func (s *scene) clusterLine(begun time.Time) string {
	var nodes []string
	for i := range s.Nodes {
		nodes = append(nodes, s.Nodes[i].String())
	}
	line := s.newsLines(begun).String() + strings.Join(nodes, ", ") + "  "
	if !s.Open {
		text, _ := s.truth()
		return line + text + "\n"
	}
	return line + fmt.Sprintf("inside %d of %d  ", s.State.Active, s.State.AtOnce) + s.flowLine()
}
