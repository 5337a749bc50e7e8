package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrDatacenter is wrapped by every error about a data center that a command names.
var ErrDatacenter = errors.New("no such data center for this")

// MoveAnywhere moves the slots of the room that belong to no data center to the data center to. It
// is the first of two steps and is needed for each room; AnnounceAnywhere is the second. Call it in
// the data center that becomes the new home.
//
// gone says that the old home is down and will not come back in its former state. Only an operator
// can know this. All slots then count as lent until each data center has reported what it holds.
//
// A repeated call does what is left to do.
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

// CheckDatacenter returns an error that says why a data center does not answer, or nil if it
// answers.
func (e *Engine) CheckDatacenter(ctx context.Context, site string) error {
	switch {
	case e.sites == nil:
		return fmt.Errorf("%w: there is but one", ErrDatacenter)
	case site != e.sites.Own() && !slices.Contains(e.sites.Names(), site):
		return fmt.Errorf("%w: %q", ErrDatacenter, site)
	}
	return e.sites.Check(ctx, site)
}

// AnywhereHome returns the data center that holds the slots which belong to no data center, or ""
// if there is only one data center.
func (e *Engine) AnywhereHome() string {
	if e.sites == nil {
		return ""
	}
	return e.sites.Home()
}

// AnnounceAnywhere is the second step of a move: it informs all data centers of the new home.
func (e *Engine) AnnounceAnywhere(ctx context.Context, to string) error {
	if e.sites == nil || to == e.sites.Home() {
		return nil
	}
	return e.sites.AnnounceAnywhere(ctx, to)
}

// FinishAnywhereMove finishes an interrupted move of rooms from this data center. It returns the
// destination, or "" if there is no such move.
func (e *Engine) FinishAnywhereMove(ctx context.Context, rooms []string) (to string, err error) {
	if e.sites == nil {
		return "", nil
	}
	return e.sites.FinishMove(ctx, rooms)
}

// MarkDatacentersDown takes back what the room has lent to the data centers off, which an operator
// knows to be down. It returns when the last of their sessions has certainly ended. missing lists
// other data centers that have not reported what they hold since Anywhere was moved.
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

// MessagesSent returns the number of messages that this process has sent to each other data center.
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
