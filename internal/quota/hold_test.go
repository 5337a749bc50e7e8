package quota

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// A heldWorld is one limit with several Clients, each with its Keys, in a bubble.
type heldWorld struct {
	*world
	t    *testing.T
	ctx  context.Context
	def  *Definition
	keys []*Keys
	turn Waiters
	cut  []bool // a Client reaches no host; guarded by mu
}

// A severed is the Transport of a Client that can be cut.
type severed struct {
	distant
	h    *heldWorld
	desk int
}

func (s severed) Request(ctx context.Context, name string, msg []byte) ([]byte, error) {
	s.h.mu.Lock()
	cut := s.h.cut[s.desk]
	s.h.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.distant.Request(ctx, name, msg)
}

// inHeldWorld runs a test with Clients at a distance from their host.
func inHeldWorld(t *testing.T, r limit.Rule, apart time.Duration, test func(*heldWorld)) {
	synctest.Test(t, func(t *testing.T) {
		compiled, err := limittable.Compile(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		h := &heldWorld{t: t, ctx: ctx, cut: make([]bool, idealDesks)}
		h.def = &Definition{Name: "db", Rules: compiled, MaxKeys: 1000, Lends: true, Policy: PolicyDeny}
		h.world = newWorld(ctx, apart, []*Definition{h.def})
		for i, d := range h.desks {
			d.way = severed{d.way.(distant), h, i}
			k := &Keys{}
			k.Init(d.Limit("db"), Usage{})
			h.keys = append(h.keys, k)
		}
		test(h)
		stop()
		h.waits.Wait()
	})
}

func (h *heldWorld) hold(desk int, n int64) (Hold, Result) {
	h.t.Helper()
	held, v, err := h.keys[desk].Hold(h.ctx, h.def, "", n, h.turn)
	if err != nil {
		h.t.Fatal(err)
	}
	return held, v
}

// remaining returns how much is free at the host.
func (h *heldWorld) remaining() int64 {
	r := h.ledger.decide(h.ctx, []*request{{kind: kindPeek, limit: "db", shard: shardOf("db", "")}})
	return r[0].Remaining
}

func (h *heldWorld) sever(desk int, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut[desk] = cut
}

// Two queues delivered by two processes, and a route of a third process, share a limit. The service
// counts each job at some moment between its departure and its answer, and never more than the
// limit in any window; and the limit is used.
func TestAServiceNeverCountsMoreThanTheLimit(t *testing.T) {
	const amount, seconds, answer = 200, 20, 100 * time.Millisecond
	for i, r := range []limit.Rule{
		{Algorithm: limit.SlidingLog, Amount: amount, Window: time.Second},
		{Algorithm: limit.SlidingWindow, Amount: amount, Window: time.Second, Parts: 10},
		{Algorithm: limit.FixedWindow, Amount: amount, Window: time.Second},
		{Algorithm: limit.TokenBucket, Amount: amount, Window: time.Second},
	} {
		if i > 0 && testing.Short() {
			break
		}
		inHeldWorld(t, r, 2*time.Millisecond, func(h *heldWorld) {
			var mu sync.Mutex
			var counted []limittable.Time
			of := make([]int, 3)
			count := func(who int) {
				mu.Lock()
				defer mu.Unlock()
				counted = append(counted, limittable.Time(time.Now().UnixNano()))
				of[who]++
			}
			h.turn.More = 150
			var wg sync.WaitGroup
			end := h.began.Add(seconds * time.Second)
			for who := range 2 { // queues with more work than they can deliver
				random := rand.New(rand.NewPCG(uint64(who), 51))
				wg.Go(func() {
					for time.Now().Before(end) {
						held, v := h.hold(who, 1)
						if !v.Allowed {
							pause(h.ctx, min(max(v.Retry, time.Millisecond), 250*time.Millisecond))
							continue
						}
						took := answer/2 + time.Duration(random.Int64N(int64(answer)))
						at := time.Duration(random.Int64N(int64(took) + 1))
						wg.Go(func() {
							pause(h.ctx, at)
							count(who)
							pause(h.ctx, took-at)
							held.Use(1)
						})
					}
				})
			}
			wg.Go(func() { // a call per 20 ms
				for time.Now().Before(end) {
					var d limit.Decision
					if _, err := h.keys[2].Take(h.ctx, h.def, "", 1, &d); err != nil {
						t.Error(err)
					}
					if d.Allowed {
						count(2)
					}
					pause(h.ctx, 20*time.Millisecond)
				}
			})
			wg.Wait()
			slices.Sort(counted)
			if n := over(r, counted); n > 0 {
				t.Errorf("%v: the service has counted %d more than %d in %v", r.Algorithm, n, amount, r.Window)
			}
			got := float64(len(counted)) / seconds
			possible := amount / (1 + answer.Seconds())
			if r.Algorithm == limit.TokenBucket {
				possible = amount // a bucket fills meanwhile
			}
			t.Logf("%v: %.1f a second (%.1f %% of what is possible), %v of each", r.Algorithm, got,
				100*got/possible, of)
			if got < 0.93*possible || min(of[0], of[1]) < max(of[0], of[1])*8/10 {
				t.Errorf("%v: %.1f a second of %.1f, %v of each", r.Algorithm, got, possible, of)
			}
		})
	}
}

// Waiting callers get shares by weight, however near they are to the host. A caller with little to
// send sends it within 100 ms, and takes nothing from the others.
func TestTurnsAreByWeight(t *testing.T) {
	for _, x := range []struct {
		weights [3]int64
		rare    bool // the third sends a job per 100 ms
		want    [3]float64
	}{
		{weights: [3]int64{1, 3, 1}, want: [3]float64{0.2, 0.6, 0.2}},
		{weights: [3]int64{1, 1, 1}, rare: true, want: [3]float64{0.485, 0.485}},
	} {
		r := limit.Rule{Algorithm: limit.SlidingLog, Amount: 200, Window: time.Second}
		inHeldWorld(t, r, 2*time.Millisecond, func(h *heldWorld) {
			var of [3]int
			var wg sync.WaitGroup
			warm, end := h.began.Add(2*time.Second), h.began.Add(22*time.Second)
			for who := range of {
				turn := Waiters{Weight: x.weights[who], More: 50}
				if x.rare && who == 2 {
					turn.More = 0
				}
				wg.Go(func() {
					for time.Now().Before(end) {
						held, v, err := h.keys[who].Hold(h.ctx, h.def, "", 1, turn)
						if err != nil {
							t.Error(err)
							return
						}
						if !v.Allowed {
							pause(h.ctx, min(max(v.Retry, time.Millisecond), 250*time.Millisecond))
							continue
						}
						if time.Now().After(warm) {
							of[who]++
						}
						pause(h.ctx, 0)
						held.Use(1)
						if x.rare && who == 2 {
							pause(h.ctx, 100*time.Millisecond)
						}
					}
				})
			}
			wg.Wait()
			sum := of[0] + of[1] + of[2]
			t.Logf("by weights %v: %v in 20 s", x.weights, of)
			if x.rare && of[2] < 100 { // of one per 200 ms
				t.Errorf("who has little to send sent %d in 20 s, want 100 at least", of[2])
			}
			for who, n := range of {
				if x.want[who] == 0 {
					continue
				}
				if part := float64(n) / float64(sum); part < 0.9*x.want[who] || part > 1.1*x.want[who] {
					t.Errorf("weights %v: %d has %.3f of all, want %.3f", x.weights, who, part, x.want[who])
				}
			}
			if sum < 20*200*95/100 {
				t.Errorf("weights %v: %d in 20 s, want 4,000", x.weights, sum)
			}
		})
	}
}

func hourly() limit.Rule {
	return limit.Rule{Algorithm: limit.SlidingLog, Amount: 100, Window: time.Minute}
}

// Held units count as long as they are held, even longer than a term, and are not returned when
// others request them.
func TestWhatIsHeldIsKept(t *testing.T) {
	inHeldWorld(t, hourly(), 2*time.Millisecond, func(h *heldWorld) {
		held, v := h.hold(1, 60)
		if !v.Allowed {
			t.Fatalf("%+v", v)
		}
		if _, v := h.hold(2, 41); v.Allowed {
			t.Error("41 more than what is held are lent")
		}
		pause(h.ctx, time.Minute)
		if n := h.remaining(); n != 40 {
			t.Errorf("%d remain, want 40", n)
		}
		held.Use(20)
		held.Return(40)
		pause(h.ctx, 2*time.Second)
		if n := h.remaining(); n != 80 {
			t.Errorf("%d remain after 20 were used, want 80", n)
		}
		pause(h.ctx, 57*time.Second)
		if n := h.remaining(); n != 80 {
			t.Errorf("%d remain 59 s after 20 were used, want 80", n)
		}
		pause(h.ctx, 2*time.Second)
		if n := h.remaining(); n != 100 {
			t.Errorf("%d remain a window after the use, want all", n)
		}
		if n := h.desks[1].held.Load(); n != 0 {
			t.Errorf("%d keys are known still at the desk", n)
		}
	})
}

// Units held by a process without connection count as used when the term ends, and once more when
// they are reported as used.
func TestWhatIsHeldOutOfReachCountsTwice(t *testing.T) {
	inHeldWorld(t, hourly(), 2*time.Millisecond, func(h *heldWorld) {
		held, _ := h.hold(1, 30)
		h.sever(1, true)
		for range 8 {
			pause(h.ctx, time.Second)
			h.ledger.expire()
		}
		if n := h.remaining(); n != 70 {
			t.Errorf("%d remain when the term is over, want 70", n)
		}
		held.Use(30) // unreachable: it is reported later
		pause(h.ctx, 3*time.Second)
		h.sever(1, false)
		pause(h.ctx, 3*time.Second)
		if n := h.remaining(); n != 40 {
			t.Errorf("%d remain when the answer is known, want 40", n)
		}
	})
}

// A host that takes over without knowing the loans learns about them when they are used.
func TestWhatIsHeldSurvivesTheLossOfTheHost(t *testing.T) {
	inHeldWorld(t, hourly(), 2*time.Millisecond, func(h *heldWorld) {
		held, _ := h.hold(1, 30)
		s := &h.ledger.shards[shardOf("db", "")]
		s.mu.Lock()
		s.tables = nil
		s.mu.Unlock()
		pause(h.ctx, 3*time.Second) // it knows that nothing is lent
		held.Use(30)
		pause(h.ctx, time.Second)
		if n := h.remaining(); n != 70 {
			t.Errorf("%d remain, want 70", n)
		}
	})
}

// Without a host the policy decides, and held units are counted in this process.
func TestHoldsWhileTheHostIsOutOfReach(t *testing.T) {
	inHeldWorld(t, hourly(), 2*time.Millisecond, func(h *heldWorld) {
		h.def.Policy = PolicyLocal
		h.def.Divide = func(among int) (*limittable.Rules, error) {
			return limittable.Divide(hourly(), nil, among)
		}
		h.sever(1, true)
		held, v := h.hold(1, 10)
		if !v.Allowed || !held.IsLocal() {
			t.Fatalf("%+v, here %v", v, held.IsLocal())
		}
		if _, v := h.hold(1, 100/idealDesks-9); v.Allowed {
			t.Error("more than this process's part passes")
		}
		held.Return(10)
		if _, v := h.hold(1, 100/idealDesks); !v.Allowed {
			t.Errorf("what came back is not lent again: %+v", v)
		}
	})
}

// Without a host each method follows the policy, and reports that it does.
func TestVerbsWhileTheHostIsOutOfReach(t *testing.T) {
	for policy, want := range map[Policy][2]bool{
		PolicyLocal: {true, false}, PolicyDeny: {false, false}, PolicyAllow: {true, true},
	} {
		inHeldWorld(t, hourly(), 2*time.Millisecond, func(h *heldWorld) {
			h.def.Policy = policy
			h.def.Divide = func(among int) (*limittable.Rules, error) {
				return limittable.Divide(hourly(), nil, among)
			}
			for verb, ask := range map[string]func(n int64) (Result, error){
				"take": func(n int64) (v Result, err error) {
					v.Exceeded, err = h.keys[1].Take(h.ctx, h.def, "take", n, &v.Decision)
					return v, err
				},
				"peek": func(n int64) (Result, error) { return h.keys[1].Peek(h.ctx, h.def, "peek", n) },
				"reserve": func(n int64) (Result, error) {
					return h.keys[1].Reserve(h.ctx, h.def, "reserve", n, time.Hour)
				},
			} {
				if v, err := ask(1); err != nil || v.Local {
					t.Errorf("policy %d, %s in reach: %+v %v", policy, verb, v, err)
				}
				h.sever(1, true)
				for i, n := range []int64{100 / idealDesks, 100/idealDesks + 1} {
					if v, err := ask(n); err != nil || !v.Local || v.Allowed != want[i] {
						t.Errorf("policy %d, %s %d out of reach: %+v %v, want it to pass: %v", policy, verb, n, v, err, want[i])
					} else if !v.Allowed && v.Retry <= 0 {
						t.Errorf("policy %d, %s %d out of reach never passes: %+v", policy, verb, n, v)
					}
				}
				h.sever(1, false)
				pause(h.ctx, 10*time.Second)
			}
		})
	}
}

// For a concurrency limit, a hold is a call, and the call ends with it.
func TestHoldOfCallsAtOnce(t *testing.T) {
	r := limit.Rule{Algorithm: limit.Concurrency, Amount: 3}
	inHeldWorld(t, r, 2*time.Millisecond, func(h *heldWorld) {
		h.def.Lends, h.def.Calls = false, true
		held, v := h.hold(1, 3)
		if !v.Allowed || held.IsLocal() {
			t.Fatalf("%+v", v)
		}
		if _, v := h.hold(2, 1); v.Allowed {
			t.Error("a fourth call passes")
		}
		held.Use(3)
		pause(h.ctx, time.Second)
		if _, v := h.hold(2, 3); !v.Allowed {
			t.Errorf("three have ended, and %+v", v)
		}
	})
}
