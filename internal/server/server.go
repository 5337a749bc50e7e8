// Package server is the process: it opens the rooms of a configuration, listens
// for visitors and operators, and drains.
//
// # The promise
//
// Visitors and operators never share a listener. A stop lets what is in flight
// end, for at most drainFor; readiness falls first.
//
// # Concurrency
//
// Run owns every goroutine and waits for them.
//
// # What it does not do
//
// It decides nothing about a visitor: that is the root package's Room.
package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/proxy"
)

// Timeouts and sizes against slow and greedy clients. Chosen: a browser needs
// far less, and net/http answers 431 by itself beyond the header size.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	drainFor      = 30 * time.Second
	errorRetry    = 5 * time.Second // the page of an origin that is down asks again
)

// A Server runs the rooms of one configuration.
type Server struct {
	cfg    *config.Config
	log    *slog.Logger
	gates  []*gate
	ready  atomic.Bool
	public net.Listener
	admin  net.Listener
}

// gate is one room with the way to its origin.
type gate struct {
	room    *headgate.Room
	proxy   *proxy.Proxy
	handler http.Handler
	page    *pages.Page
}

// Open builds the rooms and binds both addresses. Run must follow, or Close.
func Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (*Server, error) {
	if err := raiseFiles(log); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: log}
	for i := range cfg.Rooms {
		g, err := s.openGate(ctx, &cfg.Rooms[i])
		if err != nil {
			return nil, fmt.Errorf("open room %q: %w", cfg.Rooms[i].Name, err)
		}
		s.gates = append(s.gates, g)
	}
	var err error
	if s.public, err = listen(cfg.Listen, "listen"); err != nil {
		return nil, err
	}
	if s.admin, err = listen(cfg.AdminListen, "admin_listen"); err != nil {
		s.public.Close()
		return nil, err
	}
	return s, nil
}

// An AddressError says which address could not be bound, and what to do.
type AddressError struct {
	Key  string // listen or admin_listen
	Addr string
	Err  error
}

func (e *AddressError) Error() string { return fmt.Sprintf("%s %s: %v", e.Key, e.Addr, e.Err) }

// Unwrap gives the error of the network.
func (e *AddressError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *AddressError) Hint() string {
	return fmt.Sprintf("another program may use it: stop that one or set --%s to a free address",
		strings.ReplaceAll(e.Key, "_", "-"))
}

func listen(addr, key string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &AddressError{Key: key, Addr: addr, Err: err}
	}
	return l, nil
}

// Addr and AdminAddr are where the server listens.
func (s *Server) Addr() net.Addr { return s.public.Addr() }

// AdminAddr is where operators are answered.
func (s *Server) AdminAddr() net.Addr { return s.admin.Addr() }

func (s *Server) openGate(ctx context.Context, c *config.Room) (*gate, error) {
	page, err := pages.New(pages.Config{ErrorRetry: errorRetry})
	if err != nil {
		return nil, err
	}
	g := &gate{page: page}
	rc := roomConfig(s.cfg, c)
	rc.Page, rc.Log = page, s.log
	if g.room, err = headgate.OpenRoom(ctx, rc); err != nil {
		return nil, err
	}
	g.proxy, err = proxy.New(proxy.Config{
		Origin: c.Origin, Trusted: s.cfg.TrustedProxies, StripCookiePrefix: "__cfwaitingroom",
		KeepCommands: true, Log: s.log,
		OnHealth: func(up bool) {
			s.log.Warn("origin changed", "room", c.Name, "up", up)
			g.room.OriginUp(up)
		},
		OnError: func(w http.ResponseWriter, r *http.Request, err error) {
			s.originError(g, c, w, r, err)
		},
	})
	if err != nil {
		return nil, err
	}
	g.handler = g.room.Handler(g.proxy)
	return g, nil
}

// originError answers a visitor whose request the origin did not.
func (s *Server) originError(
	g *gate, c *config.Room, w http.ResponseWriter, r *http.Request, err error,
) {
	code := http.StatusBadGateway
	if e, ok := errors.AsType[*proxy.Error](err); ok {
		code = e.Status
	}
	id := strings.ToLower(rand.Text()[:12])
	s.log.Debug("origin did not answer", "room", c.Name, "code", code, "request", id, "error", err)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Request-Id", id)
	h.Set("Retry-After", strconv.Itoa(int(errorRetry.Seconds())))
	if !headgate.Navigates(r) { // a script or a form must not take a page for its answer
		http.Error(w, "the site does not answer; request "+id, code)
		return
	}
	var body bytes.Buffer
	if err := g.page.RenderError(&body, c.Title, code, id); err != nil {
		http.Error(w, http.StatusText(code), code)
		return
	}
	for k, v := range g.page.Header() {
		h.Set(k, v)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	w.Write(body.Bytes())
}

func roomConfig(all *config.Config, c *config.Room) headgate.RoomConfig {
	return headgate.RoomConfig{
		Name: c.Name, Title: c.Title, Host: c.Host, Path: c.Path,
		TotalActiveUsers: c.TotalActiveUsers, NewUsersPerMinute: c.NewUsersPerMinute,
		SessionDuration: c.SessionDuration, FixedSession: !c.SessionRenewal, HardEnd: c.HardEnd,
		QueueAll: c.QueueAll, Suspended: c.Suspended, Shadow: c.Shadow, OpensAt: c.OpensAt,
		Message: c.Message, StatusCode: c.QueueingStatusCode, RefreshHeader: c.RefreshHeader,
		NoSpread: !c.Spread, MaxWaiting: c.MaxWaiting, Hold: c.Hold, HoldPhone: c.HoldPhone,
		CallHold: c.CallHold, PollMin: c.PollMin, PollMax: c.PollMax,
		Exclude: headgate.Exclude{
			NoDefaults: true, // the defaults are in the configuration already
			Paths:      c.Exclude.Paths, Methods: c.Exclude.Methods,
			CIDRs: c.Exclude.CIDRs, Headers: c.Exclude.Headers,
		},
		JoinLimit: headgate.JoinLimit{
			Amount: int(c.JoinLimit.Amount), Window: c.JoinLimit.Window,
			PrefixV4: c.JoinLimit.PrefixV4, PrefixV6: c.JoinLimit.PrefixV6,
		},
		ClientAddr: clientAddr(all.TrustedProxies),
		Secure:     secure(all.TrustedProxies, c.CookieSecure),
	}
}

// Run serves until ctx ends, then drains.
func (s *Server) Run(ctx context.Context) error {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var wg sync.WaitGroup
	fail := func(err error) {
		if err != nil {
			stop(err)
		}
	}
	for _, g := range s.gates {
		wg.Go(func() { fail(g.room.Run(work)) })
		wg.Go(func() { fail(g.proxy.Run(work)) })
	}
	public, admin := s.httpServer(http.HandlerFunc(s.route)), s.httpServer(s.adminHandler())
	wg.Go(func() { fail(serveOn(public, s.public)) })
	wg.Go(func() { fail(serveOn(admin, s.admin)) })
	s.ready.Store(true)

	select {
	case <-ctx.Done():
	case <-work.Done():
	}
	s.ready.Store(false)
	s.log.Info("draining")
	drain, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	if err := public.Shutdown(drain); err != nil {
		public.Close() // whoever is still downloading is cut off now
	}
	err := context.Cause(work)
	stop(nil)
	admin.Close()
	wg.Wait()
	return err
}

func serveOn(h *http.Server, l net.Listener) error {
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *Server) httpServer(h http.Handler) *http.Server {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, Protocols: p,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// route finds the most specific room for a request.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	var best *gate
	most := -1
	for _, g := range s.gates {
		if n, ok := g.room.Matches(host, r.URL.Path); ok && n > most {
			best, most = g, n
		}
	}
	if best == nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "headgate has no room for this host and path.\n")
		return
	}
	best.handler.ServeHTTP(w, r)
}
