package counter

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A ticketDesk sends requests about tickets to the host of a room, wherever it is.
type ticketDesk struct {
	askHost func(ctx context.Context, q request) (reply, error)
}

// Poll notes that the visitor of a ticket is present, and returns its place.
func (d ticketDesk) Poll(ctx context.Context, life, number, key uint64) (PlaceInfo, error) {
	r, err := d.askHost(ctx, ticketRequest{life, number, key}.request(opPoll))
	return r.place, err
}

// Claim turns a called ticket into a session; see Counter.Claim.
func (d ticketDesk) Claim(
	ctx context.Context, life, number, key uint64, hard time.Duration,
) (slot.ClaimReply, error) {
	r, err := d.askHost(ctx, claimRequest{ticketRequest{life, number, key}, hard}.request())
	return r.claim, err
}

// Leave gives up a place.
func (d ticketDesk) Leave(ctx context.Context, life, number, key uint64) error {
	_, err := d.askHost(ctx, ticketRequest{life, number, key}.request(opLeave))
	return err
}

// Move moves a place to another device; see Counter.Move.
func (d ticketDesk) Move(ctx context.Context, m Move) error {
	_, err := d.askHost(ctx, m.request())
	return err
}
