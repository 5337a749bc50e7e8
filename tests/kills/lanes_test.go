//go:build kills || soak

package kills

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A laneVisitor waits for a room with a lane.
type laneVisitor struct {
	cookie string
	number uint64
	shown  int64
	due    time.Time
	in     bool
}

// laneStage is headgate with a room that has a lane, and those who wait.
type laneStage struct {
	p    *process
	q    *queue
	file string
	all  []*laneVisitor
	in   []int // lines of those who came in, in order
}

// write writes the configuration; held holds the line.
func (s *laneStage) write(origin string, held bool, share int) {
	s.p.t.Helper()
	rules := ""
	if share > 0 {
		rules = fmt.Sprintf("    rules:\n      - {action: lane, lane: members, share: %d, "+
			"expression: 'starts_with(http.request.uri.path, \"/members\")'}\n", share)
	}
	text := fmt.Sprintf("listen: %s\nadmin_listen: %s\ndata: %s\nrooms:\n  - name: shop\n    origin: %s\n"+
		"    total_active_users: 1000\n    new_users_per_minute: 600\n    queue_all: %v\n%s",
		s.p.public, s.p.admin, s.p.data(), origin, held, rules)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		s.p.t.Fatal(err)
	}
}

// wait lets everybody ask when it is due, until so many have come in.
func (s *laneStage) wait(until int) {
	s.p.t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(s.in) < until {
		<-tick.C
		if time.Now().After(deadline) {
			s.p.t.Fatalf("%d have come in within a minute, want %d", len(s.in), until)
		}
		byDue := slices.Clone(s.all)
		slices.SortStableFunc(byDue, func(a, b *laneVisitor) int { return a.due.Compare(b.due) })
		for _, v := range byDue {
			if !v.in && !time.Now().Before(v.due) && len(s.in) < until {
				s.ask(v)
			}
		}
	}
}

func (s *laneStage) ask(v *laneVisitor) {
	s.p.t.Helper()
	a := s.q.get("/", v.cookie, true)
	if a.state == stateCalled {
		a = s.q.get("/", v.cookie, false)
		if v.in = a.state == ""; v.in {
			s.in = append(s.in, slot.LaneIndex(v.number))
			return
		}
	}
	if a.cookie != nil {
		v.cookie = *a.cookie
	}
	if a.number != 0 && a.number != v.number || v.shown > 0 && a.position > v.shown {
		s.p.t.Errorf("ticket %d of line %d at %d is told it is %d at %d", v.number, slot.LaneIndex(v.number),
			v.shown, a.number, a.position)
	}
	v.shown = cmp.Or(a.position, v.shown)
	v.due = time.Now().Add(max(a.after, 10*time.Millisecond))
}

// share is how many of those who came in from one on were of the lane.
func (s *laneStage) share(from int) (lane, all int) {
	for _, line := range s.in[from:] {
		lane += line
	}
	return lane, len(s.in) - from
}

// TestLanesOutliveKills: places, numbers and shares of a lane survive kill -9, a rule that is
// gone after it leaves nobody behind, and nobody comes in twice.
func TestLanesOutliveKills(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer origin.Close()
	p := newProcess(t)
	s := &laneStage{p: p, file: filepath.Join(p.dir, "headgate.yaml"),
		q: &queue{t: t, url: "http://" + p.public}}
	p.args = []string{"run", "--config", s.file}
	s.write(origin.URL, true, 25)
	p.start()
	for i := range 120 {
		path := "/"
		if i%3 == 2 {
			path = "/members"
		}
		a := s.q.get(path, "", false)
		if a.cookie == nil || slot.LaneIndex(a.number) != strings.Count(path, "m")/2 {
			t.Fatalf("who asks for %s is told %+v", path, a)
		}
		s.all = append(s.all, &laneVisitor{cookie: *a.cookie, number: a.number})
	}
	restart := func(held bool, share int) {
		p.kill()
		s.write(origin.URL, held, share)
		p.start()
		for _, v := range s.all {
			v.due = time.Now()
		}
	}
	restart(false, 25)
	s.wait(40)
	if lane, all := s.share(0); lane < 7 || lane > 13 {
		t.Errorf("%d of the first %d who came in are of the lane, whose share is 25", lane, all)
	}
	restart(false, 25)
	s.wait(70)
	if lane, all := s.share(40); lane < 5 || lane > 12 {
		t.Errorf("after a kill %d of %d who came in are of the lane, whose share is 25", lane, all)
	}
	restart(false, 0)
	s.wait(120)
	if got := served.Load(); got != 120 {
		t.Errorf("the origin was asked %d times by 120 visitors", got)
	}
	if a := s.q.get("/", s.all[2].cookie, false); a.number == s.all[2].number {
		t.Errorf("a used ticket is told %+v", a)
	}
}
