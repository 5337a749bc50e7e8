package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/cors"
	"github.com/headgate/headgate/internal/events"
	"github.com/headgate/headgate/internal/forwardauth"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/proxy"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/status"
)

// openRooms opens the rooms of the configuration, with their live changes, and the rooms of the
// management API. A room of the API that cannot be opened is retried.
func (s *Server) openRooms(ctx context.Context) error {
	set := &roomSet{cfg: s.cfg}
	s.set.Store(set) // without rooms yet: readers of the store need the configuration
	s.read.Store(&reading{at: s.began, good: s.began})
	wants, err := s.wantsOf(ctx, s.cfg, set)
	if err != nil {
		return err
	}
	for i := range wants {
		x := &wants[i]
		c, now := &x.room, &x.room
		var live *api.Live
		if x.made == nil {
			if now, live, err = s.changes.Recall(ctx, c); err != nil {
				return fmt.Errorf("open room %q: %w", c.Name, err)
			}
		}
		g, err := s.openGate(ctx, s.cfg, now, x)
		switch {
		case err != nil && x.made != nil && ctx.Err() == nil:
			s.rooms.Fail(x.made.id, err)
			s.log.Error("room not open, and tried again", "room", c.Name, "error", err)
			continue
		case err != nil:
			return fmt.Errorf("open room %q: %w", c.Name, err)
		}
		if g.live = live; live != nil { // log it: the file alone would be misleading
			s.log.Warn("live changes in force", "room", c.Name, "keys", live.Pairs, "at", live.At,
				"by", live.By)
		}
		set.gates = append(set.gates, g)
	}
	return nil
}

// begin starts the tasks of the rooms.
func (s *Server) begin(c *crew) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.crew = c
	s.signIns.run(c)
	old := s.set.Load()
	set := &roomSet{cfg: old.cfg}
	for _, g := range old.gates {
		next := *g
		next.run(c)
		set.gates = append(set.gates, &next)
	}
	s.set.Store(set)
	for _, q := range *s.jobs.set.Load() {
		s.runQueue(q)
	}
	for _, w := range s.hooks.all() {
		s.runWebhook(w)
	}
	close(s.running)
}

// end rejects changes from now on. It waits for one that is in progress.
func (s *Server) end() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.crew = nil
}

func (g *gate) run(c *crew) {
	g.runs = c.start(g.room.Run)
	g.probes = c.start(g.proxy.Run)
}

// openGate opens a wanted room; now is the configuration in force.
func (s *Server) openGate(
	ctx context.Context, all *config.Config, now *config.Room, x *want,
) (*gate, error) {
	g := &gate{file: x.room, now: *now, look: x.look, made: x.made, ended: &endings{},
		origin: &originCounts{}, codes: &invite.Counts{}, broken: &brokenAnswers{}, state: &originState{},
		measures: &measures{own: signals.NewMeter()}}
	rc, err := s.roomConfig(all, now, x.look)
	if err == nil && x.look.codes != nil {
		err = s.revoked.Load(ctx, now.Name)
	}
	if err != nil {
		return nil, err
	}
	rc.Log, rc.Engine = s.log, s.node.Rooms
	if g.room, err = headgate.OpenRoom(ctx, rc); err != nil {
		return nil, err
	}
	g.state.set = g.room.SetOriginUp
	if s.cfg.Asked() && now.DecidesBySession() {
		g.room.BeginLease() // the process before this one may have given some
	}
	if err = s.connect(g, all); err != nil {
		s.shut(g)
		return nil, err
	}
	return g, nil
}

// shut closes a room that was opened but never ran. Until then no other room of its name can be
// opened.
func (s *Server) shut(g *gate) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := g.room.Run(ctx); err != nil {
		s.log.Warn("room not closed", "room", g.file.Name, "error", err)
	}
}

// connect gives a gate a new proxy to its origin.
func (s *Server) connect(g *gate, all *config.Config) (err error) {
	name := g.file.Name
	g.proxy, err = proxy.New(proxy.Config{
		Origin: g.file.Origin, Trusted: all.TrustedProxies, Vouched: vouched(all, &g.now),
		StripCookiePrefix: "__cfwaitingroom",
		KeepCommands:      g.made.obeys(), Log: s.log, OnAnswer: g.origin.add, Around: s.around(),
		Dial: s.machine.Dial, Watch: all.Asked(), Meter: g.meter(),
		OnHealth: func(up bool) {
			s.log.Warn("origin changed", "room", name, "up", up)
			g.state.probed(up)
		},
		OnError: func(w http.ResponseWriter, r *http.Request, err error) {
			s.originError(name, g.broken, w, r, err)
		},
	})
	if err != nil {
		return err
	}
	s.assemble(g, all)
	return nil
}

// assemble chains the handlers that a request of the room passes through.
func (s *Server) assemble(g *gate, all *config.Config) {
	g.places, g.cors = g.now.Places(), cors.New(g.now.CORS)
	desk, codes := s.checkoutDesk(g), s.inviteDesk(all, &g.now, g.look)
	if codes != nil {
		codes.Counts = g.codes
	}
	chain := func(by way, asks bool, origin http.Handler) http.Handler {
		inside := s.traces.Inside(passedAs, desk.Inside(s.limits.before(&g.now, g.cors.Origin(origin))))
		own := g.cors.Before(g.look.before(desk.Before(codes.Take(asks, by(g, inside)))))
		return s.traces.Request(g.file.Name, own)
	}
	g.handler, g.preflight = s.usageOfHolders(g, chain(forwards, false, g.proxy)), nil
	if s.cfg.Asked() {
		proxy := forwardauth.Admitted(nil)
		g.relay, g.check = chain(relays, false, proxy), chain(checks, true, proxy)
		connector := forwardauth.Admitted(func(r *http.Request) string { return s.local(g, r) })
		g.connect = preflightsBy(chain(forwards, false, connector), chain(relays, false, connector))
		g.renew = sessionsOnly(g.room, chain(checks, true, connector))
		g.revoke = sessionsOnly(g.room, checks(g, http.HandlerFunc(revoke)))
	}
	if g.cors != nil {
		g.preflight = s.traces.Request(g.file.Name, g.cors)
	}
}

// A way puts a room in front of what forwards its requests.
type way func(g *gate, next http.Handler) http.Handler

func forwards(g *gate, next http.Handler) http.Handler { return g.room.Handler(next) }
func relays(g *gate, next http.Handler) http.Handler   { return g.room.Decide(true, next) }
func checks(g *gate, next http.Handler) http.Handler   { return g.room.Decide(false, next) }

// preflightsBy sends preflights to bare, which a connector lets pass as bare as headgate would send
// them to the origin.
func preflightsBy(bare, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wire.IsPreflight(r) {
			bare.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sessionsOnly refuses requests of no session. The visitor got an answer long ago, so a slot given
// to it now could stay unused.
func sessionsOnly(room *headgate.Room, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, inside := room.PeekSession(r); !inside {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// revoke answers in the place of the origin a request that the origin has answered with its command.
// So the command does what it does when headgate forwards. Limits have counted the request before.
func revoke(w http.ResponseWriter, _ *http.Request) {
	if !wire.InSession(w) { // an excluded path, or a room that holds nobody back
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set(headgate.CommandHeader, "revoke")
	w.WriteHeader(http.StatusNoContent)
}

// roomConfig converts the configuration of a room to the type that the room takes.
func (s *Server) roomConfig(
	all *config.Config, c *config.Room, l *look,
) (headgate.RoomConfig, error) {
	asked, lanes, err := s.rulesOf(all, c)
	for _, x := range c.Identity.GroupLanes() {
		lanes = append(lanes, headgate.Lane(x))
	}
	at := time.Now()
	now, moment := c.At(at)
	c = &now
	var routes []headgate.Route
	for _, x := range c.AdditionalRoutes {
		routes = append(routes, headgate.Route(x))
	}
	return headgate.RoomConfig{
		Rules: asked, Lanes: lanes, Event: eventOf(c, &moment, at), Draw: drawOf(&moment, at),
		Name: c.Name, Title: c.Title, Host: c.Host, Path: c.Path,
		Routes: routes, IgnoreCase: !c.PathCaseSensitive, CookieSuffix: c.CookieSuffix,
		AllowAmbiguousPaths: c.Paths == config.PathsAsTheyCome,
		CookieDomain:        c.CookieDomain(), FailOpenAfter: c.FailOpenAfter,
		TotalActiveUsers: c.TotalActiveUsers, NewUsersPerMinute: c.NewUsersPerMinute, Auto: autoOf(c),
		SessionDuration: c.SessionDuration, FixedSession: !c.SessionRenewal, HardEnd: c.HardEnd,
		Method:   headgate.Method(c.Method),
		QueueAll: c.QueueAll, Suspended: c.Suspended, Shadow: c.Shadow, OpensAt: c.OpensAt,
		Closed:  c.Closed,
		Message: c.Message, StatusCode: c.QueueingStatusCode, RefreshHeader: c.RefreshHeader,
		NoSpread: !c.Spread, MaxWaiting: c.MaxWaiting, Hold: c.Hold, HoldPhone: c.HoldPhone,
		CallHold: c.CallHold, PollMin: c.PollMin, PollMax: c.PollMax,
		Exclude: headgate.Exclude{
			NoDefaults: true, // the configuration already includes the defaults
			Paths:      withSignIn(c), Methods: c.Exclude.Methods,
			CIDRs: c.Exclude.CIDRs, Headers: c.Exclude.Headers, Upgrade: c.Exclude.Upgrade,
			MaxInFlight: int(c.Exclude.MaxInFlight), MaxPerAddr: int(c.Exclude.MaxPerAddr),
		},
		Grace: headgate.Grace{Paths: c.Checkout.GracePaths, For: c.Checkout.Grace},
		JoinLimit: headgate.JoinLimit{
			Amount: int(c.JoinLimit.Amount), Window: c.JoinLimit.Window,
			PrefixV4: c.JoinLimit.PrefixV4, PrefixV6: c.JoinLimit.PrefixV6,
			Refuse: c.JoinLimit.Action == "refuse", DrawWeight: int(c.JoinLimit.DrawWeight),
		},
		Page: l.page,
		Challenge: headgate.Challenge{Kind: c.Challenge.Asked(), On: c.Challenge.Moment(),
			PublicKey: c.Challenge.PublicKey,
			Secret:    l.secret, VerifyURL: c.Challenge.VerifyURL, Hostnames: c.Challenge.Hostnames,
			FailOpen: c.Challenge.FailOpen, ByRules: c.ChallengesByRules(), Endless: c.Challenge.Endless()},
		PassSharing: headgate.PassSharing(c.PassSharing), BindHeader: c.BindHeader(),
		Identity:   s.identityOf(all, c, l),
		ClientAddr: clientAddr(all.TrustedProxies),
		Secure:     secure(all.TrustedProxies, c.CookieSecure),
		SameSite:   sameSite(c.CookieSameSite),
		Boot:       s.machine.Boot,
	}, err
}

// autoOf converts how a room finds its limits to the type that a room takes.
func autoOf(c *config.Room) status.AutoLimit {
	a := &c.Auto
	switch {
	case a.Mode == config.AutoEvent:
		return status.AutoLimit{Mode: a.Mode}
	case a.Mode == "" && a.Max > 0:
		return status.AutoLimit{Mode: "number"}
	case a.Mode == "":
		return status.AutoLimit{}
	}
	x := status.AutoLimit{Mode: a.Mode, Min: a.Min, Max: a.Max, Start: c.TotalActiveUsers,
		TargetP95: a.TargetP95, TargetErrors: a.TargetErrors}
	if a.New {
		x.MaxNew = c.NewUsersPerMinute
	}
	return x
}

func sameSite(s string) http.SameSite {
	switch s {
	case "strict":
		return http.SameSiteStrictMode
	case "none":
		return http.SameSiteNoneMode
	}
	return http.SameSiteLaxMode
}

// fileRooms returns the rooms that are in the file, or that another data center may change.
func (s *Server) fileRooms() (all []*config.Room) {
	for _, g := range s.set.Load().gates {
		all = append(all, &g.file)
	}
	return all
}

// eventOf converts the current event of a room to the type that a room takes.
func eventOf(c *config.Room, m *events.State, now time.Time) headgate.Event {
	if m.Active == nil {
		return headgate.Event{}
	}
	e := headgate.Event{Name: m.Active.Name, Active: true, Prequeue: m.Prequeue,
		Shuffle: m.Active.Shuffle, StartsAt: m.Active.Start, EndsAt: m.Active.End}
	for _, x := range c.Events[m.Active.Index].Early {
		at := e.StartsAt.Add(-x.Before)
		e.Early = append(e.Early, status.EarlyGroup{Group: x.Group, StartsAt: at, Open: !now.Before(at)})
	}
	return e
}

// drawOf returns the plan of the next draw.
func drawOf(m *events.State, now time.Time) headgate.DrawPlan {
	if m.Draw == nil {
		return headgate.DrawPlan{}
	}
	return headgate.DrawPlan{Event: m.Draw.Key, StartsAt: m.Draw.Start,
		Begun: !m.Draw.Announced(now), Started: m.Draw.Started(now)}
}
