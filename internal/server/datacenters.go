package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/node"
)

// Commands of an operator that concern all data centers.

// Parameters of a move. Chosen: the other data centers learn of it with the next snapshots.
const (
	offWait  = 8 * time.Second // for all reachable data centers to report what they hold
	offAgain = 250 * time.Millisecond
)

// MoveAnywhere implements api.Process. A repeated call completes an unfinished move.
func (s *Server) MoveAnywhere(ctx context.Context, to string, gone bool) (api.MoveResult, error) {
	rooms := s.node.Rooms
	from := rooms.AnywhereHome()
	if from == "" {
		return api.MoveResult{}, api.ErrAlone
	}
	if s.node.Worker {
		return api.MoveResult{}, node.AtStoreNode("a worker moves nothing between data centers")
	}
	// Ask all that take part before the first room moves: a move of half the rooms needs the
	// command again.
	for _, site := range []string{to, from} {
		if gone && site == from || to == from {
			continue
		}
		if err := rooms.CheckDatacenter(ctx, site); err != nil {
			return api.MoveResult{}, refused(fmt.Sprintf("data center %s cannot take part", site), err)
		}
	}
	for _, g := range s.set.Load().gates {
		if err := g.room.MoveAnywhere(ctx, to, gone); err != nil {
			return api.MoveResult{}, refused("Anywhere of room "+g.file.Name+" is not moved", err)
		}
	}
	if err := rooms.AnnounceAnywhere(ctx, to); err != nil {
		return api.MoveResult{}, refused("Anywhere is moved, and that cannot be kept", err)
	}
	s.log.Warn("Anywhere moved", "from", from, "to", to, "home_is_off", gone)
	got := api.MoveResult{Home: to, Missing: []string{}}
	if !gone || to == from {
		return got, nil
	}
	// The lost home must be declared off everywhere. Data centers learn of the new home with the
	// next snapshots, so the first attempts may miss some.
	for until := time.Now().Add(offWait); ; {
		m, err := s.MarkDatacentersDown(ctx, []string{from})
		if err == nil && len(m.Missing) == 0 || time.Now().After(until) {
			got.Missing = m.Missing
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, ctx.Err()
		case <-time.After(offAgain):
		}
	}
}

// finishMove completes an interrupted move of Anywhere away from here.
func (s *Server) finishMove(ctx context.Context, rooms []string) {
	switch to, err := s.node.Rooms.FinishAnywhereMove(ctx, rooms); {
	case to == "" || ctx.Err() != nil:
	case err != nil:
		s.log.Warn("a move of Anywhere that broke off is not finished yet", "to", to, "error", err)
	default:
		s.log.Warn("a move of Anywhere that broke off is finished", "to", to)
	}
}

// MarkDatacentersDown implements api.Process.
func (s *Server) MarkDatacentersDown(ctx context.Context, datacenters []string) (api.MoveResult, error) {
	got := api.MoveResult{Home: s.node.Rooms.AnywhereHome(), Missing: []string{}}
	if got.Home == "" {
		return got, api.ErrAlone
	}
	if s.node.Worker {
		return got, node.AtStoreNode("a worker declares no data center off")
	}
	for _, g := range s.set.Load().gates {
		missing, err := g.room.MarkDatacentersDown(ctx, datacenters)
		if err != nil {
			return got, refused("room "+g.file.Name+" still counts on "+strings.Join(datacenters, ", "), err)
		}
		got.Missing = append(got.Missing, missing...)
	}
	slices.Sort(got.Missing)
	got.Missing = slices.Compact(got.Missing)
	return got, nil
}

// refused returns an error that explains why a command is not possible, and what to do.
func refused(what string, err error) error {
	do := "see that the data centers reach each other (headgate doctor), then say the same again"
	if errors.Is(err, headgate.ErrDatacenter) {
		do = "GET /v1/rooms tells which data centers there are; a home that is off is replaced at a node of the new one"
	}
	return &api.RejectedError{Reason: what + ": " + err.Error(), Do: do, Err: err}
}
