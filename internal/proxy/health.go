package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// A state is what is known of the origin.
type state uint32

const (
	up      state = iota
	refused       // no connection could be opened
	silent        // connections open, but no answer comes: not in time, or they break before
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

	host  atomic.Pointer[string] // of a request that was answered: a probe may ask for it
	doubt atomic.Pointer[string] // host of a request that broke, for Run to look into; nil: none

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

// Run probes the origin while it is down and when a connection has broken before
// an answer, calls OnHealth, and returns the error of ctx when ctx ends. Without
// it broken connections do not mark the origin down, and only a visitor's
// answered request marks it up again.
func (p *Proxy) Run(ctx context.Context) error { return p.health.run(ctx) }

func (h *health) run(ctx context.Context) error {
	if !h.running.CompareAndSwap(false, true) {
		return errors.New("proxy: Run is running already; call it once")
	}
	defer h.running.Store(false)
	told := up
	var again <-chan time.Time // when a doubt may be looked into again
	for {
		now := state(h.state.Load())
		if (now == up) != (told == up) && h.onChange != nil {
			h.onChange(now == up)
		}
		told = now
		if now == up {
			if again == nil && h.doubt.Load() != nil {
				h.look(ctx)
				again = time.After(h.every) // a visitor who breaks things must not knock more often
				continue
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-h.wake:
			case <-again:
				again = nil
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
			h.doubt.Store(nil)
			h.set(up)
		}
	}
}

// look finds out whether an origin of which a connection broke answers nobody. One that is slow
// to say so has time, as visitors have.
func (h *health) look(ctx context.Context) {
	since := h.answers.Load()
	err := h.probe(ctx, silent)
	if err != nil && !timedOut(err) && ctx.Err() == nil && h.answers.Load() == since {
		h.state.CompareAndSwap(uint32(up), uint32(silent)) // unless a dial of the probe was refused
		return                                             // the doubt stays, that it is asked for that host
	}
	h.doubt.Store(nil)
}

func (h *health) set(s state) {
	if state(h.state.Swap(uint32(s))) != s {
		h.rouse()
	}
}

func (h *health) rouse() {
	select {
	case h.wake <- struct{}{}:
	default: // Run has a change to look at already, and will find the newest state
	}
}

func (h *health) answered(host string) {
	h.answers.Add(1)
	down := state(h.state.Load()) != up
	if (down || h.host.Load() == nil) && len(host) <= mostHost {
		kept := strings.Clone(host)
		h.host.Store(&kept)
	}
	if down {
		h.doubt.Store(nil)
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

// broke notes that the connection of a request for host ended before an answer. That
// is what an origin does that has died behind its port, and also what one does to a
// request that it will not have, over and over if a visitor likes: so it marks nobody
// down, and Run asks the origin.
func (h *health) broke(host string, since uint64) {
	if h.answers.Load() != since || state(h.state.Load()) != up || h.doubt.Load() != nil {
		return
	}
	if len(host) > mostHost {
		host = "" // the origin's own
	}
	kept := strings.Clone(host)
	h.doubt.Store(&kept)
	h.rouse()
}

// mostHost is how long a host may be that is kept, in bytes: a name and a port. What is longer
// is no name.
const mostHost = 253 + len(":65535")

// hosts are whom a probe may ask for: what has been answered before, for many origins
// break off whoever asks for a host that is not theirs. While nothing was, the origin's
// own, and that of the request that broke.
func (h *health) hosts(own string) []string {
	if known := h.host.Load(); known != nil {
		return []string{*known}
	}
	if asked := h.doubt.Load(); asked != nil && *asked != own {
		return []string{own, *asked}
	}
	return []string{own}
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

// watched notes answers and their absence. A 5xx is an answer.
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
		w.health.answered(r.Host)
	case r.Context().Err() != nil || !ofOrigin(err): // it says nothing of the origin
	case timedOut(err):
		w.health.failed(silent, since)
	default:
		w.health.broke(r.Host, since)
	}
	return res, err
}

// ofOrigin reports whether a request failed though the origin had taken its connection
// and the client's body came.
func ofOrigin(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false // watchDial has judged it
	}
	_, client := errors.AsType[*uploadError](err)
	return !client
}

// prober tries what failed. A refused origin needs to take a connection. For one
// that hung or broke off that proves nothing, since the kernel of a stopped process
// goes on accepting: it must answer a HEAD, with whatever status, for one of hosts.
func prober(
	origin *url.URL, dial dialFunc, t transport, hosts func(own string) []string,
) func(context.Context, state) error {
	addr := dialAddr(origin)
	ask := func(ctx context.Context, host string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodHead, origin.String(), nil)
		if err != nil {
			return err
		}
		r.Host = host
		r.Header.Set("User-Agent", "headgate-probe")
		res, err := t.RoundTrip(r)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	return func(ctx context.Context, s state) (err error) {
		if s == refused {
			conn, err := dial(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			return conn.Close()
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		for _, host := range hosts(origin.Host) {
			if err = ask(ctx, host); err == nil {
				return nil
			}
		}
		return err
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
