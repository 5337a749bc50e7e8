package server

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/checkout"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/forwardauth"
	"github.com/headgate/headgate/status"
)

// Rooms implements api.Process.
func (s *Server) Rooms() []status.Room {
	var all []status.Room
	for _, g := range s.set.Load().gates {
		all = append(all, g.room.Status())
	}
	return all
}

// FindTicket implements api.Process.
func (s *Server) FindTicket(ctx context.Context, room, ticket string) (status.Ticket, error) {
	g := s.set.Load().find(room)
	if g == nil {
		return status.Ticket{}, api.ErrNoRoom
	}
	return g.room.FindTicket(ctx, ticket)
}

// ReleaseTicket implements api.Process.
func (s *Server) ReleaseTicket(ctx context.Context, room, ticket string) (status.Ticket, error) {
	g := s.set.Load().find(room)
	if g == nil {
		return status.Ticket{}, api.ErrNoRoom
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), control.ChangeWait)
	defer stop()
	switch err := g.room.ReleaseTicket(ctx, ticket); {
	case errors.Is(err, counter.ErrNotHeldBack):
		return status.Ticket{}, &api.RejectedError{Reason: err.Error(), Err: err,
			Do: "headgate ticket shows where it waits; only the lane of unsolved challenges lets tickets go, " +
				"and, with infinite_queue, a ticket whose page still asks and which has let nobody in"}
	case errors.Is(err, counter.ErrFull):
		return status.Ticket{}, &api.RejectedError{Reason: "too many tickets are released", Err: err,
			Do: "wait until the visitors of earlier ones are in"}
	case errors.Is(err, counter.ErrNoTicket):
		return status.Ticket{}, headgate.ErrNoTicket
	case err != nil:
		return status.Ticket{}, err
	}
	return g.room.FindTicket(ctx, ticket)
}

// About implements api.Process.
func (s *Server) About() api.About {
	set, read := s.set.Load(), s.read.Load()
	b := readBuild()
	a := api.About{
		Version: b.version, Revision: b.revision, StartedAt: s.began.UTC(),
		UptimeSeconds: time.Since(s.began).Round(time.Millisecond).Seconds(),
		ConfigFile:    set.cfg.File, Data: s.dataFolder(), Rooms: []api.RoomAbout{},
		LastReload: api.LastReload{At: read.at.UTC(), Successful: read.err == nil},
	}
	if read.err != nil {
		a.LastReload.Error = read.err.Error()
	}
	for _, g := range set.gates {
		a.Rooms = append(a.Rooms,
			api.RoomAbout{Name: g.file.Name, Status: g.room.Status().Status, Live: g.live})
	}
	return a
}

// Cluster implements api.Process.
func (s *Server) Cluster(ctx context.Context) (api.Cluster, error) { return s.node.Describe(ctx) }

// Revoke implements api.Process.
func (s *Server) Revoke(ctx context.Context, r api.Revoked) (api.RotateResult, error) {
	return s.node.Revoke(ctx, r)
}

// dataFolder returns the absolute path of the data folder, for readers with another working
// directory.
func (s *Server) dataFolder() string {
	if abs, err := filepath.Abs(s.cfg.Data); err == nil {
		return abs
	}
	return s.cfg.Data
}

// checkoutDesk returns the handler of the checkout features of a room.
func (s *Server) checkoutDesk(g *gate) *checkout.Handler {
	c := &g.now
	return checkout.New(checkout.Config{
		Room: c.Name, Places: g.places, Pass: c.Checkout.Pass, Warn: c.Checkout.Warn,
		Renews: c.SessionRenewal, Step: min(c.SessionDuration/10, 30*time.Second),
		Keys: s.node.Signing, Look: g.room.PeekSession, Text: g.look.page.Warning, Log: s.log,
	})
}

// EndSession implements api.Process: it ends the session that a backend names by its signed pass,
// or by the pass's jti.
func (s *Server) EndSession(ctx context.Context, room string, v api.SessionRequest) (ended bool, err error) {
	g := s.set.Load().find(room)
	if g == nil {
		return false, api.ErrNoRoom
	}
	pass := v.Pass
	if v.Token != "" {
		if pass, err = s.node.Signing.Open(room, v.Token); err != nil {
			return false, api.ErrNoPass
		}
	}
	ended, err = g.room.EndSession(ctx, pass)
	switch {
	case errors.Is(err, headgate.ErrNoPass):
		return false, api.ErrNoPass
	case err != nil || !ended:
		return false, err
	case v.Abandoned:
		g.ended.abandoned.Add(1)
	default:
		g.ended.completed.Add(1)
	}
	return true, nil
}

// endByConnector ends a session as the API does, and names the refusal as the API does.
func (s *Server) endByConnector(ctx context.Context, e forwardauth.End) (ended bool, refusal string) {
	ended, err := s.EndSession(ctx, e.Room,
		api.SessionRequest{Token: e.Token, Abandoned: e.As == forwardauth.Abandon})
	switch {
	case errors.Is(err, api.ErrNoRoom):
		return false, "no_such_room"
	case errors.Is(err, api.ErrNoPass):
		return false, "no_such_pass"
	case err != nil:
		return false, "not_ended"
	}
	return ended, ""
}
