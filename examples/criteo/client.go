package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A client calls all data centers, far more often than its limit allows.
type client struct {
	world *world
	since time.Time // start of the origin; calls carry the time since then
	http  *http.Client

	mu    sync.Mutex
	calls []call
}

// A call is one call that was answered or failed.
type call struct {
	city   int
	sent   time.Time
	took   time.Duration
	status int // 0: no answer
	left   int // remaining calls in the RateLimit header; -1: none
	retry  bool
}

// A mood is how the client calls for a while.
type mood struct {
	rate  float64 // calls a second
	where []float64
}

// These constants define the client's behavior. Chosen: it calls 4 to 20 times as often as it may,
// twelve times on average, and changes its behavior ten times per window. Every third time it
// prefers one city.
const (
	rateLeast, rateMost = 4, 20
	moods               = 10
	favorites           = 3
	favoriteShare       = 0.9
)

// newMood draws how the client calls next.
func newMood(rnd *rand.Rand, window time.Duration, cities int) mood {
	may := amount / window.Seconds()
	m := mood{rate: may * (rateLeast + (rateMost-rateLeast)*rnd.Float64())}
	total := 0.
	for range cities {
		m.where = append(m.where, rnd.ExpFloat64())
		total += m.where[len(m.where)-1]
	}
	if rnd.IntN(favorites) == 0 {
		m.where[rnd.IntN(cities)] += total * favoriteShare / (1 - favoriteShare)
	}
	return m
}

// draw returns a random city, with the probabilities of the mood.
func (m mood) draw(rnd *rand.Rand) int {
	total := 0.
	for _, x := range m.where {
		total += x
	}
	at := rnd.Float64() * total
	for i, x := range m.where {
		if at -= x; at < 0 {
			return i
		}
	}
	return len(m.where) - 1
}

// run makes the calls of a plan, and waits for the last answer. It does not wait for an answer
// before the next call.
func (c *client) run(ctx context.Context, p plan) {
	rnd := rand.New(rand.NewPCG(p.seed, 0))
	var wg sync.WaitGroup
	defer wg.Wait()
	now := time.Now()
	end, next, turn := now.Add(time.Duration(p.windows)*p.window), now, now
	var m mood
	for next.Before(end) {
		if !next.Before(turn) {
			m, turn = newMood(rnd, p.window, len(c.world.cities)), turn.Add(p.window/moods)
		}
		next = next.Add(time.Duration(rnd.ExpFloat64() / m.rate * float64(time.Second)))
		if !rest(ctx, time.Until(next)) {
			return
		}
		city := m.draw(rnd)
		nodes := c.world.cities[city].nodes
		to := nodes[rnd.IntN(len(nodes))]
		wg.Go(func() { c.call(ctx, city, to) })
	}
}

// callWithin is the timeout of a call. Chosen: the limit's own timeout is 1 s.
const callWithin = 5 * time.Second

// call makes one call to a node.
func (c *client) call(ctx context.Context, city int, to *node) {
	ctx, stop := context.WithTimeout(ctx, callWithin)
	defer stop()
	one := call{city: city, sent: time.Now(), left: -1}
	defer func() {
		one.took = time.Since(one.sent)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = append(c.calls, one)
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to.listen+"/v1/campaigns", nil)
	if err != nil {
		return
	}
	r.Header.Set("X-Client", "ada")
	r.Header.Set(cityHeader, strconv.Itoa(city))
	r.Header.Set(sentHeader, strconv.FormatInt(int64(one.sent.Sub(c.since)), 10))
	resp, err := c.http.Do(r)
	if err != nil {
		return
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if errors.Join(err, resp.Body.Close()) != nil {
		return
	}
	one.status, one.retry = resp.StatusCode, resp.Header.Get("Retry-After") != ""
	if left := remaining().FindStringSubmatch(resp.Header.Get("RateLimit")); left != nil {
		_, _ = fmt.Sscan(left[1], &one.left)
	}
}

// remaining matches the remaining calls in the RateLimit header: "api";r=42;t=7.
func remaining() *regexp.Regexp { return regexp.MustCompile(`;r=(\d+)`) }

// made returns the calls so far, in the order of sending.
func (c *client) made() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.calls)
	slices.SortFunc(all, func(a, b call) int { return a.sent.Compare(b.sent) })
	return all
}
