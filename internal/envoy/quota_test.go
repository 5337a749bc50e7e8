package envoy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/ratelimit"
)

// A proxy behaves as Envoy 1.40 does with one bucket: it reports each 5 s, knows whole seconds, keeps
// its tokens while a strategy stays the same, and begins a new strategy, or one that had expired, with
// all tokens. Without an assignment it denies.
type proxy struct {
	*testing.T
	quotas *quotas
	id     *rlqs.BucketId
	delay  func() time.Duration // how long a message of headgate is under way
	demand func(now time.Time) int

	stream  *quotaStream
	stop    chan struct{}
	reports chan []byte
	answers chan parcel
	next    *parcel

	strategy        *types.RateLimitStrategy
	expires         time.Time
	tokens          float64
	filled          time.Time
	allowed, denied uint64
	reported        time.Time
	passed          []time.Time
	asked           int
}

// A parcel is a message with the time of its arrival.
type parcel struct {
	at  time.Time
	msg []byte
}

// connect opens a stream, which is served as a real one is, without gRPC.
func (p *proxy) connect() {
	s, err := p.quotas.open()
	if err != nil {
		p.Fatal(err)
	}
	p.stream, p.stop = s, make(chan struct{})
	p.reports, p.answers, p.next = make(chan []byte, 100), make(chan parcel, 10_000), nil
	stop, reports, answers := p.stop, p.reports, p.answers
	go func() {
		defer s.close()
		tick := time.NewTicker(grantEach)
		defer tick.Stop()
		var last time.Time
		for {
			all := false
			select {
			case <-stop:
				return
			case m := <-reports:
				if err := s.receive(m); err != nil {
					p.Error(err)
				}
			case <-s.changed:
			case <-tick.C:
				all = true
			}
			messages, err := s.messages(all)
			if err != nil {
				p.Error(err)
			}
			for _, m := range messages {
				if at := time.Now().Add(p.delay()); at.After(last) { // in order
					last = at
				}
				answers <- parcel{last, m}
			}
		}
	}()
	p.report()
}

func (p *proxy) disconnect() {
	if p.stream != nil {
		close(p.stop)
		p.stream = nil
	}
}

func (p *proxy) report() {
	m, err := proto.Marshal(&rlqs.RateLimitQuotaUsageReports{Domain: "shop",
		BucketQuotaUsages: []*rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{{BucketId: p.id,
			NumRequestsAllowed: p.allowed, NumRequestsDenied: p.denied}}})
	if err != nil {
		p.Fatal(err)
	}
	p.allowed, p.denied, p.reported = 0, 0, time.Now()
	p.reports <- m
}

// step does what is due now.
func (p *proxy) step() {
	now := time.Now()
	for p.stream != nil {
		if p.next == nil {
			select {
			case m := <-p.answers:
				p.next = &m
			default:
			}
		}
		if p.next == nil || p.next.at.After(now) {
			break
		}
		if !p.next.at.Before(p.expires) { // it had expired before
			p.strategy = nil
		}
		p.obey(p.next.msg, p.next.at)
		p.next = nil
	}
	if !now.Before(p.expires) {
		p.strategy = nil
	}
	if now.Sub(p.reported) >= 5*time.Second {
		if p.stream == nil {
			p.connect()
		} else {
			p.report()
		}
	}
	n := p.demand(now)
	for p.asked += n; n > 0; n-- {
		if !p.take(now) {
			p.denied += uint64(n)
			break
		}
		p.allowed++
		p.passed = append(p.passed, now)
	}
}

func (p *proxy) obey(msg []byte, at time.Time) {
	r := &rlqs.RateLimitQuotaResponse{}
	if err := proto.Unmarshal(msg, r); err != nil {
		p.Fatal(err)
	}
	for _, a := range r.GetBucketAction() {
		if a.GetAbandonAction() != nil {
			p.strategy, p.reported = nil, at
			continue
		}
		q := a.GetQuotaAssignmentAction()
		p.expires = at.Add(time.Duration(q.GetAssignmentTimeToLive().GetSeconds()) * time.Second)
		if !proto.Equal(p.strategy, q.GetRateLimitStrategy()) {
			p.strategy, p.filled = q.GetRateLimitStrategy(), at
			p.tokens = float64(p.strategy.GetTokenBucket().GetMaxTokens())
		}
	}
}

func (p *proxy) take(now time.Time) bool {
	b := p.strategy.GetTokenBucket()
	if b == nil {
		return p.strategy != nil && p.strategy.GetBlanketRule() == types.RateLimitStrategy_ALLOW_ALL &&
			p.strategy.GetStrategy() != nil
	}
	rate := float64(b.GetTokensPerFill().GetValue()) / float64(b.GetFillInterval().GetSeconds())
	p.tokens = min(float64(b.GetMaxTokens()), p.tokens+now.Sub(p.filled).Seconds()*rate)
	p.filled = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}

// most returns the largest number of times in a window.
func most(all []time.Time, window time.Duration) (n int) {
	slices.SortFunc(all, time.Time.Compare)
	from := 0
	for i, t := range all {
		for t.Sub(all[from]) >= window {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

const quotaStep = 20 * time.Millisecond

// lending returns quotas of one limit.
func lending(t *testing.T, algorithm string, amount, seconds int) (*quotas, *ratelimit.Limiter) {
	t.Helper()
	r := parse(t, fmt.Sprintf("domain: shop\ndescriptors:\n- key: path\n  value: /buy\n  descriptors:\n"+
		"  - key: client\n    rate_limit: {unit: second, unit_multiplier: %d, requests_per_unit: %d, algorithm: %s}\n",
		seconds, amount, algorithm))
	l, err := ratelimit.New(ratelimit.Config{Limits: r.Limits()})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Rules: r, Limiter: l, Lender: l}).quotas, l
}

func buyers() *rlqs.BucketId {
	return &rlqs.BucketId{Bucket: map[string]string{"client": "a", "path": "/buy"}}
}

// many returns a demand of n calls in a second.
func many(n int) func(time.Time) int {
	sum := 0.0
	return func(time.Time) int {
		sum += float64(n) * quotaStep.Seconds()
		k := int(sum)
		sum -= float64(k)
		return k
	}
}

// One Envoy that asks for all gets nine tenths, two share it, and when the demand moves the limit
// follows it.
func TestQuotasFollowDemand(t *testing.T) {
	for _, c := range []struct{ amount, seconds int }{{100, 1}, {1000, 10}, {100, 60}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := lending(t, "sliding_log", c.amount, c.seconds)
				window := time.Duration(c.seconds) * time.Second
				rate := 4 * c.amount / c.seconds
				busy := [2]bool{true, false}
				var all [2]*proxy
				for i := range all {
					load := many(rate)
					all[i] = &proxy{T: t, quotas: q, id: buyers(), delay: func() time.Duration { return 0 },
						demand: func(now time.Time) int {
							if busy[i] {
								return load(now)
							}
							return 0
						}}
					all[i].connect()
				}
				run := func(d time.Duration) (counts [2]int) {
					before := [2]int{len(all[0].passed), len(all[1].passed)}
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(quotaStep) {
						all[0].step()
						all[1].step()
					}
					return [2]int{len(all[0].passed) - before[0], len(all[1].passed) - before[1]}
				}
				settle := 30*time.Second + 5*window
				measure := 10 * window
				for _, b := range [][2]bool{{true, false}, {true, true}, {false, true}, {true, false}} {
					busy = b
					first := run(settle)
					got := run(measure)
					t.Log(b, first, got, "of", 10*c.amount)
					if n := got[0] + got[1]; n < 9*c.amount {
						t.Errorf("%v: %v of %d", b, got, 10*c.amount)
					}
					if b[0] && b[1] && min(got[0], got[1]) < 3*c.amount {
						t.Errorf("%v is no fair share", got)
					}
				}
				if n := most(slices.Concat(all[0].passed, all[1].passed), window); n > c.amount {
					t.Errorf("%d in a window of %d", n, c.amount)
				}
				for _, p := range all {
					p.disconnect()
				}
				time.Sleep(time.Minute + 3*window)
				if pools, _ := q.kept(); pools != 0 {
					t.Error("a pool stays")
				}
			})
		})
	}
}

// kept returns how many pools and buckets there are.
func (q *quotas) kept() (pools, buckets int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pools), q.buckets
}

// A locked source may be used by many goroutines at once.
type locked struct {
	mu  sync.Mutex
	src rand.Source
}

// Uint64 implements rand.Source.
func (l *locked) Uint64() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Uint64()
}

// Many Envoys with changing demand that lose their connections, messages that take up to a second,
// and other callers of the same limit: never over the limit.
func TestQuotasAreNeverOver(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() { // each takes 10 s with the race detector
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(&locked{src: rand.NewPCG(seed, 59)})
				amount, seconds := 1+r.IntN(200), []int{1, 2, 7, 20, 60}[r.IntN(5)]
				window := time.Duration(seconds) * time.Second
				algorithm := []string{"sliding_log", "fixed_window"}[seed%2]
				q, l := lending(t, algorithm, amount, seconds)
				all := make([]*proxy, 1+r.IntN(8))
				for i := range all {
					load := many(r.IntN(1 + 3*amount/seconds))
					all[i] = &proxy{T: t, quotas: q, id: buyers(),
						delay: func() time.Duration {
							return time.Duration(r.Int64N(int64(grantSlack - quotaStep)))
						},
						demand: func(now time.Time) int {
							switch now.Unix() / 20 % int64(2+i) {
							case 0:
								return 0
							case 1:
								return amount // all that there is at once
							}
							return load(now)
						}}
					all[i].connect()
				}
				var passed []time.Time
				end := time.Now().Add(5*time.Minute + 5*window)
				for ; time.Now().Before(end); time.Sleep(quotaStep) {
					for _, p := range all {
						p.step()
						if r.IntN(2000) == 0 {
							p.disconnect()
						}
					}
					if now := time.Now(); r.IntN(10) == 0 {
						v, err := l.Allow(context.Background(), ratelimit.Check{
							Limit: l.Limits()[0].Name, Key: "path=/buy|client=a", Cost: 1})
						if err != nil {
							t.Fatal(err)
						}
						if v.Allowed {
							passed = append(passed, now)
						}
					}
				}
				for _, p := range all {
					p.disconnect()
					passed = append(passed, p.passed...)
				}
				if algorithm == "fixed_window" {
					counts := map[int64]int{}
					for _, at := range passed {
						counts[at.UnixNano()/int64(window)]++
					}
					for at, n := range counts {
						if n > amount {
							t.Errorf("%d in window %d of %d", n, at, amount)
						}
					}
				} else if n := most(passed, window); n > amount {
					t.Errorf("%d in a window of %d in %v", n, amount, window)
				}
				t.Logf("%d passed of %d in %v", len(passed), amount, window)
				time.Sleep(time.Minute + 3*window)
			})
		})
	}
}
