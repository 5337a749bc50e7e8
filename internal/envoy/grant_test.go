package envoy

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What grants need now is at least what they need at each later time.
func TestNeededFor(t *testing.T) {
	now := time.Unix(1e9, 0)
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		window := time.Duration(1+r.IntN(60)) * time.Second
		var grants []grant
		at := now.Add(-2 * window)
		for at.Before(now) {
			g := newGrant(r.Int64N(1000), window, at)
			at = at.Add(time.Duration(1 + r.Int64N(int64(window))))
			if at.After(now) {
				at = now
			}
			g.end = at.Add(grantTTL + grantSlack)
			grants = append(grants, g)
		}
		needed := neededFor(grants, now, window)
		for d := time.Duration(0); d < 2*window; d += window / 50 {
			if later := int64(mostIn(grants, now.Add(d), window) + 1e-6); later > needed {
				t.Fatalf("seed %d: %d are needed, and %d after %v", seed, needed, later, d)
			}
		}
	}
}

// What the limit has booked as used while its host was out of reach is booked again when Envoy can
// use no grant any more, also if a new grant has not been sent yet.
func TestLostGrantsCountUntilTheirEnd(t *testing.T) {
	now := time.Now()
	end := now.Add(grantTTL + grantSlack)
	old := newGrant(9, time.Second, now)
	old.end = end
	l := &lease{grants: []grant{old, newGrant(1, time.Second, now)}}
	for range 2 { // a second loss does not shorten it
		if l.lose(); !l.lostAt.Equal(end) {
			t.Errorf("until %v, want %v", l.lostAt.Sub(now), end.Sub(now))
		}
	}
}
