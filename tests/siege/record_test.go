package siege

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	room "github.com/headgate/headgate/tests/crowd"
)

// A record is everything that was seen of one scenario.
type record struct {
	people *crowd.Result
	origin []room.Request
	looks  []room.Sample
	memory []int64         // goals of the process's garbage collector in bytes, each half second
	polls  []time.Duration // how long honest polls took
	direct []time.Duration // how long requests to the origin itself took, at the same time
	slots  int             // limit of users at once

	places  int // of the first that are taken, whose they are is measured
	session time.Duration
	solved  int   // challenges, by the attackers
	issued  int   // challenges of attackers
	sent    int64 // requests or connections of the attackers
}

// Attackers say who they are in crowd.VisitorHeader: "a", the network, "/" and the cookie jar.
// Requests that share a jar share a slot.
func attacker(visitor string) (network, jar string, ok bool) {
	rest, ok := strings.CutPrefix(visitor, "a")
	if !ok {
		return "", "", false
	}
	network, jar, ok = strings.Cut(rest, "/")
	return network, jar, ok
}

// waits are the times in which each honest person was known to wait: from the first answer that
// said so to the origin's answer.
func (r *record) waits() []room.Span {
	var out []room.Span
	for i := range r.people.Visitors {
		v := &r.people.Visitors[i]
		for _, p := range v.Polls {
			if p.State == "waiting" {
				end := r.people.Took
				if v.Admitted() {
					end = v.AdmittedAt
				}
				start := r.people.StartedAt
				out = append(out, room.Span{From: start.Add(p.AnswerAt), To: start.Add(end)})
				break
			}
		}
	}
	return out
}

func waitingAt(waits []room.Span, at time.Time) (n int) {
	for _, w := range waits {
		if !at.Before(w.From) && !at.After(w.To) {
			n++
		}
	}
	return n
}

// handed is who got the slots that were handed out while an honest person waited.
type handed struct {
	honest, attackers int
	network           int // of the attackers' network that got most
	copies            int // networks that were served with one jar, at most
}

// handedOut takes the first request of each visitor that the origin saw as a slot.
func (r *record) handedOut() (h handed) {
	waits := r.waits()
	networks, served, seen := map[string]int{}, map[string]map[string]bool{}, map[string]bool{}
	slices.SortFunc(r.origin, func(a, b room.Request) int { return a.From.Compare(b.From) })
	for _, q := range r.origin {
		network, jar, hostile := attacker(q.Visitor)
		key := "p" + q.Visitor
		if hostile {
			key = jar
			if served[jar] == nil {
				served[jar] = map[string]bool{}
			}
			served[jar][network] = true
			h.copies = max(h.copies, len(served[jar]))
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		switch {
		case waitingAt(waits, q.From) == 0:
		case hostile:
			h.attackers++
			networks[network]++
			h.network = max(h.network, networks[network])
		default:
			h.honest++
		}
	}
	return h
}

// firstPlaces returns how many of the first places that were taken are the attackers', and how many there
// are.
func (r *record) firstPlaces() (hostile, all int) {
	slices.SortFunc(r.origin, func(a, b room.Request) int { return a.From.Compare(b.From) })
	seen := map[string]bool{}
	for _, q := range r.origin {
		_, jar, ofAttacker := attacker(q.Visitor)
		key := "p" + q.Visitor
		if ofAttacker {
			key = jar
		}
		if seen[key] {
			continue
		}
		if seen[key] = true; all == r.places {
			break
		}
		all++
		if ofAttacker {
			hostile++
		}
	}
	return hostile, all
}

// percent is part of all, in percent; nobody has a part of nothing.
func percent(part, all int) float64 { return 100 * float64(part) / float64(max(1, all)) }

// served is the percentage of honest people whom the origin answered.
func (r *record) served() float64 {
	s := r.people.Summary()
	return percent(s.Admitted, s.Visitors)
}

// expected judges the first expected wait that each honest person was shown. off is the median of
// |shown/true - 1| in percent, right the percentage of people with at most 20 %. A second is given
// to both: people ask once a second at most, and learn no sooner that they are called.
func (r *record) expected() (off, right float64, judged int, note string) {
	var errors, told, came []float64
	within := 0
	for i := range r.people.Visitors {
		v := &r.people.Visitors[i]
		if !v.Admitted() {
			continue
		}
		for _, p := range v.Polls {
			if p.State != "waiting" || !p.ETAKnown {
				continue
			}
			truth := v.AdmittedAt - p.AnswerAt
			miss := max(0, (p.ETA-truth).Abs()-time.Second)
			told, came = append(told, p.ETA.Seconds()), append(came, truth.Seconds())
			errors = append(errors, 100*miss.Seconds()/truth.Seconds())
			if miss <= truth/5 {
				within++
			}
			break
		}
	}
	note = fmt.Sprintf("%d told, %.1f s, came after %.1f s", len(errors), quantile(told, 0.5),
		quantile(came, 0.5))
	return quantile(errors, 0.5), percent(within, len(errors)), len(errors), note
}

// empty is how long a slot stood empty, on average over the slots that honest people got after a
// wait, while one of them could have had it: a slot that is called, but whose visitor does not
// come, is empty.
func (r *record) empty() float64 {
	waits, s, idle := r.waits(), r.people.Summary(), 0.0
	for i := 1; i < len(r.looks); i++ {
		l := &r.looks[i]
		free := max(0, r.slots-l.Active)
		idle += float64(min(free, waitingAt(waits, l.At))) * l.At.Sub(r.looks[i-1].At).Seconds()
	}
	return idle / float64(max(1, s.Admitted-s.Direct))
}

// kept is the percentage of the room that no honest person had while one waited: what attackers
// held, what stood empty, and what was lost to both. A person has a slot from the first answer of
// the origin until leaving, and for a session more without the command to revoke.
func (r *record) kept() float64 {
	waits, had, all := r.waits(), 0, 0
	for _, s := range r.looks {
		if waitingAt(waits, s.At) == 0 {
			continue
		}
		all += r.slots
		for i := range r.people.Visitors {
			v, at := &r.people.Visitors[i], s.At.Sub(r.people.StartedAt)
			stays := v.LeftAt == crowd.Never || at <= v.LeftAt || !v.Revoked && at <= v.LeftAt+r.session
			if v.Admitted() && at >= v.AdmittedAt && stays {
				had++
			}
		}
	}
	return max(0, 100*float64(min(all, 1))-percent(had, all))
}

// heap returns what is live in MB: at first, the most of the first half, and at the end. The goal of
// the garbage collector is twice that.
func (r *record) heap() (first, half, last float64) {
	n := len(r.memory)
	if n == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	mb := func(bytes int64) float64 { return float64(bytes) / (2 << 20) }
	return mb(r.memory[0]), mb(slices.Max(r.memory[:(n+1)/2])), mb(r.memory[n-1])
}

// held is the greatest number of requests of attackers that the origin had at once.
func (r *record) held() int {
	var own []room.Request
	for i, q := range r.origin {
		if _, _, hostile := attacker(q.Visitor); hostile {
			q.Visitor += string(rune(i)) // each request by itself
			own = append(own, q)
		}
	}
	return room.MaxAtOnce(own)
}

func quantile[T float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		var none T
		return none
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
