//go:build kills || soak

package kills

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

var (
	binary  = flag.String("binary", "", "test this headgate instead of building one")
	killsN  = flag.Int("kills", defaultKills, "how often headgate is killed in TestKills")
	stopFor = flag.Duration("stop-for", defaultStop, "how long headgate is frozen in TestStopped")
	seed    = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the moments of the kills")
)

// The room of all runs. Its two limits bind about equally often.
const (
	totalActive = 100
	newPerMin   = 360
	clients     = 320
)

// A stage is one run: headgate before a judging origin, and the crowd.
type stage struct {
	t       *testing.T
	proc    *process
	origin  *judge.Origin
	http    *http.Transport
	url     string
	began   time.Time
	life    atomic.Int64 // of the process, from 0
	closing atomic.Bool  // nobody new comes
	present atomic.Int64 // clients that have not ended
	rng     *rand.Rand

	clients []*client
	stop    context.CancelFunc
	wg      sync.WaitGroup
	kills   []kill

	mu      sync.Mutex
	tickets []usedTicket // in order of their claims
	replays []replay
	gauges  []gauge
	fsyncs  []time.Duration
}

// A usedTicket waits to be tried again by somebody else.
type usedTicket struct {
	visitor string
	cookie  string
	number  uint64
	claimed time.Duration // answer read in full
	revoked time.Duration // answer read in full, or never
}

// newStage starts headgate and the crowd.
func newStage(t *testing.T) *stage {
	t.Helper()
	origin, err := judge.StartOrigin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := origin.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("seed %d", *seed)
	st := &stage{t: t, origin: origin, rng: rand.New(rand.NewPCG(*seed, 0)),
		http: &http.Transport{MaxIdleConnsPerHost: 2 * clients, DisableCompression: true}}
	st.proc = newProcess(t, "--origin", origin.URL,
		"--total-active-users", strconv.Itoa(totalActive),
		"--new-users-per-minute", strconv.Itoa(newPerMin), "--session-duration", session.String())
	st.url = "http://" + st.proc.public + "/"
	st.proc.start()
	st.began = time.Now()

	ctx, stop := context.WithCancel(t.Context())
	st.stop = stop
	t.Cleanup(func() { stop(); st.wg.Wait(); st.http.CloseIdleConnections() })
	for i := range clients {
		c := &client{st: st, id: i, rng: rand.New(rand.NewPCG(*seed, uint64(i+1)))}
		c.due = c.between(0, 3*time.Second)
		st.clients = append(st.clients, c)
		st.present.Add(1)
		st.wg.Go(func() { c.live(ctx); st.present.Add(-1) })
	}
	st.wg.Go(func() { st.every(ctx, 500*time.Millisecond, st.look) })
	st.wg.Go(func() { st.every(ctx, time.Second, st.sync) })
	return st
}

func (st *stage) clock() time.Duration { return time.Since(st.began) }

// rest lets the crowd go on for a while.
func (st *stage) rest(d time.Duration) { until(st.t.Context(), time.Now().Add(d)) }

// drain lets nobody new come and waits until all have come through.
func (st *stage) drain(within time.Duration) {
	st.t.Helper()
	st.closing.Store(true)
	for end := st.clock() + within; st.present.Load() > 0; {
		if st.clock() > end {
			st.t.Errorf("%d visitors are not through after %v", st.present.Load(), within)
			return
		}
		st.rest(100 * time.Millisecond)
	}
}

// every calls do at each tick until ctx ends.
func (st *stage) every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(ctx)
		}
	}
}

// killOnce kills headgate now, or aims at a write, and starts it again at once.
func (st *stage) killOnce(aimed bool) {
	k := kill{aimed: aimed}
	if aimed {
		k.inFlight = st.proc.aim(5 * time.Second)
	} else {
		st.proc.freeze()
		k.inFlight = st.proc.writeInFlight()
	}
	k.at = st.clock()
	st.proc.kill()
	st.life.Add(1)
	k.started = st.clock()
	st.proc.start()
	k.ready = st.clock()
	st.kills = append(st.kills, k)
}

// used notes the ticket of a visitor who has left.
func (st *stage) used(c *client, revoked time.Duration) {
	in := c.now.admitted()
	if c.ticket == "" || in == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tickets = append(st.tickets, usedTicket{c.now.name, c.ticket, c.now.number(),
		in.answered, revoked})
}

// takeUsed gives a used ticket to try again: one that was claimed long ago, or one
// of four whose stay was revoked a moment ago.
func (st *stage) takeUsed() (u usedTicket, ok bool) {
	now := st.clock()
	st.mu.Lock()
	defer st.mu.Unlock()
	for i, u := range st.tickets {
		if now-u.claimed > claimMemory || u.revoked != never && now-u.claimed < claimMemory*2/3 && i%4 == 0 {
			st.tickets = append(st.tickets[:i], st.tickets[i+1:]...)
			return u, true
		}
	}
	return u, false
}

// look reads the metrics.
func (st *stage) look(ctx context.Context) {
	g := gauge{at: st.clock(), life: int(st.life.Load())}
	text, err := get(ctx, "http://"+st.proc.admin+"/metrics")
	if err != nil || g.life != int(st.life.Load()) {
		return
	}
	for name, to := range map[string]*float64{
		"headgate_active_users": &g.active, "headgate_called_users": &g.called,
		"headgate_new_users_last_minute": &g.fresh, "headgate_record_writes_total": &g.writes,
		"go_goroutines": &g.goroutines, "process_resident_memory_bytes": &g.rss,
		"process_open_fds": &g.fds,
	} {
		*to, _ = judge.Metric(text, name)
	}
	st.mu.Lock()
	st.gauges = append(st.gauges, g)
	st.mu.Unlock()
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return string(text), err
}

// sync measures what a write costs here, beside the data folder.
func (st *stage) sync(context.Context) {
	from := time.Now()
	f, err := os.OpenFile(filepath.Join(st.proc.dir, "probe"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		defer f.Close()
		from = time.Now()
		if _, err = f.Write(make([]byte, 4<<10)); err == nil {
			err = f.Sync()
		}
	}
	took := time.Since(from)
	st.mu.Lock()
	defer st.mu.Unlock()
	if err != nil {
		st.t.Error(err)
		return
	}
	st.fsyncs = append(st.fsyncs, took)
}

// finish ends the crowd and holds what was seen against the limits, and against
// more if there is more.
func (st *stage) finish(l limits, more ...judge.Figure) {
	st.t.Helper()
	st.stop()
	st.wg.Wait()
	if !st.proc.alive() {
		st.t.Error("headgate ended by itself")
	}
	l.total, l.fresh = totalActive, newPerMin
	r := run{limits: l, replays: st.replays, kills: st.kills, gauges: st.gauges,
		fsyncs: st.fsyncs, began: st.began, lives: int(st.life.Load()) + 1,
		origin: st.origin.Requests()}
	for _, c := range st.clients {
		r.visits = append(r.visits, c.visits...)
	}
	figures, about := r.verdict()
	figures = append(figures, more...)
	st.t.Logf("\n%s", judge.Table(figures))
	for _, f := range figures {
		if !f.OK() {
			st.t.Errorf("%s: %.4g, limit %.4g %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
	if !st.t.Failed() {
		return
	}
	for _, k := range st.kills {
		st.t.Logf("killed at %.3f %s, ready at %.3f", k.at.Seconds(), k.inFlight, k.ready.Seconds())
	}
	for _, v := range about {
		st.t.Log(v)
	}
}
