//go:build crowd

package knee

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// near is how near to the knee the limit comes. It is held where the queue begins, before answers are slower
// than the target: with 16 connections that is at four to five sixths of the knee (ADR 60).
const near, held = 0.15, 0.25

// TestKneeShort: the knee is found from two thirds of it, and goes on after a kill.
func TestKneeShort(t *testing.T) {
	o := startOrigin(t)
	knee := o.knee(236, 1.1, time.Second, 8*time.Second)
	t.Logf("the knee: %.0f people", knee)
	s := open(t, o, fmt.Sprintf("total_active_users: {auto: true, min: %.0f, max: %.0f}, new_users_per_minute: 6000",
		knee*2/3, 3*knee))
	s.come(knee/25, 20*time.Second, 40*time.Second)
	s.until("found", (1-near)*knee, (1+near)*knee, 3, 72)
	s.kill()
	s.judge(s.leave())
}

// TestKnee: the knee is found from a third of it within 6 minutes, with both limits, and held; it goes on
// after a kill; it follows when half of the connections are taken away, and given back.
func TestKnee(t *testing.T) {
	o := startOrigin(t)
	knee := o.knee(236, 1.05, 2*time.Second, 10*time.Second)
	t.Logf("the knee: %.0f people", knee)
	s := open(t, o, fmt.Sprintf("total_active_users: {auto: true, min: %.0f, max: %.0f}, "+
		"new_users_per_minute: {auto: true, max: 3000}", knee/3, 3*knee))
	s.come(knee/80, time.Minute, 2*time.Minute)
	s.until("found", (1-near)*knee, (1+near)*knee, 3, 72)
	s.near("held", s.hold("held", 12), knee)
	s.kill()
	s.near("held after the kill", s.hold("held after the kill", 6), knee)
	o.setCapacity(connections / 2)
	s.until("half is away", 0, (1+near)*knee/2, 3, 36)
	for range 12 { // those inside leave by themselves
		s.look()
	}
	s.near("held by half", s.hold("held by half", 36), knee/2)
	o.setCapacity(connections)
	s.until("given back", (1-held)*knee, (1+near)*knee, 3, 120)
	s.near("held again", s.hold("held again", 12), knee)
	s.draw(knee)
	s.judge(s.leave())
}

// near judges whether a limit that was held is near the knee.
func (s *stage) near(what string, limit, knee float64) {
	s.t.Helper()
	if share := limit / knee; share < 1-held || share > 1+near {
		s.t.Errorf("%s: the limit is %.0f, the knee %.0f", what, limit, knee)
	}
}

// kill kills headgate, and starts it again with what it has on disk.
func (s *stage) kill() {
	before := s.see()
	s.gate.Kill()
	s.start()
	after := s.see()
	s.t.Logf("killed: the limit was %d and is %d", before.Limit, after.Limit)
	if float64(after.Limit) < (1-near)*float64(before.Limit) {
		s.t.Errorf("after the kill the limit is %d, it was %d", after.Limit, before.Limit)
	}
	for range 3 {
		s.look()
	}
	if r := s.look(); float64(r.Limit) < (1-2*near)*float64(before.Limit) ||
		before.Auto.Knee > 0 && r.Auto.Knee == 0 {
		s.t.Errorf("after the kill the limit is %d, it was %d; %+v", r.Limit, before.Limit, r.Auto)
	}
}

// judge judges what visitors have seen.
func (s *stage) judge(r *crowd.Result) {
	admitted, back := 0, 0
	for i := range r.Visitors {
		v := &r.Visitors[i]
		if v.Admitted() {
			admitted++
		}
		if v.Outcome == crowd.OutcomeSentBack {
			back++
		}
	}
	s.t.Logf("%d visitors were admitted, %d of them thrown out", admitted, back)
	if back > 0 || admitted == 0 {
		s.t.Errorf("%d of %d visitors inside were thrown out", back, admitted)
	}
}
