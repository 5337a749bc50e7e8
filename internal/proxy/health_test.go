package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

func TestOriginDownAndBack(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	})
	addr := loopback.Free(t) // reserved for this test: the origin comes back there
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	origin := &httptest.Server{Listener: ln, Config: &http.Server{Handler: answer}}
	origin.Start()
	changes, errs := make(chan bool, 8), make(chan error, 8)
	p, gate := newGate(t, Config{
		Origin: parseURL(t, origin.URL), ProbeEvery: 10 * time.Millisecond,
		OnHealth: func(up bool) { changes <- up }, OnError: onError(errs),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()

	if res, _ := get(t, gate); res.StatusCode != 200 || !p.Healthy() {
		t.Fatalf("status %d, healthy %v", res.StatusCode, p.Healthy())
	}
	origin.Close()
	res, _ := get(t, gate)
	if err := <-errs; res.StatusCode != 502 || p.Healthy() {
		t.Fatalf("down: status %d, healthy %v, %v", res.StatusCode, p.Healthy(), err)
	}
	if up := wait(t, "OnHealth", changes); up {
		t.Fatal("OnHealth(true), want false")
	}

	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	back := &httptest.Server{Listener: ln, Config: &http.Server{Handler: answer}}
	back.Start()
	defer back.Close()
	if up := wait(t, "OnHealth", changes); !up || !p.Healthy() {
		t.Fatal("OnHealth(false), want true")
	}
	if res, body := get(t, gate); res.StatusCode != 200 || body != "hello" {
		t.Fatalf("back: %d %q", res.StatusCode, body)
	}
	cancel()
	if err := wait(t, "Run", done); !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if len(changes) != 0 {
		t.Errorf("%d more changes", len(changes))
	}
}

// Without a probe, one answer to a visitor is enough.
func TestAnswerMarksUp(t *testing.T) {
	p, gate := newGate(t, Config{Origin: newOrigin(t, func(http.ResponseWriter, *http.Request) {})})
	p.health.set(refused)
	if p.Healthy() {
		t.Fatal("healthy")
	}
	if get(t, gate); !p.Healthy() {
		t.Error("an answer did not mark the origin up")
	}
}

func TestServerErrorIsAnAnswer(t *testing.T) {
	p, gate := newGate(t, Config{
		Origin: newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		}),
	})
	if res, _ := get(t, gate); res.StatusCode != 500 || !p.Healthy() {
		t.Errorf("status %d, healthy %v", res.StatusCode, p.Healthy())
	}
}

// The dial goes on after the client has left, and its failure counts.
func TestImpatientClientsDoNotHideADeadOrigin(t *testing.T) {
	changes := make(chan bool, 1)
	p, err := New(Config{
		Origin:   parseURL(t, "http://127.0.0.1:1"),
		OnHealth: func(up bool) { changes <- up },
	})
	if err != nil {
		t.Fatal(err)
	}
	dialing, failNow := make(chan struct{}), make(chan struct{})
	dial := p.health.watchDial(
		func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(dialing)
			select {
			case <-failNow:
				return nil, errors.New("timeout")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
	p.transport = newTransport(&Config{Origin: p.origin}, dial)
	p.carrier.(*watched).next = p.transport
	p.health.probe = func(context.Context, state) error { return errors.New("no") }
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-dialing
		leave()
	}()
	p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if !p.Healthy() {
		t.Fatal("a client that left marked the origin down")
	}
	go p.Run(t.Context())
	close(failNow)
	if up := wait(t, "OnHealth", changes); up {
		t.Error("OnHealth(true), want false")
	}
}

func TestSlowOrigin(t *testing.T) {
	hang := make(chan struct{})
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}
	})
	errs := make(chan error, 8)
	p, gate := newGate(t, Config{
		Origin: origin, ResponseHeaderTimeout: 50 * time.Millisecond, OnError: onError(errs),
	})
	res, _ := get(t, gate+"/slow")
	if err := <-errs; res.StatusCode != 504 || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("status %d, error %v", res.StatusCode, err)
	}
	if state(p.health.state.Load()) != silent {
		t.Error("an origin that answers nobody is not marked down")
	}
	// A stopped process still accepts connections: only an answer proves that it works.
	if err := p.health.probe(t.Context(), silent); err != nil {
		t.Errorf("probe of a live origin: %v", err)
	}
	slow := parseURL(t, origin.String()+"/slow")
	hung := prober(slow, dialer(&Config{}), p.transport, p.health.hosts)
	if err := hung(t.Context(), silent); err == nil {
		t.Error("a hung origin passed the probe")
	}
	if err := hung(t.Context(), refused); err != nil {
		t.Errorf("an origin that takes connections did not pass the dial: %v", err)
	}
}

func TestOneSlowPageDoesNotMarkDown(t *testing.T) {
	reached := make(chan struct{})
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(reached)
			<-r.Context().Done()
		}
	})
	p, gate := newGate(t, Config{Origin: origin, ResponseHeaderTimeout: 300 * time.Millisecond})
	other := make(chan struct{})
	go func() {
		defer close(other)
		<-reached
		p.health.answered("shop") // another visitor's answer, without racing the timeout
	}()
	res, _ := get(t, gate+"/slow")
	<-other
	if res.StatusCode != 504 || !p.Healthy() {
		t.Errorf("status %d, healthy %v", res.StatusCode, p.Healthy())
	}
}

// A run records what Run did. The test and the goroutine of Run share it.
type run struct {
	mu     sync.Mutex
	alive  bool
	told   []bool
	probes []time.Time
}

func (r *run) onHealth(up bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, up)
}

func (r *run) probe(context.Context, state) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probes = append(r.probes, time.Now())
	if !r.alive {
		return errors.New("refused")
	}
	return nil
}

func (r *run) look() (told []bool, probes []time.Time) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told), slices.Clone(r.probes)
}

func TestRunProbesOnlyWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen run
		h := newHealth(seen.onHealth, time.Second)
		h.probe = seen.probe
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.run(ctx) }()

		time.Sleep(time.Hour)
		if _, probes := seen.look(); len(probes) != 0 {
			t.Fatalf("%d probes of a healthy origin", len(probes))
		}
		h.failed(refused, 0)
		time.Sleep(100 * time.Second)
		_, probes := seen.look()
		if n := len(probes); n < 75 || n > 135 {
			t.Errorf("%d probes in 100 s, want about one a second", n)
		}
		gaps := make(map[time.Duration]bool)
		for i := 1; i < len(probes); i++ {
			gap := probes[i].Sub(probes[i-1])
			gaps[gap] = true
			if gap < 750*time.Millisecond || gap > 1250*time.Millisecond {
				t.Errorf("gap of %v", gap)
			}
		}
		if len(gaps) < 10 {
			t.Error("no jitter")
		}
		h.set(silent) // a change from one down state to another is not reported
		if told, _ := seen.look(); len(told) != 1 {
			t.Errorf("told %v, want [false]", told)
		}
		seen.mu.Lock()
		seen.alive = true
		seen.mu.Unlock()
		time.Sleep(2 * time.Second)
		_, before := seen.look()
		time.Sleep(time.Hour)
		told, probes := seen.look()
		if len(probes) != len(before) {
			t.Error("probes go on after the origin came back")
		}
		if len(told) != 2 || told[0] || !told[1] {
			t.Errorf("told %v, want [false true]", told)
		}
		if err := h.run(ctx); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("a second Run: %v", err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// A late failure does not count against an origin that has answered since.
func TestLateFailure(t *testing.T) {
	h := newHealth(nil, time.Second)
	since := h.answers.Load()
	h.answered("shop")
	if h.failed(refused, since); state(h.state.Load()) != up {
		t.Error("an origin that answered meanwhile was marked down")
	}
	if h.failed(refused, since+1); state(h.state.Load()) != refused {
		t.Error("an origin that answered nobody meanwhile is still up")
	}
}

// Healthy reports whether the origin is up according to the last requests or probes. A new Proxy is
// healthy. It never blocks.
func (p *Proxy) Healthy() bool { return state(p.health.state.Load()) == up }
