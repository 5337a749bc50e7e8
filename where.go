package headgate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/slot"
)

// ErrNoTicket: the id is not one of a ticket of this room.
var ErrNoTicket = errors.New("no such ticket in this room")

// Where is where the visitor of a ticket stands, for operators.
type Where struct {
	Room      string  `json:"room"`
	Ticket    string  `json:"ticket"`
	Status    string  `json:"status"`                // waiting, late, called, used, gone
	Position  int64   `json:"position"`              // 1 is next, 0 none
	Ahead     int64   `json:"ahead"`                 // people before it
	Expected  float64 `json:"expected_wait_seconds"` // -1 unknown
	SilentFor float64 `json:"silent_seconds"`        // since it last asked, -1 unknown
	KeptFor   float64 `json:"kept_seconds"`          // its place, if it stays silent; -1 not at all
	Why       string  `json:"why"`
}

// Where finds a ticket by the short id that its visitor sees, and says where it
// stands and why.
func (r *Room) Where(ctx context.Context, id string) (Where, error) {
	id = strings.ToLower(strings.TrimSpace(id))
	x, err := r.counter.Trace(ctx, func(life uint64) (uint64, bool) { return numberOf(life, id) })
	if err != nil {
		return Where{}, fmt.Errorf("ticket %q: %w", id, ErrNoTicket)
	}
	w := Where{
		Room: r.Config().Name, Ticket: id, Status: "gone", Position: x.Position,
		Ahead: max(0, x.Position-1), Expected: -1, SilentFor: -1, KeptFor: -1,
	}
	if x.Place {
		w.SilentFor, w.KeptFor = roundSeconds(x.Silent), roundSeconds(x.Kept)
	}
	if x.ETA.Known {
		w.Expected = roundSeconds(x.ETA.Expect)
	}
	silent := "its visitor asked " + x.Silent.Round(time.Second).String() + " ago"
	switch x.Status {
	case slot.TicketWaiting:
		w.Status, w.Why = "waiting", fmt.Sprintf("%d people are before it; %s", w.Ahead, silent)
		if why := r.whyNobody(); why != "" {
			w.Why += "; nobody is called: " + why
		}
	case slot.TicketLate:
		w.Status = "late"
		w.Why = "its turn came while its visitor was silent; it is called first when it asks again; " + silent
	case slot.TicketCalled:
		w.Status, w.Why = "called", "its turn has come and a slot is reserved; its page goes in by itself; "+silent
	case slot.TicketUsed:
		w.Status, w.Why = "used", "it let its visitor in; the stay has ended"
		if x.Left > 0 {
			w.Why = "it let its visitor in, who is inside for another " +
				x.Left.Round(time.Second).String() + " at least"
		}
	default:
		w.Why = "its visitor was silent for longer than hold, or gave the place up"
	}
	return w, nil
}

func roundSeconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }

// whyNobody says why nobody is called, if so.
func (r *Room) whyNobody() string {
	switch l := r.live.Load(); {
	case l.closed:
		return "the room is closed"
	case l.early:
		return "the room opens at " + r.Config().OpensAt.Format(time.RFC3339)
	case l.down:
		return "the origin does not answer"
	case l.queueAll:
		return "queue_all is on"
	}
	return ""
}

// The short id of a ticket is its number, 40 bits of it, through a Feistel
// network keyed with the life of the record: eight letters that give nothing
// away, and that an operator's command can turn back. It is no secret and proves
// nothing: what lets in is the sealed cookie.
const (
	idLetters = "23456789abcdefghjkmnpqrstuvwxyz0"
	idRounds  = 6
	idHalf    = 20
	idMask    = 1<<idHalf - 1
)

// shortID names a ticket to an operator.
func shortID(life, number uint64) string {
	l, r := number>>idHalf&idMask, number&idMask
	for i := range uint64(idRounds) {
		l, r = r, l^idRound(life, i, r)
	}
	x := l<<idHalf | r
	var b [8]byte
	for i := range b {
		b[i] = idLetters[x>>(35-5*i)&31]
	}
	return string(b[:])
}

// numberOf is the number that a short id names; ok is false if it names none.
func numberOf(life uint64, id string) (number uint64, ok bool) {
	if len(id) != 8 {
		return 0, false
	}
	var x uint64
	for i := range id {
		v := strings.IndexByte(idLetters, id[i])
		if v < 0 {
			return 0, false
		}
		x = x<<5 | uint64(v)
	}
	l, r := x>>idHalf, x&idMask
	for i := range uint64(idRounds) {
		l, r = r^idRound(life, idRounds-1-i, l), l
	}
	return l<<idHalf | r, true
}

func idRound(life, round, half uint64) uint64 {
	x := (life + round<<32 + half) * 0x9E3779B97F4A7C15
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return x >> (64 - idHalf)
}
