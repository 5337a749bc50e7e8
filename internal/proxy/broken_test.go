package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// breaks accepts connections, reads the first bytes if read is set, and resets or closes each.
func breaks(t *testing.T, addr string, read, reset bool) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if read {
				conn.Read(make([]byte, 4096))
			}
			if reset {
				conn.(*net.TCPConn).SetLinger(0)
			}
			conn.Close()
		}
	}()
	return ln
}

// running runs a proxy until the end of the test.
func running(t *testing.T, p *Proxy) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() { cancel(); wait(t, "Run", done) })
}

func TestAnOriginThatBreaksEachConnectionIsDown(t *testing.T) {
	for name, how := range map[string]struct{ read, reset bool }{
		"closes at once": {false, false}, "resets at once": {false, true},
		"closes when asked": {true, false}, "resets when asked": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ln := breaks(t, "127.0.0.1:0", how.read, how.reset)
			changes, errs := make(chan bool, 8), make(chan error, 8)
			p, gate := newGate(t, Config{
				Origin: parseURL(t, "http://"+ln.Addr().String()), ProbeEvery: 10 * time.Millisecond,
				OnHealth: func(up bool) { changes <- up }, OnError: onError(errs),
			})
			running(t, p)
			if res, _ := get(t, gate); res.StatusCode != 502 {
				t.Fatalf("status %d", res.StatusCode)
			}
			if up := wait(t, "OnHealth", changes); up || p.Healthy() {
				t.Fatal("an origin that answers nobody is up")
			}
			ln.Close()
			back, err := net.Listen("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			srv := &httptest.Server{Listener: back, Config: &http.Server{Handler: http.NotFoundHandler()}}
			srv.Start()
			defer srv.Close()
			if up := wait(t, "OnHealth", changes); !up {
				t.Error("it is down, though it answers")
			}
		})
	}
}

// An origin with an untrusted certificate is as good as down: nobody gets an answer.
func TestAnOriginWhoseCertificateIsNotTrustedIsDown(t *testing.T) {
	origin := httptest.NewUnstartedServer(http.NotFoundHandler())
	origin.Config.ErrorLog = log.New(io.Discard, "", 0)
	origin.StartTLS()
	defer origin.Close()
	changes := make(chan bool, 8)
	p, gate := newGate(t, Config{Origin: parseURL(t, origin.URL), OnHealth: func(up bool) { changes <- up }})
	running(t, p)
	get(t, gate)
	if up := wait(t, "OnHealth", changes); up {
		t.Error("up")
	}
}

// A visitor who requests what makes the origin break the connection causes a probe now and then,
// and nothing else.
func TestARequestThatBreaksDoesNotMarkDown(t *testing.T) {
	var probes atomic.Int64
	probed := make(chan string, 100)
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "evil" || r.URL.Path == "/bad":
			panic(http.ErrAbortHandler)
		case r.UserAgent() == "headgate-probe":
			probes.Add(1)
			probed <- r.Method + " " + r.Host
		}
	})
	changes := make(chan bool, 8)
	p, gate := newGate(t, Config{Origin: origin, ProbeEvery: time.Hour,
		OnHealth: func(up bool) { changes <- up }})
	running(t, p)
	ask := func(host, path string) int {
		r, err := http.NewRequest(http.MethodGet, gate+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		res, _ := do(t, r)
		return res.StatusCode
	}
	if status := ask("shop", "/"); status != 200 {
		t.Fatal(status)
	}
	for range 20 {
		if status := ask("evil", "/bad"); status != 502 {
			t.Fatal(status)
		}
	}
	if got := wait(t, "a probe", probed); got != "HEAD shop" {
		t.Errorf("the probe is %q, want what is known to be answered", got)
	}
	if status := ask("shop", "/"); status != 200 || !p.Healthy() || len(changes) != 0 || probes.Load() != 1 {
		t.Errorf("status %d, healthy %v, %d changes, %d probes in an hour",
			status, p.Healthy(), len(changes), probes.Load())
	}
}

// An origin that answers only for its own hosts is probed with one of them, also when no visitor is
// inside whose requests would show that it answers again.
func TestAProbeAsksForAHostThatIsTheOrigins(t *testing.T) {
	var dead atomic.Bool
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if dead.Load() || r.Host != "shop" {
			panic(http.ErrAbortHandler)
		}
	})
	for name, before := range map[string]int{"nothing was answered yet": 0, "something was": 1} {
		t.Run(name, func(t *testing.T) {
			dead.Store(false)
			changes := make(chan bool, 8)
			p, gate := newGate(t, Config{Origin: origin, ProbeEvery: 10 * time.Millisecond,
				OnHealth: func(up bool) { changes <- up }})
			running(t, p)
			for i := range before + 1 {
				dead.Store(i == before)
				r := httptest.NewRequest(http.MethodGet, gate+"/", nil)
				r.RequestURI, r.Host = "", "shop"
				do(t, r)
			}
			if up := wait(t, "OnHealth", changes); up {
				t.Fatal("up")
			}
			dead.Store(false)
			if up := wait(t, "OnHealth", changes); !up {
				t.Error("down")
			}
		})
	}
}

// A slow answer to the probe after a broken connection is not a failure, and neither is a break
// while other requests are answered.
func TestADoubtIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen run
		h := newHealth(seen.onHealth, time.Second)
		results := make(chan error, 1)
		h.probe = func(context.Context, state) error {
			err := <-results
			if err == nil {
				h.answered("shop") // a visitor's answer in the meantime
				err = io.EOF
			}
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.run(ctx) }()
		for _, err := range []error{context.DeadlineExceeded, nil} {
			results <- err
			h.broke("shop", h.answers.Load())
			time.Sleep(time.Minute)
			if told, _ := seen.look(); len(told) != 0 || len(results) != 0 {
				t.Errorf("behind a probe that gave %v: told %v", err, told)
			}
		}
		results <- io.EOF
		h.broke("shop", h.answers.Load())
		time.Sleep(time.Second / 2)
		if told, _ := seen.look(); len(told) != 1 || told[0] {
			t.Errorf("an origin that breaks off the probe: told %v", told)
		}
		cancel()
		results <- io.EOF
		<-done
	})
}

// If the client breaks the connection, before the answer or in its own body, the origin is not
// probed.
func TestAClientThatBreaksOffSaysNothing(t *testing.T) {
	reached := make(chan struct{}, 2)
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			panic(http.ErrAbortHandler)
		}
		reached <- struct{}{}
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	p, err := New(Config{Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]io.Reader{
		"waits": http.NoBody, "sends": io.MultiReader(strings.NewReader("half"), brokenBody{}),
	} {
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			select {
			case <-reached:
			case <-ctx.Done():
			}
			if body == http.NoBody {
				leave()
			}
		}()
		r := httptest.NewRequest(http.MethodPost, "/", body).WithContext(ctx)
		p.ServeHTTP(httptest.NewRecorder(), r)
		leave()
		if p.health.doubt.Load() != nil || !p.Healthy() {
			t.Errorf("%s: the origin is in doubt", name)
		}
	}
	p.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/bad", http.NoBody))
	if p.health.doubt.Load() == nil {
		t.Error("the origin has broken off, and is not in doubt")
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("the client is gone") }
