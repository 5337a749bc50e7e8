package demo

import (
	"fmt"
	"strings"
	"time"
)

// A nodeScene is what the picture shows of a node.
type nodeScene struct {
	Name   string
	Stands standing
	Hosts  bool          // the room
	Leads  bool          // the records
	For    time.Duration // how long it has stood so
	LetIn  int           // through this node, counted by the shop
}

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
	s.drawClusterFoot(c)
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
		figure, tint, text = `__(')>`, you, "hosts the room, leads the records"
	case n.Hosts:
		figure, tint, text = `__(')>`, you, "hosts the room"
	case n.Leads:
		text = "leads the records"
	}
	c.put(5, y, tint, figure)
	if n.Hosts {
		c.put(12, y, you, "♥")
	}
	c.put(15, y, of, text)
	x := c.put(51, y, soft, "let in ")
	c.put(x, y, bold, fmt.Sprint(n.LetIn))
	if s.Keys && s.Open {
		text := "kills it"
		if n.Stands == down {
			text = "starts it"
		}
		x = c.put(65, y, bold, strings.TrimPrefix(n.Name, "n"))
		c.put(x+1, y, soft, text)
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
		return fmt.Sprintf("Nobody new for %s: they elect who leads the records.",
			short(s.Seen.Idle.Now)), you
	case s.Seen.Idle.Now >= tellIdle:
		return fmt.Sprintf("Nobody new for %s: the host waits to hear who is first in line.",
			short(s.Seen.Idle.Now)), you
	case downs > 0:
		return "Two carry on. One more must not go, or nobody new comes in.", good
	case ups < len(s.Nodes):
		return "Two carry on while the third catches up.", good
	}
	return "All is well: go on, kill one.", good
}

// kept returns in few words what happened to the visitors that were waiting.
func (k *kill) kept() string {
	switch {
	case k.lost > 0:
		return fmt.Sprintf("%d of %d waiting lost their place", k.lost, k.waiting)
	case k.waiting == 0:
		return "nobody was waiting"
	case k.again == k.waiting:
		return fmt.Sprintf("all %d waiting have their place", k.again)
	}
	return fmt.Sprintf("%d of %d asked since, none lost", k.again, k.waiting)
}

// tellIdle is the shortest pause in admissions that is shown. Chosen: polling alone takes as long.
const tellIdle = 3 * time.Second

func (s *scene) drawClusterFoot(c *canvas) {
	c.put(1, 23, bad, s.Seen.First)
	if s.Seen.First == "" {
		c.put(1, 23, bad, s.Note)
	}
	if !s.Keys {
		return
	}
	keys := [][2]string{{"1 2 3", "kill a node or start it again"}, {"k", "kill the host"}, {"q", "quit"}}
	if !s.Open {
		keys = keys[2:]
	}
	c.keys(keys)
}

// newsLines begins a log line with what happened since the last one.
func (s *scene) newsLines(begun time.Time) *strings.Builder {
	var b strings.Builder
	for _, n := range s.News {
		fmt.Fprintf(&b, "%3.0f s  %s\n", n.at.Sub(begun).Seconds(), n.text)
	}
	return &b
}

// clusterLine returns the state as a log line: what happened, and what holds now.
func clusterLine(s *scene, begun time.Time) string {
	b := s.newsLines(begun)
	var nodes []string
	for i := range s.Nodes {
		nodes = append(nodes, s.Nodes[i].String())
	}
	fmt.Fprintf(b, "%3.0f s  %s  ", s.Since.Seconds(), strings.Join(nodes, ", "))
	if !s.Open {
		text, _ := s.truth()
		b.WriteString(text + "\n")
		return b.String()
	}
	t, f := s.Shop.Tight, s.Seen
	fmt.Fprintf(b, "inside %d of %d  waiting %d  let in %d a minute  most inside %d of %d  over %d  "+
		"overtaken %d  lost %d  kills %d\n", s.State.Active, s.State.AtOnce, f.Waiting, s.Shop.LastMinute,
		t.n, t.of, s.Shop.Over, f.Overtaken, f.Lost+f.SentBack, len(f.Kills))
	return b.String()
}
