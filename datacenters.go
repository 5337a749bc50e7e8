package headgate

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/counter"
)

// ErrDatacenter is wrapped by every error about a data center that a command names.
var ErrDatacenter = counter.ErrDatacenter

// MoveAnywhere moves the slots of the room that belong to no data center to the data center to. It
// is the first of two steps and is needed for each room; AnnounceAnywhere is the second. Call it in
// the data center that becomes the new home.
//
// gone says that the old home is down and will not come back in its former state. Only an operator
// can know this. All slots then count as lent until each data center has reported what it holds.
//
// A repeated call does what is left to do.
func (r *Room) MoveAnywhere(ctx context.Context, to string, gone bool) error {
	d := r.face.Load().cfg.Engine.datacenters
	if d != nil && to == d.Home() {
		return nil
	}
	if err := d.CheckNames(true, to); err != nil {
		return err
	}
	switch {
	case !gone:
		return d.Move(ctx, r.Config().Name, to)
	case to != d.Own():
		return fmt.Errorf("%w: a home that is gone is replaced at a node of %s itself", ErrDatacenter, to)
	}
	return r.above.RecreateAnywhere(ctx, r.counter.State(0, 0))
}

// MarkDatacentersDown takes back what the room has lent to the data centers off, which an operator
// knows to be down. It returns when the last of their sessions has certainly ended. missing lists
// other data centers that have not reported what they hold since Anywhere was moved.
func (r *Room) MarkDatacentersDown(ctx context.Context, off []string) (missing []string, err error) {
	d := r.face.Load().cfg.Engine.datacenters
	if err := d.CheckNames(false, off...); err != nil {
		return nil, err
	}
	return d.MarkDown(ctx, r.Config().Name, off)
}
