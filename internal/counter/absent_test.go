package counter

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// 50 clients are told to come in, poll again and again, and never come in. Each of them keeps one
// of 20 slots empty once, and then the visitors behind them are called.
func TestTicketsThatOnlyPollComeBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hosted(t, Settings{
			Active: slot.Limit{Kind: slot.AtOnce, N: 20, Per: time.Hour},
			New:    slot.Limit{Kind: slot.PerWindow, N: 3000, Per: time.Minute}, Spread: true,
			Line: LineConfig{MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second,
				Hold: time.Hour},
		})
		c.Hold(true)
		absent, people := joins(t, c, 0, 50), joins(t, c, 0, 20)
		c.Hold(false)
		began := time.Now()
		x := newCrowd(t, lifeOf(c), people...)
		for len(x.in) < len(people) && time.Since(began) < time.Minute {
			for _, n := range absent {
				_, _ = c.Poll(t.Context(), lifeOf(c), n, 0)
			}
			x.wait(c, time.Second)
		}
		// Three rounds of 6 s, and the time until the visitors poll.
		if d := time.Since(began); len(x.in) < len(people) || d > 35*time.Second {
			t.Errorf("%d of %d people are in after %v", len(x.in), len(people), d)
		}
	})
}

// pollOnly adds a client that polls each second, never comes in, and joins again when its ticket is over.
func (s *scene) pollOnly(at time.Duration) {
	s.after(sceneStart+at-s.now, func() {
		if !s.desk.IsReady(s.now, true) {
			s.write(true)
		}
		number := s.desk.Join(s.now, 15*time.Minute, 0).Number
		var poll func()
		poll = func() {
			if !s.desk.IsReady(s.now, false) {
				s.write(true)
			}
			p := s.desk.Poll(s.now, number)
			if p.Status == slot.TicketGone || p.Status == slot.TicketUsed {
				s.pollOnly(s.now - sceneStart)
				return
			}
			s.after(time.Second, poll)
		}
		s.after(time.Second, poll)
	})
}

// A room of 200 is full of calls that nobody claims. The forecast once treated the slots of these
// calls as lost and the tickets as visitors still ahead. It told visitors to wait for minutes, so
// they polled rarely, and their own calls stayed empty for as long.
func TestExpectedTimesBehindTicketsThatOnlyPoll(t *testing.T) {
	s := newScene(t, 1, 200, 3000, 6*time.Second)
	for i := range 200 { // they fill the room
		s.arrive(time.Duration(i)*time.Millisecond, stayPlan{think: time.Second})
	}
	for i := range 500 {
		s.pollOnly(time.Duration(250+i) * time.Millisecond)
	}
	for i := range 400 {
		inside := 2*time.Second + time.Duration(s.rng.Int64N(int64(3*time.Second)))
		s.arrive(time.Second+time.Duration(i)*20*time.Millisecond,
			stayPlan{inside: inside, think: time.Second, word: true})
	}
	s.run(45 * time.Second)
	var off []float64
	for _, v := range s.all[200:] {
		if v.in == 0 {
			t.Fatal("a visitor is not in after 45 s")
		}
		x := v.told[0]
		truth := v.in - x.at
		off = append(off, (x.eta.Expect-truth).Abs().Seconds()/truth.Seconds())
		for _, x := range v.told {
			if x.eta.Expect > 45*time.Second {
				t.Fatalf("told %v", x.eta.Expect)
			}
		}
	}
	slices.Sort(off)
	if median := off[len(off)/2]; median > 0.25 {
		t.Errorf("the first expected time is off by %.0f %% (median)", 100*median)
	}
}
