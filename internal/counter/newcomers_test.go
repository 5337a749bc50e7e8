package counter

import (
	"testing"
	"time"
)

// A ticket is not called before its cookie comes back, so the first to poll gets the slot that is
// due. Newcomers therefore poll in the order in which they came, also when a slot is just due.
func TestNewcomersComeBackInOrder(t *testing.T) {
	s := newScene(t, 1, 3, 600, 10*time.Second)
	for i := range 3 {
		s.arrive(time.Duration(i)*time.Second, stayPlan{inside: time.Millisecond, think: time.Second})
	}
	s.run(8 * time.Second)
	back := time.Duration(0)
	for i := range 40 {
		s.run(8*time.Second + time.Duration(i)*100*time.Millisecond)
		s.write(true)
		p := s.desk.Join(s.now, 15*time.Minute, 0)
		if at := s.now + p.PollAfter; at <= back {
			t.Errorf("newcomer %d is told to ask again in %v, %v before the one before it", i, p.PollAfter, back-at)
		} else {
			back = at
		}
	}
}
