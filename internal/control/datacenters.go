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
	"github.com/headgate/headgate/internal/store"
)

// What data centres have of each other: copies of the sealing keys, so that a visitor may
// roam, and the live changes of rooms. Each asks each other for all of it, again and
// again: what is lost on the way, or was said while it was down, it finds the next time.

// Parameters of what data centres ask each other. Chosen: a key is known everywhere well
// before it seals (sealsAfter), and the megabyte that NATS carries has room left.
const (
	complainEvery = 10 * time.Second // between complaints that one does not answer

	shareEvery  = 5 * time.Second
	shareAgain  = time.Second     // after one that failed
	shareWait   = 3 * time.Second // for an answer, and for the store
	shareSeldom = 6               // who is not first asks each time of so many
	shareLate   = time.Second     // and so late when there is news
	mostShare   = 512 << 10
	mostPairs   = 64 << 10 // of one room; the API takes no more (api: maxBody)
	mostVersion = 1 << 53  // a change each millisecond for 285,000 years
)

// Names of what is asked and told on a link. A name begins with the data centre that it
// is for: both ends of a link hear all that is said on it.
const (
	shareName = ".share" // is asked for all of it
	pullName  = ".pull"  // is told that there is something new to ask for
)

// A share is what one data centre lets another have.
type share struct {
	Site string           `json:"site"` // who says it
	Keys []node.KeyRecord `json:"keys"` // its own, never those of a third
	Live []sharedRoom     `json:"live"`
	// Limits are changes of limits that all data centres share: the home alone has any.
	Limits []sharedLimit `json:"limits,omitempty"`
	// Made are the limits of all data centres that were made: the home alone has any.
	Made *dynamicSet `json:"made,omitempty"`
}

// A sharedRoom is the live changes of a room, whoever has made them, or that it has none
// any more. It has no fingerprint: the file of each data centre is its own.
type sharedRoom struct {
	Room    string            `json:"room"`
	Version uint64            `json:"version"`
	Site    string            `json:"site"`
	Pairs   map[string]string `json:"pairs"`
	At      time.Time         `json:"at"`
	By      string            `json:"by"`
}

// A link is the way to another data centre, as one store node has it.
type link struct {
	s    *Sharing
	name string // of the other
	bus  *store.Bus
	told chan struct{} // it has something new

	grumble grumble
	unheard time.Time // since when it does not answer; zero: it does
}

// Sharing shares keys, live changes and limits with the other data centers.
type Sharing struct {
	node    *node.Node
	log     *slog.Logger
	changes *RoomChanges
	limits  *Limits
	rooms   func() []*config.Room // of the file, as of now
}

// NewSharing returns what shares the changes of rooms and limits. rooms are those of the
// configuration as of now.
func NewSharing(
	n *node.Node, changes *RoomChanges, limits *Limits, rooms func() []*config.Room, log *slog.Logger,
) *Sharing {
	return &Sharing{n, log, changes, limits, rooms}
}

// Run lets the other data centres have what they need of this one, and takes what they
// have, until ctx ends. Workers have no links.
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

// open answers the other end until stop is called.
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
		default: // asked in a moment anyhow
		}
	})
	if err != nil {
		deny()
		silent()
		return nil, err
	}
	return func() { deaf(); deny(); silent() }, nil
}

// tell lets the other end ask now.
func (l *link) tell() {
	if err := l.bus.Publish(l.name+pullName, nil); err != nil {
		l.s.log.Warn("another data centre not told of what is new: it asks by itself", "datacenter", l.name,
			"error", err)
	}
}

// run asks until ctx ends: the first node of a data centre always, the others seldom and
// when there is news, in case the first has no link.
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

// pull asks for all that the other end has, and keeps what is new. It reports whether
// there is nothing to do again soon.
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
		if l.grumble.due("refused") {
			l.s.log.Error("what another data centre says is refused", "datacenter", l.name, "error", err)
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
	if err != nil && l.grumble.due("not kept") {
		l.s.log.Warn("keys and changes of another data centre not kept yet", "datacenter", l.name,
			"error", err)
	}
	return err == nil
}

// missed notes that the other end does not answer, and says so when it lasts.
func (l *link) missed(ctx context.Context, err error) {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case l.unheard.IsZero():
		l.unheard = time.Now()
	case time.Since(l.unheard) > complainEvery && l.grumble.due("silent"):
		l.s.log.Warn("another data centre does not answer: its new sealing keys and live changes are not "+
			"known here", "datacenter", l.name, "since", l.unheard, "error", err)
	}
}

// heard notes that the other end answers.
func (l *link) heard() {
	if !l.unheard.IsZero() && time.Since(l.unheard) > complainEvery {
		l.s.log.Info("another data centre answers again", "datacenter", l.name)
	}
	l.unheard = time.Time{}
}

// A grumble says things once a minute that could be said all the time. Chosen.
type grumble struct {
	mu   sync.Mutex
	said map[string]time.Time
}

func (g *grumble) due(what string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, ok := g.said[what]; ok && time.Since(at) < time.Minute {
		return false
	}
	if g.said == nil {
		g.said = map[string]time.Time{}
	}
	g.said[what] = time.Now()
	return true
}

// answer is what the other end is told, nil for nothing: then it asks again.
func (l *link) answer(ctx context.Context) []byte {
	ctx, stop := context.WithTimeout(ctx, shareWait)
	defer stop()
	b, err := l.s.ownShare(ctx)
	switch {
	case err != nil:
		if ctx.Err() == nil && l.grumble.due("unread") {
			l.s.log.Warn("another data centre not answered", "datacenter", l.name, "error", err)
		}
		return nil
	case len(b) > mostShare:
		if l.grumble.due("large") {
			l.s.log.Error("another data centre not answered: sealing keys and live changes are too many",
				"datacenter", l.name, "bytes", len(b), "most", mostShare,
				"hint", "write long messages into the configuration, and reload")
		}
		return nil
	}
	return b
}

// ownShare is what this data centre lets others have.
func (s *Sharing) ownShare(ctx context.Context) ([]byte, error) {
	keys, err := s.node.OwnKeys(ctx)
	if err != nil {
		return nil, err
	}
	x := share{Site: s.node.Config.Datacenters.Own, Keys: keys}
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

// own are the live changes of all rooms, as they are known here.
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

// adopt keeps the live changes of a room, if it is here now. Else it is asked for again.
func (s *Sharing) adopt(ctx context.Context, x *sharedRoom) error {
	for _, file := range s.rooms() {
		if file.Name == x.Room {
			return s.changes.adopt(ctx, file, x)
		}
	}
	return nil
}

// parseShare reads what a data centre says. The errors hold nothing of it, as there are
// keys in it.
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
	case x.Site != from:
		return nil, errors.New("it is of another data centre")
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
			join.CheckName(y.Site) != nil {
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
