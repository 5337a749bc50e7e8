package ticket

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Bound returns the name under which a room seals the tokens of visitors that it distinguishes by a
// key. A token sealed for one key does not open with another. The key cannot be learned from a
// token. A missing key differs from an empty one.
func Bound(room string, key []string) string {
	h := sha256.New()
	for _, v := range key {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(v))))
		h.Write([]byte(v))
	}
	return room + " bind " + string(h.Sum(nil)[:keptOfHash])
}

// keptOfHash is how many bytes of a hash a name contains. Chosen: nobody finds another key with the
// same 128 bits.
const keptOfHash = 16

// OpenBound reads a token that was sealed for a bound name, or for the room itself before the room
// bound its tokens.
func (r *Ring) OpenBound(t *Token, room, bound, sealed string) error {
	err := r.Open(t, bound, sealed)
	if err != nil && bound != room {
		err = r.Open(t, room, sealed)
	}
	return err
}

// SealMove seals a link that moves the place of a ticket to another device before a time. to is the
// key that the place gets. It is 0 in the link itself and drawn for each device that opens it. So
// two devices with the same link each request a move of their own.
func (r *Ring) SealMove(room string, t *Token, until time.Time, to uint64) string {
	x := *t
	x.End, x.Hard = until.Unix(), int64(to)
	return string(r.Seal(nil, movesOf(room), &x))
}

// OpenMove reads what SealMove wrote: the ticket, the key that its place gets, and the deadline.
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

// movesOf returns the name that links are sealed for, so that no link is a cookie and no cookie a
// link. No room's name has a space.
func movesOf(room string) string { return "move " + room }
