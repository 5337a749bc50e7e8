package quota

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

const silentHosts = 4

// A partly is a Transport to several hosts, some of which accept messages and never answer.
type partly struct {
	distant
	silent func(host string, rs []request) bool

	mu          sync.Mutex
	under, most map[string]int // unanswered messages by host and limit
}

func (p *partly) Host(shard byte) string { return fmt.Sprint("host-", shard%silentHosts) }

func (p *partly) Request(ctx context.Context, name string, msg []byte) ([]byte, error) {
	_, rs, err := parseRequests(msg)
	if err != nil {
		return nil, err
	}
	if !p.silent(name[len("at."):], rs) {
		return p.distant.Request(ctx, name, msg)
	}
	to := name + " " + rs[0].limit
	p.mu.Lock()
	p.under[to]++
	p.most[to] = max(p.most[to], p.under[to])
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.under[to]--
	p.mu.Unlock()
	return nil, ctx.Err()
}

// Calls for keys of hosts that answer do not wait for hosts that do not. Calls that need no write
// do not wait for those that do. Each is decided after one round trip, and no key exceeds its
// limit.
func TestSilentHostsDoNotDelayOthers(t *testing.T) { //nolint:funlen // a list of cases
	const apart, amount = time.Millisecond, 3
	for _, c := range []struct {
		name       string
		of         string // limit of the calls that are not answered
		silent     func(host string, rs []request) bool
		answering  func(host string) bool
		unanswered func(host string) bool
	}{
		{
			name:       "three of four hosts",
			of:         "api",
			silent:     func(host string, _ []request) bool { return host != "host-0" },
			answering:  func(host string) bool { return host == "host-0" },
			unanswered: func(host string) bool { return host != "host-0" },
		}, {
			name:       "writes",
			of:         "day",
			silent:     func(_ string, rs []request) bool { return rs[0].limit == "day" },
			answering:  func(string) bool { return true },
			unanswered: func(string) bool { return true },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defs := map[string]*Definition{}
				windows := map[string]time.Duration{"api": time.Minute, "day": 24 * time.Hour}
				for name, window := range windows {
					r := limit.Rule{Algorithm: limit.SlidingLog, Amount: amount, Window: window}
					rules, err := limittable.Compile(r, nil)
					if err != nil {
						t.Fatal(err)
					}
					defs[name] = &Definition{Name: name, Rules: rules, MaxKeys: 10_000, Lends: true}
				}
				w := newWorld(ctx, apart, []*Definition{defs["api"], defs["day"]})
				d := w.desks[1]
				way := &partly{distant: d.way.(distant), silent: c.silent,
					under: map[string]int{}, most: map[string]int{}}
				d.way = way
				lanes := map[string]*LimitClient{}
				for name, def := range defs {
					lanes[name] = d.Limit(name)
					lanes[name].under(def)
				}
				keys := func(prefix, of string, n int, fits func(host string) bool) (all []string) {
					for i := 0; len(all) < n; i++ {
						if key := fmt.Sprint(prefix, i); fits(way.Host(shardOf(of, key))) {
							all = append(all, key)
						}
					}
					return all
				}
				var calls sync.WaitGroup
				calls.Go(func() {
					for _, key := range keys("lost-", c.of, 2000, c.unanswered) {
						calls.Go(func() { // each in its own message while there is room for one
							if v, err := lanes[c.of].Take(ctx, key, 1); err == nil {
								t.Errorf("%s: %+v by a host that answers nothing", key, v)
							}
						})
						pause(ctx, time.Millisecond)
					}
				})
				pause(ctx, 100*time.Millisecond)
				var mu sync.Mutex
				var took []time.Duration
				passed := map[string]int{}
				for _, key := range keys("client-", "api", 300, c.answering) {
					calls.Go(func() {
						for range amount + 1 {
							began := time.Now()
							v, err := lanes["api"].Take(ctx, key, 1)
							mu.Lock()
							if took = append(took, time.Since(began)); err != nil {
								t.Error(err)
							} else if v.Allowed {
								passed[key]++
							}
							mu.Unlock()
						}
					})
					pause(ctx, 5*time.Millisecond) // until long after the others have timed out
				}
				calls.Wait()
				if most := slices.Max(took); most > 2*apart {
					n := len(took)
					took = slices.DeleteFunc(took, func(x time.Duration) bool { return x <= 2*apart })
					t.Errorf("%d of %d calls waited for more than a round trip of %s, up to %s",
						len(took), n, 2*apart, most)
				}
				for key, n := range passed {
					if n != amount {
						t.Errorf("%s: %d passed, want %d", key, n, amount)
					}
				}
				stop()
				w.waits.Wait()
				for to, n := range way.most {
					if n > carriers {
						t.Errorf("%d messages at once to %s, want %d at most", n, to, carriers)
					}
				}
			})
		})
	}
}
