package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// NewHandle returns the handle of a room. It answers nothing until Run is called. It calls recall,
// with no lock held, when this process should Sync now; recall must not block.
func NewHandle(cfg Config, bus *store.Bus, m *cluster.Members, recall func()) *Handle {
	s := &Handle{cfg: cfg, bus: bus, members: m, recall: recall, set: cfg.Settings,
		plan: cfg.Plan}
	s.ticketDesk = ticketDesk{s.ask}
	s.out.init()
	return s
}

// Run hosts the room while this process is its host, and carries requests to the host, until ctx
// ends.
func (s *Handle) Run(ctx context.Context) error {
	for kind, f := range map[string]func([]byte){
		"recall": func([]byte) { s.recall() },
		"state":  s.hearState,
	} {
		stop, err := s.bus.Subscribe(s.name(kind), f)
		if err != nil {
			return err
		}
		defer stop()
	}
	if s.cfg.Datacenters != nil && !s.isAnywhere() {
		stop, err := s.cfg.Datacenters.Subscribe("recall."+anywhere(s.cfg.Room), func([]byte) {
			if c := s.host.Load(); c != nil {
				c.recalledUp()
			}
		})
		if err != nil {
			return err
		}
		defer stop()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for range senders {
		wg.Go(func() { s.send(ctx) })
	}
	for s.knowLimits(ctx) != nil && wait(ctx, retakeAfter) { // a damaged record is found at the takeover
		if s.role() == cluster.Holder {
			break
		}
	}
	changed, stop := s.watch()
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if s.role() == cluster.Holder {
			s.serve(ctx)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-tick.C:
		}
	}
	return nil
}

// role returns the role of this process for the room. Anywhere is hosted only in its home.
func (s *Handle) role() cluster.Role {
	if s.isAnywhere() && s.cfg.Datacenters.Home() != s.cfg.Datacenters.Own() {
		return cluster.Guest
	}
	return s.members.Role(s.cfg.Room)
}

// watch returns a channel that receives when the host of the room may have to change.
func (s *Handle) watch() (chan struct{}, func()) {
	ch, stop := s.members.Watch()
	if !s.isAnywhere() {
		return ch, stop
	}
	also := s.cfg.Datacenters.watch(ch)
	return ch, func() { stop(); also() }
}

// serve hosts the room until another process should host it, another process has taken over the
// record, or ctx ends.
func (s *Handle) serve(ctx context.Context) {
	c, err := s.take(ctx)
	if err != nil {
		moved := errors.Is(err, ErrMoved) // the new home will be known in a moment
		if s.leftAt = s.leftSince(moved); moved && s.cfg.Boot()-s.leftAt > leftLong {
			s.leftAt = s.cfg.Boot()
			if to := s.cfg.Datacenters.stuck(ctx, s.cfg.Room[1:]); to != "" {
				s.cfg.Log.Error("Anywhere has left and did not arrive: no slots are lent until the move is "+
					"finished", "room", s.cfg.Room, "to", to, "hint", "it finishes as soon as all data centers answer; or "+
					"run headgate cluster move-anywhere again")
			}
		}
		if ctx.Err() == nil && !moved {
			s.cfg.Log.Warn("room is not taken over yet", "room", s.cfg.Room, "error", err)
			wait(ctx, retakeAfter)
		}
		return
	}
	stop, err := s.answer(c)
	if err != nil {
		s.cfg.Log.Error("room is not served", "room", s.cfg.Room, "error", err)
		return
	}
	s.seat(c)
	s.members.Announce(s.cfg.Room, true)
	s.cfg.Log.Info("this node hosts the room", "room", s.cfg.Room, "epoch", c.epoch())
	s.recall()
	running, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer end()
		if err := c.Run(running); err != nil && !errors.Is(err, ErrFenced) {
			s.cfg.Log.Error("room is not hosted any more", "room", s.cfg.Room, "error", err)
		}
	})
	s.watchHosting(running)
	end()
	wg.Wait() // the last write is done, or another host's came first
	s.host.Store(nil)
	stop()
	s.members.Announce(s.cfg.Room, false)
	s.cfg.Log.Info("this node does not host the room any more", "room", s.cfg.Room)
}

// leftLong is how long a move of Anywhere may take before it is logged. Chosen.
const leftLong = 10 * time.Second

// leftSince returns since when Anywhere has been moving away from here, or now if it is not moving.
func (s *Handle) leftSince(moved bool) time.Duration {
	if moved && s.leftAt > 0 {
		return s.leftAt
	}
	return s.cfg.Boot()
}

// watchHosting publishes the state of the room until another process should host it.
func (s *Handle) watchHosting(ctx context.Context) {
	changed, stop := s.watch()
	defer stop()
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for s.role() != cluster.Guest {
		s.tellState()
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// take takes over the record of the room. Each takeover uses a new host name.
func (s *Handle) take(ctx context.Context) (*Counter, error) {
	ctx, stop := context.WithTimeout(ctx, takeWait)
	defer stop()
	s.mu.Lock()
	cfg := s.cfg
	cfg.Settings, cfg.After, cfg.Plan = s.set, s.rev+1, s.plan
	s.mu.Unlock()
	cfg.Previous = s.before()
	cfg.Host = fmt.Sprintf("%s-%08x", s.cfg.Host, rand.Uint32())
	c, err := Open(ctx, cfg, s.recallAll)
	if err == nil {
		s.learn(c.limits())
	}
	return c, err
}

// learn notes the limits of the room, and their revision.
func (s *Handle) learn(active, fresh slot.Limit, rev uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set.Active, s.set.New, s.rev = active, fresh, rev
}

// knowLimits notes the revision of the limits in the record. A process that hosts no room does not
// need it, and may not have the right to read the record.
func (s *Handle) knowLimits(ctx context.Context) error {
	if !s.members.Self().CanHost {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, storeWait)
	defer stop()
	b, _, err := s.cfg.Store.Load(ctx, recordOf(s.cfg.Room))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	var r slot.Record
	if err == nil {
		err = r.UnmarshalBinary(b)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.rev = r.LimitRev
	s.mu.Unlock()
	return nil
}

// seat makes c the counter that this process uses.
func (s *Handle) seat(c *Counter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host.Store(c)
	c.setPlan(s.plan) // both may have changed during the takeover
	c.Hold(s.held, s.early...)
}

// recallAll asks all borrowers of the room to Sync now.
func (s *Handle) recallAll() {
	if s.isAnywhere() {
		if err := s.cfg.Datacenters.Publish(s.name("recall"), nil); err != nil {
			s.cfg.Log.Debug("recall not published", "room", s.cfg.Room, "error", err)
		}
		return
	}
	if s.bus.Publish(s.name("recall"), nil) != nil {
		s.recall()
	}
}

func (s *Handle) tellState() {
	c := s.host.Load()
	if c == nil {
		return
	}
	b, err := json.Marshal(c.State(0, 0))
	if err == nil {
		err = s.bus.Publish(s.name("state"), b)
	}
	if err != nil {
		s.cfg.Log.Debug("state not published", "room", s.cfg.Room, "error", err)
	}
}

func (s *Handle) hearState(msg []byte) {
	t := &toldState{at: s.cfg.Boot()}
	if json.Unmarshal(msg, &t.state) == nil {
		s.told.Store(t)
	}
}

// Hold stops or resumes calls and admissions; see Counter.Hold.
func (s *Handle) Hold(yes bool, early ...status.EarlyGroup) {
	s.mu.Lock()
	s.held, s.early = yes, early
	c := s.host.Load()
	if c != nil {
		c.Hold(yes, early...)
	}
	s.mu.Unlock()
	if c != nil {
		s.tellState()
	}
}

// Damaged returns why the record of a room that this process hosts is unreadable, nil if it is
// readable.
func (s *Handle) Damaged() error {
	if c := s.host.Load(); c != nil {
		return c.Damaged()
	}
	return nil
}

// Reconfigure applies new settings while visitors are inside or wait. It blocks until the limits
// are in the record. If another process hosts the room, that process must receive the same
// settings.
func (s *Handle) Reconfigure(ctx context.Context, set Settings) error {
	s.mu.Lock()
	old := s.set
	s.set = set
	s.mu.Unlock()
	if s.isAnywhere() && old.Active == set.Active && old.New == set.New && old.Spread == set.Spread &&
		old.Auto == set.Auto {
		return nil // an unreachable home must not block the change of a message
	}
	for {
		err := s.reconfigured(ctx, &set)
		if err == nil {
			err = s.knowLimits(ctx)
		}
		if err == nil {
			return nil
		}
		if !wait(ctx, 2*askAgain) {
			s.mu.Lock()
			s.set = old
			s.mu.Unlock()
			return fmt.Errorf("the room's host has not taken the limits: %w", err)
		}
	}
}

var errNotYet = errors.New("it has others")

// reconfigured returns nil once the host uses the settings, here or at another node.
func (s *Handle) reconfigured(ctx context.Context, set *Settings) error {
	if c := s.host.Load(); c != nil {
		err := c.Reconfigure(ctx, *set)
		s.tellState()
		return err
	}
	ctx, stop := context.WithTimeout(ctx, serveWait)
	defer stop()
	b, err := s.askHost(ctx, "settings", nil)
	if err != nil {
		return err
	}
	got, err := parseSettings(b)
	if err != nil {
		return err
	}
	if want := set.accepting(got.Active.N, got.New.N); got.Active != want.Active || got.New != want.New {
		return errNotYet
	}
	return nil
}

// askHost sends a message of a kind to the host, and returns its answer.
func (s *Handle) askHost(ctx context.Context, kind string, msg []byte) ([]byte, error) {
	if s.isAnywhere() {
		return s.cfg.Datacenters.Request(ctx, s.cfg.Datacenters.Home(), s.name(kind), msg)
	}
	return s.bus.Request(ctx, s.name(kind), msg)
}

// SetPlan sets the plan, for the room if it is hosted here and for later takeovers by this process.
func (s *Handle) SetPlan(ctx context.Context, p Plan) error {
	s.mu.Lock()
	s.plan = p
	c := s.host.Load()
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	err := c.SetPlan(ctx, p)
	if errors.Is(err, ErrFenced) { // the next host has its own plan
		return nil
	}
	s.tellState()
	return err
}

// NewAnywhere returns the handle of a room's Anywhere, from the configuration of the room. Run must
// be called.
func NewAnywhere(cfg Config, bus *store.Bus, m *cluster.Members) *Handle {
	cfg.Room, cfg.Persons, cfg.Known = anywhere(cfg.Room), nil, false
	cfg.Params = slot.Params{Counters: true, Drift: cfg.Params.Drift, Sigma: cfg.Params.Sigma}
	return NewHandle(cfg, bus, m, func() {})
}
