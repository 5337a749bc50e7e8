package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate/internal/slot"
)

// A move of Anywhere that breaks off is finished by its old home. It cannot be taken back: a copy of the
// record that has left may be on its way, and be taken at any moment. So rooms that have left go on to where
// they were sent, and the others follow, as when the operator says the same again.
//
// Only when every data center answers, and says that Anywhere lives here: else another command may have put
// it elsewhere, and two homes would lend the same slots.

// errElsewhere: Anywhere of a room was sent to another data center before, and may arrive there.
var errElsewhere = errors.New("it was sent elsewhere before, and may arrive there")

// movedTo returns where a record was sent, "" if it was not.
func movedTo(b []byte) string {
	var r slot.Record
	if r.UnmarshalBinary(b) != nil {
		return ""
	}
	return r.MovedTo
}

// stuck notes that Anywhere of a room has left this data center and did not arrive.
func (s *Datacenters) stuck(ctx context.Context, room string) (to string) {
	to = movedTo(s.answerLeft(ctx, []byte(room)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = to
	return to
}

// FinishMove finishes a move from this data center that has broken off, for all rooms. It returns where
// Anywhere lives now, "" if there is nothing to finish.
func (s *Datacenters) FinishMove(ctx context.Context, rooms []string) (to string, err error) {
	s.mu.Lock()
	to = s.left
	if s.home.Site != s.cfg.Own { // it has been finished
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

// allAgree reports why not all data centers say that Anywhere lives here, nil if they do.
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
	if err == nil && h.Site != s.cfg.Own {
		err = fmt.Errorf("it says that Anywhere lives at %s", h.Site)
	}
	if err != nil {
		return fmt.Errorf("data center %s must agree: %w", site, err)
	}
	return nil
}
