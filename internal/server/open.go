package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/dashboard"
	"github.com/headgate/headgate/internal/forwardauth"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/holders"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/usage"
)

// Open builds the rooms and binds both addresses. The caller must then call Run or Close.
func Open(ctx context.Context, cfg *config.Config, log *slog.Logger) (*Server, error) {
	return OpenOn(ctx, Machine{}, cfg, log)
}

// OpenOn is Open on a machine that the caller provides.
func OpenOn(
	ctx context.Context, m Machine, cfg *config.Config, log *slog.Logger,
) (*Server, error) {
	for _, limit := range platform.Limits() {
		log.Warn("limit of this operating system", "limit", limit)
	}
	if err := raiseFiles(log); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: log, machine: m, began: time.Now(), running: make(chan struct{})}
	s.conns.Max, s.conns.Log = s.mostConnections, log
	err := CheckFiles(cfg)
	if err != nil {
		return nil, err
	}
	if err = checkLimits(cfg); err != nil {
		return nil, err
	}
	if s.book, err = pages.NewDefaultPages(errorRetry); err != nil {
		return nil, err
	}
	if s.crawlers, err = cfg.NewCrawlers(); err != nil {
		return nil, err
	}
	options := node.Options{Dial: m.Engine, Boot: m.Boot, Version: readBuild().version, Log: log}
	if s.node, err = node.Open(ctx, options, cfg); err != nil {
		return nil, err
	}
	s.changes, s.rooms = control.NewRoomChanges(s.node, log), control.NewRooms(s.node, log)
	s.revoked = control.NewRevokedCodes(s.node, log)
	s.holders = holders.NewBook(
		holders.Config{Store: s.node.Records, Bus: s.node.Bus, Boot: m.Boot, Log: log})
	s.holders.Open(cfg.StaleAfter())
	s.analytics = s.newAnalytics()
	s.usage = s.newUsage()
	s.holderUsage = usage.NewHolderServer(s.usage)
	if err := s.open(ctx, cfg); err != nil {
		s.node.Close()
		return nil, err
	}
	return s, nil
}

// CheckFiles reads the files that the configuration names and reports faults in them before an
// address is bound: rules for Envoy, pages, secrets and certificates of targets and webhooks, and
// the certificates of HTTPS. Those of cluster and engine are read with the configuration.
func CheckFiles(cfg *config.Config) (err error) {
	if cfg.Envoy != nil {
		_, err = readRules(cfg.Envoy.Rules)
	}
	if err == nil {
		err = checkPages(cfg)
	}
	if err == nil {
		err = checkTargets(cfg)
	}
	t := &cfg.TLS
	if err != nil || !t.On() {
		return err
	}
	if len(t.ACME.Domains) > 0 {
		_, err = certs.ReadRoots(t.ACME.Root)
	} else {
		_, err = certs.ReadPair(t.Certificate, t.Key, time.Now())
	}
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	return nil
}

// open builds the rooms and binds the addresses.
func (s *Server) open(ctx context.Context, cfg *config.Config) (err error) {
	if s.traces, err = newTraces(cfg.Traces, s.node.Config.Node, s.log); err != nil {
		return err
	}
	if s.limits, err = s.newLimits(cfg); err != nil {
		return err
	}
	opening, stop := context.WithTimeout(ctx, node.OpenWait)
	defer stop()
	s.readHolders(opening)
	err = s.openRooms(opening)
	if err == nil {
		err = s.openQueues(opening)
	}
	if err == nil {
		err = s.openWebhooks(opening)
	}
	// The time for the opening is over, and nobody has stopped the process: then the store did not
	// answer.
	if err != nil && ctx.Err() == nil && opening.Err() != nil {
		return s.node.Folder.Fault("the records cannot be written", err)
	}
	if err != nil {
		return err
	}
	if s.public, err = s.machine.listen(cfg.Listen, "listen"); err != nil {
		return err
	}
	if s.admin, err = s.machine.listen(cfg.AdminListen, "admin_listen"); err != nil {
		s.public.Close()
		return err
	}
	if cfg.Decide != nil {
		s.asks, err = s.machine.listen(cfg.Decide.Listen, "decide.listen")
	}
	if err == nil {
		err = s.openEnvoy(cfg)
	}
	if err == nil {
		err = s.limits.Take(opening)
	}
	if err == nil {
		err = s.openTLS(ctx, cfg)
	}
	if err == nil {
		s.board, err = dashboard.New(dashboard.Config{API: s.adminAPI(), Rooms: s.watched, Log: s.log})
	}
	if err != nil {
		s.public.Close()
		s.admin.Close()
		s.envoy.close()
		if s.asks != nil {
			s.asks.Close()
		}
	}
	return err
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
	s.begin(&crew{ctx: work, wg: &wg, fail: fail})
	rooms := guard.Handler(http.HandlerFunc(s.route), s.pace)
	public := s.httpServer(s.plainHTTP(rooms))
	admin := s.httpServer(guard.Handler(s.board.Handler(), s.pace))
	secure := s.secureServer(rooms) // nil without tls
	if s.asks != nil {
		h := s.decide()
		wg.Go(func() { fail(forwardauth.Serve(work, s.conns.Listen(s.asks), h, h.Trusts, s.log)) })
	}
	engine, stopEngine := context.WithCancel(context.WithoutCancel(work))
	var state sync.WaitGroup
	state.Go(func() { fail(s.node.Run(engine)) })
	state.Go(func() { s.traces.Run(engine) }) // until the last request has ended
	follow, unfollow := context.WithCancel(work)
	defer unfollow()
	wg.Go(func() { fail(s.followChanges(follow)) })
	wg.Go(func() { fail(s.limits.Follow(follow)) })
	wg.Go(func() { fail(s.revoked.Follow(follow, s.invitingRooms)) })
	wg.Go(func() { fail(s.holders.Follow(follow, control.FollowEvery)) })
	wg.Go(func() { fail(s.hearReports(work)) })
	wg.Go(func() { s.measure(work) })
	wg.Go(func() { s.limits.Seek(work) })
	wg.Go(func() { s.keepUsage(work) })
	wg.Go(func() { s.seekRates(work) })
	sharing := control.NewSharing(s.node, s.changes, s.limits.Limits, s.fileRooms, s.log)
	wg.Go(func() { fail(sharing.Run(work)) })
	wg.Go(func() { fail(s.followRooms(follow)) })
	wg.Go(func() { fail(s.keepAnalytics(work)) })
	wg.Go(func() { s.followEvents(follow) })
	wg.Go(func() { _ = s.crawlers.Run(work) }) // ends when work ends
	wg.Go(func() { s.watchTargets(work) })
	wg.Go(func() { s.watchHappenings(work) })
	wg.Go(func() { fail(s.board.Run(work)) })
	s.startTLS(work, secure, &wg, fail)
	wg.Go(func() { fail(serveOn(public, s.conns.Listen(s.public))) })
	wg.Go(func() { fail(serveOn(admin, s.admin)) })
	wg.Go(func() { fail(s.envoy.serve(work)) })
	wg.Go(func() { s.knowTime(work); s.ready.Store(true) })

	select {
	case <-ctx.Done():
	case <-work.Done():
	}
	s.ending.Store(true)
	s.node.Rooms.Leave()
	var ended sync.WaitGroup
	ended.Go(s.end) // a change in progress takes as long as the store does
	s.log.Info("draining", "delay", s.cfg.DrainDelay)
	s.delay(work)
	drain, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	drainAll(drain, public, secure) // cuts off downloads that are still running then
	err := context.Cause(work)
	unfollow() // a follower holds the turn for as long as the store does not answer
	ended.Wait()
	stop(nil)
	closeAdmin(admin)
	wg.Wait() // the rooms have written their last records
	if s.analytics != nil {
		s.analytics.Close()
	}
	stopEngine()
	state.Wait()
	s.node.Close()
	return err
}

// timeWait bounds how long a node of a cluster is not ready because a host is missing. After that
// it serves what it can. Chosen: three elections of the store.
const timeWait = 30 * time.Second

// knowTime waits, in a cluster, until each room knows the time of its counter and the hosts of
// limits answer. Without the time a room cannot tell whether a visitor's pass has expired.
func (s *Server) knowTime(ctx context.Context) {
	if s.node.Bus == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, timeWait)
	defer stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	await := func(what string, known func() bool) {
		s.awaits.Store(&what)
		for !known() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}
	for _, g := range s.set.Load().gates {
		await("no node counts room "+g.file.Name+" yet",
			func() bool { return g.room.HasCounterTime() || g.damaged() })
	}
	if s.holders.IsOpen() {
		await("the holders of keys are not read yet", s.holders.IsReady)
	}
	if len(s.limits.Rules.Limits()) > 0 {
		await("nodes that count keys of limits do not answer yet",
			func() bool { return s.node.Rooms.CheckLimitHosts(ctx) })
	}
}

// delay waits until load balancers have noticed that the process takes no more visitors.
func (s *Server) delay(work context.Context) {
	select {
	case <-time.After(s.cfg.DrainDelay):
	case <-work.Done():
	}
}

// adminPatience is how long an answer to an operator may still take during shutdown.
const adminPatience = time.Second

func closeAdmin(h *http.Server) {
	ctx, stop := context.WithTimeout(context.Background(), adminPatience)
	defer stop()
	if h.Shutdown(ctx) != nil {
		h.Close()
	}
}

func serveOn(h *http.Server, l net.Listener) error {
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
