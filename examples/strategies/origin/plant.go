package origin

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// These are the parameters of every plant. All are chosen.
const (
	timeout  = 10 * time.Second // after it, a request has failed and its work is dropped
	backlog  = 400              // requests that wait at the application; more are refused
	cacheTop = 0.9              // hits of a warm cache
	cacheFor = 10 * time.Minute // an entry lives so long
	cacheAll = 2000             // entries that are asked for
)

// These are the stations of a plant. The application answers each request, the others some.
const (
	application = iota
	database
	lock // of a row in the database that orders change
	reports
	stations
)

// A station serves requests in order of arrival, as many at once as it has servers.
type station struct {
	servers int
	slow    float64 // factor of service times: 1.4 is 40 % slower
	// contention and coherency are σ and κ of the Universal Scalability Law: with n requests here,
	// each takes 1 + σ(n-1) + κn(n-1) times as long (Gunther, "Guerrilla Capacity Planning", 2007).
	contention, coherency float64

	busy  int
	queue []int32
	head  int
	work  float64 // seconds of servers, since the start
}

func (s *station) waiting() int { return len(s.queue) - s.head }

// factor is how much longer a request takes with what is here now.
func (s *station) factor() float64 {
	n := float64(s.busy + min(s.waiting(), 64)) // 64 threads; the others wait outside
	return s.slow * (1 + s.contention*(n-1) + s.coherency*n*(n-1))
}

// A route is one kind of page: its share of requests, and its mean work at each station.
type route struct {
	class  string
	share  float64
	work   [stations]time.Duration
	cached bool // a hit needs no database
}

// shop returns the routes of a plant. report is the share of the slow route.
func shop(report float64) []route {
	ms, rest := time.Millisecond, 1-report
	return []route{
		{"GET /", 0.3 * rest, [stations]time.Duration{70 * ms, 30 * ms, 0, 0}, true},
		{"GET /product", 0.4 * rest, [stations]time.Duration{100 * ms, 50 * ms, 0, 0}, true},
		{"GET /search", 0.2 * rest, [stations]time.Duration{90 * ms, 90 * ms, 0, 0}, false},
		{"POST /cart", 0.1 * rest, [stations]time.Duration{80 * ms, 40 * ms, 20 * ms, 0}, false},
		{"GET /report", report, [stations]time.Duration{30 * ms, 0, 0, 1500 * ms}, false},
	}
}

// A request is under way at the origin.
type request struct {
	person int32
	route  uint8
	at     uint8 // station
	start  time.Duration
}

// A Plant is an origin.
type Plant struct {
	routes   []route
	stations [stations]station
	stages   int     // of a service time (Erlang): with 3, its coefficient of variation is 0.58
	warm     float64 // share of the cache's entries that are there
	warmedAt time.Duration

	rand     *rand.Rand
	events   sim.Events
	requests []request
	unused   []int32
	inFlight int
	answer   func(r *request, latency time.Duration, failed bool)
}

// newPlant returns a plant whose application is the bottleneck: 8 servers of about 88 ms answer 90
// requests a second at most. With a cold cache it is the database.
func newPlant(report float64, events sim.Events, r *rand.Rand) *Plant {
	return &Plant{
		routes: shop(report), events: events, rand: r, stages: 3,
		stations: [stations]station{
			// σ and κ are chosen: with 30 requests throughput is 8 % below its greatest, and with 72 a
			// third. So an origin that was overloaded recovers only when fewer people are inside than
			// it could take before.
			application: {servers: 8, slow: 1, contention: 0, coherency: 0.0001},
			database:    {servers: 5, slow: 1, contention: 0.01, coherency: 0.0005},
			lock:        {servers: 1, slow: 1},
			reports:     {servers: 16, slow: 1},
		},
	}
}

// Scale changes the servers of the application and the database.
func (p *Plant) Scale(factor float64, now time.Duration) {
	for _, s := range []int{application, database} {
		p.stations[s].servers = max(1, int(float64(p.stations[s].servers)*factor+0.5))
		p.serve(s, now)
	}
}

// Slow changes the service times of the application.
func (p *Plant) Slow(factor float64) { p.stations[application].slow = factor }

// ask begins a request of a person.
func (p *Plant) ask(person int32, now time.Duration) {
	pick, n := p.rand.Float64(), 0
	for ; n < len(p.routes)-1 && pick >= p.routes[n].share; n++ {
		pick -= p.routes[n].share
	}
	q := request{person: person, route: uint8(n), start: now}
	if p.stations[application].waiting() >= backlog {
		p.answer(&q, time.Millisecond, true)
		return
	}
	i := int32(len(p.requests))
	if k := len(p.unused); k > 0 {
		i, p.unused = p.unused[k-1], p.unused[:k-1]
		p.requests[i] = q
	} else {
		p.requests = append(p.requests, q)
	}
	p.inFlight++
	p.enter(i, application, now)
}

func (p *Plant) enter(i int32, at int, now time.Duration) {
	p.requests[i].at = uint8(at)
	p.stations[at].queue = append(p.stations[at].queue, i)
	p.serve(at, now)
}

// serve begins what the free servers of a station can take.
func (p *Plant) serve(at int, now time.Duration) {
	s := &p.stations[at]
	for s.busy < s.servers && s.waiting() > 0 {
		i := s.queue[s.head]
		if s.head++; s.head > 1024 {
			s.queue = s.queue[:copy(s.queue, s.queue[s.head:])]
			s.head = 0
		}
		if now-p.requests[i].start >= timeout {
			p.finish(i, now)
			continue
		}
		s.busy++
		sum := 0.0
		for range p.stages {
			sum += p.rand.ExpFloat64() / float64(p.stages)
		}
		took := p.routes[p.requests[i].route].work[at].Seconds() * sum * s.factor()
		s.work += took
		p.events.Put(now+time.Duration(took*float64(time.Second)), kindServed, i, 0)
	}
}

// served moves a request to the next station that it needs.
func (p *Plant) served(i int32, now time.Duration) {
	q := &p.requests[i]
	at, r := int(q.at), &p.routes[q.route]
	p.stations[at].busy--
	next := at + 1
	if at == application && r.cached && p.hit(now) {
		next = stations
	}
	for next < stations && r.work[next] == 0 {
		next++
	}
	if next < stations {
		p.enter(i, next, now)
	} else {
		p.finish(i, now)
	}
	p.serve(at, now)
}

func (p *Plant) finish(i int32, now time.Duration) {
	q := p.requests[i]
	p.unused = append(p.unused, i)
	p.inFlight--
	took := now - q.start
	p.answer(&q, min(took, timeout), took >= timeout)
}

// hit asks the cache. Entries expire, and each miss brings one back.
func (p *Plant) hit(now time.Duration) bool {
	p.warm *= math.Exp(-float64(now-p.warmedAt) / float64(cacheFor))
	p.warmedAt = now
	if p.rand.Float64() < p.warm*cacheTop {
		return true
	}
	p.warm += (1 - p.warm) / cacheAll
	return false
}
