//go:build cluster

package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// What a newcomer may wait for data centers (the issue "Datacenters").
const (
	trip      = 2 * oneWay
	localMost = 10 * time.Millisecond // far below a message across. Chosen
	askMost   = trip + 10*time.Millisecond
	fetchMost = 2*trip + 20*time.Millisecond
)

// trials is how many rooms are asked once each: the second newcomer of a room meets
// slots that were lent for the first. Chosen.
const trials = 21

// smallRooms are rooms of a few slots, one for each trial.
func smallRooms(kind string, total int) (names []string, text string) {
	for i := range trials {
		name := fmt.Sprintf("%s%d", kind, i)
		names = append(names, name)
		text += fmt.Sprintf("  - {name: %s, path: /%s, origin: ORIGIN, total_active_users: %d, "+
			"new_users_per_minute: 1000, session_duration: 1s}\n", name, name, total)
	}
	return names, text
}

// TestSitesLatency: what a newcomer waits for, with slots in its data center, with none
// but those of Anywhere, and with none but those of another data center.
func TestSitesLatency(t *testing.T) {
	const few = 8
	p := quiet(600, 60_000, 5*time.Second)
	p.sites = siteNames()
	cold, text := smallRooms("cold", few)
	far, more := smallRooms("far", few)
	p.rooms = text + more
	st := newStage(t, p)
	st.known(cold)
	st.known(far)

	here := st.newcomers(lhr, 20, 8*time.Second)
	here = here[len(here)/2:] // the first met a data center that nobody had come to
	var lent, recalled []time.Duration
	for _, name := range cold {
		if s := st.holds(lhr, name); s.Held == 0 {
			lent = append(lent, st.first(lhr, name))
		}
	}
	for _, name := range far {
		st.fill(del, name, few)
	}
	for _, name := range far {
		if st.idle(del, name, few) {
			recalled = append(recalled, st.first(lhr, name))
		}
	}
	for _, d := range [][]time.Duration{here, lent, recalled} {
		slices.Sort(d)
	}
	t.Logf("slots here %v\nlent by Anywhere %v\nrecalled %v", here, lent, recalled)
	late := 0
	for _, d := range here {
		if d >= oneWay {
			late++
		}
	}
	st.tell([]judge.Figure{
		half("slots here: half of newcomers, ms", here, localMost),
		most("slots here: newcomers who waited as long as a message takes", late, len(here)/50,
			"of %d, 2 %%", len(here)),
		least("newcomers who met a data center without slots", len(lent), trials/2, "of %d", trials),
		half("slots of Anywhere: half of newcomers, ms", lent, askMost),
		least("newcomers who met slots of another data center alone", len(recalled), trials/2, "of %d", trials),
		half("slots of another data center: half of newcomers, ms", recalled, fetchMost),
	})
}

// half is the median of times, in ms.
func half(name string, times []time.Duration, limit time.Duration) judge.Figure {
	f := judge.Figure{Name: name, Limit: float64(limit.Milliseconds())}
	if len(times) > 0 {
		f.Reach = float64(at(times, 50).Microseconds()) / 1e3
		f.Note = fmt.Sprintf("of %d, most %v", len(times), slices.Max(times).Round(time.Millisecond))
	}
	return f
}

// known waits until all data centers know Anywhere of rooms.
func (st *stage) known(rooms []string) {
	st.t.Helper()
	for end := time.Now().Add(settled); ; st.rest(100 * time.Millisecond) {
		unknown := []string{}
		for _, room := range rooms {
			for _, site := range st.plan.sites {
				if w, err := st.world(site, room); err != nil || w.Anywhere.Age < 0 {
					unknown = append(unknown, site+" of "+room)
				}
			}
		}
		if len(unknown) == 0 {
			return
		}
		if time.Now().After(end) {
			st.t.Fatalf("Anywhere is not known to %s", strings.Join(unknown, ", "))
		}
	}
}

// holds is what a data center holds of a room.
func (st *stage) holds(site, room string) worldSite {
	st.t.Helper()
	w, err := st.world(site, room)
	if err != nil {
		st.t.Fatal(err)
	}
	return w.site(site)
}

// first lets one newcomer come and gives how long it took.
func (st *stage) first(site, room string) time.Duration {
	st.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: askTimeout}
	took, err := fetch(client, st.get(site).public, "/"+room)
	if err != nil {
		st.t.Errorf("newcomer of %s at %s after %v: %v", room, site, took, err)
	}
	return took
}

// fill lets so many newcomers come that a room is full.
func (st *stage) fill(site, room string, n int) {
	st.t.Helper()
	var all sync.WaitGroup
	for range n {
		all.Go(func() { st.first(site, room) })
	}
	all.Wait()
}

// idle waits until a data center holds all slots of a room, and nobody uses them.
func (st *stage) idle(site, room string, n int) bool {
	st.t.Helper()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); st.rest(50 * time.Millisecond) {
		if s := st.holds(site, room); s.Held == n && s.Unused == n {
			return true
		}
	}
	st.t.Logf("%s of %s: %+v", room, site, st.holds(site, room))
	return false
}

// newcomers come to one data center at a steady rate; it gives how long each took.
func (st *stage) newcomers(site string, perSecond int, d time.Duration) (times []time.Duration) {
	st.t.Helper()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for range perSecond * int(d.Seconds()) {
		<-tick.C
		times = append(times, st.first(site, ""))
	}
	return times
}
