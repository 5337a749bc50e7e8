package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate/internal/slot"
)

// FinishMove and its helpers complete a move of Anywhere that was interrupted. The old home
// completes it. The move cannot be undone: a copy of the record may still be in transit, and the
// other data center may take it at any moment. So rooms that have left continue to their
// destination, and the other rooms follow, as if the operator had repeated the command.
//
// This happens only when every data center answers and agrees that Anywhere lives here. Otherwise
// another command may have put Anywhere elsewhere, and two homes would lend the same slots.

// errElsewhere reports that Anywhere of a room was already sent to another data center and may
// still arrive there.
var errElsewhere = errors.New("it was sent elsewhere before, and may arrive there")

// movedTo returns the destination to which a record was sent, or "" if it was not sent.
func movedTo(b []byte) string {
	var r slot.Record
	if r.UnmarshalBinary(b) != nil {
		return ""
	}
	return r.MovedTo
}

// stuck notes that Anywhere of a room has left this data center but has not arrived at its
// destination.
func (s *Datacenters) stuck(ctx context.Context, room string) (to string) {
	to = movedTo(s.answerLeft(ctx, []byte(room)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = to
	return to
}

// FinishMove completes an interrupted move from this data center for all rooms. It returns the
// destination, or "" if there is nothing to complete.
func (s *Datacenters) FinishMove(ctx context.Context, rooms []string) (to string, err error) {
	s.mu.Lock()
	to = s.left
	if s.home.Datacenter != s.cfg.Own { // the move is complete
		s.left, to = "", ""
	}
	s.mu.Unlock()
	if to == "" {
		return "", nil
	}
	ctx, stop := context.WithTimeout(ctx, 2*moveWait)
	defer stop()
	if err := s.allAgree(ctx); err != nil {
		return to, err
	}
	for _, room := range rooms {
		if err := s.Move(ctx, room, to); err != nil {
			return to, fmt.Errorf("room %s: %w", room, err)
		}
	}
	return to, s.AnnounceAnywhere(ctx, to)
}

// allAgree asks every other data center where Anywhere lives. It returns an error unless all of
// them answer that Anywhere lives here.
func (s *Datacenters) allAgree(ctx context.Context) error {
	errs := make([]error, len(s.cfg.Names))
	var wg sync.WaitGroup
	for i, site := range s.cfg.Names {
		wg.Go(func() { errs[i] = s.agrees(ctx, site) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Datacenters) agrees(ctx context.Context, site string) error {
	b, err := s.Request(ctx, site, "where", nil)
	var h AnywhereHome
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err == nil && s.learnHome(h) {
		err = s.keepHome(ctx, h)
	}
	if err == nil && h.Datacenter != s.cfg.Own {
		err = fmt.Errorf("it says that Anywhere lives at %s", h.Datacenter)
	}
	if err != nil {
		return fmt.Errorf("data center %s must agree: %w", site, err)
	}
	return nil
}
