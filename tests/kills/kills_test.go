//go:build kills || soak

package kills

import (
	"testing"
	"time"
)

// TestKills kills headgate again and again while 320 clients join, poll, enter
// and renew. Three of five kills are aimed at a write, so that more than half
// have one in flight wherever the others fall.
func TestKills(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	st.rest(5 * time.Second) // the line forms
	for i := range *killsN {
		// From ready on: nobody is called for 2 s, so some must last longer.
		pause := 300*time.Millisecond + time.Duration(st.rng.ExpFloat64()*float64(3*time.Second))
		st.rest(min(pause, 12*time.Second))
		st.killOnce(i%5 < 3)
	}
	// Each visitor asks again, and old tickets are tried. After kills that came fast, longer:
	// 200 are to come through.
	st.rest(max(32*time.Second, 66*time.Second-st.clock()))
	if *killsN >= 50 {
		st.drain(3 * time.Minute) // every ticket comes to its turn
	}
	st.finish(limits{clients: 200, kills: *killsN, inFlight: *killsN / 2})
}

// TestStopped freezes headgate for longer than any session lasts and wakes it,
// first in the middle of a write, then whenever it is.
func TestStopped(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	st.rest(8 * time.Second)
	st.proc.aim(5 * time.Second)
	st.frozen(*stopFor)
	st.proc.freeze()
	st.frozen(*stopFor)
	st.finish(limits{clients: 60, frozen: *stopFor > session})
}

// frozen waits while headgate is, wakes it, and lets the crowd go on.
func (st *stage) frozen(d time.Duration) {
	st.rest(d)
	st.life.Add(1) // for the judge: nobody was heard meanwhile
	st.proc.thaw()
	st.rest(16 * time.Second)
}
