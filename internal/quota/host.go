package quota

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/store"
)

// Parameters of hosting. Chosen: the lease outlasts an election of the store's leader (up
// to 11 s, docs/faults.md); it is waited for only when host and standby are both gone.
const (
	leaseTerm  = 15 * time.Second
	leaseParts = 5 // it is renewed so many times while it lasts
	lookEvery  = 250 * time.Millisecond
	chartEvery = 2 * time.Second
	moveAtOnce = 32 // shards that are copied or handed over at a time
	leaveWait  = 3 * time.Second
	staysFor   = 5 * time.Second       // then shards are handed to who came: by then the store has a leader
	againFirst = 50 * time.Millisecond // after a standby has refused; each time twice as long
	againMost  = 2 * time.Second
)

// HostConfig describes a process that may host shards.
type HostConfig struct {
	Prefix  string // of records and messages
	Store   store.Store
	Bus     *store.Bus
	Members *counter.Members
	Sites   *counter.Datacenters // whose home hosts; nil: this data centre is alone
	Boot    func() time.Duration
	Log     *slog.Logger
	Rules   func(name string) *Definition
	Recall  func(who uint64, msg []byte)
	Lease   time.Duration // of a host without a standby; 0: 15 s
	// Only: no other process may host, and none of this name lives while this one does.
	SoleHost bool
}

func (c *HostConfig) lease() time.Duration {
	if c.Lease > 0 {
		return c.Lease
	}
	return leaseTerm
}

// fenceWait is how long after it was fenced a host may still decide, by its own clock.
func (c *HostConfig) fenceWait() time.Duration { return c.lease() + c.lease()/lendDrift }

// A Host hosts some shards of all limits in one process. Run must be called.
type Host struct {
	cfg    HostConfig
	self   string
	ledger *ledger
	poke   chan struct{}

	chart   *ShardMap // of keep alone
	read    time.Duration
	links   map[string]*follower
	upTo    [Shards]uint64 // where on its link the copy of a shard ends
	going   [Shards]*leaving
	ranked  []string         // who may host
	order   [Shards][]string // the first two of them for each shard
	asked   bool             // the other data centres, where the home is
	movedTo uint64           // the move of the home that was heard of
	movedAt time.Duration    // own clock, when
	fences  map[string]fence
	refused map[string]refusal
	readOf  map[string]bool // what was kept, by its name
	stays   map[string]bool // who may host, and was here for long enough to be handed shards
	looked  map[string]bool // see gone
	unsure  bool            // whether a writing of the chart may still come to be
	deposed atomic.Bool     // another process has written the record of this one
	wg      sync.WaitGroup
}

// follower is a link to one process with its end.
type follower struct {
	*link
	stop context.CancelFunc
}

// refusal is a standby that repeated nothing: until when it is not asked again, by the own clock.
type refusal struct{ until, wait time.Duration }

// leaving is a shard on its way to its standby.
type leaving struct {
	link *link
	upTo uint64
}

// NewHost makes a host.
func NewHost(cfg HostConfig) *Host {
	self := cfg.Members.Self()
	h := &Host{cfg: cfg, self: processOf(self.Name, self.Life), poke: make(chan struct{}, 1),
		links: map[string]*follower{}, fences: map[string]fence{},
		refused: map[string]refusal{}, readOf: map[string]bool{}}
	h.ledger = newLedger(cfg.Boot, cfg.Rules, func(who uint64, ps []place) {
		cfg.Recall(who, appendPlaces(nil, ps))
	})
	return h
}

// Answer decides what a message asks; see Desk.
func (h *Host) Answer(ctx context.Context, msg []byte) []byte { return h.ledger.answer(ctx, msg) }

// Run hosts what is due until ctx ends, and hands it over then.
func (h *Host) Run(ctx context.Context) error {
	name := nameOf(h.self)
	stop1, err := h.cfg.Bus.Serve(h.cfg.Prefix+"at."+name, h.ledger.answer)
	if err != nil {
		return err
	}
	defer stop1()
	stop2, err := h.cfg.Bus.Serve(h.cfg.Prefix+"copy."+name, h.ledger.repeat)
	if err != nil {
		return err
	}
	defer stop2()
	stop3, err := h.cfg.Bus.Subscribe(h.cfg.Prefix+"chart", func([]byte) { h.wake() })
	if err != nil {
		return err
	}
	defer stop3()
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer h.wg.Wait()
	defer end()
	h.wg.Go(func() { h.renew(work) })
	h.wg.Go(func() { h.writeBlocks(work) })
	tick, second, news := time.NewTicker(lookEvery), time.Duration(0), true
	defer tick.Stop()
	for ctx.Err() == nil {
		h.keep(work, news)
		news = false
		if now := h.cfg.Boot(); now-second > time.Second {
			second = now
			h.ledger.expire()
			h.ledger.forget()
		}
		select {
		case <-ctx.Done():
		case <-h.poke:
			news = true
		case <-tick.C:
		}
	}
	h.handOver(work)
	return nil
}

func (h *Host) wake() {
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// giveUp gives all up when another process has written the record of this one: it is about
// to host what this one does. Until it is written that nothing is hosted here, the record
// must not be renewed.
func (h *Host) giveUp(ctx context.Context) {
	h.chart = nil
	hosted := 0
	for i := range Shards {
		if r := h.ledger.roleOf(i); r == hosts || r == paused { // a copy is as good as before
			hosted++
			h.ledger.leave(i)
		}
		h.going[i] = nil
	}
	if hosted > 0 {
		h.cfg.Log.Warn("this node was taken for dead: it hosts no limits until it has asked",
			"node", nameOf(h.self), "shards", hosted)
	}
	c, err := load(ctx, h.cfg.Store, h.cfg.Prefix+"chart")
	if err != nil {
		return
	}
	mine := false
	for i := range c.Shards {
		if x := &c.Shards[i]; x.Host == h.self {
			*x, mine = Assignment{Standby: x.Standby, UsageLost: true}, true
		}
	}
	if mine && c.save(ctx, h.cfg.Store, h.cfg.Prefix+"chart") != nil {
		return
	}
	h.deposed.Store(false)
	h.tell(c)
}

// may reports whether this process may host now.
func (h *Host) may() bool { return int64(h.cfg.Boot()) < h.ledger.lease.Load() && h.home() }

// home reports whether this data centre hosts at all.
func (h *Host) home() bool { return h.cfg.Sites == nil || h.cfg.Sites.Home() == h.cfg.Sites.Own() }

// arrived reports whether the chart is of this home and not of an earlier time here. It
// becomes so when nobody can host elsewhere any more: there they hear within seconds that the
// home has moved, or lose their leases. What the keys have used stays there. The others are
// asked once whether the home is still here: it may have moved while this process was not.
func (h *Host) arrived(ctx context.Context) bool {
	if h.cfg.Sites == nil {
		return true
	}
	if !h.asked {
		if err := h.cfg.Sites.ConfirmHome(ctx, h.chart.rev == 0); err != nil {
			h.cfg.Log.Debug("limits of all data centres are not hosted here yet", "error", err)
			return false
		}
		h.asked = true
	}
	moves := h.cfg.Sites.HomeNow().Moves
	if h.chart.Moves == moves {
		return true
	}
	if now := h.cfg.Boot(); h.movedTo != moves {
		h.movedTo, h.movedAt = moves, now
	} else if now-h.movedAt > h.cfg.fenceWait() {
		next := ShardMap{Moves: moves, rev: h.chart.rev}
		for i := range next.Shards {
			next.Shards[i] = Assignment{UsageLost: true, Moved: true}
		}
		_ = h.write(ctx, &next)
		h.chart = nil // it is read anew
	}
	return false
}

// present are the processes that live and may host, and all that live.
func (h *Host) present() (may []string, live map[string]bool) {
	live, h.stays = map[string]bool{}, map[string]bool{}
	for _, m := range h.cfg.Members.All() {
		if m.CanHost && h.cfg.Members.IsAlive(&m) {
			p := processOf(m.Name, m.Life)
			if live[p] = true; !m.Leaving {
				may = append(may, p)
				h.stays[p] = h.cfg.Members.IsStable(&m, staysFor)
			}
		}
	}
	return may, live
}

// rank brings the order of hosts up to date.
func (h *Host) rank(may []string) {
	if slices.Equal(may, h.ranked) {
		return
	}
	h.ranked = may
	for i := range h.order {
		all := ranked(i, may)
		h.order[i] = all[:min(2, len(all))]
	}
}

// A step is a change of the chart, and what to do once it is written.
type step struct {
	shard int
	spot  Assignment
	then  func()
	lost  bool // what keys have used
}

// keep brings the shards to where they are to be, one step at a time.
func (h *Host) keep(ctx context.Context, news bool) {
	if h.deposed.Load() {
		h.giveUp(ctx)
		return
	}
	if now := h.cfg.Boot(); h.chart == nil || now-h.read > chartEvery || news || !h.idle() {
		c, err := load(ctx, h.cfg.Store, h.cfg.Prefix+"chart")
		if err != nil {
			h.cfg.Log.Debug("chart of the limits not read", "error", err)
			h.stay()
			return
		}
		if h.unsure && h.write(ctx, c) != nil {
			return
		}
		h.chart, h.read, h.unsure = c, now, false
	}
	h.clear()
	if !h.home() {
		h.leaveAll()
	}
	if !h.may() || !h.arrived(ctx) {
		return
	}
	steps := h.plan(ctx)
	if len(steps) == 0 {
		return
	}
	next := *h.chart
	for _, s := range steps {
		next.Shards[s.shard] = s.spot
	}
	if h.write(ctx, &next) != nil {
		return
	}
	was := h.chart
	h.chart = &next
	lost := 0
	for _, s := range steps {
		if s.then(); s.lost {
			lost++
		}
	}
	if lost > 0 {
		h.cfg.Log.Warn("limits: what keys have used is lost: they count as fully used for one window",
			"shards", lost, "of", Shards)
	}
	h.erase(ctx, was, &next)
	h.freeLinks()
	h.tell(&next)
	h.wake()
}

// stay goes on with what is hosted here while the store is out of reach: no shard waits to be
// handed over, and no call for a copy that was never needed.
func (h *Host) stay() {
	if h.chart == nil || h.unsure {
		return // another may have been made host
	}
	for i, g := range h.going {
		if g != nil {
			h.going[i] = nil
			h.ledger.resume(i)
		}
	}
	h.freeLinks()
}

// write writes the chart. After a failure it is read anew; when it is not known whether it
// was written, it may be later, unless another writing comes before: until then what was
// read cannot be relied on.
func (h *Host) write(ctx context.Context, c *ShardMap) error {
	err := c.save(ctx, h.cfg.Store, h.cfg.Prefix+"chart")
	if err != nil {
		h.chart, h.unsure = nil, h.unsure || !errors.Is(err, store.ErrConflict)
	}
	return err
}

// tell says that the chart is another.
func (h *Host) tell(c *ShardMap) {
	if err := h.cfg.Bus.Publish(h.cfg.Prefix+"chart", c.told()); err != nil {
		h.cfg.Log.Debug("chart of the limits not told", "error", err)
	}
}

// tellAll tells it and waits until the others that host have heard it: what is told and not yet
// on its way is lost when this process ends.
func (h *Host) tellAll(ctx context.Context, c *ShardMap) {
	h.tell(c)
	ctx, stop := context.WithTimeout(ctx, probe)
	defer stop()
	for _, m := range h.cfg.Members.All() {
		if m.CanHost && m.Name != nameOf(h.self) {
			_, _ = h.cfg.Bus.Request(ctx, h.cfg.Prefix+"chart."+m.Name, nil) // it comes after what was told
		}
	}
}

// idle reports that nothing is on its way.
func (h *Host) idle() bool {
	for i := range h.going {
		if h.going[i] != nil {
			return false
		}
	}
	for _, k := range h.links {
		if k.ended() {
			return false
		}
	}
	return true
}

func (k *link) ended() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.over
}

// leaveAll hosts nothing any more: another data centre does.
func (h *Host) leaveAll() {
	for i := range Shards {
		if h.ledger.roleOf(i) != away {
			h.ledger.leave(i)
		}
		h.going[i] = nil
	}
}

// clear gives up what the chart says is another's.
func (h *Host) clear() {
	for i := range h.chart.Shards {
		x := &h.chart.Shards[i]
		switch r := h.ledger.roleOf(i); {
		case r == hosts && x.Host != h.self:
			h.ledger.leave(i)
			h.going[i] = nil
		case r == takes && x.Host == h.self: // it was written after all
			h.ledger.host(i, basis{})
		case r == takes && x.Standby == h.self: // others wrote before us: it is still all there
			h.ledger.untake(i)
		case r == takes:
			h.ledger.leave(i)
		case x.Host != h.self && x.Standby != h.self:
			h.ledger.drop(i)
		}
	}
	h.freeLinks()
}

// plan says what is to be changed now.
func (h *Host) plan(ctx context.Context) (steps []step) {
	may, live := h.present()
	h.rank(may)
	h.looked = map[string]bool{}
	// It knows who is there; what it is given it hosts at once.
	settled := h.cfg.SoleHost || h.cfg.Members.IsSettled()
	leaving := h.cfg.Members.Self().Leaving // hands over while the store is there, with its leader
	moving := 0
	for i := range h.chart.Shards {
		x, order := h.chart.Shards[i], h.order[i]
		r := h.ledger.roleOf(i)
		var s *step
		switch {
		case x.Host == h.self && r != hosts && r != paused: // handed over, or written and not heard of
			s = h.begin(ctx, step{shard: i, spot: x}, basis{moved: x.Moved})
		case x.Host == h.self:
			if (settled || leaving) && moving < moveAtOnce {
				var busy bool
				s, busy = h.tend(ctx, i, order)
				if busy {
					moving++
				}
			} else {
				s = h.dropDead(i)
			}
		case live[x.Host] || !settled:
		default:
			s = h.inherit(ctx, i, order, live)
		}
		if s != nil {
			steps = append(steps, *s)
		}
	}
	return steps
}

// dropDead takes a standby that repeats nothing out of the chart.
func (h *Host) dropDead(i int) *step {
	x := h.chart.Shards[i]
	k := h.links[x.Standby]
	if x.Standby == "" || k != nil && !k.ended() {
		return nil
	}
	return &step{shard: i, spot: Assignment{Host: h.self}, then: func() { h.cut(i, k) }}
}

// cut ends that a link repeats a shard.
func (h *Host) cut(i int, k *follower) {
	if k != nil {
		h.ledger.cut(i, k.link)
	}
}

// tend sees that a shard that is hosted here has the standby it should, and hands it over
// when that is to host it. busy says that a copy or a move is under way.
func (h *Host) tend(ctx context.Context, i int, order []string) (s *step, busy bool) {
	x := h.chart.Shards[i]
	if s = h.dropDead(i); s != nil {
		return s, true
	}
	if g := h.going[i]; g != nil {
		if g.link.ended() {
			h.going[i] = nil
			h.ledger.resume(i)
			return nil, true
		}
		if !g.link.reached(g.upTo) {
			return nil, true
		}
		return &step{shard: i, spot: Assignment{Host: x.Standby}, then: func() {
			h.going[i] = nil
			h.ledger.leave(i)
		}}, true
	}
	want := "" // the first but us
	for _, p := range order {
		if p != h.self {
			want = p
			break
		}
	}
	h.ledger.only(i, h.linkTo(x.Standby), h.linkTo(want)) // a copy that was begun for another ends
	if want == "" {
		return nil, false
	}
	if x.Standby == want {
		if order[0] == want && (h.stays[want] || !slices.Contains(h.ranked, h.self)) { // it is to host it
			k := h.links[want]
			h.going[i] = &leaving{k.link, h.ledger.pause(i, k.link)}
			return nil, true
		}
		return nil, false
	}
	if h.cfg.Boot() < h.refused[want].until {
		return nil, false
	}
	k := h.follow(ctx, want)
	if k.ended() { // until the chart has it no more
		h.ledger.cut(i, k.link)
		return nil, true
	}
	if !h.ledger.repeats(i, k.link) {
		h.upTo[i] = h.ledger.copyTo(i, k.link)
		return nil, true
	}
	if !k.reached(h.upTo[i]) {
		return nil, true
	}
	old := h.links[x.Standby]
	return &step{
		shard: i,
		spot:  Assignment{Host: h.self, Standby: want},
		then:  func() { h.cut(i, old) },
	}, true
}

// linkTo is the link to a process, nil for none.
func (h *Host) linkTo(process string) *link {
	if k := h.links[process]; k != nil {
		return k.link
	}
	return nil
}

// follow is the link to a process.
func (h *Host) follow(ctx context.Context, to string) *follower {
	if k := h.links[to]; k != nil {
		return k
	}
	name := h.cfg.Prefix + "copy." + nameOf(to)
	k := &follower{link: newLink(to, rand.Uint64(), func(ctx context.Context, msg []byte) ([]byte, error) {
		return h.cfg.Bus.Request(ctx, name, msg)
	})}
	run, stop := context.WithCancel(ctx)
	k.stop = stop
	h.links[to] = k
	h.wg.Go(func() {
		if err := k.run(run); err != nil && run.Err() == nil {
			h.cfg.Log.Info("a standby of limits repeats nothing any more", "node", nameOf(to), "error", err)
		}
		h.wake()
	})
	return k
}

// freeLinks lets those go who wait for links that have ended, once no shard needs them.
func (h *Host) freeLinks() {
	for to, k := range h.links {
		if !k.ended() {
			continue
		}
		needed := slices.ContainsFunc(h.chart.Shards[:], func(x Assignment) bool {
			return x.Host == h.self && x.Standby == to
		})
		if needed {
			continue
		}
		h.ledger.unlink(k.link)
		wait := againFirst
		if !k.reached(1) { // it has never repeated anything
			wait = min(againMost, max(againFirst, 2*h.refused[to].wait))
		}
		if len(h.refused) > 4*mostStreams {
			clear(h.refused)
		}
		h.refused[to] = refusal{h.cfg.Boot() + wait, wait}
		k.free()
		k.stop()
		delete(h.links, to)
	}
}

// inherit takes a shard over whose host is gone.
func (h *Host) inherit(ctx context.Context, i int, order []string, live map[string]bool) *step {
	x := h.chart.Shards[i]
	if x.Standby == h.self && h.ledger.take(i) {
		return &step{shard: i, spot: Assignment{Host: h.self}, then: func() { h.ledger.host(i, basis{}) }}
	}
	if x.Standby != "" && x.Standby != h.self && live[x.Standby] {
		return nil
	}
	if len(order) == 0 || order[0] != h.self || x.Host != "" && !h.gone(ctx, x.Host) {
		return nil
	}
	if x.HasCopy == "" {
		h.ledger.leave(i) // an old copy is none
	} else if !h.readKept(ctx, x.HasCopy) {
		return nil
	}
	by := basis{known: x.Host == "" && !x.UsageLost, moved: x.Moved}
	lost := !by.known && h.ledger.roleOf(i) != stands
	return h.begin(ctx, step{shard: i, spot: Assignment{Host: h.self, Moved: x.Moved}, lost: lost}, by)
}

// begin hosts a shard of the copy that is here, else on what was written of it; nil if that
// cannot be read now.
func (h *Host) begin(ctx context.Context, s step, by basis) *step {
	i := s.shard
	if !by.known && !by.moved && h.ledger.roleOf(i) != stands {
		var err error
		if by.written, err = h.readBlocks(ctx, i); err != nil {
			h.cfg.Log.Debug("blocks of a shard not read", "shard", i, "error", err)
			return nil
		}
	}
	s.then = func() {
		h.ledger.take(i)
		h.ledger.host(i, by)
	}
	return &s
}

// handOver gives the shards that are hosted here to those that stand by, and lets the others
// go: nobody need wait for the lease.
func (h *Host) handOver(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, leaveWait)
	defer stop()
	name, kept := "", map[int]bool{}
	for ctx.Err() == nil {
		c, err := load(ctx, h.cfg.Store, h.cfg.Prefix+"chart")
		if err != nil {
			select { // not more often than that, whatever goes wrong
			case <-ctx.Done():
			case <-time.After(movedEach):
			}
			continue
		}
		var mine, left []int
		for i := range c.Shards {
			x := &c.Shards[i]
			k := h.links[x.Standby]
			switch {
			case x.Host != h.self:
				continue
			case k != nil && k.wait(ctx, h.ledger.pause(i, k.link)) && !k.ended():
				*x = Assignment{Host: x.Standby}
			default: // before that is written nobody else hosts it, and after it not we
				if h.ledger.own(i); h.ledger.roleOf(i) == paused {
					left = append(left, i)
				}
				*x = Assignment{Standby: x.Standby, UsageLost: true}
			}
			mine = append(mine, i)
		}
		if len(left) > len(kept) { // others that stop may have handed over more since
			name, kept = h.keepCopies(ctx, left)
		}
		for _, i := range left {
			if kept[i] {
				c.Shards[i].HasCopy = name
			}
		}
		if len(mine) == 0 {
			return
		}
		if c.save(ctx, h.cfg.Store, h.cfg.Prefix+"chart") == nil {
			for _, i := range mine {
				h.ledger.leave(i)
			}
			h.tellAll(ctx, c)
			return
		}
	}
}
