package yardstick

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// said records what a test was told, in place of failing.
type said struct {
	testing.TB
	end           time.Time
	errors, fatal []string
}

func (s *said) Helper()                     {}
func (s *said) Deadline() (time.Time, bool) { return s.end, !s.end.IsZero() }
func (s *said) Logf(string, ...any)         {}

func (s *said) Errorf(format string, args ...any) {
	s.errors = append(s.errors, fmt.Sprintf(format, args...))
}

func (s *said) Fatalf(format string, args ...any) {
	s.fatal = append(s.fatal, fmt.Sprintf(format, args...))
	panic(s)
}

func TestAwaitLooksUntilItIsSo(t *testing.T) {
	looks := 0
	Await(&said{}, "the third look", func() bool { looks++; return looks == 3 })
	if looks != 3 {
		t.Errorf("%d looks, want 3", looks)
	}
}

func TestAwaitFailsBeforeGoTestEnds(t *testing.T) {
	s := &said{end: time.Now().Add(100 * time.Millisecond)}
	defer func() {
		if recover() != s || len(s.fatal) != 1 || !strings.HasPrefix(s.fatal[0], "not seen in the ") {
			t.Errorf("got %q, want one failure that names what was awaited", s.fatal)
		}
		if time.Now().Before(s.end.Add(-spare)) {
			t.Error("it failed too early")
		}
	}()
	Await(s, "seen", func() bool { return false })
}

func TestJudgeComparesWithTheSlowestSteps(t *testing.T) {
	y := &Stick{delay: 3 * time.Millisecond, sync: 20 * time.Millisecond, request: 5 * time.Millisecond}
	b := Bound{Design: time.Second, Delays: 2, Syncs: 3, Requests: 4}
	if got, want := y.Most(b), 1086*time.Millisecond; got != want {
		t.Errorf("Most: got %v, want %v", got, want)
	}
	for took, faults := range map[time.Duration]int{1086 * time.Millisecond: 0, 1087 * time.Millisecond: 1} {
		s := &said{TB: t}
		if y.Judge(s, "a start", took, b); len(s.errors) != faults {
			t.Errorf("%v: got %q, want %d failures", took, s.errors, faults)
		}
	}
}

// Start keeps the slowest step of each kind, and at least what counts as a step.
func TestStartMeasures(t *testing.T) {
	y := Start(t)
	for name, step := range map[string]Bound{"delay": {Delays: 1}, "sync": {Syncs: 1},
		"request": {Requests: 1}} {
		if got := y.Most(step); got < least {
			t.Errorf("%s: got %v, want at least %v", name, got, least)
		}
	}
}
