package ticket

import "time"

// SealMove seals a link that moves the place of a ticket to another device, before a time. to is
// the key that the place gets: 0 in the link itself, and drawn for each device that opens it, so
// that of two with the same link each asks for a move of its own.
func (r *Ring) SealMove(room string, t *Token, until time.Time, to uint64) string {
	x := *t
	x.End, x.Hard = until.Unix(), int64(to)
	return string(r.Seal(nil, movesOf(room), &x))
}

// OpenMove reads what SealMove wrote: the ticket, the key that its place gets, and until when.
func (r *Ring) OpenMove(t *Token, room, sealed string) (to uint64, until time.Time, err error) {
	var x Token
	if err = r.Open(&x, movesOf(room), sealed); err == nil && x.Kind != Ticket {
		err = ErrToken
	}
	if err != nil {
		return 0, until, err
	}
	*t = x
	t.End, t.Hard = 0, 0
	return uint64(x.Hard), time.Unix(x.End, 0), nil
}

// movesOf is what links are sealed for, so that none is a cookie and no cookie a link. No room's
// name has a space.
func movesOf(room string) string { return "move " + room }
