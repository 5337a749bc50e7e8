package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/events"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/ticket"
)

// happen lets an operator, or an accident, do something.
func (c *chaos) happen() {
	often := "limits limits limits method method doors doors lanes lanes sessions sessions " +
		"event event event rotate restart restart restart again"
	if len(c.sites) > 1 {
		often += " cut cut move move"
	} else if c.r.IntN(5) == 0 {
		often += " rollback"
	}
	all := strings.Fields(often)
	if *chaosOnly != "" {
		all = strings.Split(*chaosOnly, ",")
	}
	map[string]func(){
		"limits": c.limits, "method": c.method, "doors": c.doors, "lanes": c.lanes, "sessions": c.sessions,
		"event": c.event, "rotate": c.rotate, "restart": c.restart, "again": c.again, "cut": c.cut,
		"move": c.moveAnywhere, "rollback": c.rollback,
	}[all[c.r.IntN(len(all))]]()
	if c.r.IntN(3) > 0 {
		c.unblock()
	}
}

// unblock lets people in again after a while, or nothing else would be seen.
func (c *chaos) unblock() {
	c.mu.Lock()
	x := c.cfg
	c.mu.Unlock()
	if x.TotalActiveUsers > 0 && x.NewUsersPerMinute > 4 && !x.QueueAll && !x.Closed &&
		x.Method != headgate.MethodReject && x.Method != headgate.MethodPassthrough &&
		x.OpensAt.Before(time.Now()) {
		return
	}
	c.pause(time.Duration(c.between(1, 20)) * time.Second)
	c.want("open again", func(x *headgate.RoomConfig) {
		x.TotalActiveUsers, x.NewUsersPerMinute = max(x.TotalActiveUsers, 2), max(x.NewUsersPerMinute, 20)
		x.QueueAll, x.Closed, x.OpensAt = false, false, time.Time{}
		if x.Method == headgate.MethodReject || x.Method == headgate.MethodPassthrough {
			x.Method = headgate.MethodFIFO
		}
	})
	c.quiet(30 * time.Second)
	c.mu.Lock()
	c.unordered()
	c.open = time.Now().Add(20 * time.Second)
	c.mu.Unlock()
}

// want changes what the operator wants.
func (c *chaos) want(what string, f func(*headgate.RoomConfig)) {
	c.mu.Lock()
	f(&c.cfg)
	x := c.cfg
	c.mu.Unlock()
	c.log("%s: %d at once, %d a minute, %v fixed %v hard %v grace %v, method %q, queue_all %v, closed %v, "+
		"most %d, lanes %v", what, x.TotalActiveUsers, x.NewUsersPerMinute, x.SessionDuration, x.FixedSession,
		x.HardEnd, x.Grace.For, x.Method, x.QueueAll, x.Closed, x.MaxWaiting, x.Lanes)
}

func (c *chaos) between(a, b int) int { return a + c.r.IntN(b-a+1) }

func (c *chaos) limits() {
	c.want("limits", func(x *headgate.RoomConfig) {
		if c.r.IntN(2) == 0 {
			x.TotalActiveUsers = int64([]int{0, 1, 1, c.between(1, 4), c.between(1, 12)}[c.r.IntN(5)])
		} else {
			x.NewUsersPerMinute = int64([]int{0, 1, c.between(1, 10), c.between(5, 60), 600}[c.r.IntN(5)])
		}
		x.NoSpread = c.r.IntN(4) == 0
	})
	c.quiet(20 * time.Second)
}

func (c *chaos) method() {
	c.mu.Lock()
	c.unordered()
	c.mu.Unlock()
	m := []headgate.Method{headgate.MethodFIFO, headgate.MethodFIFO, headgate.MethodRandom,
		headgate.MethodRandom, headgate.MethodPassthrough, headgate.MethodReject}[c.r.IntN(6)]
	c.open = time.Now().Add(10 * time.Second)
	if m == headgate.MethodPassthrough {
		c.open = time.Now().Add(24 * time.Hour)
	}
	c.want("method", func(x *headgate.RoomConfig) { x.Method = m })
	c.quiet(20 * time.Second)
}

func (c *chaos) doors() {
	n := c.r.IntN(6)
	c.want("doors", func(x *headgate.RoomConfig) {
		switch n {
		case 0:
			x.QueueAll = !x.QueueAll
		case 1:
			x.Closed = !x.Closed
		case 2:
			x.MaxWaiting = int64([]int{0, 1, 5, 20}[c.r.IntN(4)])
		case 3:
			if c.each > 0 { // a change that waits for a host holds a mutex, and bubble time stands still
				break
			}
			x.OpensAt = time.Now().Add(time.Duration(c.between(-5, 30)) * time.Second)
		case 4:
			x.QueueAll, x.Closed = false, false
		case 5:
			x.PollMax = time.Duration(c.between(2, 9)) * time.Second
		}
	})
	c.quiet(50 * time.Second)
}

func (c *chaos) lanes() {
	c.want("lanes", func(x *headgate.RoomConfig) {
		x.Lanes = nil
		for i := range c.r.IntN(4) {
			name := fmt.Sprint("lane", (i+c.r.IntN(2)*3)%6)
			x.Lanes = append(x.Lanes, headgate.Lane{Name: name, Share: c.between(1, 33)})
		}
	})
}

func (c *chaos) sessions() {
	c.want("sessions", func(x *headgate.RoomConfig) {
		switch c.r.IntN(4) {
		case 0:
			x.SessionDuration = time.Duration(c.between(6, 30)) * time.Second
		case 1:
			x.FixedSession = !x.FixedSession
		case 2:
			x.Grace = headgate.Grace{}
			if c.r.IntN(2) == 0 {
				x.Grace = headgate.Grace{Paths: []string{"/pay/*"}, For: time.Duration(c.between(5, 50)) * time.Second}
			}
		}
		x.HardEnd = 0
		if c.r.IntN(2) == 0 {
			x.HardEnd = 30*time.Second + time.Duration(c.between(0, 60))*time.Second
		}
	})
	c.quiet(90 * time.Second)
}

// event plans one, or takes one back. Some overlap, some come again.
func (c *chaos) event() {
	now := time.Now()
	e := events.Event{Name: fmt.Sprint("event", c.r.IntN(3)), Shuffle: c.r.IntN(3) > 0,
		Start: now.Add(time.Duration(c.between(-5, 40)) * time.Second).Truncate(time.Second)}
	if c.r.IntN(4) > 0 {
		e.Prequeue = e.Start.Add(-time.Duration(c.between(1, 40)) * time.Second)
	}
	e.End = e.Start.Add(time.Duration(c.between(5, 90)) * time.Second)
	if c.r.IntN(3) == 0 {
		begin := e.Start
		if !e.Prequeue.IsZero() {
			begin = e.Prequeue
		}
		e.Every = e.End.Sub(begin) + time.Duration(c.between(1, 60))*time.Second
	}
	active, method, session := int64(c.between(1, 8)), headgate.Method(""), time.Duration(0)
	if c.r.IntN(3) == 0 {
		method = []headgate.Method{headgate.MethodFIFO, headgate.MethodRandom}[c.r.IntN(2)]
	}
	if c.r.IntN(3) == 0 {
		session = time.Duration(c.between(6, 25)) * time.Second
	}
	limits := c.r.IntN(2) == 0
	change := func(x *headgate.RoomConfig) {
		if limits {
			x.TotalActiveUsers, x.NewUsersPerMinute = active, 10*active
		}
		if method != "" {
			x.Method = method
		}
		if session > 0 {
			x.SessionDuration = session
		}
	}
	c.mu.Lock()
	c.unordered()
	what := "event planned"
	switch n := c.r.IntN(6); {
	case n == 0 && len(c.list) > 0:
		what = "events taken back"
		c.list, c.change = nil, nil
	case n == 1 && len(c.list) > 0:
		i := c.r.IntN(len(c.list))
		c.list[i].Suspended = !c.list[i].Suspended
		what, e = "event suspended or not", c.list[i]
	default:
		for i := range c.list { // of a name there is one
			if c.list[i].Name == e.Name {
				c.list = append(c.list[:i:i], c.list[i+1:]...)
				c.change = append(c.change[:i:i], c.change[i+1:]...)
				break
			}
		}
		c.list, c.change = append(c.list, e), append(c.change, change)
	}
	c.mu.Unlock()
	at := func(t time.Time) float64 { return t.Sub(c.began).Seconds() }
	c.log("%s: %s, prequeue %.0f, start %.0f, end %.0f, every %v, shuffle %v, %v/%s/%v", what, e.Name,
		at(e.Prequeue), at(e.Start), at(e.End), e.Every, e.Shuffle, limits, method, session)
}

// rotate makes a new key seal: all know it, then it seals, then those before the last are thrown away.
func (c *chaos) rotate() {
	next := headgate.SealingKeys{Current: c.keys.Current, Keys: map[byte][32]byte{}}
	maps.Copy(next.Keys, c.keys.Keys)
	id := c.keys.Current%200 + 1
	next.Keys[id] = ticket.NewKey()
	for _, seals := range []byte{c.keys.Current, id} {
		next.Current = seals
		c.mu.Lock()
		c.keys = next
		c.setKeys()
		nodes := c.nodes
		c.mu.Unlock()
		for _, n := range nodes {
			if err := n.engine.SetKeys(next); err != nil {
				c.fail("%v", err)
			}
		}
		c.pause(time.Second)
	}
	c.log("key %d seals", id)
}

// restart ends a process, cleanly or not, and starts it again; or all of a data center.
func (c *chaos) restart() {
	n := c.node(c.r, c.sites[c.r.IntN(len(c.sites))])
	kill, whole := c.r.IntN(3) > 0, c.r.IntN(3) == 0
	down := time.Duration(c.between(0, 12)) * time.Second
	var all []*chaosNode
	for _, x := range c.nodes {
		if x == n || whole && x.site == n.site {
			all = append(all, x)
		}
	}
	c.log("%d nodes of %s end, %s is one, killed %v, for %v", len(all), n.site, n.name, kill, down)
	c.disorder(down)
	for _, x := range all {
		c.end(x, kill)
	}
	nap(down)
	for _, x := range all {
		c.start(x.site, x.name, c.config)
	}
	c.disorder(0)
	c.log("they are back")
}

// disorder is a time in which not all can be in order: a process is gone, or data centers are apart.
func (c *chaos) disorder(d time.Duration) {
	c.mu.Lock()
	c.unordered()
	c.calm = time.Now().Add(d + 20*time.Second)
	s := c.cfg.SessionDuration + c.cfg.Grace.For
	c.mu.Unlock()
	c.quiet(d + 110*time.Second + s)
}

// again ends all processes, and starts them later: with their records, or as a new room of the name.
func (c *chaos) again() {
	anew := c.r.IntN(3) == 0
	c.log("the room is taken away, and made again; anew %v", anew)
	c.stopAll(false, func() {
		if anew {
			for _, site := range c.sites {
				c.mem[site] = &store.Memory{}
			}
		}
	}, anew)
}

// stopAll ends all, does something, and starts all.
func (c *chaos) stopAll(kill bool, between func(), forget bool) {
	was := c.nodes
	c.disorder(10 * time.Second)
	for _, n := range was {
		c.end(n, kill)
	}
	nap(time.Duration(c.between(0, 9)) * time.Second)
	c.mu.Lock()
	between()
	if forget {
		clear(c.stays)
		clear(c.draws)
		clear(c.claimed)
		c.news, c.bounds, c.lost = nil, nil, time.Now().Add(time.Second)
	}
	c.mu.Unlock()
	for _, n := range was {
		c.start(n.site, n.name, c.config)
	}
	c.disorder(10 * time.Second)
	c.log("they are back")
}

// rollback kills all and starts them with the records of some time before.
func (c *chaos) rollback() {
	site := c.sites[0]
	old := map[string][]byte{}
	for _, key := range []string{"counter.shop"} {
		b, _, err := c.mem[site].Load(context.Background(), key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			c.fail("%v", err)
		}
		old[key] = b
	}
	back := c.between(1, 40)
	c.log("a record is kept, to come back in %d s", back)
	c.pause(time.Duration(back) * time.Second)
	c.log("it comes back")
	c.mu.Lock()
	c.lost, c.rolled = time.Now().Add(time.Hour), true
	c.mu.Unlock()
	c.stopAll(true, func() {
		c.mem[site] = &store.Memory{}
		for key, b := range old {
			if b != nil {
				if _, err := c.mem[site].CompareAndSwap(context.Background(), key, 0, b); err != nil {
					c.t.Error(err)
				}
			}
		}
	}, true) // outside the model: nobody who knows more is left
	c.mu.Lock()
	c.lost = time.Now().Add(3 * time.Minute)
	c.mu.Unlock()
}

// cut cuts two data centers apart for a while, or one off.
func (c *chaos) cut() {
	site, other := c.sites[c.r.IntN(len(c.sites))], ""
	if c.r.IntN(2) == 0 {
		other = c.sites[c.r.IntN(len(c.sites))]
	}
	d := time.Duration(c.between(1, 25)) * time.Second
	c.log("%s is cut off from %q for %v", site, other, d)
	set := func(cut bool) {
		c.mu.Lock()
		nodes := c.nodes
		c.mu.Unlock()
		for _, n := range nodes {
			for _, w := range n.ways {
				a, b := n.site, w.to
				if b != "" && (a == site && (other == "" || b == other) ||
					b == site && (other == "" || a == other)) {
					w.SetCut(cut)
				}
			}
		}
	}
	c.disorder(d)
	set(true)
	nap(d)
	set(false)
	c.disorder(0)
	c.mu.Lock()
	c.lost = time.Now().Add(5 * time.Second)
	c.mu.Unlock()
}

// moveAnywhere moves the slots that belong to no data center.
func (c *chaos) moveAnywhere() {
	to := c.sites[c.r.IntN(len(c.sites))]
	n := c.nodes[c.r.IntN(len(c.nodes))]
	c.log("Anywhere moves to %s, says %s", to, n.name)
	c.disorder(10 * time.Second)
	c.await("Anywhere moves", 2*time.Minute, func() bool {
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		err := n.room.MoveAnywhere(ctx, to, false)
		if err == nil {
			err = n.engine.AnnounceAnywhere(ctx, to)
		}
		if err != nil {
			c.log("not yet: %v", err)
		}
		return err == nil
	})
}

// peace lets nothing happen any more, and all come in.
func (c *chaos) peace() {
	c.mu.Lock()
	c.peaceful, c.list, c.change = true, nil, nil
	c.unordered()
	c.mu.Unlock()
	c.open = time.Now().Add(10 * time.Second)
	c.want("peace", func(x *headgate.RoomConfig) {
		x.TotalActiveUsers, x.NewUsersPerMinute, x.Method, x.NoSpread = 5, 60, headgate.MethodFIFO, false
		x.QueueAll, x.Closed, x.MaxWaiting, x.OpensAt, x.Lanes = false, false, 0, time.Time{}, nil
		x.FixedSession, x.HardEnd, x.Grace = false, 0, headgate.Grace{}
	})
	c.disorder(0)
}
