package demo

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// days is the number of days shown in one show. Chosen: each city is busy for 20 s.
const days = 1.5

// These constants define the crowd of the world. Chosen: in each city some come all day, and most
// when it is busy there. At each noon there are more visitors than slots, and fewer in between.
const (
	allDay   = 0.06
	atNoon   = 1 - 3*allDay
	cityPace = time.Second // longest pause between two visits
)

// These constants define which city is cut off when, as shares of a show. Chosen: London, for as
// long as San Jose takes to need its slots. The cut is later than a minute after the start, when
// the part of the limit of new users that London has used comes back to it.
const (
	cutCity  = "lhr"
	cutAt    = 0.74
	cutShare = 12. / 90
	cutLeast = 4 * time.Second
)

// A cutting is one cut of a city.
type cutting struct {
	city  *city
	at    time.Time
	took  time.Duration // 0: still cut
	held  int           // slots held at the cut
	first int           // admissions there before
	after int           // and until it was joined again
}

// A worldwide is the demo of a room that is three data centers.
type worldwide struct {
	*demo
	*world
	cuts []cutting // guarded by the mutex of the demo

	// Of the events that happen without a key:
	woken map[string]bool
	noon  *city // the busiest city
	made  int   // cuts
	cut   *city // the city that is cut; nil: none
	until time.Duration
}

func newWorldwide(d *demo, g *ground) (*worldwide, error) {
	w, err := g.world()
	if err != nil {
		return nil, err
	}
	for _, c := range w.cities {
		c.judge.slack = clusterSlack
	}
	return &worldwide{demo: d, world: w, woken: map[string]bool{}}, nil
}

// whole returns the duration of the whole show.
func (d *worldwide) whole() time.Duration {
	if d.cfg.For > 0 {
		return d.cfg.For
	}
	return WorldFor
}

// day returns the time in days since the first day began.
func (d *worldwide) day() float64 { return days * float64(d.openFor()) / float64(d.whole()) }

// open waits until all data centers have received messages from each other.
func (d *worldwide) open(ctx context.Context) error {
	return d.await(ctx, func() (string, *node) {
		if i := slices.IndexFunc(d.cities, func(c *city) bool { return !c.joined() }); i >= 0 {
			return d.cities[i].title + " was not joined with the others", d.cities[i].node
		}
		return "", nil
	})
}

// follow causes the events that happen without a key.
func (d *worldwide) follow(ctx context.Context) {
	now, open := time.Now(), d.openFor()
	for _, c := range d.cities {
		if !d.woken[c.name] && c.stands() == up {
			d.woken[c.name] = true
			d.every(ctx, time.Second, c.count)
			d.tell("%s is up", c.title)
		}
	}
	if open == 0 {
		return
	}
	day := d.day()
	busiest := slices.MaxFunc(d.cities, func(a, b *city) int {
		return int(1e6 * (a.place.busy(day) - b.place.busy(day)))
	})
	if busiest != d.noon {
		d.noon = busiest
		d.tell("it is morning in %s: people come there", busiest.title)
	}
	at := time.Duration((float64(d.made) + cutAt) * float64(d.whole()))
	switch {
	case d.cut == nil && open >= at:
		d.made++
		if c := d.of(cutCity); !c.isOff() {
			d.cut, d.until = c, open+max(cutLeast, time.Duration(cutShare*float64(d.whole())))
			d.setOff(c, true, now)
		}
	case d.cut != nil && open >= d.until:
		if d.cut.isOff() {
			d.setOff(d.cut, false, now)
		}
		d.cut = nil
	}
}

// key acts on a key: 1, 2 and 3 cut a city off, or join it again.
func (d *worldwide) key(_ context.Context, k byte) {
	if d.openFor() == 0 || k < '1' || int(k-'1') >= len(d.cities) {
		return
	}
	c := d.cities[k-'1']
	d.setOff(c, !c.isOff(), time.Now())
}

func (d *worldwide) killByItself(context.Context) bool { return false }

// setOff cuts a city off, or joins it with all others that are not cut off themselves.
func (d *worldwide) setOff(c *city, off bool, now time.Time) {
	by := d.shop.report(now).By[c.name]
	d.world.setOff(c, off, now)
	_, _, s := c.now()
	held := s.of(c.name).Held
	d.mu.Lock()
	if off {
		d.cuts = append(d.cuts, cutting{city: c, at: now, held: held, first: by})
	} else {
		for i := range d.cuts {
			if k := &d.cuts[i]; k.city == c && k.took == 0 {
				k.took, k.after = now.Sub(k.at), by
			}
		}
	}
	d.mu.Unlock()
	if off {
		d.tell("%s is cut off, with %d slots", c.title, held)
	} else {
		d.tell("%s is joined with the others again", c.title)
	}
}

// flocks returns a crowd for each city. Its size follows the time of day.
func (d *worldwide) flocks(http.RoundTripper) (all []*flock) {
	most := float64(d.cfg.Visitors)
	for i, c := range d.cities {
		f := newFlock(d.front.URL, c.node, int(most*(allDay+atNoon))+1, c.judge)
		f.next.Store(int64(i+1) * 1_000_000) // visitor numbers are unique across cities
		f.failed, f.came = d.fail, c.newcomer
		f.manners = manners{arrivals: cityPace, stayMin: 3 * time.Second, stayMax: 8 * time.Second,
			awayMin: cityPace / 5, awayMax: cityPace}
		f.wanted = func(i int) bool { return float64(i) < most*(allDay+atNoon*c.place.busy(d.day())) }
		all = append(all, f)
	}
	return all
}

// finding returns what all visitors saw.
func (d *worldwide) finding() finding {
	all := finding{Expected: -1}
	for _, c := range d.cities {
		f := c.judge.finding()
		all.Waiting += f.Waiting
		all.Tickets += f.Tickets
		all.Overtaken += f.Overtaken
		all.Lost += f.Lost
		all.SentBack += f.SentBack
		if all.First == "" && f.First != "" {
			all.First = c.title + ": " + f.First
		}
	}
	return all
}

// show adds the data centers to a scene. The caller holds mu.
func (d *worldwide) show(s *scene) {
	home := d.cities[0]
	_, _, seen := home.now()
	if seen.World != nil && d.of(seen.World.Home) != nil {
		home = d.of(seen.World.Home)
		_, _, seen = home.now()
	}
	s.World = &worldScene{Home: home.name}
	for _, c := range d.cities {
		one := c.scene(s.Now)
		if one.Age = seen.of(c.name).Age; one.Age >= 0 && c != home {
			one.Age += s.Now.Sub(home.heardAt()).Seconds()
		}
		one.LetIn = s.Shop.By[c.name]
		s.World.Cities = append(s.World.Cities, one)
	}
	d.several(s, !d.opened.IsZero())
}
