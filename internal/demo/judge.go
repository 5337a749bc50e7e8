package demo

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// pacing is how long before its visitor learns of it a ticket may have been called: the room admits
// in steps of up to a second. A visitor that has polled on time for less than this is not judged
// yet.
const pacing = 1500 * time.Millisecond

// A judge records the answers that simulated visitors receive, and checks the room against them. It
// uses no other source. It may be used by many goroutines at once.
//
// A place is lost when a visitor that had read a ticket number or a position receives another
// number or a later position, or when a visitor inside is sent back.
//
// A visitor is overtaken when a visitor with a later ticket was admitted, and the first visitor
// polled after that and still had to wait. Times are chosen so that doubts favor the room: the
// other ticket was not yet called when the first visitor had begun to poll on time, and was inside
// before the first visitor polled. A call that nobody has claimed is lost with the room
// (docs/protocol.md §8), and its ticket is next again. So both events must lie in the same run of
// the room. In a cluster an overtaking counts only if it is larger than clusterSlack.
type judge struct {
	mu       sync.Mutex
	visitors map[int]*waiter
	admitted []admission // sorted by at; the last few minutes
	kills    []*kill
	seen     finding // but for what is computed from the visitors and the kills

	slack    time.Duration // how much earlier a later visitor may be admitted
	patience time.Duration // how long an overtaking may turn out to be none
	moved    time.Time     // when the host of the room changed
	doubts   []doubt
}

// aloneSlack is how much earlier a later visitor may be admitted in a room on one machine. Both are
// called, and the one that polls first enters first. Chosen: the shortest polling interval.
const aloneSlack = time.Second

// clusterSlack is how much earlier a later visitor may be admitted in a cluster. It is the value of
// the cluster tests (tests/cluster, overtakeSlack).
const clusterSlack = 3 * time.Second

// doubtFor is how late the demo may learn that a cluster's host has changed. Chosen: ten looks at
// the nodes, plus the wait of a node that cannot read who leads.
const doubtFor = 4 * time.Second

// A doubt is an overtaking that counts unless the host of the room has changed in between.
type doubt struct {
	who  *waiter
	at   time.Time
	what string
}

// A waiter is a visitor that has come and is not yet admitted.
type waiter struct {
	number    uint64
	best      int64     // the best position it received
	asked     time.Time // when it sent its first request
	onTime    time.Time // since when it polls on time; zero: it does not
	still     time.Time // its last poll that was answered with "wait"
	expected  time.Duration
	lost      bool
	overtaken bool
}

// An admission is one admitted visitor. It was not called earlier than after, and was inside at at.
type admission struct {
	number    uint64 // 0: admitted without waiting
	after, at time.Time
}

// A kill is one kill of the room or of a node.
type kill struct {
	who     string // the node; "": the whole room
	at      time.Time
	down    time.Duration // until it was ready again; 0: not yet
	idle    time.Duration // of a cluster: the longest time without an admission
	waiting int           // visitors with a place at the time
	again   int           // of these, answered, place kept
	lost    int           // of these, answered, place lost
	unheard map[int]bool
	age     time.Duration // in a finding: how long ago
}

// outage returns how long the room was down, as text.
func (k *kill) outage() string {
	if k.down == 0 {
		return fmt.Sprintf("down, %d waiting", k.waiting)
	}
	return fmt.Sprintf("back after %.2f s", k.down.Seconds())
}

// places returns what happened to the waiting visitors, as text.
func (k *kill) places() string {
	if k.who == "" && k.down == 0 {
		return ""
	}
	text := fmt.Sprintf("%d were waiting then: %d have their place", k.waiting, k.again)
	if k.lost > 0 {
		text += fmt.Sprintf(", %d lost it", k.lost)
	}
	if left := k.waiting - k.again - k.lost; left > 0 {
		text += fmt.Sprintf(", %d have not asked since", left)
	}
	return text
}

// kept returns in few words what happened to the visitors that were waiting.
func (k *kill) kept() string {
	switch {
	case k.lost > 0:
		return fmt.Sprintf("%d of %d waiting lost their place", k.lost, k.waiting)
	case k.waiting == 0:
		return "nobody was waiting"
	case k.again == k.waiting:
		return fmt.Sprintf("all %d waiting have their place", k.again)
	}
	return fmt.Sprintf("%d of %d asked since, none lost", k.again, k.waiting)
}

func newJudge() *judge { return &judge{visitors: map[int]*waiter{}} }

// observe receives an event of the visitor id, whose run began at start or a moment later.
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
		j.seen.SentBack++
		j.wrong("visitor %d was inside and was sent back to the line", id)
	}
}

// polled checks the answer to a poll of a waiting visitor.
func (j *judge) polled(id int, w *waiter, start, now time.Time, p *crowd.Poll) {
	if p.Missed() {
		w.onTime = time.Time{}
	}
	if p.Err != "" || p.State == "" {
		return
	}
	if w.number > 0 && p.Number == 0 { // the node has no contact: the room has not received it
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
		j.seen.Overtaken++
		j.wrong("%s", d.what)
		return true
	})
}

// anew records that the room has another host, or is about to: unclaimed calls are lost.
func (j *judge) anew(now time.Time) {
	j.confirm(now)
	for _, d := range j.doubts {
		d.who.overtaken = false
	}
	j.doubts, j.moved = nil, now
}

// keeps compares the answer with the earlier answers to this visitor.
func (j *judge) keeps(id int, w *waiter, p *crowd.Poll) bool {
	kept := true
	switch {
	case p.Number == 0 || p.Number == w.number:
	case w.number == 0:
		j.seen.Tickets++
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
		j.seen.Lost++
	}
	return kept
}

// passedBy returns a later ticket that was admitted while w waited.
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
		later := a.number > w.number || a.number == 0 // and came later: see since
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
	// A visitor that had lost its place has a number of another count. It proves nothing and was
	// counted already.
	if w.lost {
		return
	}
	j.admitted = append(j.admitted, a)
	const keep = 4096 // longer than any wait
	if len(j.admitted) > 2*keep {
		j.admitted = append(j.admitted[:0], j.admitted[keep:]...)
	}
}

// heard records the first answer after a kill.
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
	if j.seen.First == "" {
		j.seen.First = fmt.Sprintf(format, args...)
	}
}

// killed records a kill that is about to happen, and the visitors that have a place.
func (j *judge) killed(who string) *kill {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := &kill{who: who, at: time.Now(), unheard: map[int]bool{}}
	j.anew(k.at)
	j.seen.Idle.interrupted()
	for id, w := range j.visitors {
		if w.number > 0 {
			k.unheard[id] = true
		}
	}
	k.waiting = len(k.unheard)
	j.kills = append(j.kills, k)
	return k
}

// back records that the room is ready again.
func (j *judge) back(k *kill) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k.down = time.Since(k.at)
}

// hostMoved records that another node hosts the room.
func (j *judge) hostMoved() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.anew(time.Now())
}

// watchIdle updates how long nobody new was admitted.
func (j *judge) watchIdle(now time.Time, r *report, l Limits, quorate bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	in := line{quorate: quorate}
	for _, w := range j.visitors {
		in.waits = in.waits || w.number > 0
		in.asks = in.asks || w.number > 0 && !w.onTime.IsZero()
	}
	j.seen.Idle.see(now, r, l, in)
	if n := len(j.kills); n > 0 {
		k := j.kills[n-1]
		k.idle = max(k.idle, min(j.seen.Idle.Now, now.Sub(k.at)))
	}
}

// A finding is what the visitors saw.
type finding struct {
	Waiting   int
	Expected  time.Duration // expected wait of the last in line; -1 unknown
	Tickets   int
	Overtaken int
	Lost      int
	SentBack  int
	First     string // the state when the first fault was found
	Kills     []kill // without their visitors
	Idle      idle   // of a cluster
}

// finding returns what was seen up to now.
func (j *judge) finding() finding {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.confirm(time.Now())
	f := j.seen
	f.Expected = -1
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
