package counter

import (
	"time"
)

// A pace spaces calls w/N apart while anyone waits, so that admissions are even. Without it,
// sessions of 60 s keep their bursts for ever: 200 in second 0 and 200 in second 60
// (docs/protocol.md §8). It also limits each second to ⌈N/60⌉ + 1 claims: calls are even, but
// visitors react to them at different speeds.
type pace struct {
	step  time.Duration   // between calls; 0: no spacing
	at    time.Duration   // when the next call is due
	ring  []time.Duration // when each token is free again, the soonest first, from next on
	next  int
	clear time.Duration // time until a used token is free again
}

// maxRing limits the ring: above 100,000 calls a second in one counter, the spacing is finer than
// any clock here.
const maxRing = 1 << 17

func newPace(cfg Settings) pace {
	if !cfg.Spread || cfg.New.N <= 0 {
		return pace{}
	}
	perSecond := (cfg.New.N*int64(time.Second) + int64(cfg.New.Per) - 1) / int64(cfg.New.Per)
	return pace{
		step: cfg.New.Per / time.Duration(cfg.New.N),
		ring: make([]time.Duration, min(perSecond+1, maxRing)),
		// Slightly more than a second, because network delays to the origin differ. Chosen; it
		// costs no throughput as N/60+1 > N/60·1.02.
		clear: time.Second + min(20*time.Millisecond, time.Second/time.Duration(2*perSecond+2)),
	}
}

// follow returns the pace of new settings after p: the admissions of the last second still count, and the
// next call follows the last one in the new step. When limits are found, they change every few seconds.
func (p *pace) follow(cfg Settings) pace {
	next := newPace(cfg)
	if p.step > 0 && next.step > 0 {
		next.at = p.at + next.step - p.step
	}
	for k := range min(len(p.ring), len(next.ring)) { // the latest ones
		*next.token(len(next.ring) - 1 - k) = *p.token(len(p.ring) - 1 - k)
	}
	return next
}

// called notes a call. A pace that is less than a second late catches up; a pace that was idle
// restarts.
func (p *pace) called(clk time.Duration) {
	if p.step > 0 {
		p.at = max(p.at, clk-min(p.step, time.Second/2)) + p.step
	}
}

// admit reserves the time of one admission, clk or later, so that no second exceeds its share. Each
// admission uses one of a fixed number of tokens, and a token is free again a second later. ahead
// is the number of earlier calls whose visitors have not come yet: admit leaves the soonest tokens
// to them.
func (p *pace) admit(clk time.Duration, ahead int) time.Duration {
	n := len(p.ring)
	if n == 0 {
		return clk
	}
	k := min(ahead, n-1)
	at := max(clk, *p.token(k))
	for ; k > 0; k-- {
		*p.token(k) = *p.token(k - 1)
	}
	p.next = (p.next + 1) % n
	k = n - 1
	for ; k > 0 && *p.token(k - 1) > at+p.clear; k-- {
		*p.token(k) = *p.token(k - 1)
	}
	*p.token(k) = at + p.clear
	return at
}

// token returns the k-th soonest token.
func (p *pace) token(k int) *time.Duration { return &p.ring[(p.next+k)%len(p.ring)] }

// A rate counts events in bins of one second, over the last rateSeconds.
type rate struct {
	n    [rateSeconds]float64
	head int64 // second of the newest bin
	from int64 // second of the first event ever
}

const rateSeconds = 64

func (r *rate) roll(clk time.Duration) {
	now := int64(clk / time.Second)
	if r.from == 0 {
		r.from, r.head = now, now
	}
	for k := 0; r.head < now && k < rateSeconds; k++ {
		r.head++
		r.n[r.head%rateSeconds] = 0
	}
	r.head = max(r.head, now)
}

func (r *rate) add(clk time.Duration, n float64) {
	r.roll(clk)
	r.n[r.head%rateSeconds] += n
}

// perSecond returns the average over the last few seconds.
func (r *rate) perSecond(clk time.Duration) float64 {
	v, _ := r.over(clk, 4)
	return v
}

// over returns the average over the last n whole seconds, or over all there are if fewer.
func (r *rate) over(clk time.Duration, n int64) (perSecond float64, seconds int64) {
	r.roll(clk)
	n = min(n, rateSeconds-1, r.head-r.from)
	if n <= 0 {
		return r.n[r.head%rateSeconds], 0
	}
	sum := 0.0
	for k := int64(1); k <= n; k++ {
		sum += r.n[(r.head-k)%rateSeconds]
	}
	return sum / float64(n), n
}

// traffic counts new users over the last minutes, in bins of ten seconds.
type traffic struct {
	bins [trafficBins]int64
	head int64
}

func (t *traffic) roll(clk time.Duration) {
	now := int64(clk / trafficBin)
	if t.head == 0 || now-t.head > trafficBins {
		t.bins, t.head = [trafficBins]int64{}, now
	}
	for t.head < now {
		t.head++
		t.bins[t.head%trafficBins] = 0
	}
}

func (t *traffic) add(clk time.Duration, n int64) {
	t.roll(clk)
	t.bins[t.head%trafficBins] += n
}

// in returns how many new users come in a window, from the last minutes. It rounds up, so that one
// visitor counts.
func (t *traffic) in(clk, window time.Duration) int64 {
	t.roll(clk)
	sum := int64(0)
	for _, n := range t.bins {
		sum += n
	}
	all := int64(trafficBins * trafficBin / time.Millisecond)
	return (sum*int64(window/time.Millisecond) + all - 1) / all
}

const (
	trafficBin  = 10 * time.Second
	trafficBins = 12 // "the traffic of the last 2 minutes" (Cloudflare Japan, 2022)
)

// fewEvents is too few events for a rate; someEvents gives a rate to about a third. Chosen.
const (
	fewEvents  = 8
	someEvents = 25
)
