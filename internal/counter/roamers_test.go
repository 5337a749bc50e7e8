package counter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
)

// A second tab of a visitor of another data center polls while the claim of the first tab is being
// written. It is not a newcomer, and gets the same session.
func TestARoamerIsKnownWhileItsClaimIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &sleeper{sleep: func() { time.Sleep(time.Second) }}
		c := brokenOpen(t, brokenConfig("shop", disk, nil, time.Now(), time.Minute))
		time.Sleep(headPoll)
		poll := func(came slot.Time) PlaceInfo {
			p, err := c.Roam(t.Context(), 42, came)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		p := poll(0)
		for range 40 {
			if p.Status == slot.TicketCalled {
				break
			}
			time.Sleep(time.Second)
			p = poll(0)
		}
		claim := func() slot.ClaimReply {
			r, err := c.Claim(t.Context(), p.Life, p.Number, 0, 0)
			if err != nil || r.End == 0 {
				t.Errorf("not let in: %+v %v", r, err)
			}
			return r
		}
		first := make(chan slot.ClaimReply)
		disk.armed.Store(true)
		go func() { first <- claim() }()
		time.Sleep(500 * time.Millisecond)        // the write is in flight
		for _, came := range []slot.Time{0, -1} { // out of reach, and back: the visitor is here already
			if got := poll(came); got.Status != slot.TicketUsed || got.UsedUp {
				t.Errorf("the other tab is told %+v, want that the ticket is being used", got)
			}
		}
		if a, b := claim(), <-first; a.End != b.End {
			t.Errorf("two stays: %+v %+v", a, b)
		}
	})
}

// TestAHomeIsTheSameEverywhere: each data center computes the same home of a person, and one more data center
// takes its people from all others and moves nobody else.
func TestAHomeIsTheSameEverywhere(t *testing.T) {
	names := []string{"sjc", "lhr", "del", "fra"}
	people := func(own string, all []string) *People {
		p := NewPeople(own, nil)
		for _, name := range all {
			if name != own {
				p.Add(name, nil)
			}
		}
		return p
	}
	at, moved := map[string]int{}, map[string]int{}
	for i := range 4000 {
		id := persons.IDOf("shop", fmt.Sprint(i))
		home := people(names[0], names).Home(id)
		for _, own := range names[1:] {
			if got := people(own, names).Home(id); got != home {
				t.Fatalf("%d is at home in %s at %s, and in %s at %s", i, home, names[0], got, own)
			}
		}
		at[home]++
		if was := people(names[0], names[:3]).Home(id); was != home {
			if moved[was]++; home != "fra" {
				t.Errorf("%d moves from %s to %s", i, was, home)
			}
		}
	}
	for _, name := range names {
		if at[name] < 900 || at[name] > 1100 || name != "fra" && (moved[name] < 270 || moved[name] > 400) {
			t.Errorf("at home %v, moved %v", at, moved)
		}
	}
}
