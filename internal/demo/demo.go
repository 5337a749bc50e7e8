// Package demo shows headgate at work and lets its user try to break it. It runs a shop, a room in
// front of it, a crowd that does not end, and a live picture in the terminal. The room is a
// separate process that can be killed for real. With headgate demo --cluster it is three processes
// that are one room, behind a plain balancer. With headgate demo --datacenters it is three data
// centers that are one room. Their connections are as slow as those from San Jose to London and
// Delhi, and can be cut.
//
// Every figure of the verdict comes from the shop or from the answers that visitors received, never
// from the room itself. Nothing is left behind: no process, no file, and the terminal is restored.
//
// Run owns every goroutine and waits for them. The demo listens on one address for browsers;
// everything else uses loopback ports that it picks.
//
// The demo uses about 50 MB and a few per cent of a core, and three times that as a cluster or as
// data centers: 120 visitors, a few hundred small requests a second at most, a picture five times a
// second.
//
// The demo is not a benchmark: crowd, shop and room share the machine. Use headgate crowd to
// measure.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// Limits are the limits of the room.
type Limits struct {
	AtOnce    int
	PerMinute int
	Session   time.Duration
}

// A Config holds the options of the demo.
type Config struct {
	Program  string        // the headgate binary to run
	Temp     string        // parent of the run's folder; "": the system's
	Listen   string        // for browsers
	Another  bool          // use a free port if Listen is taken
	Visitors int           // simulated visitors at any time
	Limits   Limits        // of the room
	Cluster  bool          // three processes are the room
	World    bool          // three data centers are the room
	For      time.Duration // 0: until stopped
	Kills    int           // kills of the host by the demo, evenly over For, or one each 10 s
	Plain    bool          // a line a second instead of a picture
	Color    bool
	In       io.Reader
	Out      io.Writer
}

// These are the limits of the demo, and how the keys u and d change the first one.
const (
	limitStep            = 5
	limitLeast, limitTop = 5, 100
	killEvery            = 10 * time.Second
)

// DefaultLimits returns limits that are small enough to watch.
func DefaultLimits() Limits { return Limits{AtOnce: 20, PerMinute: 180, Session: 20 * time.Second} }

// A demo is one run.
type demo struct {
	cfg      Config
	begun    time.Time
	shop     *shop
	gate     *gate     // the room, if it is one process
	operator *operator // of gate
	cluster  *cluster  // the room, if it is three; else nil
	world    *world    // the room, if it is three data centers; else nil
	judge    *judge
	front    *front
	failed   chan error // the first thing that ends the run

	wg sync.WaitGroup

	mu     sync.Mutex
	opened time.Time // when visitors began to come; zero: not yet
	news   []news    // of the nodes or data centers, not shown yet
	cuts   []cutting // of data centers
	state  state
	up     bool   // state is current
	acting bool   // a key is being acted on
	note   string // the result of the last key, if it failed
}

// Run runs the demo until it is stopped, and returns a summary. It prints the picture or the log
// lines, but not the summary.
func Run(ctx context.Context, cfg Config) (s *Summary, err error) {
	folder, err := os.MkdirTemp(cfg.Temp, "headgate-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	d := &demo{cfg: cfg, begun: time.Now(), judge: newJudge(), failed: make(chan error, 1)}
	if d.shop, err = openShop(cfg.Limits); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.shop.close()) }()
	room, closing, err := d.openRoom(ctx, folder)
	defer func() { err = errors.Join(err, closing()) }()
	if err != nil {
		return nil, err
	}
	if d.front, err = openFront(cfg.Listen, cfg.Another, room); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.front.close()) }()
	if err := d.run(ctx, room); err != nil {
		return nil, err
	}
	return d.summary(), nil
}

// openRoom starts the room and returns how to reach it. For a cluster it does not wait until the
// room is ready, because there is something to see meanwhile. closing is never nil.
func (d *demo) openRoom(ctx context.Context, folder string) (
	room http.RoundTripper, closing func() error, err error,
) {
	d.judge.slack = aloneSlack
	if d.cfg.World {
		if d.world, err = newWorld(d.cfg.Program, folder, d.shop.url, d.cfg.Limits); err != nil {
			return nil, func() error { return nil }, err
		}
		return d.world.cities[0].node, d.world.close, d.world.launch()
	}
	if d.cfg.Cluster {
		d.judge.patience, d.judge.slack = doubtFor, clusterSlack
		if d.cluster, err = newCluster(d.cfg.Program, folder, d.shop.url, d.cfg.Limits); err != nil {
			return nil, func() error { return nil }, err
		}
		return d.cluster.balancer, d.cluster.close, d.cluster.launch()
	}
	if d.gate, err = newGate(d.cfg.Program, folder, d.shop.url, d.cfg.Limits); err != nil {
		return nil, func() error { return nil }, err
	}
	d.operator = newOperator(d.gate)
	return direct(d.gate.visitors, d.cfg.Visitors), d.gate.close, d.gate.start(ctx)
}

// run starts the parts of the demo and shows them until the end.
func (d *demo) run(ctx context.Context, room http.RoundTripper) error {
	ctx, stop := context.WithCancel(ctx)
	defer d.wg.Wait()
	defer stop()
	switch {
	case d.world != nil:
		d.followWorld(ctx)
	case d.cluster != nil:
		d.follow(ctx)
	default:
		d.spawn(func() error { return d.watch(ctx) })
	}
	d.spawn(func() error {
		if err := d.open(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		if d.world != nil {
			return d.people(ctx)
		}
		f := newFlock(d.front.URL, room, d.cfg.Visitors, d.judge)
		f.failed = d.fail
		return f.run(ctx)
	})
	if d.cfg.Plain {
		return d.loop(ctx, time.Second, nil, d.printLine)
	}
	t, err := openTerminal(d.cfg.In, d.cfg.Out)
	if err != nil {
		return err
	}
	defer t.close()
	keys := t.listen(ctx, d.spawn)
	return d.loop(ctx, 200*time.Millisecond, keys, func(s *scene) {
		width, height := t.size()
		s.Keys, s.Width = true, width
		io.WriteString(t.out, draw(s).frame(width, height, d.cfg.Color))
	})
}

// spawn runs f in a goroutine. An error of f ends the demo in good order.
func (d *demo) spawn(f func() error) {
	d.wg.Go(func() {
		if err := guarded(f); err != nil {
			d.fail(err)
		}
	})
}

func (d *demo) fail(err error) {
	select {
	case d.failed <- err:
	default:
	}
}

// guarded converts a panic of f to an error, so that the terminal is restored first.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// loop shows the scene repeatedly, and acts on keys.
func (d *demo) loop(ctx context.Context, every time.Duration, keys <-chan byte,
	show func(*scene)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var end <-chan time.Time
	killed := 0
	for n := 0; ; n++ {
		open := d.openFor()
		if end == nil && open > 0 && d.cfg.For > 0 {
			end = time.After(d.cfg.For - open)
		}
		select {
		case <-tick.C:
			show(d.scene(n))
		case k := <-keys:
			if k == 'q' || k == 'Q' {
				return nil
			}
			d.key(ctx, k)
		case err := <-d.failed:
			return err
		case err := <-d.gone():
			return err
		case <-end:
			return nil
		case <-ctx.Done():
			return nil
		}
		if killed < d.cfg.Kills && open >= d.killAt(killed) && d.killByItself(ctx) {
			killed++
		}
	}
}

// gone returns the channel of unexpected ends of the room.
func (d *demo) gone() <-chan error {
	if d.world != nil {
		return d.world.failed
	}
	if d.cluster != nil {
		return d.cluster.failed
	}
	return d.gate.failed
}

// openFor returns how long visitors have been coming.
func (d *demo) openFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened.IsZero() {
		return 0
	}
	return time.Since(d.opened)
}

// killByItself kills the room, or its host, as key k does, unless that must wait.
func (d *demo) killByItself(ctx context.Context) bool {
	if d.cluster == nil {
		return d.act(ctx, d.kill)
	}
	return d.cluster.whole() && d.act(ctx, d.killHostAndStart)
}

// killAt returns when kill n is due, from 0.
func (d *demo) killAt(n int) time.Duration {
	if d.cfg.For == 0 {
		return time.Duration(n+1) * killEvery
	}
	return d.cfg.For * time.Duration(n+1) / time.Duration(d.cfg.Kills+1)
}

// key acts on a key, unless another action is still running.
func (d *demo) key(ctx context.Context, k byte) {
	if d.world != nil {
		d.worldKey(k)
		return
	}
	if d.cluster != nil {
		d.clusterKey(k)
		return
	}
	switch k {
	case 'k', 'K':
		d.act(ctx, d.kill)
	case 'u', 'U':
		d.act(ctx, func(ctx context.Context) error { return d.limit(ctx, +limitStep) })
	case 'd', 'D':
		d.act(ctx, func(ctx context.Context) error { return d.limit(ctx, -limitStep) })
	case ' ':
		d.act(ctx, d.hold)
	}
}

// act runs one action at a time, in parallel with the picture.
func (d *demo) act(ctx context.Context, f func(context.Context) error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.acting {
		return false
	}
	d.acting, d.note = true, ""
	d.spawn(func() error {
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.acting = false
		}()
		return f(ctx)
	})
	return true
}

// kill kills the room as a power failure would, and starts it again.
func (d *demo) kill(ctx context.Context) error {
	k := d.judge.killed("")
	d.saw(state{}, errors.New("killed"))
	if err := d.gate.kill(); err != nil {
		return fmt.Errorf("kill the room: %w", err)
	}
	if err := d.gate.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	d.judge.back(k)
	return nil
}

// limit changes the number of sessions at once, while the room runs.
func (d *demo) limit(ctx context.Context, by int) error {
	was := d.now().AtOnce
	n := min(max(was+by, limitLeast), limitTop)
	if was == 0 || n == was {
		return nil
	}
	if n > was { // the room may apply it before it answers
		d.shop.limitTo(n)
	}
	s, err := d.operator.change(ctx, map[string]any{"total_active_users": n})
	d.changed(s, err)
	if n < was && err == nil {
		d.shop.limitTo(n)
	}
	return nil
}

// hold stops the calls, or resumes them.
func (d *demo) hold(ctx context.Context) error {
	s, err := d.operator.change(ctx, map[string]any{"queue_all": !d.now().QueueAll})
	d.changed(s, err)
	return nil
}

// changed records the result of a change. A rejected change does not end the demo.
func (d *demo) changed(s state, err error) {
	if err == nil {
		d.saw(s, nil)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note = err.Error()
}

// watch requests the state of the room a few times a second.
func (d *demo) watch(ctx context.Context) error {
	for {
		s, err := d.operator.look(ctx)
		d.saw(s, err)
		if !rest(ctx, 200*time.Millisecond) {
			return nil
		}
	}
}

func (d *demo) saw(s state, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.up = err == nil
	if d.up {
		d.state = s
	}
}

func (d *demo) now() state {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// scene gathers what is to be shown.
func (d *demo) scene(tick int) *scene {
	now := time.Now()
	s := &scene{URL: d.front.URL, Since: now.Sub(d.begun), Now: now, Limits: d.cfg.Limits,
		Shop: d.shop.report(now), Seen: d.finding(), People: d.front.inLine(now), Tick: tick}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.State, s.Up, s.Note = d.state, d.up, d.note
	if d.cluster != nil {
		d.clusterScene(s)
	}
	if d.world != nil {
		d.worldScene(s)
	}
	return s
}

// severalScene adds what is the same of several processes to a scene. Its caller holds mu.
func (d *demo) severalScene(s *scene, up bool) {
	s.Open, s.Up = !d.opened.IsZero(), up
	s.State = state{Active: s.Shop.Here, AtOnce: d.cfg.Limits.AtOnce, PerMin: d.cfg.Limits.PerMinute}
	s.News, d.news = d.news, nil
}
