package demo

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// A play is what differs between one process, a cluster and data centers.
type play interface {
	http.RoundTripper // the room, for browsers
	launch(context.Context) error
	close() error
	all() []*node
	open(context.Context) error        // waits until the room takes visitors
	follow(context.Context)            // is called again and again, and tells what happens
	flocks(http.RoundTripper) []*flock // the crowds
	key(context.Context, byte)         // acts on a key
	killByItself(context.Context) bool // kills as a key does, unless that must wait
	show(*scene)                       // adds the room to a scene; the mutex of the demo is held
	finding() finding                  // what all visitors saw
	sum(*Summary)                      // adds what only this play has seen
}

// newPlay configures the room. It starts nothing.
func newPlay(d *demo, folder string) (play, error) {
	g := &ground{program: d.cfg.Program, folder: folder, origin: d.shop.url, limits: d.cfg.Limits,
		failed: d.failed}
	switch {
	case d.cfg.World:
		return newWorldwide(d, g)
	case d.cfg.Cluster:
		return newClustered(d, g)
	}
	return newAlone(d, g)
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
	p, err := newPlay(d, folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.launch(ctx); err != nil {
		return nil, err
	}
	if d.front, err = openFront(cfg.Listen, cfg.Another, p); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.front.close()) }()
	if err := d.run(ctx, p); err != nil {
		return nil, err
	}
	now := time.Now()
	s = &Summary{took: now.Sub(d.begun), report: d.shop.report(now), seen: p.finding(),
		cluster: cfg.Cluster, world: cfg.World}
	p.sum(s)
	return s, nil
}

// run starts the parts of the demo and shows them until the end.
func (d *demo) run(ctx context.Context, p play) error {
	ctx, stop := context.WithCancel(ctx)
	defer d.wg.Wait()
	defer stop()
	for _, n := range p.all() {
		d.every(ctx, lookEvery, n.look)
	}
	d.every(ctx, lookEvery, p.follow)
	d.spawn(func() error {
		if err := p.open(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		d.mu.Lock()
		d.opened = time.Now()
		d.mu.Unlock()
		for _, f := range p.flocks(p) {
			d.spawn(func() error { return f.run(ctx) })
		}
		return nil
	})
	if d.cfg.Plain {
		err := d.loop(ctx, p, time.Second, nil, func(s *scene) {
			io.WriteString(d.cfg.Out, s.line(d.begun))
		})
		stop()
		d.wg.Wait()
		writeNews(d.cfg.Out, d.news, d.begun) // of the time since the last line
		return err
	}
	t, err := openTerminal(d.cfg.In, d.cfg.Out)
	if err != nil {
		return err
	}
	defer t.close()
	keys := t.listen(ctx, d.spawn)
	return d.loop(ctx, p, 200*time.Millisecond, keys, func(s *scene) {
		width, height := t.size()
		s.Keys, s.Width = true, width
		io.WriteString(t.out, draw(s).frame(width, height, d.cfg.Color))
	})
}

// loop shows the scene repeatedly, and acts on keys.
func (d *demo) loop(
	ctx context.Context, p play, every time.Duration, keys <-chan byte, show func(*scene),
) error {
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
			show(d.scene(p, n))
		case k := <-keys:
			if k == 'q' || k == 'Q' {
				return nil
			}
			p.key(ctx, k)
		case err := <-d.failed:
			return err
		case <-end:
			return nil
		case <-ctx.Done():
			return nil
		}
		if killed < d.cfg.Kills && open >= d.killAt(killed) && p.killByItself(ctx) {
			killed++
		}
	}
}

// killEvery is the time between two kills by a demo without an end.
const killEvery = 10 * time.Second

// killAt returns when kill n is due, from 0.
func (d *demo) killAt(n int) time.Duration {
	if d.cfg.For == 0 {
		return time.Duration(n+1) * killEvery
	}
	return d.cfg.For * time.Duration(n+1) / time.Duration(d.cfg.Kills+1)
}

// scene gathers what is to be shown.
func (d *demo) scene(p play, tick int) *scene {
	now := time.Now()
	s := &scene{URL: d.front.URL, Since: now.Sub(d.begun), Now: now, Limits: d.cfg.Limits,
		Shop: d.shop.report(now), Seen: p.finding(), People: d.front.inLine(now), Tick: tick}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Note = d.note
	p.show(s)
	return s
}
