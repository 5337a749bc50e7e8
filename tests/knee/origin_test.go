//go:build crowd

package knee

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// These are the origin's parameters. Chosen: a processor that another program has for some
// milliseconds is nothing beside them.
const (
	connections = 16                     // of its pool
	query       = 500 * time.Millisecond // mean time of a connection for a page, ±50 %
	work        = 256 << 10              // bytes that each page hashes
	target      = time.Second            // what 95 of 100 answers shall not exceed

	originEnv = "HEADGATE_TEST_KNEE_ORIGIN"
	leave     = "/leave" // its answer revokes the pass
)

// TestMain is also the origin's process.
func TestMain(m *testing.M) {
	if os.Getenv(originEnv) == "" {
		os.Exit(m.Run())
	}
	if err := serveOrigin(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A site is the origin: pages that cost CPU, and all but the front page a connection of the pool, for
// which requests wait in line.
type site struct {
	pool chan struct{} // connections that are free

	mu   sync.Mutex
	took []time.Duration // by the answers since the last look
}

// serveOrigin serves the site at a free port, whose address it prints, until in ends.
func serveOrigin(in io.Reader, out io.Writer) error {
	s := &site{pool: make(chan struct{}, connections)}
	for range connections {
		s.pool <- struct{}{}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", s.page)
	mux.HandleFunc(leave, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Headgate-Command", "revoke")
	})
	mux.HandleFunc("/judge/took", s.look)
	mux.HandleFunc("/judge/take", func(http.ResponseWriter, *http.Request) { <-s.pool })
	mux.HandleFunc("/judge/give", func(http.ResponseWriter, *http.Request) { s.pool <- struct{}{} })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	if _, err := fmt.Fprintln(out, "http://"+l.Addr().String()); err != nil {
		return err
	}
	io.Copy(io.Discard, in)
	server.Close()
	<-ended
	return nil
}

func (s *site) page(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	defer func() {
		s.mu.Lock()
		s.took = append(s.took, time.Since(began))
		s.mu.Unlock()
	}()
	sum := sha256.Sum256(make([]byte, work))
	if r.URL.Path != "/" {
		select {
		case <-s.pool:
		case <-r.Context().Done():
			return
		}
		<-time.After(time.Duration((0.5 + rand.Float64()) * float64(query)))
		s.pool <- struct{}{}
	}
	fmt.Fprintf(w, "<!doctype html><title>Shop</title>%x", sum)
}

// look sends what the answers since the last look took.
func (s *site) look(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	took := s.took
	s.took = nil
	s.mu.Unlock()
	json.NewEncoder(w).Encode(took)
}

// An origin is the process of a site.
type origin struct {
	t        *testing.T
	url      string
	capacity int
}

func startOrigin(t *testing.T) *origin {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), originEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // it ends with this process at the latest
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
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error("origin:", err)
		}
	})
	var url string
	if _, err := fmt.Fscanln(out, &url); err != nil {
		t.Fatal("origin:", err)
	}
	return &origin{t: t, url: url, capacity: connections}
}

// ask sends a request of the judge.
func (o *origin) ask(path string) string {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), "GET", o.url+path, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, resp.Body); err != nil {
		o.t.Fatal(err)
	}
	return b.String()
}

// setCapacity changes how many connections the pool has. Those that are taken away end their query.
func (o *origin) setCapacity(n int) {
	o.t.Helper()
	for ; o.capacity > n; o.capacity-- {
		o.ask("/judge/take")
	}
	for ; o.capacity < n; o.capacity++ {
		o.ask("/judge/give")
	}
}

// A seen is what the origin's answers took in a time.
type seen []time.Duration

// look returns what the answers since the last look took.
func (o *origin) look() (took seen) {
	o.t.Helper()
	if err := json.Unmarshal([]byte(o.ask("/judge/took")), &took); err != nil {
		o.t.Fatal(err)
	}
	slices.Sort(took)
	return took
}

// p95 returns the 95th percentile, as a share of the target.
func (s seen) p95() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return s[len(s)*95/100].Seconds() / target.Seconds()
}

// slow returns how many were above the target.
func (s seen) slow() int {
	n, _ := slices.BinarySearch(s, target+1)
	return len(s) - n
}

// knee measures how many people the origin takes within its target: a few more at each step, until it
// misses it. The knee is between the last two steps.
func (o *origin) knee(first int, more float64, settles, looks time.Duration) float64 {
	o.t.Helper()
	ctx, stop := context.WithCancel(o.t.Context())
	var people sync.WaitGroup
	defer func() { stop(); people.Wait(); o.look() }()
	for inside, next, seed := 0, first, uint64(1); ; seed++ {
		add := next - inside
		people.Go(func() { o.people(ctx, add, seed) })
		last := inside
		inside = next
		<-time.After(arrive + settles)
		bad := true
		for try := 0; bad && try < 2; try++ { // a machine that stands still misses it once
			o.look()
			began := time.Now()
			<-time.After(looks)
			took := o.look()
			bad = took.p95() > 1
			o.t.Logf("%d people: %.0f requests/s, p95 %.2f of the target", inside,
				float64(len(took))/time.Since(began).Seconds(), took.p95())
		}
		switch {
		case bad && last == 0:
			o.t.Fatalf("%d people are too many: the step test begins too high", inside)
		case bad:
			return math.Sqrt(float64(last) * float64(inside))
		}
		next = int(float64(inside)*more + 1)
	}
}
