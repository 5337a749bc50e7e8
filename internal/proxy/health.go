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

// A state is what is known about the origin.
type state uint32

const (
	up      state = iota
	refused       // no connection could be opened
	silent        // connections open, but answers time out or break off
)

// probeTimeout is how long a silent origin may take to answer a probe. Chosen: a late answer to a
// visitor also shows that the origin is up.
const probeTimeout = 5 * time.Second

// A health tracks what requests find out about the origin. The state is one atomic word, so that a
// request costs it one addition.
type health struct {
	onChange func(up bool)
	every    time.Duration
	probe    func(context.Context, state) error
	connect  func(context.Context) error // of an origin that is up; nil: requests show enough
	met      bool                        // connect has succeeded

	host  atomic.Pointer[string] // host of an answered request, for use in probes
	doubt atomic.Pointer[string] // host of a request that broke off, for Run to check; nil: none

	state   atomic.Uint32
	answers atomic.Uint64 // answers of the origin so far
	wake    chan struct{} // buffer of one: a change that Run has not seen
	running atomic.Bool
}

func newHealth(onChange func(up bool), every time.Duration) *health {
	return &health{onChange: onChange, every: every, wake: make(chan struct{}, 1)}
}

// run probes the origin while it is down or in doubt, and reports changes. One goroutine does both,
// so that reports arrive in order.
func (h *health) run(ctx context.Context) error {
	if !h.running.CompareAndSwap(false, true) {
		return errors.New("proxy: Run is running already; call it once")
	}
	defer h.running.Store(false)
	told := up
	var again <-chan time.Time // when a doubt may be checked again
	for {
		now := state(h.state.Load())
		if (now == up) != (told == up) && h.onChange != nil {
			h.onChange(now == up)
		}
		told = now
		if now == up {
			if again == nil && h.doubt.Load() != nil {
				h.look(ctx)
				again = time.After(h.every) // visitors who break connections must not cause more probes
				continue
			}
			var watch <-chan time.Time
			if h.connect != nil {
				watch = time.After(h.pause())
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-h.wake:
			case <-again:
				again = nil
			case <-watch:
				h.watch(ctx)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.wake:
			continue
		case <-time.After(h.pause()):
		}
		if h.probe(ctx, now) == nil {
			h.doubt.Store(nil)
			h.set(up)
		}
	}
}

// pause returns the time until the next probe. It has jitter, so that the workers of a cluster do not
// probe in step.
func (h *health) pause() time.Duration { return h.every*3/4 + rand.N(h.every/2+1) }

// watch connects to an origin that is up. An origin that was never reached from here is not judged:
// the proxy that forwards may reach it all the same.
func (h *health) watch(ctx context.Context) {
	since := h.answers.Load()
	ctx, stop := context.WithTimeout(ctx, probeTimeout)
	defer stop()
	switch err := h.connect(ctx); {
	case err == nil:
		h.met = true
	case h.met && !errors.Is(ctx.Err(), context.Canceled):
		h.failed(refused, since)
	}
}

// look probes an origin that broke a connection, to find out whether it answers at all. A probe
// that times out marks nothing: the timeouts of visitors' requests do.
func (h *health) look(ctx context.Context) {
	since := h.answers.Load()
	err := h.probe(ctx, silent)
	if err != nil && !timedOut(err) && ctx.Err() == nil && h.answers.Load() == since {
		h.state.CompareAndSwap(uint32(up), uint32(silent)) // unless a dial of the probe was refused
		return                                             // the doubt about this host stays
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
	default: // Run has not seen the last change, and will read the newest state
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

// failed records a failure of an attempt that began after `since` answers. If the origin has
// answered a request in the meantime, it is not down: a dial that was lost in a full backlog, or
// one address that takes a minute, must not stop the line.
func (h *health) failed(s state, since uint64) {
	if h.answers.Load() == since {
		h.set(s)
	}
}

// broke records that the connection of a request for host ended before an answer. An origin that
// has died behind its port does that, but so does one that refuses a particular request, which a
// visitor can repeat at will. So it does not mark the origin down: Run probes the origin first.
func (h *health) broke(host string, since uint64) {
	if h.answers.Load() != since || state(h.state.Load()) != up || h.doubt.Load() != nil {
		return
	}
	if len(host) > mostHost {
		host = "" // use the origin's own host
	}
	kept := strings.Clone(host)
	h.doubt.Store(&kept)
	h.rouse()
}

// mostHost is the maximum length of a stored host in bytes: a name and a port. Anything longer is
// not a host name.
const mostHost = 253 + len(":65535")

// hosts returns the hosts that a probe may use in its request: one that has been answered before,
// since many origins break the connection for other hosts. Before the first answer it returns the
// origin's own host and that of the request that broke.
func (h *health) hosts(own string) []string {
	if known := h.host.Load(); known != nil {
		return []string{*known}
	}
	if asked := h.doubt.Load(); asked != nil && *asked != own {
		return []string{own, *asked}
	}
	return []string{own}
}

// watchDial records failed dials. It does so instead of their requests, because net/http goes on
// dialing after a client has given up, and an origin that drops packets takes longer than most
// clients wait.
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

// watched records answers and failures. A 5xx is an answer.
type watched struct {
	next     http.RoundTripper
	health   *health
	answered func(status int, took time.Duration) // nil: not measured
}

// RoundTrip sends r with the transport.
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

// clientLeft reports whether a request failed because its client is gone.
func clientLeft(ctx context.Context, err error) bool {
	return judge(ctx, err) == nil
}

func (w *watched) send(r *http.Request) (*http.Response, error) {
	since := w.health.answers.Load()
	res, err := w.next.RoundTrip(r)
	switch {
	case err == nil:
		w.health.answered(r.Host)
	case r.Context().Err() != nil || !ofOrigin(err): // not a failure of the origin
	case timedOut(err):
		w.health.failed(silent, since)
	default:
		w.health.broke(r.Host, since)
	}
	return res, err
}

// ofOrigin reports whether a request failed although the origin had accepted its connection and the
// client's body arrived.
func ofOrigin(err error) bool {
	if ofDial(err) {
		return false // watchDial has recorded it
	}
	_, client := errors.AsType[*uploadError](err)
	return !client
}

// ofDial reports whether no connection could be opened.
func ofDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// prober returns a function that repeats what failed. After a refused connection it is enough that
// the origin accepts one. After a timeout or a broken connection that proves nothing, since the
// kernel accepts connections for a stopped process: the origin must answer a HEAD request for one
// of hosts, with any status.
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
