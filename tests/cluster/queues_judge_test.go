package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// An arrival is a job that the target was sent, as the target counts it.
type arrival struct {
	job  int
	node string // that sent it
	at   time.Duration
}

// A receipt says that so many jobs were answered: they are on the disk.
type receipt struct {
	at   time.Duration
	jobs int
}

// A flow is all that was seen of a queue, from both its ends.
type flow struct {
	jobs     int // all of them were answered
	arrivals []arrival
	receipts []receipt
}

func (f *flow) sort() {
	slices.SortFunc(f.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	slices.SortFunc(f.receipts, func(a, b receipt) int { return cmp.Compare(a.at, b.at) })
}

// inWindow is the most that has arrived in any window, and when that began.
func (f *flow) inWindow(window time.Duration) (most int, at time.Duration) {
	from := 0
	for i, a := range f.arrivals {
		for a.at-f.arrivals[from].at >= window {
			from++
		}
		if n := i - from + 1; n > most {
			most, at = n, f.arrivals[from].at
		}
	}
	return most, at
}

// missing are jobs that were answered and have not arrived, and repeats how often one has
// that had already.
func (f *flow) missing() (lost []int, repeats int) {
	got := make([]bool, f.jobs)
	for _, a := range f.arrivals {
		if got[a.job] {
			repeats++
		}
		got[a.job] = true
	}
	for i, ok := range got {
		if !ok {
			lost = append(lost, i)
		}
	}
	return lost, repeats
}

// A pause is a time in which jobs waited and none arrived.
type pause struct{ from, to time.Duration }

func (p pause) long() time.Duration { return p.to - p.from }

// pauses are the longest of them, the longest first. Repeats are no progress.
func (f *flow) pauses(n int) []pause {
	var all []pause
	got := make([]bool, f.jobs)
	waiting, next := 0, 0
	last := time.Duration(-1) // since when some wait and none has come
	for _, a := range f.arrivals {
		if got[a.job] {
			continue
		}
		got[a.job] = true
		for next < len(f.receipts) && f.receipts[next].at <= a.at {
			if waiting <= 0 && waiting+f.receipts[next].jobs > 0 {
				last = max(last, f.receipts[next].at)
			}
			waiting += f.receipts[next].jobs
			next++
		}
		if last >= 0 && waiting > 0 {
			all = append(all, pause{last, a.at})
		}
		waiting-- // below 0: it has come before its put was answered
		last = a.at
	}
	slices.SortFunc(all, func(a, b pause) int { return cmp.Compare(b.long(), a.long()) })
	return all[:min(n, len(all))]
}

// by is how many a node has sent between two moments.
func (f *flow) by(node string, from, to time.Duration) (n int) {
	for _, a := range f.arrivals {
		if a.node == node && a.at >= from && a.at < to {
			n++
		}
	}
	return n
}

// steadyFlow is 1,000 jobs, put before the first goes, one each millisecond.
func steadyFlow() *flow {
	f := &flow{jobs: 1000}
	for i := range f.jobs {
		f.arrivals = append(f.arrivals, arrival{i, "n1", time.Second + time.Duration(i)*time.Millisecond})
	}
	for range 10 {
		f.receipts = append(f.receipts, receipt{time.Second / 2, 100})
	}
	return f
}

// TestQueueJudge: the judge of queues finds each fault, and none where there is none.
func TestQueueJudge(t *testing.T) {
	f := steadyFlow()
	f.sort()
	lost, repeats := f.missing()
	if n, _ := f.inWindow(100 * time.Millisecond); n != 100 || lost != nil || repeats != 0 {
		t.Errorf("a good flow: %d in a window, %v lost, %d repeated", n, lost, repeats)
	}
	if p := f.pauses(1)[0]; p != (pause{time.Second / 2, time.Second}) {
		t.Errorf("a good flow pauses for %v", p)
	}
	f.arrivals = slices.Delete(f.arrivals, 300, 350)
	f.arrivals = append(f.arrivals, arrival{0, "n2", 1320 * time.Millisecond},
		arrival{1, "n2", 1999*time.Millisecond + 1})
	f.receipts = []receipt{{900 * time.Millisecond, 999}}
	f.sort()
	if lost, repeats := f.missing(); len(lost) != 50 || lost[0] != 300 || repeats != 2 {
		t.Errorf("%v lost, %d repeated, want 50 and 2", lost, repeats)
	}
	if p := f.pauses(2); p[0].long() != 100*time.Millisecond || p[1].long() != 51*time.Millisecond {
		t.Errorf("it pauses for %v: a repeat is no progress, and before the first put nothing waits", p)
	}
	if n, at := f.inWindow(100 * time.Millisecond); n != 101 || at != 1900*time.Millisecond {
		t.Errorf("%d in a window from %v, want 101", n, at)
	}
	if n := f.by("n2", 1320*time.Millisecond, 2*time.Second); n != 2 {
		t.Errorf("n2 has sent %d, want 2", n)
	}
}

// followedKey is how the keys of followed jobs begin. Their arrivals are counted apart.
const followedKey = "followed-"

// A followed job is one that a client puts, looks at, changes and cancels.
type followed struct {
	arrivals []time.Duration
	told     string        // the first final state that a node has told
	canceled time.Duration // when the cancellation was answered, 0: it was not
	back     []string      // answers that contradict what was told before
}

// follow follows jobs at each node until the function that it returns is called, which judges.
func (q *feed) follow() func() []judge.Figure {
	ctx, stop := context.WithCancel(q.t.Context())
	seed := rand.Uint64()
	q.t.Logf("seed of those that follow %d", seed)
	for i := range q.nodes {
		q.wg.Go(func() { q.followAt(ctx, i, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	end := q.t.Context()
	return func() []judge.Figure {
		stop()
		q.rest(settled)
		return q.judgeFollowed(end)
	}
}

// followAt puts a few jobs at a node, and looks at each, changes it or cancels it at any node, until ctx
// ends.
func (q *feed) followAt(ctx context.Context, own int, r *rand.Rand) {
	for round := 0; ctx.Err() == nil; round++ {
		var keys []string
		var lines strings.Builder
		for n := range 10 {
			key := fmt.Sprintf("%s%d-%d-%d", followedKey, own, round, n)
			at := time.Now().Add(time.Duration(r.IntN(8000)-2000) * time.Millisecond).UTC()
			fmt.Fprintf(&lines, "{\"key\":%q,\"text\":\"x\",\"at\":%q,\"priority\":%d}\n", key,
				at.Format(time.RFC3339Nano), r.IntN(10))
			keys = append(keys, key)
		}
		q.mu.Lock()
		for _, key := range keys {
			q.followed[key] = &followed{}
		}
		q.mu.Unlock()
		put := false
		for n := own; !put && ctx.Err() == nil; n++ { // what has no answer is put again
			if put = q.putLines(ctx, q.nodes[n%len(q.nodes)], lines.String()) == nil; !put {
				wait(ctx, time.NewTimer(100*time.Millisecond))
			}
		}
		if !put { // the end of the run came before an answer: nothing was promised
			q.mu.Lock()
			for _, key := range keys {
				delete(q.followed, key)
			}
			q.mu.Unlock()
			return
		}
		for _, key := range keys {
			wait(ctx, time.NewTimer(time.Duration(r.IntN(400))*time.Millisecond))
			n := q.nodes[r.IntN(len(q.nodes))]
			switch r.IntN(4) {
			case 0:
				q.lookAt(n, key)
			case 1:
				at := time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano)
				q.jobAnswer(n, http.MethodPatch, key, fmt.Sprintf(`{"at":%q,"priority":%d}`, at, r.IntN(10)))
			default:
				q.cancel(n, key)
			}
		}
	}
}

// jobAnswer asks a node about a job, and returns its state, "" if there was no clear answer.
func (q *feed) jobAnswer(n *node, method, key, body string) string {
	var s struct {
		State string `json:"state"`
		Code  string `json:"code"`
	}
	text, _ := q.answer(n, method, "/v1/queues/orders/jobs/"+key, q.tokens[n.name], body)
	_ = json.Unmarshal(text, &s) // no answer is no state
	return s.State
}

func (q *feed) cancel(n *node, key string) {
	state := q.jobAnswer(n, http.MethodDelete, key, "")
	q.mu.Lock()
	defer q.mu.Unlock()
	if f := q.followed[key]; state == "canceled" && f.canceled == 0 {
		f.canceled = q.clock()
	}
	q.tell(key, state)
}

func (q *feed) lookAt(n *node, key string) {
	state := q.jobAnswer(n, http.MethodGet, key, "")
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tell(key, state)
}

// tell notes what a node has said about a job. What is final must stay.
func (q *feed) tell(key, state string) {
	f := q.followed[key]
	switch state {
	case "":
	case f.told:
	case "delivered", "canceled", "dead":
		if f.told != "" {
			f.back = append(f.back, f.told+" became "+state)
		}
		f.told = state
	default:
		if f.told != "" {
			f.back = append(f.back, f.told+" became "+state)
		}
	}
}

// judgeFollowed asks each node about each job once more, and holds what was told against what the target
// received.
func (q *feed) judgeFollowed(ctx context.Context) []judge.Figure {
	q.mu.Lock()
	var keys []string
	for key := range q.followed {
		keys = append(keys, key)
	}
	q.mu.Unlock()
	open := 0
	for i, key := range keys {
		for try := 0; ; try++ {
			q.lookAt(q.nodes[(i+try)%len(q.nodes)], key)
			q.mu.Lock()
			told := q.followed[key].told
			q.mu.Unlock()
			if told != "" {
				break
			}
			if try > 100 || !wait(ctx, time.NewTimer(300*time.Millisecond)) {
				open++
				break
			}
		}
		q.lookAt(q.nodes[(i+1)%len(q.nodes)], key)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	var after, back, lost, canceled, delivered int
	var why string
	for key, f := range q.followed {
		if len(f.back) > 0 {
			back++
			why = key + ": " + f.back[0]
		}
		switch {
		case f.told == "delivered" && len(f.arrivals) == 0, f.told == "dead":
			lost++
		case f.told == "delivered":
			delivered++
		case f.told == "canceled":
			canceled++
		}
		for _, at := range f.arrivals {
			if f.canceled > 0 && at > f.canceled {
				after++
			}
		}
	}
	return []judge.Figure{
		most("sent after their cancellation was answered", after, 0, ""),
		most("followed jobs whose final state changed", back, 0, "%s", why),
		most("told as delivered, or dead, and not delivered", lost, 0, ""),
		most("followed jobs without an end", open, 0, ""),
		most("followed, but no job canceled, or none delivered", int(1-min(canceled, delivered, 1)), 0,
			"%d canceled, %d delivered of %d", canceled, delivered, len(q.followed)),
	}
}
