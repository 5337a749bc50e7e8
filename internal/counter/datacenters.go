package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// Sites are the data centres whose rooms are one with ours, as one process sees them: the
// links to them, and where Anywhere lives. It may be used by many goroutines at once; Run
// owns the only one.
type Datacenters struct {
	cfg  DatacentersConfig
	said map[string]*atomic.Int64 // messages sent to each
	mu   sync.Mutex
	home AnywhereHome
	sure bool   // another data centre has said that Anywhere lives here
	left string // where Anywhere of a room was sent from here that did not arrive
	news []chan struct{}
}

// SitesConfig describes the data centres.
type DatacentersConfig struct {
	Own   string
	Home  string                // where Anywhere lives, unless it has moved since
	Links map[string]*store.Bus // to each of the others; nil on a worker, which has none
	Names []string              // of the others
	Bus   *store.Bus            // among the nodes of the own data centre
	Store store.Store
	Log   *slog.Logger
}

// Home says in which data centre Anywhere lives, and how often it has moved: of two, the
// one that has moved more often is true.
type AnywhereHome struct {
	Site  string `json:"site"`
	Moves uint64 `json:"moves"`
}

// homeKey is the record of where Anywhere lives, homeEvery how often it is looked at:
// whoever misses the news finds it so late. Chosen.
const (
	homeKey   = "home"
	homeEvery = 5 * time.Second
)

// NewSites makes the data centres of one process.
func NewDatacenters(cfg DatacentersConfig) *Datacenters {
	cfg.Names = slices.Sorted(slices.Values(cfg.Names))
	s := &Datacenters{cfg: cfg, home: AnywhereHome{Site: cfg.Home}, said: map[string]*atomic.Int64{}}
	for _, name := range cfg.Names {
		s.said[name] = &atomic.Int64{}
	}
	return s
}

// Own is the data centre of this process.
func (s *Datacenters) Own() string { return s.cfg.Own }

// Names are the other data centres, sorted.
func (s *Datacenters) Names() []string { return s.cfg.Names }

// Said is how many messages this process has sent to another data centre.
func (s *Datacenters) MessagesSent(site string) int64 {
	if n := s.said[site]; n != nil {
		return n.Load()
	}
	return 0
}

// Home is the data centre in which Anywhere lives.
func (s *Datacenters) Home() string { return s.HomeNow().Site }

// HomeNow is where Anywhere lives, and how often it has moved.
func (s *Datacenters) HomeNow() AnywhereHome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.home
}

// Run follows where Anywhere lives until ctx ends.
func (s *Datacenters) Run(ctx context.Context) error {
	stop, err := s.Subscribe("home", func(msg []byte) { s.hearHome(ctx, msg) })
	if err != nil {
		return err
	}
	defer stop()
	stopMoves := func() {}
	if len(s.cfg.Links) > 0 {
		if stopMoves, err = s.serveMoves(); err != nil {
			return err
		}
	}
	defer stopMoves()
	tick := time.NewTicker(homeEvery)
	defer tick.Stop()
	for {
		if h, err := s.readHome(ctx); err == nil {
			s.learnHome(h)
		}
		if s.IsLinked() && s.Home() == s.cfg.Own { // asked until somebody has answered
			if err := s.ConfirmHome(ctx, false); err != nil {
				s.cfg.Log.Debug("home not confirmed by another data centre", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// at is the name of what is said to a data centre: both ends of a link hear all that is
// said on it.
func (s *Datacenters) at(site, name string) string { return site + "." + name }

// homeWait bounds a round of asking all others where Anywhere lives. Chosen.
const homeWait = 3 * time.Second

// ConfirmHome asks the other data centres where Anywhere lives, before this one hosts it
// for the first time in the life of this process: it may have moved meanwhile. first says
// that there is no record here, and never was one for all that is known: then somebody must
// answer. A home that is cut off from all hosts what it has.
func (s *Datacenters) ConfirmHome(ctx context.Context, first bool) error {
	s.mu.Lock()
	sure := s.sure
	s.mu.Unlock()
	if sure {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, homeWait)
	defer stop()
	said := make(chan error, len(s.cfg.Links)) // has room for all
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
		return errors.New("no other data centre answers: one of them must know that Anywhere never moved")
	}
	s.mu.Lock()
	s.sure = answers > 0 // else it is asked again at the next takeover
	s.mu.Unlock()
	return nil
}

// errHomes: two configurations name different homes, and nobody has moved Anywhere.
var errHomes = errors.New("another data centre is configured with another home")

// askHome asks one data centre where Anywhere lives, and learns it.
func (s *Datacenters) askHome(ctx context.Context, site string) error {
	b, err := s.Request(ctx, site, "where", nil)
	if err != nil {
		return err
	}
	var h AnywhereHome
	if err := json.Unmarshal(b, &h); err != nil {
		return err
	}
	if now := s.HomeNow(); h.Moves == 0 && now.Moves == 0 && h.Site != now.Site {
		return fmt.Errorf("%w: %s says %s, here it is %s: make cluster.home the same", errHomes, site, h.Site, now.Site)
	}
	if s.learnHome(h) {
		return s.keepHome(ctx, h)
	}
	return nil
}

// answerHome tells where Anywhere lives.
func (s *Datacenters) answerHome(context.Context, []byte) []byte {
	b, err := json.Marshal(s.HomeNow())
	if err != nil {
		return nil
	}
	return b
}

// readHome is what the store of this data centre says, zero if nothing.
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

// hearHome takes in where Anywhere lives as others say, and keeps it.
func (s *Datacenters) hearHome(ctx context.Context, msg []byte) {
	var h AnywhereHome
	if json.Unmarshal(msg, &h) == nil && s.knows(h.Site) && s.learnHome(h) {
		if err := s.keepHome(ctx, h); err != nil {
			s.cfg.Log.Warn("home of Anywhere not kept: it is looked up again", "error", err)
		}
	}
}

// knows reports whether a data centre is configured here.
func (s *Datacenters) knows(site string) bool {
	return site == s.cfg.Own || slices.Contains(s.cfg.Names, site)
}

// learnHome takes a later home over and reports whether it was later.
func (s *Datacenters) learnHome(h AnywhereHome) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	later := h.Moves > s.home.Moves ||
		h.Moves == s.home.Moves && h.Moves > 0 && h.Site > s.home.Site // two commands at once
	if !later || !s.knows(h.Site) {
		return false
	}
	s.cfg.Log.Info("Anywhere lives elsewhere now", "home", h.Site, "before", s.home.Site)
	s.home = h
	for _, ch := range s.news {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	return true
}

// keepHome writes where Anywhere lives to the store of this data centre.
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

// watch lets a channel hear when Anywhere has moved, until stop.
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

// Ask asks a data centre, this one included.
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

// Tell tells all data centres, this one included.
func (s *Datacenters) Publish(name string, msg []byte) error {
	return errors.Join(s.cfg.Bus.Publish(name, msg), s.PublishRemote(name, msg))
}

// TellFar tells all other data centres.
func (s *Datacenters) PublishRemote(name string, msg []byte) (err error) {
	for _, site := range slices.Sorted(maps.Keys(s.cfg.Links)) {
		s.said[site].Add(1)
		err = errors.Join(err, s.cfg.Links[site].Publish(s.at(site, name), msg))
	}
	return err
}

// Linked reports whether this process has links of its own to the other data centres.
func (s *Datacenters) IsLinked() bool { return len(s.cfg.Links) > 0 }

// Hear calls f with what any data centre tells under a name, until stop.
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

// HearFar calls f with what another data centre tells under a name, until stop.
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

// Serve answers what the other data centres ask of this one under a name, until stop.
// Without other data centres there is nothing to answer.
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
			b := answer(ctx, msg)
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
