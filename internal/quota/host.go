package quota

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// Parameters of hosting. Chosen: the lease is longer than an election of the store's leader (up to
// 11 s, docs/faults.md). It is waited for only if host and standby are both gone.
const (
	leaseTerm  = 15 * time.Second
	leaseParts = 5 // renewals within one lease
	lookEvery  = 250 * time.Millisecond
	chartEvery = 2 * time.Second
	moveAtOnce = 32 // shards that are copied or handed over at the same time
	leaveWait  = 3 * time.Second
	staysFor   = 5 * time.Second       // time until a new process gets shards: by then the store has a leader
	againFirst = 50 * time.Millisecond // wait after a standby has refused; doubled each time
	againMost  = 2 * time.Second
)

func (c *Config) lease() time.Duration { return cmp.Or(max(c.Lease, 0), leaseTerm) }

// fenceWait returns how long a fenced host may still make decisions, by its own clock.
func (c *Config) fenceWait() time.Duration { return c.lease() + c.lease()/lendDrift }

// A Host hosts some shards of all limits in one process. Run must be called.
type Host struct {
	cfg    Config
	self   string
	ledger *ledger
	poke   chan struct{}

	chart   *ShardMap // used only by keep
	read    time.Duration
	links   map[string]*follower
	upTo    [Shards]uint64 // end of the copy of a shard on its link
	going   [Shards]*leaving
	ranked  []string         // processes that can host
	order   [Shards][]string // first two of ranked for each shard
	asked   bool             // the other data centers have answered where the home is
	movedTo uint64           // the newest known move of the home
	movedAt time.Duration    // own clock at that time
	fences  map[string]fence
	refused map[string]refusal
	readOf  map[string]bool // stored copies already read, by name
	stays   map[string]bool // possible hosts that have run long enough to get shards
	looked  map[string]bool // see gone
	unsure  bool            // a write of the shard map may still take effect
	deposed atomic.Bool     // another process has written this one's record
	signals callSignals
	wg      sync.WaitGroup
}

// A follower is a link to one process, and its end.
type follower struct {
	*link
	stop context.CancelFunc
}

// A refusal is a standby that refused to replicate: until is the own clock of the next attempt.
type refusal struct{ until, wait time.Duration }

// A leaving is a shard that is being handed over to its standby.
type leaving struct {
	link *link
	upTo uint64
}

// NewHost returns a Host.
func NewHost(cfg Config, recall func(who uint64, msg []byte)) *Host {
	self := cfg.Members.Self()
	h := &Host{cfg: cfg, self: processOf(self.Name, self.Life), poke: make(chan struct{}, 1),
		links: map[string]*follower{}, fences: map[string]fence{},
		refused: map[string]refusal{}, readOf: map[string]bool{}}
	h.ledger = newLedger(cfg.Boot, cfg.Rules, func(who uint64, ps []place) {
		recall(who, appendPlaces(nil, ps))
	})
	return h
}

// Run hosts the shards of this process until ctx ends, and then hands them over.
func (h *Host) Run(ctx context.Context) error {
	name := nameOf(h.self)
	for what, answer := range map[string]func(context.Context, []byte) []byte{
		"at.": h.ledger.answer, "copy.": h.ledger.repeat, "signals.": h.putSignals,
	} {
		unserve, err := h.cfg.Bus.Serve(h.cfg.Prefix+what+name, answer)
		if err != nil {
			return err
		}
		defer unserve()
	}
	unsubscribe, err := h.cfg.Bus.Subscribe(h.cfg.Prefix+"chart", func([]byte) { h.wake() })
	if err != nil {
		return err
	}
	defer unsubscribe()
	// The lease and the copies go on while the shards are handed over, so the end of ctx must not
	// stop them.
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

// giveUp stops hosting after another process has written the record of this one, because that
// process is about to take over the shards. This process must not renew the record until the shard
// map says that it hosts nothing.
func (h *Host) giveUp(ctx context.Context) {
	h.chart = nil
	hosted := 0
	for i := range Shards {
		if r := h.ledger.roleOf(i); r == hosts || r == paused { // a standby copy stays valid
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

// home reports whether this data center hosts at all.
func (h *Host) home() bool {
	return h.cfg.Datacenters == nil || h.cfg.Datacenters.Home() == h.cfg.Datacenters.Own()
}

// arrived reports whether the shard map was made since the home has moved here the last time. If
// not, it makes a new one once no process elsewhere can still host: processes there learn within
// seconds that the home has moved, or lose their leases. The usage of the keys stays there. The
// other data centers are asked once whether the home is still here, because it may have moved while
// this process was not running.
func (h *Host) arrived(ctx context.Context) bool {
	if h.cfg.Datacenters == nil {
		return true
	}
	if !h.asked {
		if err := h.cfg.Datacenters.ConfirmHome(ctx, h.chart.rev == 0); err != nil {
			h.cfg.Log.Debug("limits of all data centers are not hosted here yet", "error", err)
			return false
		}
		h.asked = true
	}
	moves := h.cfg.Datacenters.HomeNow().Moves
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

// present returns the live processes that can host, and all live processes.
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

// rank updates the order of hosts.
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

// A step is a change of the shard map, with the action that follows the write.
type step struct {
	shard int
	spot  Assignment
	then  func()
	lost  bool // the usage of the keys
}

// keep moves the shards to where they should be, one step at a time.
func (h *Host) keep(ctx context.Context, news bool) {
	// Another process has written this one's record: what it hosted may be hosted elsewhere by now.
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
		// An earlier write got no answer. It may still arrive later. To write what was just read
		// raises the revision, so that the late write fails.
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
	// All steps go into one write: nodes that read the map never see half of a plan.
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

// stay continues hosting while the store is unreachable: no shard waits for its handover, and no
// call waits for a copy that was never needed.
func (h *Host) stay() {
	if h.chart == nil || h.unsure {
		return // another process may be the host now
	}
	for i, g := range h.going {
		if g != nil {
			h.going[i] = nil
			h.ledger.resume(i)
		}
	}
	h.freeLinks()
}

// write writes the shard map. After a failure the map is read again. If the result of the write is
// unknown, it may still take effect until another write comes first, so what was read is not final
// before that.
func (h *Host) write(ctx context.Context, c *ShardMap) error {
	err := c.save(ctx, h.cfg.Store, h.cfg.Prefix+"chart")
	if err != nil {
		h.chart, h.unsure = nil, h.unsure || !errors.Is(err, store.ErrConflict)
	}
	return err
}

// tell announces a changed shard map.
func (h *Host) tell(c *ShardMap) {
	if err := h.cfg.Bus.Publish(h.cfg.Prefix+"chart", c.told()); err != nil {
		h.cfg.Log.Debug("shard map of the limits not published", "error", err)
	}
}

// tellAll announces the shard map and waits until the other hosts have received it. Otherwise a
// message that is not sent yet would be lost when this process ends.
func (h *Host) tellAll(ctx context.Context, c *ShardMap) {
	h.tell(c)
	ctx, stop := context.WithTimeout(ctx, probe)
	defer stop()
	for _, m := range h.cfg.Members.All() {
		if m.CanHost && m.Name != nameOf(h.self) {
			// Its answer comes after the announcement.
			_, _ = h.cfg.Bus.Request(ctx, h.cfg.Prefix+"chart."+m.Name, nil)
		}
	}
}

// idle reports whether no handover is in progress and no ended link is left.
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

// leaveAll stops hosting all shards: another data center hosts them.
func (h *Host) leaveAll() {
	for i := range Shards {
		if h.ledger.roleOf(i) != away {
			h.ledger.leave(i)
		}
		h.going[i] = nil
	}
}

// clear stops hosting shards that the shard map assigns to others.
func (h *Host) clear() {
	for i := range h.chart.Shards {
		x := &h.chart.Shards[i]
		switch r := h.ledger.roleOf(i); {
		case r == hosts && x.Host != h.self:
			h.ledger.leave(i)
			h.going[i] = nil
		case r == takes && x.Host == h.self: // the write took effect after all
			h.ledger.host(i, basis{})
		case r == takes && x.Standby == h.self: // others wrote first: the copy is complete
			h.ledger.untake(i)
		case r == takes:
			h.ledger.leave(i)
		case x.Host != h.self && x.Standby != h.self:
			h.ledger.drop(i)
		}
	}
	h.freeLinks()
}

// plan returns the changes to make now.
func (h *Host) plan(ctx context.Context) (steps []step) {
	may, live := h.present()
	h.rank(may)
	h.looked = map[string]bool{}
	// Whether all members are known. Shards that are assigned to this process are hosted at once.
	settled := h.cfg.SoleHost || h.cfg.Members.IsSettled()
	leaving := h.cfg.Members.Self().Leaving // hands over while the store still has its leader
	moving := 0
	for i := range h.chart.Shards {
		x, order := h.chart.Shards[i], h.order[i]
		r := h.ledger.roleOf(i)
		var s *step
		switch {
		// handed over, or the answer to the write was lost
		case x.Host == h.self && r != hosts && r != paused:
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

// dropDead removes a standby that does not replicate from the shard map.
func (h *Host) dropDead(i int) *step {
	x := h.chart.Shards[i]
	k := h.links[x.Standby]
	if x.Standby == "" || k != nil && !k.ended() {
		return nil
	}
	return &step{shard: i, spot: Assignment{Host: h.self}, then: func() { h.cut(i, k) }}
}

// cut stops a link from replicating a shard.
func (h *Host) cut(i int, k *follower) {
	if k != nil {
		h.ledger.cut(i, k.link)
	}
}

// tend gives a shard that is hosted here its intended standby, and hands the shard over if that
// process should be the host. busy reports that a copy or a handover is in progress.
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
	want := "" // the first other process
	for _, p := range order {
		if p != h.self {
			want = p
			break
		}
	}
	h.ledger.only(i, h.linkTo(x.Standby), h.linkTo(want)) // cancels a copy to another process
	if want == "" {
		return nil, false
	}
	if x.Standby == want {
		if order[0] == want &&
			(h.stays[want] || !slices.Contains(h.ranked, h.self)) { // it should be the host
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
	if k.ended() { // until the shard map no longer has it
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
		shard: i, spot: Assignment{Host: h.self, Standby: want}, then: func() { h.cut(i, old) },
	}, true
}

// linkTo returns the link to a process, or nil.
func (h *Host) linkTo(process string) *link {
	if k := h.links[process]; k != nil {
		return k.link
	}
	return nil
}

// follow returns the link to a process, and creates it if needed.
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

// freeLinks releases callers that wait for ended links, once no shard needs those links.
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
		if !k.reached(1) { // it has never replicated anything
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

// inherit takes over a shard whose host is gone.
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
		h.ledger.leave(i) // an old copy is useless
	} else if !h.readKept(ctx, x.HasCopy) {
		return nil
	}
	by := basis{known: x.Host == "" && !x.UsageLost, moved: x.Moved}
	lost := !by.known && h.ledger.roleOf(i) != stands
	return h.begin(ctx, step{shard: i, spot: Assignment{Host: h.self, Moved: x.Moved}, lost: lost}, by)
}

// begin hosts a shard from the copy here, or from its written blocks. It returns nil if they cannot
// be read now.
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

// handOver hands the shards hosted here to their standbys, and releases the others, so that no
// process has to wait for the lease.
func (h *Host) handOver(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, leaveWait)
	defer stop()
	name, kept := "", map[int]bool{}
	for ctx.Err() == nil {
		c, err := load(ctx, h.cfg.Store, h.cfg.Prefix+"chart")
		if err != nil {
			select { // never more often, whatever fails
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
			default: // nobody else hosts it before the write, and we do not after it
				if h.ledger.own(i); h.ledger.roleOf(i) == paused {
					left = append(left, i)
				}
				*x = Assignment{Standby: x.Standby, UsageLost: true}
			}
			mine = append(mine, i)
		}
		if len(left) > len(kept) { // other stopping processes may have handed over more since
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
