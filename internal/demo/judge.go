package demo

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// lateBy is how late an answer may be before its visitor no longer counts as one
// who asks on time. Chosen: the shortest polling interval.
const lateBy = time.Second

// pacing is how long before it is told a ticket may have been called: the room
// keeps a second's share of admissions. A visitor that has asked on time for less
// is not judged yet.
const pacing = 1500 * time.Millisecond

// A judge writes down what simulated visitors were told, and holds the room to
// it. It believes no one else. It may be used by many goroutines at once.
//
// A place is lost when a visitor that had read a ticket number or a position is
// told another number or a later position, or when a visitor inside is sent back.
//
// A visitor is overtaken when somebody with a later ticket was let in, and the
// visitor asked after that and was still told to wait. The moments are taken so
// that a doubt is in the room's favour: the other was not called yet when the
// visitor had begun to ask on time, and was inside before the visitor asked. A call
// that nobody has claimed dies with the room (docs/protocol.md §8), and its ticket
// is next again: so both must have happened in the same life of the room. Of a cluster
// it counts when it was by more than clusterSlack.
type judge struct {
	mu        sync.Mutex
	visitors  map[int]*waiter
	admitted  []admission // in the order of at; the last few minutes
	kills     []*kill
	tickets   int
	overtaken int
	lost      int
	sentBack  int
	first     string // what was seen when something went wrong first

	slack    time.Duration // by how much somebody who came later may be let in earlier
	patience time.Duration // how long an overtaking may turn out to be none
	moved    time.Time     // when the room got another host
	doubts   []doubt
	idle     idle
}

// aloneSlack is by how much somebody who came later may be let in earlier, in a room on
// one machine: both are called, and the one whose poll comes first goes first. Chosen:
// the shortest interval of polling.
const aloneSlack = time.Second

// clusterSlack is by how much somebody who came later may be let in earlier, as the
// tests of a cluster have it (tests/cluster, overtakeSlack).
const clusterSlack = 3 * time.Second

// doubtFor is how late a cluster's change of its host may be heard of. Chosen: ten
// looks at the nodes, and what a node waits that cannot read who leads.
const doubtFor = 4 * time.Second

// A doubt is an overtaking that counts unless the room turns out to have had another
// host in between.
type doubt struct {
	who  *waiter
	at   time.Time
	what string
}

// A waiter is a visitor that has come and was not let in yet.
type waiter struct {
	number    uint64
	best      int64     // the best position it was told
	asked     time.Time // when it sent its first request
	onTime    time.Time // since when it has been asking on time; zero: it is not
	still     time.Time // when it last asked and was told to wait
	expected  time.Duration
	lost      bool
	overtaken bool
}

// An admission is one visitor let in. It was not called before after, and was
// inside at at.
type admission struct {
	number    uint64 // 0: without waiting
	after, at time.Time
}

// A kill is one time the room was killed.
type kill struct {
	who     string // of a cluster; "" is the room
	at      time.Time
	down    time.Duration // until it was ready again; 0: it is not yet
	idle    time.Duration // of a cluster: the longest that nobody new was let in
	waiting int           // visitors with a place
	again   int           // of them, who have been answered and have it still
	lost    int           // of them, who have been answered and have it not
	unheard map[int]bool
	age     time.Duration // in a finding: how long ago
}

func newJudge() *judge { return &judge{visitors: map[int]*waiter{}} }

// observe takes an event of the visitor id, whose run began at start or a moment
// later.
func (j *judge) observe(id int, start time.Time, e crowd.Event) {
	now := time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	switch e.What {
	case crowd.EventArrived:
		j.visitors[id] = &waiter{asked: start}
	case crowd.EventPolled:
		if w := j.visitors[id]; w != nil && e.Poll.Ask != crowd.AskServed {
			j.polled(id, w, start, now, &e.Poll)
		}
	case crowd.EventAdmitted:
		j.letIn(id, now)
	case crowd.EventSentBack:
		j.sentBack++
		j.wrong("visitor %d was inside and was sent back to the line", id)
	}
}

// polled takes the answer to a question of a visitor that waits.
func (j *judge) polled(id int, w *waiter, start, now time.Time, p *crowd.Poll) {
	late := p.AnswerAt == crowd.Never || p.AnswerAt-p.DueAt > lateBy
	if p.Err != "" || late {
		w.onTime = time.Time{}
	}
	if p.Err != "" || p.State == "" {
		return
	}
	if w.number > 0 && p.Number == 0 { // the node could ask nobody: the room has not heard
		w.onTime = time.Time{}
		return
	}
	kept := j.keeps(id, w, p)
	j.heard(id, kept)
	if w.onTime.IsZero() {
		w.onTime = now
	}
	if p.State == "called" || p.Position == 0 {
		return
	}
	w.still = start.Add(p.SentAt)
	w.expected = -1
	if p.ETAKnown {
		w.expected = (p.ETALow + p.ETAHigh) / 2
	}
	j.confirm(now)
	if by, ok := j.passedBy(w); ok && !w.overtaken {
		w.overtaken = true
		who := "a newcomer"
		if by.number > 0 {
			who = fmt.Sprintf("ticket %d", by.number)
		}
		j.doubts = append(j.doubts, doubt{w, now, fmt.Sprintf(
			"visitor %d with ticket %d was told to wait %v after %s was let in",
			id, w.number, w.still.Sub(by.at).Round(time.Millisecond), who)})
		j.confirm(now)
	}
}

// confirm counts the overtakings that are no longer in doubt.
func (j *judge) confirm(now time.Time) {
	j.doubts = slices.DeleteFunc(j.doubts, func(d doubt) bool {
		if now.Sub(d.at) < j.patience {
			return false
		}
		j.overtaken++
		j.wrong("%s", d.what)
		return true
	})
}

// anew notes that the room has another host, or is about to: calls that nobody has
// claimed are no more.
func (j *judge) anew(now time.Time) {
	j.confirm(now)
	for _, d := range j.doubts {
		d.who.overtaken = false
	}
	j.doubts, j.moved = nil, now
}

// keeps holds the answer against what the visitor had been told before.
func (j *judge) keeps(id int, w *waiter, p *crowd.Poll) bool {
	kept := true
	switch {
	case p.Number == 0 || p.Number == w.number:
	case w.number == 0:
		j.tickets++
	default:
		kept = false
		j.wrong("visitor %d had ticket %d and was given ticket %d", id, w.number, p.Number)
		w.best = 0
	}
	if p.Number != 0 {
		w.number = p.Number
	}
	if p.Position > 0 && p.State != "called" {
		if w.best > 0 && p.Position > w.best {
			kept = false
			j.wrong("visitor %d with ticket %d was number %d in line, then number %d",
				id, w.number, w.best, p.Position)
		}
		w.best = p.Position
	}
	if !kept && !w.lost {
		w.lost = true
		j.lost++
	}
	return kept
}

// passedBy finds somebody with a later ticket who was let in while w waited.
func (j *judge) passedBy(w *waiter) (admission, bool) {
	since := w.onTime.Add(pacing)
	if j.moved.After(since) {
		since = j.moved
	}
	for i := len(j.admitted) - 1; i >= 0; i-- {
		a := j.admitted[i]
		if a.at.Before(since) {
			break
		}
		later := a.number > w.number || a.number == 0 // and came after: see since
		if later && a.at.Add(j.slack).Before(w.still) && a.after.After(since) {
			return a, true
		}
	}
	return admission{}, false
}

// letIn takes a visitor out of the line.
func (j *judge) letIn(id int, now time.Time) {
	w := j.visitors[id]
	if w == nil {
		return
	}
	delete(j.visitors, id)
	j.heard(id, true)
	a := admission{number: w.number, after: w.still, at: now}
	if w.number == 0 {
		a.after = w.asked
	}
	// A visitor that was lost track of has a number of another count: it proves
	// nothing, and was counted already.
	if w.lost {
		return
	}
	j.admitted = append(j.admitted, a)
	const keep = 4096 // more than anybody's wait
	if len(j.admitted) > 2*keep {
		j.admitted = append(j.admitted[:0], j.admitted[keep:]...)
	}
}

// heard notes the first answer after a kill.
func (j *judge) heard(id int, kept bool) {
	for _, k := range j.kills {
		if !k.unheard[id] {
			continue
		}
		delete(k.unheard, id)
		if kept {
			k.again++
		} else {
			k.lost++
		}
	}
}

// gone forgets a visitor whose run is over.
func (j *judge) gone(id int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.visitors, id)
}

func (j *judge) wrong(format string, args ...any) {
	if j.first == "" {
		j.first = fmt.Sprintf(format, args...)
	}
}

// killed notes a kill that is about to happen, and who has a place.
func (j *judge) killed(who string) *kill {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := &kill{who: who, at: time.Now(), unheard: map[int]bool{}}
	j.anew(k.at)
	j.idle.interrupted()
	for id, w := range j.visitors {
		if w.number > 0 {
			k.unheard[id] = true
		}
	}
	k.waiting = len(k.unheard)
	j.kills = append(j.kills, k)
	return k
}

// back notes that the room is ready again.
func (j *judge) back(k *kill) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k.down = time.Since(k.at)
}

// hostMoved notes that another node hosts the room.
func (j *judge) hostMoved() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.anew(time.Now())
}

// watchIdle takes in how long nobody new was let in.
func (j *judge) watchIdle(now time.Time, r *report, l Limits, quorate bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	in := line{quorate: quorate}
	for _, w := range j.visitors {
		in.waits = in.waits || w.number > 0
		in.asks = in.asks || w.number > 0 && !w.onTime.IsZero()
	}
	j.idle.see(now, r, l, in)
	if n := len(j.kills); n > 0 {
		k := j.kills[n-1]
		k.idle = max(k.idle, min(j.idle.Now, now.Sub(k.at)))
	}
}

// A finding is what the visitors saw.
type finding struct {
	Waiting   int
	Expected  time.Duration // what the last in line is told; -1 unknown
	Tickets   int
	Overtaken int
	Lost      int
	SentBack  int
	First     string
	Kills     []kill // without their visitors
	Idle      idle   // of a cluster
}

// finding is what was seen up to now.
func (j *judge) finding() finding {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.confirm(time.Now())
	f := finding{Expected: -1, Tickets: j.tickets, Overtaken: j.overtaken, Lost: j.lost,
		SentBack: j.sentBack, First: j.first, Idle: j.idle}
	last := uint64(0)
	for _, w := range j.visitors {
		if w.number == 0 {
			continue
		}
		f.Waiting++
		if w.number > last {
			last, f.Expected = w.number, w.expected
		}
	}
	for _, k := range j.kills {
		k := *k
		k.unheard, k.age = nil, time.Since(k.at)
		f.Kills = append(f.Kills, k)
	}
	return f
}
