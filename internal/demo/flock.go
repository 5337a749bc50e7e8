package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// These constants define how visitors behave. Chosen: with 20 slots and sessions of this length two
// visitors a second are admitted, so that something happens all the time.
const (
	arrivals         = 10 * time.Second // all first visitors come within this
	stayMin, stayMax = 5 * time.Second, 13 * time.Second
	sayGoodbye       = 0.9 // share of visitors that end their session by leavePath
	awayMin, awayMax = time.Second, 4 * time.Second
	requestTimeout   = 10 * time.Second
)

// A flock is a crowd that does not end. Each of its visitors comes, waits as the waiting page does,
// has a session, leaves, and comes again as a new visitor.
type flock struct {
	url   string
	n     int
	judge *judge
	base  http.RoundTripper
	next  atomic.Int64 // visitors so far

	failed func(error) // receives errors of the judge

	manners
	wanted func(i int) bool         // whether the i-th visitor, from 0, shall come; nil: all
	came   func() func(*crowd.Poll) // see newcomer; nil: first answers are not recorded
}

// manners define how the visitors of a flock behave.
type manners struct {
	arrivals         time.Duration // all first visitors come within this
	stayMin, stayMax time.Duration
	awayMin, awayMax time.Duration
}

func newFlock(url string, room http.RoundTripper, n int, j *judge) *flock {
	return &flock{url: url, n: n, judge: j, base: room, manners: manners{
		arrivals: arrivals, stayMin: stayMin, stayMax: stayMax, awayMin: awayMin, awayMax: awayMax}}
}

// run blocks until ctx is done.
func (f *flock) run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, f.n)
	for i := range f.n {
		first := time.Duration(float64(f.arrivals) * float64(i) / float64(f.n))
		wg.Go(func() {
			errs[i] = guarded(func() error { return f.visitor(ctx, i, first) })
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *flock) visitor(ctx context.Context, i int, away time.Duration) error {
	for rest(ctx, away) {
		if f.wanted != nil && !f.wanted(i) {
			away = lookEvery
			continue
		}
		id := int(f.next.Add(1))
		cfg := crowd.Config{
			URL: f.url, N: 1, Arrive: 1, Seed: rand.Uint64(),
			SessionMin: f.stayMin, SessionMax: f.stayMax, Timeout: requestTimeout,
			LeavePath: leavePath, RevokeShare: sayGoodbye, Transport: &named{f.base, id},
		}
		first := f.newcomer()
		start := time.Now()
		_, err := crowd.Run(ctx, cfg, func(e crowd.Event) {
			err := guarded(func() error {
				first(&e)
				f.judge.observe(id, start, e)
				return nil
			})
			if err != nil {
				f.failed(err)
			}
		})
		f.judge.gone(id)
		if err != nil {
			return err
		}
		away = f.awayMin + rand.N(f.awayMax-f.awayMin)
	}
	return nil
}

// newcomer is called when a visitor comes. It returns a function that receives the events of the
// visitor and passes on the first answer.
func (f *flock) newcomer() func(*crowd.Event) {
	if f.came == nil {
		return func(*crowd.Event) {}
	}
	told := f.came()
	return func(e *crowd.Event) {
		if e.What == crowd.EventPolled && told != nil {
			told(&e.Poll)
			told = nil
		}
	}
}

// A named sends a visitor's number with each request. The crowd package cannot do it: each visitor
// is the first of a crowd of one.
type named struct {
	base http.RoundTripper
	id   int
}

// RoundTrip sends the request with the visitor's number.
func (n *named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header[crowd.VisitorHeader] = []string{strconv.Itoa(n.id)}
	return n.base.RoundTrip(r)
}
