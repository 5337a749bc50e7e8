package demo

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// A stage is a judge and a clock of bubbles; visitors act by the methods below.
type stage struct {
	*judge
	begun time.Time
}

func newStage() *stage { return &stage{newJudge(), time.Now()} }

func (s *stage) now() time.Duration { return time.Since(s.begun) }

func (s *stage) come(ids ...int) {
	for _, id := range ids {
		s.observe(id, s.begun.Add(s.now()), crowd.Event{What: crowd.EventArrived})
	}
}

// told is an answer that was asked for on time, just now.
func (s *stage) told(id int, number uint64, position int64, state string) {
	s.poll(id, crowd.Poll{State: state, Number: number, Position: position,
		DueAt: s.now(), SentAt: s.now(), AnswerAt: s.now()})
}

func (s *stage) waits(id int, number uint64, position int64) {
	s.told(id, number, position, "waiting")
}

func (s *stage) poll(id int, p crowd.Poll) {
	p.Ask = crowd.AskPoll
	s.observe(id, s.begun, crowd.Event{What: crowd.EventPolled, Poll: p})
}

func (s *stage) enters(id int) { s.observe(id, s.begun, crowd.Event{What: crowd.EventAdmitted}) }

// pass lets time go by in a bubble, each of ids asking every half second.
func (s *stage) pass(d time.Duration, asks func()) {
	for end := s.now() + d; s.now() < end; {
		time.Sleep(500 * time.Millisecond)
		asks()
	}
}

func TestJudge(t *testing.T) { //nolint:funlen // a list of cases
	inLine := func(s *stage) func() {
		return func() { s.waits(1, 11, 1); s.waits(2, 12, 2) }
	}
	tests := []struct {
		name            string
		overtaken, lost int
		says            string
		play            func(s *stage)
	}{
		{"in order", 0, 0, "", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.told(1, 11, 1, "called")
			s.enters(1)
			s.pass(time.Second, func() { s.waits(2, 12, 1) })
			s.enters(2)
		}},
		{"overtaken", 1, 0, "visitor 1 with ticket 11 was told to wait 500ms after ticket 12", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.enters(2)
			s.pass(2*time.Second, func() { s.waits(1, 11, 1) })
		}},
		{"overtaken by a newcomer", 1, 0, "after a newcomer was let in", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.come(3)
			s.pass(time.Second, inLine(s))
			s.enters(3)
			s.waits(2, 12, 2) // at the same moment: no proof
			s.told(1, 11, 1, "called")
			s.enters(1)
			s.pass(time.Second, func() { s.waits(2, 12, 1) })
		}},
		{"a newcomer who was first is no such one", 0, 0, "", func(s *stage) {
			s.come(3)
			s.pass(time.Second, func() {})
			s.come(4)
			s.pass(3*time.Second, func() { s.waits(4, 13, 3) })
			s.enters(3)
			s.pass(time.Second, func() { s.waits(4, 13, 1) })
		}},
		{"who was called while it asked is not overtaken", 0, 0, "", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.enters(2)
			s.told(1, 11, 1, "called")
		}},
		{"who asked before the other was in proves nothing", 0, 0, "", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			asked := s.now()
			s.pass(500*time.Millisecond, func() {})
			s.enters(2)
			s.poll(1, crowd.Poll{State: "waiting", Number: 11, Position: 1, DueAt: asked,
				SentAt: asked, AnswerAt: s.now()})
		}},
		{"an answer that is not the room's is none", 0, 0, "", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.poll(1, crowd.Poll{DueAt: s.now(), SentAt: s.now(), AnswerAt: s.now(), Err: "not ours"})
			s.enters(2)
			s.pass(time.Second, func() { s.waits(1, 11, 1) })
		}},
		{"who was late may be passed", 0, 0, "", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.poll(1, crowd.Poll{AnswerAt: crowd.Never, Err: "connection refused"})
			s.pass(time.Second, func() { s.waits(2, 12, 1) })
			s.waits(1, 11, 1)
			s.enters(2)
			s.pass(time.Second, func() { s.waits(1, 11, 1) })
		}},
		{"a late answer is late too", 0, 0, "", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.poll(1, crowd.Poll{State: "waiting", Number: 11, Position: 1, DueAt: s.now() - 2*time.Second,
				SentAt: s.now(), AnswerAt: s.now()})
			s.enters(2)
			s.pass(time.Second, func() { s.waits(1, 11, 1) })
		}},
		{"a call that died with the room is no proof", 0, 0, "", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.enters(2)
			s.back(s.killed(""))
			s.pass(time.Second, func() { s.waits(1, 11, 1) })
		}},
		{"overtaken after a kill", 1, 0, "ticket 11 was told to wait", func(s *stage) {
			s.pass(5*time.Second, inLine(s))
			s.back(s.killed(""))
			s.pass(time.Second, inLine(s))
			s.enters(2)
			s.pass(time.Second, func() { s.waits(1, 11, 1) })
		}},
		{"another number", 0, 1, "visitor 1 had ticket 11 and was given ticket 15", func(s *stage) {
			s.waits(1, 11, 1)
			s.waits(1, 15, 4)
			s.waits(1, 16, 4)
		}},
		{"a place further back", 0, 1, "was number 3 in line, then number 4", func(s *stage) {
			s.waits(1, 11, 3)
			s.waits(1, 11, 3)
			s.waits(1, 11, 4)
		}},
		{"an answer without a place loses none", 0, 0, "", func(s *stage) {
			s.waits(1, 11, 3)
			s.told(1, 0, 0, "down")
			s.waits(1, 11, 3)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				s.come(1, 2)
				tt.play(s)
				f := s.finding()
				if f.Overtaken != tt.overtaken || f.Lost != tt.lost || f.SentBack != 0 ||
					!strings.Contains(f.First, tt.says) || tt.says == "" && f.First != "" {
					t.Errorf("%d overtaken, %d lost, %q; want %d, %d, %q", f.Overtaken, f.Lost,
						f.First, tt.overtaken, tt.lost, tt.says)
				}
			})
		})
	}
}

func TestJudgeSentBack(t *testing.T) {
	j := newJudge()
	j.observe(7, time.Now(), crowd.Event{What: crowd.EventSentBack})
	if f := j.finding(); f.SentBack != 1 || !strings.Contains(f.First, "visitor 7") {
		t.Errorf("%+v", f)
	}
}

// TestJudgeOfAKill: of those who had a place, each counts once, by its first answer.
func TestJudgeOfAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.come(1, 2, 3, 4, 5)
		for id := range 4 {
			s.waits(id+1, uint64(id+1), int64(id+1))
		}
		k := s.killed("")
		time.Sleep(300 * time.Millisecond)
		s.back(k)
		s.poll(1, crowd.Poll{AnswerAt: crowd.Never, Err: "connection refused"})
		s.waits(1, 1, 1)
		s.waits(1, 1, 1)
		s.waits(2, 9, 2)
		s.enters(3)
		s.waits(5, 10, 3)
		got := s.finding().Kills
		want := kill{at: k.at, down: 300 * time.Millisecond, waiting: 4, again: 2, lost: 1,
			age: 300 * time.Millisecond}
		if len(got) != 1 || got[0].waiting != want.waiting || got[0].again != want.again ||
			got[0].lost != want.lost || got[0].down != want.down || got[0].age != want.age {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// TestFaults: each promise that is broken ends the demo with a fault, and so does a
// run in which nothing was to be seen.
func TestFaults(t *testing.T) {
	good := func() *Summary {
		return &Summary{report: report{Count: 50}, seen: finding{Tickets: 30, Kills: []kill{
			{waiting: 20, again: 20, down: time.Second, age: time.Minute},
			{waiting: 20, again: 3, down: time.Second, age: 5 * time.Second}}}}
	}
	if f := good().Faults(); f != nil {
		t.Errorf("a good run has faults: %v", f)
	}
	for name, breaks := range map[string]func(*Summary){
		"over":         func(s *Summary) { s.report.Over = 1 },
		"overtaken":    func(s *Summary) { s.seen.Overtaken = 1 },
		"lost":         func(s *Summary) { s.seen.Lost = 1 },
		"sent back":    func(s *Summary) { s.seen.SentBack = 1 },
		"down":         func(s *Summary) { s.seen.Kills[0].down = 0 },
		"silent":       func(s *Summary) { s.seen.Kills[0].again-- },
		"nobody":       func(s *Summary) { s.report.Count = 0 },
		"nobody waits": func(s *Summary) { s.seen.Tickets = 0 },
	} {
		s := good()
		breaks(s)
		var text strings.Builder
		if err := s.Write(&text); err != nil {
			t.Fatal(err)
		}
		if len(s.Faults()) != 1 || !strings.Contains(text.String(), "broken: ") ||
			strings.Contains(text.String(), "never over") {
			t.Errorf("%s: faults %v\n%s", name, s.Faults(), &text)
		}
	}
}
