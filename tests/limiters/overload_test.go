package limiters

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

var overload = flag.Duration("overload", 3*time.Second, "how long an overload lasts")

// serving makes the test binary the server that TestOverload asks.
const serving = "HEADGATE_OVERLOAD_SERVER"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(serving) != "" {
		if err := serveLimits(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// What is offered. Chosen: ten times it leaves a small machine idle enough to see CPU alone.
const (
	capacity    = 400 // calls a second that the limit lets pass
	connections = 32
)

// serveLimits serves a trivial handler behind limits, until standard input ends.
func serveLimits() error {
	perSecond := func(name string, n int64) ratelimit.Limit {
		return ratelimit.Limit{Name: name, Rule: limit.Rule{
			Algorithm: limit.TokenBucket, Amount: n, Burst: max(1, n/10), Window: time.Second,
		}}
	}
	l, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{
		perSecond("api", capacity), perSecond("wide", 1_000_000),
		{Name: "flood", MaxKeys: 1000, Rule: limit.Rule{
			Algorithm: limit.SlidingWindow, Amount: 1, Window: time.Hour,
		}},
	}})
	if err != nil {
		return err
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux := http.NewServeMux()
	for _, c := range l.Limits() {
		mux.Handle("/"+c.Name, ratelimit.Middleware(l, []ratelimit.RequestLimit{{
			Name: c.Name, Key: []ratelimit.KeyPart{{Kind: ratelimit.KeyHeader, Name: "X-Client"}},
		}}, ok))
	}
	mux.HandleFunc("/cost", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(costNow())
	})
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listen.Addr())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var all sync.WaitGroup
	all.Go(func() { s.Serve(listen) })
	io.Copy(io.Discard, os.Stdin)
	s.Close()
	all.Wait()
	return nil
}

// cost is what a process has used so far, and holds.
type cost struct {
	CPU        time.Duration // of user and system
	Live       uint64        // bytes of heap that the last collection left before this one
	Heap       uint64        // bytes of heap now
	Goroutines int
}

func costNow() (c cost) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	c.Live, c.Goroutines = live[0].Value.Uint64(), runtime.NumGoroutine()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	c.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	runtime.GC()
	runtime.GC() // what the first finds in pools is gone with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.Heap = m.HeapAlloc
	return c
}

// A target is the server, with the connections to it.
type target struct {
	addr  string
	conns []net.Conn
}

func startTarget(t *testing.T) *target {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env, cmd.Stderr = append(os.Environ(), serving+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s := &target{addr: strings.TrimSpace(addr)}
	for range connections {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		s.conns = append(s.conns, c)
	}
	return s
}

func (s *target) cost(t *testing.T) (c cost) {
	t.Helper()
	res, err := http.Get("http://" + s.addr + "/cost")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// A called is one call: when it was due, when it was answered, and whether it passed.
type called struct {
	due, took time.Duration
	passed    bool
}

// offer makes calls at a steady rate, whatever the answers take: what is late is made at once,
// and its time runs from when it was due.
func (s *target) offer(t *testing.T, perSecond int, d time.Duration, request func(n int) string) []called {
	t.Helper()
	every := time.Second * connections / time.Duration(perSecond)
	began, logs := time.Now(), make([][]called, connections)
	var all sync.WaitGroup
	for i, c := range s.conns {
		all.Go(func() {
			r, timer := bufio.NewReader(c), time.NewTimer(0)
			defer timer.Stop()
			<-timer.C
			n := i
			for due := every * time.Duration(i) / connections; due < d; due += every {
				if wait := due - time.Since(began); wait > 0 {
					timer.Reset(wait)
					<-timer.C
				}
				passed, err := call(c, r, request(n))
				if err != nil {
					t.Error(err)
					return
				}
				logs[i] = append(logs[i], called{due, time.Since(began) - due, passed})
				n += connections
			}
		})
	}
	all.Wait()
	log := slices.Concat(logs...)
	slices.SortFunc(log, func(a, b called) int { return cmp.Compare(a.due, b.due) })
	return log
}

func call(c net.Conn, r *bufio.Reader, request string) (passed bool, err error) {
	if _, err := io.WriteString(c, request); err != nil {
		return false, err
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return false, err
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return false, err
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
		return false, fmt.Errorf("answered %s", res.Status)
	}
	return res.StatusCode == http.StatusOK, res.Body.Close()
}

// A phase is what one kind of offer came to.
type phase struct {
	name            string
	offered, passed int
	each            time.Duration // CPU of a call
	late            time.Duration // the last call, behind its time
	before, after   cost

	// Of refusals, or of all if there are none; first and last are medians of quarters.
	p50, p99, first, last time.Duration
}

func (s *target) phase(
	t *testing.T, name string, perSecond int, d time.Duration, request func(n int) string,
) (p phase) {
	t.Helper()
	p.name, p.before = name, s.cost(t)
	began := time.Now()
	log := s.offer(t, perSecond, d, request)
	p.late = time.Since(began) - d
	p.after = s.cost(t)
	if t.Failed() {
		t.FailNow()
	}
	p.offered = len(log)
	for _, c := range log {
		if c.passed {
			p.passed++
		}
	}
	p.each = (p.after.CPU - p.before.CPU) / time.Duration(p.offered)
	if p.passed < p.offered {
		log = slices.DeleteFunc(log, func(c called) bool { return c.passed })
	}
	p.p50, p.p99 = spread(log)
	p.first, _ = spread(log[:len(log)/4])
	p.last, _ = spread(log[len(log)*3/4:])
	t.Logf("%-34s %6d offered, %6d passed, CPU %3d µs a call, p50 %4d µs, p99 %5d µs, heap %d -> %d KB",
		p.name, p.offered, p.passed, p.each.Microseconds(), p.p50.Microseconds(), p.p99.Microseconds(),
		p.before.Heap>>10, p.after.Heap>>10)
	return p
}

// spread is the median and the slowest hundredth.
func spread(log []called) (p50, p99 time.Duration) {
	var all []time.Duration
	for _, c := range log {
		all = append(all, c.took)
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// TestOverload offers ten times what a limit lets pass, by real HTTP to a process of its own:
// to refuse costs no more CPU than to let pass, the heap does not grow, and nothing queues.
func TestOverload(t *testing.T) {
	s := startTarget(t)
	get := func(path, client string) func(int) string {
		request := fmt.Sprintf("GET /%s HTTP/1.1\r\nHost: api\r\nX-Client: %s\r\n\r\n", path, client)
		return func(int) string { return request }
	}
	strangers := 0
	flood := func(n int) string { // a new key for each call
		return fmt.Sprintf("GET /flood HTTP/1.1\r\nHost: api\r\nX-Client: stranger %d\r\n\r\n", strangers+n)
	}
	s.offer(t, 10*capacity, time.Second, get("wide", "warm")) // pools, pages, buffers
	s.offer(t, 10*capacity, time.Second, flood)
	strangers = 1 << 30

	once := s.phase(t, "1 x, all pass", capacity, max(*overload/4, 2*time.Second), get("api", "big"))
	if once.passed < once.offered*98/100 {
		t.Errorf("at 1 x %d of %d pass", once.passed, once.offered)
	}
	wide := func() phase {
		return s.phase(t, "10 x, all pass (a wider limit)", 10*capacity, *overload/2, get("wide", "big"))
	}
	before := wide() // and after: what others do to the caches changes from second to second
	over := []phase{
		s.phase(t, "10 x", 10*capacity, *overload, get("api", "big")),
		s.phase(t, "10 x, a new key for each call", 10*capacity, *overload, flood),
	}
	all := (before.each + wide().each) / 2
	for _, p := range over {
		if p.passed > p.offered*12/100 {
			t.Errorf("%s: %d of %d pass", p.name, p.passed, p.offered)
		}
		if most := float64(once.each) * *slack; float64(p.each) > most {
			t.Errorf("%s: CPU of a call %v, want %v, that of a call that passes at 1 x",
				p.name, p.each, once.each)
		}
		if most := 1.5 * float64(all) * *slack; float64(p.each) > most { // chosen
			t.Errorf("%s: CPU of a call %v, want 1.5 × %v, that of a call that passes at 10 x",
				p.name, p.each, all)
		}
		t.Logf("%s: CPU %.2f × that at 1 x, %.2f × that at 10 x if all pass", p.name,
			float64(p.each)/float64(once.each), float64(p.each)/float64(all))
		p.steady(t)
	}
}

// steady wants the heap, the goroutines and the latency of refusals to stay as they were.
func (p *phase) steady(t *testing.T) {
	t.Helper()
	for what, heap := range map[string]uint64{"after": p.after.Heap, "at the last collection": p.after.Live} {
		if float64(heap) > 1.1*float64(p.before.Heap) {
			t.Errorf("%s: a heap of %d KB %s, %d before", p.name, heap>>10, what, p.before.Heap>>10)
		}
	}
	if p.after.Goroutines > p.before.Goroutines+connections/4 {
		t.Errorf("%s: %d goroutines, %d before", p.name, p.after.Goroutines, p.before.Goroutines)
	}
	grace := time.Duration(float64(time.Millisecond) * *slack) // others share the machine
	if p.last > 2*p.first+grace || p.late > 200*grace {
		t.Errorf("%s: refusals take %v in the first quarter, %v in the last, the last is %v late",
			p.name, p.first, p.last, p.late)
	}
}
