package demo

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestJudgeOfAnotherHost: an overtaking is none if the room had another host in
// between, of which the judge hears a little later.
func TestJudgeOfAnotherHost(t *testing.T) {
	for _, tt := range []struct {
		name      string
		overtaken int
		after     time.Duration // it is heard of; 0: there is none
		anew      func(s *stage)
	}{
		{"no other host", 1, 0, nil},
		{"another host", 0, 2 * time.Second, func(s *stage) { s.hostMoved() }},
		{"another host, long after", 1, 2 * doubtFor, func(s *stage) { s.hostMoved() }},
		{"a kill", 0, time.Second, func(s *stage) { s.killed("n1") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.patience, s.slack = doubtFor, clusterSlack
			s.come(1, 2)
			s.pass(5*time.Second, func() { s.waits(1, 11, 1); s.waits(2, 12, 2) })
			s.enters(2)
			s.pass(clusterSlack, func() { s.waits(1, 11, 1) })
			if len(s.doubts) > 0 {
				t.Errorf("%s: held against the room within %v", tt.name, clusterSlack)
			}
			s.pass(time.Second, func() { s.waits(1, 11, 1) })
			if f := s.finding(); f.Overtaken != 0 {
				t.Errorf("%s: %d overtaken at once, though it is in doubt", tt.name, f.Overtaken)
			}
			if tt.anew != nil {
				time.Sleep(tt.after)
				tt.anew(s)
			}
			time.Sleep(2 * doubtFor)
			if f := s.finding(); f.Overtaken != tt.overtaken {
				t.Errorf("%s: %d overtaken, want %d", tt.name, f.Overtaken, tt.overtaken)
			}
		})
	}
}

// TestAnAnswerThatKnowsNothing: a node that reaches no host keeps the visitor waiting
// and says no number. That is no place kept, and no place lost.
func TestAnAnswerThatKnowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.come(1, 2)
		ask := func() { s.waits(1, 11, 1); s.waits(2, 12, 2) }
		s.pass(5*time.Second, ask)
		s.killed("n1, the host")
		s.waits(1, 0, 0)
		if k := s.finding().Kills[0]; k.waiting != 2 || k.again != 0 || k.lost != 0 {
			t.Errorf("%+v, want two who were told nothing yet", k)
		}
		s.pass(3*time.Second, func() { s.waits(1, 0, 0); s.waits(2, 12, 2) })
		s.enters(2) // the host has not heard of 1 for long
		time.Sleep(500 * time.Millisecond)
		s.waits(1, 11, 1)
		f := s.finding()
		if k := f.Kills[0]; k.again != 2 || f.Overtaken != 0 || f.Lost != 0 {
			t.Errorf("%+v, want both to have their place", f)
		}
	})
}

// TestFaultsOfACluster: it is held to what it promises while enough nodes are up.
func TestFaultsOfACluster(t *testing.T) {
	good := func() *Summary {
		return &Summary{cluster: true, report: report{Count: 50}, seen: finding{Tickets: 30,
			Idle: idle{Longest: time.Hour, Served: 12 * time.Second, Calm: time.Minute},
			Kills: []kill{{who: "n1", waiting: 20, again: 20, age: time.Hour},
				{who: "n2, the host", waiting: 20, again: 3, idle: 6100 * time.Millisecond}}}}
	}
	var text strings.Builder
	if err := good().Write(&text); err != nil || good().Faults() != nil {
		t.Errorf("%v, a good run has faults: %v", err, good().Faults())
	}
	const want = "n2, the host: nobody new for 6.1 s; 20 were waiting then: 3 have their place, " +
		"17 have not asked since"
	if !strings.Contains(text.String(), want) || !strings.Contains(text.String(), "3600.0 s, though") {
		t.Errorf("want %q in\n%s", want, &text)
	}
	for name, breaks := range map[string]func(*Summary){
		"nobody is let in": func(s *Summary) { s.seen.Idle.Served = 2 * servedWithin },
		"silent":           func(s *Summary) { s.seen.Idle.Calm = 2 * calmWithin },
		"lost":             func(s *Summary) { s.seen.Lost = 1 },
	} {
		s := good()
		if breaks(s); len(s.Faults()) != 1 {
			t.Errorf("%s: faults %v", name, s.Faults())
		}
	}
}
