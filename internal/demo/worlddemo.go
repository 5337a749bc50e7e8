package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// WorldLimits returns the limits of the demo of several data centers. Chosen: few enough slots to
// draw them, and the crowd's sessions use no more than two thirds of the limit of new users.
func WorldLimits() Limits { return Limits{AtOnce: 60, PerMinute: 900, Session: 15 * time.Second} }

// WorldFor is the default duration of the demo of several data centers, and days the number of days
// shown in it. Chosen: each city is busy for 20 s.
const (
	WorldFor = 90 * time.Second
	days     = 1.5
)

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
	title string
	at    time.Time
	took  time.Duration // 0: still cut
	held  int           // slots held at the cut
	first int           // admissions there before
	after int           // and until it was joined again
}

// show returns the duration of the whole show.
func (d *demo) show() time.Duration {
	if d.cfg.For > 0 {
		return d.cfg.For
	}
	return WorldFor
}

// day returns the time in days since the first day began.
func (d *demo) day() float64 { return days * float64(d.openFor()) / float64(d.show()) }

// await waits until all data centers have received messages from each other.
func (w *world) await(ctx context.Context) error {
	for began := time.Now(); ; {
		i := slices.IndexFunc(w.cities, func(c *city) bool { return !c.joined() })
		if i < 0 {
			return nil
		}
		if c := w.cities[i]; time.Since(began) > coldStart {
			return fmt.Errorf("%s was not joined with the others within %v\n%s", c.title, coldStart,
				&c.node.gate.output)
		}
		if !rest(ctx, lookEvery) {
			return nil
		}
	}
}

// followWorld watches the data centers, and cuts and restores wires, until ctx is done.
func (d *demo) followWorld(ctx context.Context) {
	for _, c := range d.world.cities {
		c.judge.slack = clusterSlack
		d.spawn(func() error { return c.look(ctx) })
	}
	d.spawn(func() error {
		p := &director{demo: d, ready: map[string]bool{}}
		for rest(ctx, lookEvery/2) {
			p.look(time.Now())
		}
		return nil
	})
}

// A director causes the events that happen without a key. It is used by one goroutine.
type director struct {
	demo  *demo
	ready map[string]bool
	noon  *city // the busiest city
	cuts  int
	cut   *city // the city cut by the demo; nil: none
	until time.Duration
}

func (p *director) look(now time.Time) {
	d, open := p.demo, p.demo.openFor()
	for _, c := range d.world.cities {
		if !p.ready[c.name] && c.isReady() {
			p.ready[c.name] = true
			d.tell("%s is up", c.title)
		}
	}
	if open == 0 {
		return
	}
	day := d.day()
	busiest := slices.MaxFunc(d.world.cities, func(a, b *city) int {
		return int(1e6 * (a.busy(day) - b.busy(day)))
	})
	if busiest != p.noon {
		p.noon = busiest
		d.tell("it is morning in %s: people come there", busiest.title)
	}
	at := time.Duration((float64(p.cuts) + cutAt) * float64(d.show()))
	switch {
	case p.cut == nil && open >= at:
		p.cuts++
		if c := d.world.of(cutCity); !c.isOff() {
			p.cut, p.until = c, open+max(cutLeast, time.Duration(cutShare*float64(d.show())))
			d.cutOff(c, now)
		}
	case p.cut != nil && open >= p.until:
		if p.cut.isOff() {
			d.mend(p.cut, now)
		}
		p.cut = nil
	}
}

// worldKey acts on a key: 1, 2 and 3 cut a city off, or join it again.
func (d *demo) worldKey(k byte) {
	if d.openFor() == 0 || k < '1' || int(k-'1') >= len(d.world.cities) {
		return
	}
	if c := d.world.cities[k-'1']; c.isOff() {
		d.mend(c, time.Now())
	} else {
		d.cutOff(c, time.Now())
	}
}

// cutOff cuts all wires of a city.
func (d *demo) cutOff(c *city, now time.Time) {
	by := d.shop.report(now).By[c.name]
	c.setOff(true, now)
	d.world.cutAll()
	held := c.holds()
	d.mu.Lock()
	d.cuts = append(d.cuts, cutting{city: c, title: c.title, at: now, held: held, first: by})
	d.mu.Unlock()
	d.tell("%s is cut off, with %d slots", c.title, held)
}

// mend joins a city with all others that are not cut off themselves.
func (d *demo) mend(c *city, now time.Time) {
	by := d.shop.report(now).By[c.name]
	c.setOff(false, now)
	d.world.cutAll()
	d.mu.Lock()
	for i := range d.cuts {
		if k := &d.cuts[i]; k.city == c && k.took == 0 {
			k.took, k.after = now.Sub(k.at), by
		}
	}
	d.mu.Unlock()
	d.tell("%s is joined with the others again", c.title)
}

// people sends a crowd to each city until ctx is done. Its size follows the time of day.
func (d *demo) people(ctx context.Context) error {
	var wg sync.WaitGroup
	for i, c := range d.world.cities {
		most := float64(d.cfg.Visitors)
		f := newFlock(d.front.URL, c.node, int(most*(allDay+atNoon))+1, c.judge)
		f.next.Store(int64(i+1) * 1_000_000) // visitor numbers are unique across cities
		f.failed, f.came = d.fail, c.newcomer
		f.manners = manners{arrivals: cityPace, stayMin: 3 * time.Second, stayMax: 8 * time.Second,
			awayMin: cityPace / 5, awayMax: cityPace}
		f.wanted = func(i int) bool { return float64(i) < most*(allDay+atNoon*c.busy(d.day())) }
		wg.Go(func() {
			if err := f.run(ctx); err != nil {
				d.fail(err)
			}
		})
	}
	wg.Wait()
	return nil
}

// newcomer records how long the first answer to a visitor takes.
func (c *city) newcomer() func(*crowd.Poll) {
	had := c.takeUnused()
	return func(p *crowd.Poll) {
		if p.Err != "" || p.AnswerAt == crowd.Never {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.came.note(had, p.State == "", p.AnswerAt-p.SentAt)
	}
}

// finding returns what all visitors saw.
func (d *demo) finding() finding {
	if d.world == nil {
		return d.judge.finding()
	}
	all := finding{Expected: -1}
	for _, c := range d.world.cities {
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

// worldScene adds the data centers to a scene. The caller holds mu.
func (d *demo) worldScene(s *scene) {
	home := d.world.cities[0]
	s.World = &worldScene{Home: home.name}
	if at := home.homeNow(); at != "" && d.world.of(at) != nil {
		home, s.World.Home = d.world.of(at), at
	}
	seen, at := home.last()
	if seen.World != nil {
		s.World.Free, s.World.Presumed = seen.World.Anywhere.Free, seen.World.Anywhere.Presumed
	}
	for _, c := range d.world.cities {
		one := c.scene(s.Now)
		if one.Age = seen.of(c.name).Age; one.Age >= 0 && c != home {
			one.Age += s.Now.Sub(at).Seconds()
		}
		one.LetIn = s.Shop.By[c.name]
		s.World.Cities = append(s.World.Cities, one)
	}
	d.severalScene(s, !d.opened.IsZero())
}
