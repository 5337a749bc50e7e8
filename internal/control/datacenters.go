package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/seldom"
	"github.com/headgate/headgate/internal/store"
)

// Data centers share copies of their sealing keys, so that a visitor can roam, and the live changes
// of rooms. Each data center repeatedly requests everything from each other one. So it also gets
// what was lost on the way or changed while it was down.

// Names of the messages on a link. A name begins with the data center that should receive it,
// because both ends of a link receive every message on it.
const (
	shareName = ".share" // a request for the whole share
	pullName  = ".pull"  // a message that something has changed
)

// A share is what one data center gives to another.
type share struct {
	Datacenter string           `json:"datacenter"` // the data center that sends it
	Keys       []node.KeyRecord `json:"keys"`       // only its own keys, never those of a third data center
	Live       []sharedRoom     `json:"live"`
	// Limits are the changes of limits that all data centers share. Only the home sends them.
	Limits []sharedLimit `json:"limits,omitempty"`
	// Made are the dynamic limits of all data centers. Only the home sends them.
	Made *dynamicSet `json:"made,omitempty"`
}

// A link is the connection of one store node to another data center.
type link struct {
	s    *Sharing
	name string // of the other data center
	bus  *store.Bus
	told chan struct{} // it has something new

	said    seldom.Lines
	unheard time.Time // since when it does not answer; zero: it answers
}

// Sharing exchanges keys, live changes and limits with the other data centers.
type Sharing struct {
	node    *node.Node
	log     *slog.Logger
	changes *RoomChanges
	limits  *Limits
	rooms   func() []*config.Room // current rooms of the file
}

// NewSharing returns the exchange for the changes of rooms and limits. rooms returns the current
// rooms of the configuration.
func NewSharing(
	n *node.Node, changes *RoomChanges, limits *Limits, rooms func() []*config.Room, log *slog.Logger,
) *Sharing {
	return &Sharing{n, log, changes, limits, rooms}
}

// Run exchanges shares with the other data centers until ctx ends. On workers it does nothing,
// because they have no links.
func (s *Sharing) Run(ctx context.Context) error {
	k := s.node
	if k.Engine == nil || !k.Linked() {
		return nil
	}
	var links []*link
	for _, name := range k.Config.Datacenters.Others {
		l := &link{s: s, name: name, bus: store.NewBus(k.Engine.Link(name)), told: make(chan struct{}, 1)}
		stop, err := l.open()
		if err != nil {
			return err
		}
		defer stop()
		links = append(links, l)
	}
	stop, err := k.Bus.Subscribe(node.DatacentersTopic, func([]byte) {
		for _, l := range links {
			l.tell()
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	unserve, err := s.limits.serve()
	if err != nil {
		return err
	}
	defer unserve()
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
	return nil
}

// open answers requests from the other end until stop is called.
func (l *link) open() (stop func(), err error) {
	own := l.s.node.Config.Datacenters.Own
	silent, err := l.bus.Serve(own+shareName, func(ctx context.Context, _ []byte) []byte {
		return l.answer(ctx)
	})
	if err != nil {
		return nil, err
	}
	deny, err := l.bus.Serve(own+changeName, l.s.limits.answer)
	if err != nil {
		silent()
		return nil, err
	}
	deaf, err := l.bus.Subscribe(own+pullName, func([]byte) {
		select {
		case l.told <- struct{}{}:
		default: // a request is already due
		}
	})
	if err != nil {
		deny()
		silent()
		return nil, err
	}
	return func() { deaf(); deny(); silent() }, nil
}

// tell publishes to the other end that there is something new.
func (l *link) tell() {
	if err := l.bus.Publish(l.name+pullName, nil); err != nil {
		l.s.log.Warn("changes not announced to another data center: it finds them itself", "datacenter", l.name,
			"error", err)
	}
}

// run requests the share of the other end until ctx ends. The first node of a data center does so
// at each turn. The others do it less often and after changes, in case the first node has no link.
func (l *link) run(ctx context.Context) {
	for turn, now := 0, true; ; turn++ {
		next := shareEvery
		if (now || turn%shareSeldom == 0 || l.s.node.IsFirst()) && !l.pull(ctx) {
			next = shareAgain
		}
		now = false
		select {
		case <-ctx.Done():
			return
		case <-l.told:
			now = true
			if !l.s.node.IsFirst() {
				pause(ctx, shareLate)
			}
		case <-time.After(next):
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// pull requests the share of the other end and stores what is new. It returns false if it should be
// repeated soon.
func (l *link) pull(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, shareWait)
	defer stop()
	b, err := l.bus.Request(ctx, l.name+shareName, nil)
	if err != nil {
		l.missed(ctx, err)
		return false
	}
	l.heard()
	x, err := parseShare(b, l.name)
	if err != nil {
		if l.said.Due("refused") {
			l.s.log.Error("message of another data center rejected", "datacenter", l.name, "error", err)
		}
		return true
	}
	err = l.s.node.TakeKeys(ctx, l.name, x.Keys)
	for i := range x.Live {
		err = errors.Join(err, l.s.adopt(ctx, &x.Live[i]))
	}
	err = errors.Join(err, l.s.limits.takeShared(ctx, l.name, x.Limits))
	if x.Made != nil {
		err = errors.Join(err, l.s.limits.adoptDynamic(ctx, l.name, *x.Made))
	}
	if err != nil && l.said.Due("not kept") {
		l.s.log.Warn("keys and changes of another data center not stored yet", "datacenter", l.name,
			"error", err)
	}
	return err == nil
}

// missed notes that the other end does not answer, and logs it when it lasts.
func (l *link) missed(ctx context.Context, err error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case l.unheard.IsZero():
		l.unheard = time.Now()
	case time.Since(l.unheard) > complainEvery && l.said.Due("silent"):
		l.s.log.Warn("another data center does not answer: its new sealing keys and live changes are not "+
			"known here", "datacenter", l.name, "since", l.unheard, "error", err)
	}
}

// heard notes that the other end answers.
func (l *link) heard() {
	if !l.unheard.IsZero() && time.Since(l.unheard) > complainEvery {
		l.s.log.Info("another data center answers again", "datacenter", l.name)
	}
	l.unheard = time.Time{}
}

// answer returns the share for the other end. It returns nil for no answer; the other end then
// repeats its request.
func (l *link) answer(ctx context.Context) []byte {
	ctx, stop := context.WithTimeout(ctx, shareWait)
	defer stop()
	b, err := l.s.ownShare(ctx)
	switch {
	case err != nil:
		if ctx.Err() == nil && l.said.Due("unread") {
			l.s.log.Warn("another data center not answered", "datacenter", l.name, "error", err)
		}
		return nil
	case len(b) > mostShare:
		if l.said.Due("large") {
			l.s.log.Error("another data center not answered: sealing keys and live changes are too large",
				"datacenter", l.name, "bytes", len(b), "most", mostShare,
				"hint", "write long messages into the configuration, and reload")
		}
		return nil
	}
	return b
}

// ownShare returns the share of this data center.
func (s *Sharing) ownShare(ctx context.Context) ([]byte, error) {
	keys, err := s.node.OwnKeys(ctx)
	if err != nil {
		return nil, err
	}
	x := share{Datacenter: s.node.Config.Datacenters.Own, Keys: keys}
	if x.Live, err = s.own(ctx); err != nil {
		return nil, err
	}
	if x.Limits, err = s.limits.ownChanges(ctx); err != nil {
		return nil, err
	}
	if x.Made, err = s.limits.ownDynamic(ctx); err != nil {
		return nil, err
	}
	return json.Marshal(x)
}

// own returns the live changes of all rooms, as they are known here.
func (s *Sharing) own(ctx context.Context) ([]sharedRoom, error) {
	all := []sharedRoom{}
	for _, file := range s.rooms() {
		x, ok, err := s.changes.own(ctx, file)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, x)
		}
	}
	return all, nil
}

// adopt stores the live changes of a room if the configuration here has it. Otherwise a later
// request brings them again.
func (s *Sharing) adopt(ctx context.Context, x *sharedRoom) error {
	for _, file := range s.rooms() {
		if file.Name == x.Room {
			return s.changes.adopt(ctx, file, x)
		}
	}
	return nil
}

// parseShare decodes the share of a data center. Its errors contain nothing of the share, because
// it has keys.
func parseShare(b []byte, from string) (*share, error) {
	if len(b) > mostShare {
		return nil, fmt.Errorf("it is %d bytes long, and %d are the most", len(b), mostShare)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var x share
	if d.Decode(&x) != nil {
		return nil, errors.New("it is damaged")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is damaged: something follows it")
	}
	switch {
	case x.Datacenter != from:
		return nil, errors.New("it is from another data center")
	case len(x.Keys) == 0:
		return nil, errors.New("it has no sealing key")
	}
	if err := node.CheckKeys(x.Keys); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i := range x.Live {
		y := &x.Live[i]
		size := len(y.By)
		for k, v := range y.Pairs {
			size += len(k) + len(v)
		}
		if seen[y.Room] || y.Version == 0 || y.Version > mostVersion || size > mostPairs ||
			join.CheckName(y.Datacenter) != nil {
			return nil, errors.New("a live change in it is damaged")
		}
		seen[y.Room] = true
	}
	for i := range x.Limits {
		if y := &x.Limits[i]; y.Version == 0 || y.Version > mostVersion {
			return nil, errors.New("a change of a limit in it is damaged")
		}
	}
	if x.Made != nil && (x.Made.Version == 0 || x.Made.Version > mostVersion) {
		return nil, errors.New("what it says of limits that were made is damaged")
	}
	return &x, nil
}
