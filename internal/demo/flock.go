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

// How visitors behave. Chosen: with 20 places and these stays two visitors a
// second go in, so that something is to be seen all the time.
const (
	arrivals         = 10 * time.Second // the first come within this
	stayMin, stayMax = 5 * time.Second, 13 * time.Second
	sayGoodbye       = 0.9 // share of visitors who leave by leavePath
	awayMin, awayMax = time.Second, 4 * time.Second
	requestTimeout   = 10 * time.Second
)

// A flock is a crowd that does not end: each of its visitors comes, waits as our
// page does, stays, leaves, and comes again as somebody new.
type flock struct {
	url   string
	n     int
	judge *judge
	base  http.RoundTripper
	next  atomic.Int64 // visitors so far

	failed func(error) // takes what goes wrong while an event is judged
}

func newFlock(url string, room http.RoundTripper, n int, j *judge) *flock {
	return &flock{url: url, n: n, judge: j, base: room}
}

// direct reaches a room that is one process, for n visitors at once.
func direct(addr string, n int) *http.Transport {
	return &http.Transport{
		DialContext: dialer(addr), MaxIdleConnsPerHost: n, DisableCompression: true,
		WriteBufferSize: 2 << 10, ReadBufferSize: 4 << 10,
	}
}

// run blocks until ctx is done.
func (f *flock) run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, f.n)
	for i := range f.n {
		first := time.Duration(float64(arrivals) * float64(i) / float64(f.n))
		wg.Go(func() {
			errs[i] = guarded(func() error { return f.visitor(ctx, first) })
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *flock) visitor(ctx context.Context, away time.Duration) error {
	for rest(ctx, away) {
		id := int(f.next.Add(1))
		cfg := crowd.Config{
			URL: f.url, N: 1, Arrive: 1, Seed: rand.Uint64(),
			StayMin: stayMin, StayMax: stayMax, Timeout: requestTimeout,
			LeavePath: leavePath, RevokeShare: sayGoodbye, Transport: &named{f.base, id},
		}
		start := time.Now()
		_, err := crowd.Run(ctx, cfg, func(e crowd.Event) {
			err := guarded(func() error { f.judge.observe(id, start, e); return nil })
			if err != nil {
				f.failed(err)
			}
		})
		f.judge.gone(id)
		if err != nil {
			return err
		}
		away = awayMin + rand.N(awayMax-awayMin)
	}
	return nil
}

// named gives a visitor its number: to a crowd of one each is the first.
type named struct {
	base http.RoundTripper
	id   int
}

// RoundTrip sends the request under the visitor's number.
func (n *named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header[crowd.VisitorHeader] = []string{strconv.Itoa(n.id)}
	return n.base.RoundTrip(r)
}

// rest waits for d and reports whether ctx still runs.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
