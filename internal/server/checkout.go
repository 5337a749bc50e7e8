package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/checkout"
)

// endings are the visits of a room that backends have ended, since the start.
type endings struct{ completed, abandoned atomic.Int64 }

// checkoutDesk is what a room does for those who pay.
func (s *Server) checkoutDesk(g *gate) *checkout.Desk {
	c := &g.now
	return checkout.New(checkout.Config{
		Room: c.Name, Places: g.places, Pass: c.Checkout.Pass, Warn: c.Checkout.Warn,
		Renews: c.SessionRenewal, Step: min(c.SessionDuration/10, 30*time.Second),
		Keys: s.node.Signing, Look: g.room.Look, Text: g.look.page.Warning, Log: s.log,
	})
}

// EndVisit implements api.Process: it ends the visit that a backend names by its signed pass, or
// by the jti of that.
func (s *Server) EndVisit(ctx context.Context, room string, v api.Visit) (ended bool, err error) {
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
	ended, err = g.room.EndStay(ctx, pass)
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
