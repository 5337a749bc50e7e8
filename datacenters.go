package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrDatacenter is wrapped by every error about a data centre that a command names.
var ErrDatacenter = errors.New("no such data centre for this")

// MoveAnywhere moves the slots of the room that belong to no data centre to another one: the
// first step of two, for each room. gone says that their home is off and will not come back
// as it was: only an operator can know. Then all slots are presumed lent until each data
// centre has said what it holds, and this must be done in the one that is to be their home.
// Repeated it does what is left to do.
func (r *Room) MoveAnywhere(ctx context.Context, to string, gone bool) error {
	e := r.face.Load().cfg.Engine
	switch {
	case e.sites == nil:
		return fmt.Errorf("%w: there is but one", ErrDatacenter)
	case to == e.sites.Home():
		return nil
	case to != e.sites.Own() && !slices.Contains(e.sites.Names(), to):
		return fmt.Errorf("%w: %q", ErrDatacenter, to)
	case !gone:
		return e.sites.Move(ctx, r.Config().Name, to)
	case to != e.sites.Own():
		return fmt.Errorf("%w: a home that is gone is replaced at a node of %s itself", ErrDatacenter, to)
	}
	return r.above.RecreateAnywhere(ctx, r.counter.State(0, 0))
}

// Reaches reports why a data centre does not answer, nil if it does.
func (e *Engine) CheckDatacenter(ctx context.Context, site string) error {
	switch {
	case e.sites == nil:
		return fmt.Errorf("%w: there is but one", ErrDatacenter)
	case site != e.sites.Own() && !slices.Contains(e.sites.Names(), site):
		return fmt.Errorf("%w: %q", ErrDatacenter, site)
	}
	return e.sites.Check(ctx, site)
}

// AnywhereHome is the data centre where the slots live that belong to none; "" with one.
func (e *Engine) AnywhereHome() string {
	if e.sites == nil {
		return ""
	}
	return e.sites.Home()
}

// AnywhereMoved is the second step of a move: it tells all data centres.
func (e *Engine) AnnounceAnywhere(ctx context.Context, to string) error {
	if e.sites == nil || to == e.sites.Home() {
		return nil
	}
	return e.sites.AnnounceAnywhere(ctx, to)
}

// FinishMove finishes a move of rooms from this data centre that has broken off. It tells where to, "" if
// there is none.
func (e *Engine) FinishAnywhereMove(ctx context.Context, rooms []string) (to string, err error) {
	if e.sites == nil {
		return "", nil
	}
	return e.sites.FinishMove(ctx, rooms)
}

// DatacentersOff takes back what the room has lent to data centres that an operator knows to
// be off: it returns when the last of their stays has surely ended. missing are others that
// have not said what they hold since Anywhere was moved.
func (r *Room) MarkDatacentersDown(ctx context.Context, off []string) (missing []string, err error) {
	e := r.face.Load().cfg.Engine
	if e.sites == nil {
		return nil, fmt.Errorf("%w: there is but one", ErrDatacenter)
	}
	for _, site := range off {
		if !slices.Contains(e.sites.Names(), site) {
			return nil, fmt.Errorf("%w: %q", ErrDatacenter, site)
		}
	}
	return e.sites.MarkDown(ctx, r.Config().Name, off)
}

// SentTo is how many messages this process has sent to each other data centre.
func (e *Engine) MessagesSent() map[string]int64 {
	if e.sites == nil {
		return nil
	}
	m := map[string]int64{}
	for _, name := range e.sites.Names() {
		m[name] = e.sites.MessagesSent(name)
	}
	return m
}
