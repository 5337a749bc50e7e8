//go:build siege

package siege

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/loopback"
	room "github.com/headgate/headgate/tests/crowd"
)

// A scenario is one attack on a room of its own.
type scenario struct {
	name      string
	act       func(context.Context, *attack) // nil: nobody attacks
	attackers int
	oneBlock  bool
	slots     int
	perMinute int // new visitors
	people    int
	arrive    time.Duration
	stay      [2]time.Duration
	burst     int64 // requests that come at once, before the people
	most      int64
	reach     reach
	lasts     time.Duration
	session   time.Duration
}

// of is an attack on a room of 200 slots that 400 people want to enter within 8 s: twice as many
// as it holds, so that they wait, attacked or not.
func of(name string, act func(context.Context, *attack), attackers int) scenario {
	s := scenario{name: fmt.Sprintf("%s %d", name, attackers), act: act, attackers: attackers,
		slots: 200, perMinute: 3000, people: 400, arrive: 8 * time.Second, most: mostSent,
		stay: [2]time.Duration{2 * time.Second, 5 * time.Second}, reach: ofNetworks(),
		lasts: 40 * time.Second, session: 6 * time.Second} // short: slots pass from hand to hand
	if attackers == 1 {
		s.reach = oneNetwork()
	}
	return s
}

// peace is the yardstick: the same room and the same people without an attack.
func peace() scenario {
	s := of("peace", nil, 0)
	s.reach = oneNetwork()
	return s
}

// ghosts30000 are 10,000 cookieless visitors before 20 people who want to enter a room of 5, and
// 20,000 behind them.
func ghosts30000(attackers int) scenario {
	s := of("ghosts", cookieless, attackers)
	s.slots, s.people, s.arrive, s.lasts = 5, 20, 2*time.Second, time.Minute
	s.stay = [2]time.Duration{2 * time.Second, 4 * time.Second}
	s.burst, s.most, s.reach = 10_000, 30_000, ghosts()
	return s
}

// longSessions makes sessions last longer than the probation of 10 s. A form that arrives slowly holds
// its slot for that time; with shorter sessions no visit has ended by then, and expected times are
// estimates of a wide range.
func longSessions(s scenario) scenario {
	s.name += " in long sessions"
	s.session, s.lasts = 15*time.Second, time.Minute
	return s
}

// absents may hold a room for longer than other attacks: each of 700 tickets keeps a slot for 5 s.
func absents(attackers int) scenario {
	s := of("absent", absent, attackers)
	s.lasts = 90 * time.Second
	return s
}

// hoards are measured: nobody waited when they came, and a visit that goes on is not ended.
func hoards(attackers int) scenario {
	s := of("hoard", hoard, attackers)
	s.reach = ofNetworks()
	return s
}

// minute are 60 people before a room that takes 200 new visitors a minute, when 300 cookieless
// requests have come before them.
func minute(attackers int) scenario {
	s := of("a minute's visitors", cookieless, attackers)
	s.perMinute, s.people = 200, 60
	return s
}

func block(s scenario) scenario {
	s.name += " in one block"
	s.oneBlock, s.reach = true, oneNetwork()
	s.reach.first *= 2
	return s
}

func all() []scenario {
	out := []scenario{peace()}
	for _, x := range []struct {
		name string
		act  func(context.Context, *attack)
	}{
		{"cookieless", cookieless}, {"fresh", fresh}, {"copied", copied}, {"slow", slow},
		{"idle", idle}, {"jars", jars}, {"subresources", subresources}, {"forged", forged},
	} {
		for _, n := range []int{1, 10, 100} {
			out = append(out, of(x.name, x.act, n))
		}
	}
	return append(out, block(of("fresh", fresh, 100)), block(of("jars", jars, 100)),
		longSessions(of("slow", slow, 10)), longSessions(of("slow", slow, 100)),
		ghosts30000(1), ghosts30000(100), absents(1), absents(100),
		hoards(1), hoards(100),
		minute(1))
}

// TestSiege plays every scenario.
func TestSiege(t *testing.T) { play(t, all()) }

// TestSiegeShort plays two of them, about a minute. Scenarios with ghosts are not among them: 20
// people are too few to judge a share of 80 % in one run.
func TestSiegeShort(t *testing.T) {
	play(t, []scenario{of("cookieless", cookieless, 1), block(of("jars", jars, 100))})
}

// play runs scenarios one after the other and prints the scoreboard before it fails.
func play(t *testing.T, scenarios []scenario) {
	bin := room.Build(t)
	var lines []line
	var quiet time.Duration
	for _, s := range scenarios {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			r := s.run(t, bin)
			if s.act == nil {
				quiet = quantile(r.polls, 0.99)
			}
			ms := r.measures(s.reach, quiet)
			lines = append(lines, line{s.name, ms})
			for _, m := range ms {
				if t.Log(m); !m.ok() {
					t.Errorf("%s: to reach: %s", m.name, m.limit())
				}
			}
		})
	}
	fmt.Println(scoreboard(lines))
}

// run starts a headgate of its own, lets the attackers begin and the people come, and ends with the
// people.
func (s *scenario) run(t *testing.T, bin string) *record {
	origin, err := room.StartOrigin()
	if err != nil {
		t.Fatal(err)
	}
	public, admin := loopback.Free(t), loopback.Free(t)
	p := room.Start(t, bin, strings.Fields("run --origin "+origin.URL+" --listen "+public+
		" --admin-listen "+admin+" --total-active-users "+strconv.Itoa(s.slots)+
		" --new-users-per-minute "+strconv.Itoa(s.perMinute)+" --session-duration "+s.session.String())...)
	room.AwaitReady(t, "http://"+admin)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := &record{slots: s.slots, session: s.session}
	var beside, hostile sync.WaitGroup
	attacking, withdraw := context.WithCancel(ctx)
	ready := make(chan struct{})
	a := &attack{url: "http://" + public + "/", attackers: s.attackers, oneBlock: s.oneBlock,
		before: max(300, s.burst), burst: s.burst, most: s.most,
		ready: sync.OnceFunc(func() { close(ready) })}
	for k := range s.attackers {
		a.at = append(a.at, from(a.address(k), senders))
		defer a.at[k].CloseIdleConnections()
	}
	if s.act == nil {
		a.ready()
	} else {
		hostile.Go(func() { s.act(attacking, a) })
	}
	<-ready
	beside.Go(func() { r.looks = room.WatchRoom(ctx, "http://"+admin).Samples })
	beside.Go(func() { r.watchHeap(ctx, "http://"+admin+"/metrics") })
	beside.Go(func() { r.watch(ctx, origin.URL) })
	b := newBrowsers(func(id string) string { return id }, person)
	r.people, err = crowd.Run(ctx, crowd.Config{URL: a.url, N: s.people, Arrive: s.arrive, Seed: 1,
		SessionMin: s.stay[0], SessionMax: s.stay[1], Duration: s.lasts,
		Transport: b}, nil)
	if err != nil {
		t.Fatal(err)
	}
	withdraw()
	hostile.Wait()
	stop()
	beside.Wait()
	p.Stop()
	if err := origin.Close(); err != nil {
		t.Error(err)
	}
	r.origin, r.sent, r.polls = origin.Requests(), a.sent.Load(), b.polls
	return r
}

// watchHeap samples the goal of the garbage collector. Unlike the resident memory, it does not
// depend on how soon a busy machine collects and returns what is free.
func (r *record) watchHeap(ctx context.Context, metrics string) {
	for next := time.Now(); until(ctx, next); next = next.Add(500 * time.Millisecond) {
		text, err := room.Get(ctx, metrics)
		if goal, found := room.Metric(text, "go_memstats_next_gc_bytes"); err == nil && found {
			r.memory = append(r.memory, int64(goal))
		}
	}
}

// watch times requests to the origin without headgate: how busy the machine is.
func (r *record) watch(ctx context.Context, origin string) {
	a := &attack{url: origin, at: []*http.Transport{from(person(16000), 1)}}
	for next := time.Now(); until(ctx, next); next = next.Add(50 * time.Millisecond) {
		start := time.Now()
		a.do(ctx, 0, http.Header{})
		r.direct = append(r.direct, time.Since(start))
	}
}
