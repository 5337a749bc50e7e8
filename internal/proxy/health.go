package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// A state is what is known of the origin.
type state uint32

const (
	up      state = iota
	refused       // no connection could be opened
	silent        // connections open, but no answer came in time
)

// probeTimeout is how long a silent origin has to answer a probe. Chosen: a
// visitor's own answer, however late, says the same.
const probeTimeout = 5 * time.Second

// A health watches what requests learn of the origin. Up and down are one
// atomic word, so that a request costs it one addition.
type health struct {
	onChange func(up bool)
	every    time.Duration
	probe    func(context.Context, state) error

	state   atomic.Uint32
	answers atomic.Uint64 // answers of the origin so far
	wake    chan struct{} // one place: a change that Run has not seen
	running atomic.Bool
}

func newHealth(onChange func(up bool), every time.Duration) *health {
	return &health{onChange: onChange, every: every, wake: make(chan struct{}, 1)}
}

// Healthy reports whether the origin is up as far as the last requests or
// probes know. A new Proxy is healthy. It never blocks.
func (p *Proxy) Healthy() bool { return state(p.health.state.Load()) == up }

// Run probes the origin while it is down, calls OnHealth, and returns the error
// of ctx when ctx ends. Without it only a visitor's answered request marks the
// origin up again.
func (p *Proxy) Run(ctx context.Context) error { return p.health.run(ctx) }

func (h *health) run(ctx context.Context) error {
	if !h.running.CompareAndSwap(false, true) {
		return errors.New("proxy: Run is running already; call it once")
	}
	defer h.running.Store(false)
	told := up
	for {
		now := state(h.state.Load())
		if (now == up) != (told == up) && h.onChange != nil {
			h.onChange(now == up)
		}
		told = now
		if now == up {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-h.wake:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.wake:
			continue
		// Jitter, so that the workers of a cluster do not knock in step.
		case <-time.After(h.every*3/4 + rand.N(h.every/2+1)):
		}
		if h.probe(ctx, now) == nil {
			h.set(up)
		}
	}
}

func (h *health) set(s state) {
	if state(h.state.Swap(uint32(s))) == s {
		return
	}
	select {
	case h.wake <- struct{}{}:
	default: // Run has a change to look at already, and will find the newest state
	}
}

func (h *health) answered() {
	h.answers.Add(1)
	if state(h.state.Load()) != up {
		h.set(up)
	}
}

// failed notes a failure of an attempt that began when `since` answers had come.
// An origin that has answered somebody in the meantime is not down: a dial lost
// in a full backlog, or one address that takes a minute, must not stop the line.
func (h *health) failed(s state, since uint64) {
	if h.answers.Load() == since {
		h.set(s)
	}
}

// watchDial notes failed dials. They are watched here and not by their requests,
// because net/http goes on dialing when a client has lost its patience, and a
// packet-dropping origin outlasts most clients.
func (h *health) watchDial(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		since := h.answers.Load()
		conn, err := dial(ctx, network, addr)
		if err != nil && ctx.Err() == nil {
			h.failed(refused, since)
		}
		return conn, err
	}
}

// watched notes answers and their absence. A 5xx is an answer. A connection that
// breaks says nothing yet: the next dial will.
type watched struct {
	next     http.RoundTripper
	health   *health
	answered func(status int, took time.Duration) // nil: nobody
}

// RoundTrip sends r by the transport.
func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.answered == nil {
		return w.send(r)
	}
	began := time.Now()
	res, err := w.send(r)
	status := 0
	switch {
	case err == nil:
		status = res.StatusCode
	case clientLeft(r.Context(), err):
		status = StatusClientGone
	}
	w.answered(status, time.Since(began))
	return res, err
}

// clientLeft tells whether a request failed because its client has gone.
func clientLeft(ctx context.Context, err error) bool {
	return judge(ctx, err) == nil
}

func (w *watched) send(r *http.Request) (*http.Response, error) {
	since := w.health.answers.Load()
	res, err := w.next.RoundTrip(r)
	switch {
	case err == nil:
		w.health.answered()
	case r.Context().Err() == nil && noAnswer(err):
		w.health.failed(silent, since)
	}
	return res, err
}

// noAnswer reports whether the origin took the connection and then kept silent.
func noAnswer(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false // watchDial has judged it
	}
	_, client := errors.AsType[*uploadError](err)
	return !client && timedOut(err)
}

// prober tries what failed. A refused origin needs to take a connection. For one
// that hung that proves nothing, since the kernel of a stopped process goes on
// accepting: it must answer a HEAD, with whatever status.
func prober(origin *url.URL, dial dialFunc, t transport) func(context.Context, state) error {
	addr := dialAddr(origin)
	return func(ctx context.Context, s state) error {
		if s == refused {
			conn, err := dial(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			return conn.Close()
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodHead, origin.String(), nil)
		if err != nil {
			return err
		}
		r.Header.Set("User-Agent", "headgate-probe")
		res, err := t.RoundTrip(r)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
}

func dialAddr(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}
