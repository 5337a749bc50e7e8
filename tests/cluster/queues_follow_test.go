package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// TestQueuesFollowKill: jobs are put, followed, changed and canceled at all nodes, while the node that
// delivers is killed, again and again.
func TestQueuesFollowKill(t *testing.T) { play(t, testQueuesFollowKill) }

func testQueuesFollowKill(t *testing.T) {
	q := newFeed(t, 1)
	followed := q.follow()
	q.each(func(int) { q.strike(q.hostOf()) })
	q.done(wanted{pause: pauseLeader, repeats: againAfter(len(q.faults)), besides: followed()})
}

// TestQueuesFollowCut: the same, while the node that delivers is cut off from all others, but not from
// those that cancel jobs: two nodes believe that they host the queue.
func TestQueuesFollowCut(t *testing.T) { play(t, testQueuesFollowCut) }

func testQueuesFollowCut(t *testing.T) {
	q := newFeed(t, 1)
	followed := q.follow()
	q.each(func(i int) {
		name, from := q.hostOf(), q.clock()
		q.links.sever(name, []cutHow{closed, silenced}[i%2])
		q.rest(10 * time.Second)
		q.links.heal()
		q.fault("cut", name, from, false)
		q.rest(backWithin)
	})
	q.done(wanted{pause: pauseCut, repeats: againAfter(len(q.faults)), besides: followed()})
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

// followAt puts a few jobs at a node, and looks at each, changes it or cancels it at any node, until ctx ends.
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
		for n := own; ctx.Err() == nil; n++ { // what has no answer is put again
			if q.putLines(ctx, q.nodes[n%len(q.nodes)], lines.String()) == nil {
				break
			}
			wait(ctx, time.NewTimer(100*time.Millisecond))
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
