package headgate

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// Visitors who go to another data centre than the one they came to first keep what they
// have: a stay and a place belong to one counter for life, and are asked about there.

// placeDesk is a counter as a visitor with a ticket or a pass needs it.
type placeDesk interface {
	Poll(ctx context.Context, life, number, key uint64) (counter.PlaceInfo, error)
	Claim(ctx context.Context, life, number, key uint64, hard time.Duration) (slot.ClaimReply, error)
	Leave(ctx context.Context, life, number, key uint64) error
	Move(ctx context.Context, m counter.Move) error
	ReportSuspectPass(ctx context.Context)
}

// abroad is the room in another data centre: what it keeps, and a worker that reports
// there whom it has seen here. It lets nobody new in.
type abroad struct {
	desk   *counter.RemoteCounter
	worker *worker
}

// openAbroad makes the ways to the other data centres.
func (r *Room) openAbroad(cfg RoomConfig, c counter.Config) {
	e := cfg.Engine
	if e.sites == nil {
		return
	}
	r.abroad = map[string]*abroad{}
	for _, site := range e.sites.Names() {
		a := &abroad{desk: counter.NewRemoteCounter(c, e.bus, site)}
		a.worker = newWorker(cfg, c.Host, slot.LoanID(rand.Uint64()|1), true)
		a.worker.lender = a.desk
		r.abroad[site] = a
	}
}

// workers are the room's own and those that report to other data centres.
func (r *Room) workers() []*worker {
	all := []*worker{r.worker}
	for _, a := range r.abroad {
		all = append(all, a.worker)
	}
	return all
}

// own is the name of this data centre, "" if it is the only one.
func (r *Room) own() string {
	if e := r.face.Load().cfg.Engine; e.sites != nil {
		return e.sites.Own()
	}
	return ""
}

// locate finds the counter that the visitor's stay or place belongs to: one that was given
// before there were other data centres is of this one.
func (r *Room) locate(q *visitRequest) {
	q.worker, q.desk = r.worker, r.counter
	if !q.has || r.abroad == nil || q.tok.Home == "" || q.tok.Home == r.own() {
		return
	}
	a := r.abroad[q.tok.Home]
	if a == nil { // no such data centre is configured any more
		q.has = false
		return
	}
	q.worker, q.desk = a.worker, a.desk
}

// homeOf is the data centre of the visitor's counter.
func (r *Room) homeOf(q *visitRequest) string {
	if r.isAbroad(q) {
		return q.tok.Home
	}
	return r.own()
}

// isAbroad reports whether the visitor's stay or place is in another data centre.
func (r *Room) isAbroad(q *visitRequest) bool { return q.worker != r.worker }

// silent reports whether the visitor's data centre is surely out of reach.
func (r *Room) silent(q *visitRequest) bool {
	if !r.isAbroad(q) {
		return false
	}
	_, silent := r.counter.Reachability(q.tok.Home)
	return silent
}

// late reports whether the visitor's data centre may be out of reach: nobody should wait for its answer.
func (r *Room) late(q *visitRequest) bool {
	if !r.isAbroad(q) {
		return false
	}
	late, _ := r.counter.Reachability(q.tok.Home)
	return late
}

// passesFor reports whether a pass of another data centre is surely not over, by the time
// that its last pictures told. What has been seen so is not reported there: the next
// request is, once the way there is known.
func (r *Room) passesFor(q *visitRequest) bool {
	if !r.isAbroad(q) {
		return false
	}
	t, err := r.counter.RemoteTime(q.r.Context(), q.tok.Home)
	return err == nil && t.Known && t.Life == q.tok.Life && t.Hi < slot.Time(q.tok.End)
}

// outOfReach answers a visitor whose counter does not. Here, the visitor keeps what it has and asks
// again. In another data centre that has been silent for a while, a pass counts to its end; whoever was
// inside longer is first to come in here, and whoever waited keeps its place in the order of all data
// centres. A ticket that was called there, used or not, is kept, and its visitor comes as newcomers do.
func (r *Room) outOfReach(q *visitRequest) {
	t, err := r.counter.RemoteTime(q.r.Context(), q.tok.Home)
	switch same := t.Life == q.tok.Life; {
	case !r.silent(q) || err != nil:
		r.wait(q, &counter.PlaceInfo{PollAfter: unreachableRetry}, StateWaiting)
	case q.tok.Kind == ticket.Pass:
		r.roam(q, 0)
	case same && t.WasCalled(q.tok.ID), q.tok.Seen == 0: // 0: nobody knows when it came
		if q.keeps = true; !r.stillRoams(q) {
			r.serveNewcomer(q)
		}
	default:
		r.roam(q, slot.Time(q.tok.Seen))
	}
}

// roam lets a visitor of a data centre that is out of reach wait here. came is when it
// came, in the time of all data centres; 0 if it was inside. One place or stay there is one
// here, wherever in the data centre the visitor asks.
func (r *Room) roam(q *visitRequest, came slot.Time) {
	p, err := r.counter.Roam(q.r.Context(), q.tok.Mix()|counter.RoamerBit, came)
	if err != nil {
		p.PollAfter = max(p.PollAfter, unreachableRetry)
		r.wait(q, &p, StateWaiting)
		return
	}
	q.worker, q.desk = r.worker, r.counter
	r.standing(q, &p)
}

// onlyKnown asks for a roamer who is here already; comesNow is later than all known times.
const onlyKnown, comesNow slot.Time = -1, 1<<63 - 1

// stillRoams lets a visitor go on waiting here who roams already, also when the data centre is
// back and has given its place up. One who was called here and has claimed is the same visitor in
// another tab: a newcomer's cookie would replace the pass. It reports whether there was such a one.
func (r *Room) stillRoams(q *visitRequest) bool {
	if !r.isAbroad(q) || q.tok.Kind != ticket.Ticket {
		return false
	}
	p, err := r.counter.Roam(q.r.Context(), q.tok.Mix()|counter.RoamerBit, onlyKnown)
	if err != nil || p.Status == slot.TicketUnknown {
		return false
	}
	q.worker, q.desk = r.worker, r.counter
	r.standing(q, &p)
	return true
}
