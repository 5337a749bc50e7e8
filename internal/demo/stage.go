package demo

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// A demo is one run: what all plays need.
type demo struct {
	cfg    Config
	begun  time.Time
	shop   *shop
	judge  *judge
	front  *front
	failed chan error // the first thing that ends the run

	wg sync.WaitGroup

	mu     sync.Mutex
	opened time.Time // when visitors began to come; zero: not yet
	news   []news    // of the nodes or data centers, not shown yet
	acting bool      // a key is being acted on
	note   string    // the result of the last key, if it failed
}

// spawn runs f in a goroutine. An error of f ends the demo in good order.
func (d *demo) spawn(f func() error) {
	d.wg.Go(func() {
		if err := guarded(f); err != nil {
			d.fail(err)
		}
	})
}

// every calls f in a goroutine again and again, with pauses, until ctx is done.
func (d *demo) every(ctx context.Context, pause time.Duration, f func(context.Context)) {
	d.spawn(func() error {
		for again := true; again; again = rest(ctx, pause) {
			f(ctx)
		}
		return nil
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

// openFor returns how long visitors have been coming.
func (d *demo) openFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened.IsZero() {
		return 0
	}
	return time.Since(d.opened)
}

// coldStart is how long several nodes may take until they are one room. Chosen: an election takes 4
// to 12 s, and longer on a busy machine.
const coldStart = time.Minute

// await waits until nothing lacks any more; lacks returns what, and the node to blame.
func (d *demo) await(ctx context.Context, lacks func() (string, *node)) error {
	for what, n := lacks(); n != nil; what, n = lacks() {
		if time.Since(d.begun) > coldStart {
			return fmt.Errorf("%s within %v\n%s", what, coldStart, &n.output)
		}
		if !rest(ctx, lookEvery/4) {
			return nil
		}
	}
	return nil
}

// A news is an event of one node.
type news struct {
	at   time.Time
	text string
}

// tell stores an event until it is shown.
func (d *demo) tell(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.news = append(d.news, news{time.Now(), fmt.Sprintf(format, args...)})
}

// remark stores the result of a key if it differs from what the key promises.
func (d *demo) remark(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note = text
}

// several adds what is the same of several processes to a scene. Its caller holds mu.
func (d *demo) several(s *scene, up bool) {
	s.Open, s.Up = !d.opened.IsZero(), up
	s.State = state{Active: s.Shop.Here, AtOnce: d.cfg.Limits.AtOnce}
	s.News, d.news = d.news, nil
}

// These are what a play does that is in one place.

func (d *demo) flocks(room http.RoundTripper) []*flock {
	f := newFlock(d.front.URL, room, d.cfg.Visitors, d.judge)
	f.failed = d.fail
	return []*flock{f}
}

func (d *demo) finding() finding { return d.judge.finding() }

func (d *demo) sum(*Summary) {}
