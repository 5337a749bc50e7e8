package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// homeKey is the key of the record that says where Anywhere lives. homeEvery is how often a process
// reads it: one that misses the message learns the new home this late. Chosen.
const (
	homeKey   = "home"
	homeEvery = 5 * time.Second
)

// NewDatacenters returns the Datacenters of one process.
func NewDatacenters(cfg DatacentersConfig) *Datacenters {
	cfg.Names = slices.Sorted(slices.Values(cfg.Names))
	s := &Datacenters{cfg: cfg, home: AnywhereHome{Datacenter: cfg.Home}, said: map[string]*atomic.Int64{}}
	for _, name := range cfg.Names {
		s.said[name] = &atomic.Int64{}
	}
	return s
}

// Own returns the data center of this process.
func (s *Datacenters) Own() string { return s.cfg.Own }

// Names returns the other data centers, sorted.
func (s *Datacenters) Names() []string { return s.cfg.Names }

// MessagesSent returns how many messages this process has sent to another data center.
func (s *Datacenters) MessagesSent(site string) int64 {
	if n := s.said[site]; n != nil {
		return n.Load()
	}
	return 0
}

// Home returns the data center in which Anywhere lives.
func (s *Datacenters) Home() string { return s.HomeNow().Datacenter }

// HomeNow returns where Anywhere lives, and how often it has moved.
func (s *Datacenters) HomeNow() AnywhereHome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.home
}

// at returns the name under which messages to a data center are sent. Both ends of a link receive
// every message on it.
func (s *Datacenters) at(site, name string) string { return site + "." + name }

// homeWait limits one round of asking all other data centers where Anywhere lives. Chosen.
const homeWait = 3 * time.Second

// ConfirmHome asks the other data centers where Anywhere lives, before this process hosts it for
// the first time: Anywhere may have moved meanwhile. first means that there is no record here and,
// as far as is known, never was; then at least one data center must answer. Otherwise a home that
// is cut off from all others hosts what it has.
func (s *Datacenters) ConfirmHome(ctx context.Context, first bool) error {
	s.mu.Lock()
	sure := s.sure
	s.mu.Unlock()
	if sure {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, homeWait)
	defer stop()
	said := make(chan error, len(s.cfg.Links)) // never blocks: buffered
	var wg sync.WaitGroup
	for site := range s.cfg.Links {
		wg.Go(func() { said <- s.askHome(ctx, site) })
	}
	wg.Wait()
	close(said)
	answers, other := 0, error(nil)
	for err := range said {
		switch {
		case err == nil:
			answers++
		case errors.Is(err, errHomes):
			other = err
		}
	}
	switch {
	case other != nil:
		return other
	case s.Home() != s.cfg.Own:
		return ErrMoved
	case answers == 0 && first:
		return errors.New("no other data center answers: one of them must confirm that Anywhere never moved")
	}
	s.mu.Lock()
	s.sure = answers > 0 // if not, the next takeover asks again
	s.mu.Unlock()
	return nil
}

// errHomes reports that two configurations name different homes and nobody has moved Anywhere.
var errHomes = errors.New("another data center is configured with another home")

// askHome asks one data center where Anywhere lives, and stores a newer answer.
func (s *Datacenters) askHome(ctx context.Context, site string) error {
	b, err := s.Request(ctx, site, "where", nil)
	if err != nil {
		return err
	}
	var h AnywhereHome
	if err := json.Unmarshal(b, &h); err != nil {
		return err
	}
	if now := s.HomeNow(); h.Moves == 0 && now.Moves == 0 && h.Datacenter != now.Datacenter {
		return fmt.Errorf("%w: %s says %s, here it is %s: make cluster.home the same", errHomes, site,
			h.Datacenter, now.Datacenter)
	}
	return s.takeHome(ctx, h)
}

// answerHome answers where Anywhere lives.
func (s *Datacenters) answerHome(context.Context, []byte) []byte {
	b, err := json.Marshal(s.HomeNow())
	if err != nil {
		return nil
	}
	return b
}

// readHome returns the home from the store of this data center, or the zero value if there is none.
func (s *Datacenters) readHome(ctx context.Context) (h AnywhereHome, err error) {
	ctx, stop := context.WithTimeout(ctx, storeWait)
	defer stop()
	b, _, err := s.cfg.Store.Load(ctx, homeKey)
	if errors.Is(err, store.ErrNotFound) {
		return h, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	return h, err
}

// hearHome handles a message that says where Anywhere lives, and stores a newer home.
func (s *Datacenters) hearHome(ctx context.Context, msg []byte) {
	var h AnywhereHome
	if json.Unmarshal(msg, &h) != nil {
		return
	}
	if err := s.takeHome(ctx, h); err != nil {
		s.cfg.Log.Warn("home of Anywhere not kept: it is looked up again", "error", err)
	}
}

// takeHome learns a newer home and stores it.
func (s *Datacenters) takeHome(ctx context.Context, h AnywhereHome) error {
	if !s.learnHome(h) {
		return nil
	}
	return s.keepHome(ctx, s.HomeNow())
}

// mostMoves is the most moves that one message adds. Chosen: more than there will ever be. With the
// number at the end of all numbers, which a malicious data center could send, no later move would
// count. Data centers that hear of more reach the same number step by step.
const mostMoves = 1 << 32

// knows reports whether a data center is configured here.
func (s *Datacenters) knows(site string) bool {
	return site == s.cfg.Own || slices.Contains(s.cfg.Names, site)
}

// learnHome takes over a newer home, and reports whether it was newer.
func (s *Datacenters) learnHome(h AnywhereHome) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Moves > s.home.Moves {
		h.Moves = s.home.Moves + min(h.Moves-s.home.Moves, mostMoves)
	}
	later := h.Moves > s.home.Moves ||
		h.Moves == s.home.Moves && h.Moves > 0 &&
			h.Datacenter > s.home.Datacenter // two moves at the same time
	if !later || !s.knows(h.Datacenter) {
		return false
	}
	s.cfg.Log.Info("Anywhere lives elsewhere now", "home", h.Datacenter, "before", s.home.Datacenter)
	s.home = h
	for _, ch := range s.news {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	return true
}

// keepHome writes where Anywhere lives to the store of this data center.
func (s *Datacenters) keepHome(ctx context.Context, h AnywhereHome) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	for {
		ctx, stop := context.WithTimeout(ctx, storeWait)
		defer stop()
		old, rev, err := s.cfg.Store.Load(ctx, homeKey)
		var was AnywhereHome
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case json.Unmarshal(old, &was) == nil && was.Moves >= h.Moves:
			return nil
		}
		if _, err = s.cfg.Store.CompareAndSwap(ctx, homeKey, rev, b); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// watch sends on a channel each time Anywhere has moved, until stop is called.
func (s *Datacenters) watch(ch chan struct{}) (stop func()) {
	s.mu.Lock()
	s.news = append(s.news, ch)
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.news = slices.DeleteFunc(s.news, func(x chan struct{}) bool { return x == ch })
		s.mu.Unlock()
	}
}

// Request sends a request to a data center, which may be the own one, and returns the answer.
func (s *Datacenters) Request(ctx context.Context, site, name string, msg []byte) ([]byte, error) {
	if site == s.cfg.Own {
		return s.cfg.Bus.Request(ctx, name, msg)
	}
	link := s.cfg.Links[site]
	if link == nil {
		return nil, fmt.Errorf("%w: no link to %s", store.ErrNoResponder, site)
	}
	s.said[site].Add(1)
	return link.Request(ctx, s.at(site, name), msg)
}

// askAnywhere sends a Sync to Anywhere of a room, once.
func (s *Datacenters) askAnywhere(ctx context.Context, room string, x *slot.Sync) (a slot.Answer, err error) {
	ctx, stop := context.WithTimeout(ctx, aboveTry)
	defer stop()
	b, err := x.AppendBinary(nil)
	if err == nil {
		b, err = s.Request(ctx, s.Home(), "sync."+anywhere(room), b)
	}
	if err == nil {
		err = a.UnmarshalBinary(b)
	}
	return a, err
}

// Publish publishes a message to all data centers, including the own one.
func (s *Datacenters) Publish(name string, msg []byte) error {
	return errors.Join(s.cfg.Bus.Publish(name, msg), s.PublishRemote(name, msg))
}

// PublishRemote publishes a message to all other data centers.
func (s *Datacenters) PublishRemote(name string, msg []byte) (err error) {
	for _, site := range slices.Sorted(maps.Keys(s.cfg.Links)) {
		s.said[site].Add(1)
		err = errors.Join(err, s.cfg.Links[site].Publish(s.at(site, name), msg))
	}
	return err
}

// IsLinked reports whether this process has its own links to the other data centers.
func (s *Datacenters) IsLinked() bool { return len(s.cfg.Links) > 0 }

// Subscribe calls f with each message that any data center publishes under a name, until stop is
// called.
func (s *Datacenters) Subscribe(name string, f func([]byte)) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	one, err := s.cfg.Bus.Subscribe(name, f)
	if err != nil {
		return stop, err
	}
	stops = append(stops, one)
	far, err := s.SubscribeRemote(name, f)
	if err != nil {
		stop()
		return nil, err
	}
	stops = append(stops, far)
	return stop, nil
}

// SubscribeRemote calls f with each message that another data center publishes under a name, until
// stop is called.
func (s *Datacenters) SubscribeRemote(name string, f func([]byte)) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	for _, link := range s.cfg.Links {
		one, err := link.Subscribe(s.at(s.cfg.Own, name), f)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// Serve answers requests of the other data centers under a name, until stop is called. Without
// other data centers it does nothing.
func (s *Datacenters) Serve(
	name string, answer func(ctx context.Context, msg []byte) []byte,
) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	if s == nil {
		return stop, nil
	}
	for site, link := range s.cfg.Links {
		one, err := link.Serve(s.at(s.cfg.Own, name), func(ctx context.Context, msg []byte) []byte {
			b := answer(context.WithValue(ctx, originKey{}, site), msg)
			if b != nil {
				s.said[site].Add(1)
			}
			return b
		})
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// originKey is the context key of the data center that has sent a message.
type originKey struct{}

// origin returns the data center that has sent a message: that of the link, or the own one. A
// message may say anything else.
func (s *Datacenters) origin(ctx context.Context) string {
	if site, ok := ctx.Value(originKey{}).(string); ok {
		return site
	}
	return s.cfg.Own
}

// ErrDatacenter is wrapped by every error about a data center that a command names.
var ErrDatacenter = errors.New("no such data center for this")

// A DatacenterAccess gives operators the data centers of an engine, which may be the only one. The
// engine embeds it under an unexported name, so that its documentation has no type that users cannot
// import.
type DatacenterAccess struct{ of *Datacenters }

// NewDatacenterAccess returns an access; nil is one data center.
func NewDatacenterAccess(s *Datacenters) DatacenterAccess { return DatacenterAccess{s} }

// CheckDatacenter returns an error that says why a data center does not answer, or nil if it
// answers.
func (a DatacenterAccess) CheckDatacenter(ctx context.Context, name string) error {
	if err := a.of.CheckNames(true, name); err != nil {
		return err
	}
	return a.of.Check(ctx, name)
}

// CheckNames returns an error for a name that is none of the other data centers, or the own one if
// own is true.
func (s *Datacenters) CheckNames(own bool, names ...string) error {
	if s == nil {
		return fmt.Errorf("%w: there is but one", ErrDatacenter)
	}
	for _, name := range names {
		if (!own || name != s.Own()) && !slices.Contains(s.Names(), name) {
			return fmt.Errorf("%w: %q", ErrDatacenter, name)
		}
	}
	return nil
}

// AnywhereHome returns the data center that holds the slots which belong to no data center, or ""
// if there is only one data center.
func (a DatacenterAccess) AnywhereHome() string {
	if a.of == nil {
		return ""
	}
	return a.of.Home()
}

// AnnounceAnywhere is the second step of a move: it informs all data centers of the new home.
func (a DatacenterAccess) AnnounceAnywhere(ctx context.Context, to string) error {
	if a.of == nil || to == a.of.Home() {
		return nil
	}
	return a.of.AnnounceAnywhere(ctx, to)
}

// FinishAnywhereMove finishes an interrupted move of rooms from this data center. It returns the
// destination, or "" if there is no such move.
func (a DatacenterAccess) FinishAnywhereMove(ctx context.Context, rooms []string) (to string, err error) {
	if a.of == nil {
		return "", nil
	}
	return a.of.FinishMove(ctx, rooms)
}

// MessagesSent returns the number of messages that this process has sent to each other data center.
func (a DatacenterAccess) MessagesSent() map[string]int64 {
	if a.of == nil {
		return nil
	}
	m := map[string]int64{}
	for _, name := range a.of.Names() {
		m[name] = a.of.MessagesSent(name)
	}
	return m
}
