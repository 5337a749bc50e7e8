package counter

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
)

// State is the state of a room, for operators.
type State struct {
	Active  int64 // slots at once in use, without calls
	Waiting int64
	Called  int64
	// Provisional counts the tickets whose cookie has not come back. It is 0 for a room that
	// another process hosts.
	Provisional int64
	New         int64 // slots of the window in use
	Served      uint64
	Held        bool
	Hosted      bool    // this process hosts the room and counts its totals
	Rate        float64 // calls per second
	Totals      Totals
	Life        uint64
	Head        ETA                    // of the last position
	Age         time.Duration          // since the newest confirmed write was built
	Refused     time.Duration          // how long the store has rejected writes; 0: it accepts them
	Quiet       time.Duration          // how long newcomers are not admitted
	Latency     time.Duration          // of a write, smoothed
	Datacenters *DatacentersState      // nil with one data center
	Lends       *status.AnywhereTotals // only of Anywhere
	Draw        *status.Draw           // nil: no draw is planned
	Lanes       []status.Lane          // nil: no lanes
	Lent        *status.Lent           // nil for Anywhere and for a damaged record
	Bound       status.Bound           // of Active, and of New
	Limits      status.Bound           // that were found, of all data centers; 0: the configuration has them
	Auto        *status.Auto           // nil: the limits are not sought
	LastHeard   time.Duration          // age of the host's report; 0 at the host, below 0: none received
	Term        *slot.ParentTerm       // of the loan from Anywhere; nil: none, or it has expired
	Leave       float64                // slots that become free per second, as measured; 0: unknown
}

// State returns the state of the room. of is the loan of the calling worker, and opened is how many
// of its slots the worker has used, reported or not.
func (c *Counter) State(of slot.LoanID, opened int64) State {
	sites := c.sitesState()
	c.mu.Lock()
	defer c.mu.Unlock()
	clk := c.cfg.Boot()
	r := c.pool.Record()
	rate, _ := c.left.over(clk, 30)
	n := c.waiting()
	var refused time.Duration
	if c.broken > 0 {
		refused = max(1, clk-c.broken)
	}
	stats := c.stats
	stats.Expired = int64(c.line.Expired())
	limits, auto := status.Bound{}, c.auto
	switch {
	case !c.cfg.sought():
	case sites != nil && sites.Lends != nil:
		limits, auto = status.Bound{Active: sites.Lends.Limit, New: sites.Lends.New}, sites.Lends.Auto
	default:
		limits = status.Bound{Active: r.Limits[0].N, New: r.Limits[1].N}
	}
	return State{
		Active: c.pool.UsedAt(0, clk, of, opened), Waiting: n, Called: c.pool.Called(),
		Provisional: int64(c.line.Provisional()),
		New:         c.pool.UsedAt(1, clk, of, opened),
		Served:      c.served(0), Held: c.held, Hosted: true, Rate: rate, Totals: stats,
		Life: r.Name.Life, Head: c.fore.eta(0, max(1, n), clk),
		Age: c.pool.Age(clk), Refused: refused, Quiet: c.pool.Quiet(clk), Latency: c.latency,
		Datacenters: sites, Lends: c.lends(), Draw: c.drawState(),
		Lanes: c.laneStates(), Lent: c.lent(), Limits: limits, Auto: auto,
		Bound: status.Bound{Active: c.pool.Bound(0), New: c.pool.Bound(1)}, Term: c.term(clk),
		Leave: c.fore.measured(),
	}
}

// InForce returns the limits of the configuration, or those that were found.
func (s *State) InForce(active, fresh int64) status.Bound {
	if s.Limits.Active > 0 {
		return s.Limits
	}
	return status.Bound{Active: active, New: fresh}
}

// epoch returns the epoch of the takeover.
func (c *Counter) epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Record().Name.Epoch
}

// mostWorkers is how many workers are listed. Chosen: the host publishes the list to each node
// every second.
const mostWorkers = 64

// lent returns where the slots of users at once are, nil for Anywhere and for a damaged record. The
// caller holds the lock.
func (c *Counter) lent() *status.Lent {
	if c.isAnywhere() || c.damaged != nil {
		return nil
	}
	s := workersOf(c.pool.Record())
	s.Inside = c.pool.Record().Limits[0].Ends.After(c.pool.CounterTime(c.cfg.Boot()))
	s.Called = c.pool.Called()
	s.Free = max(0, c.pool.FreeOf(0)-s.Called)
	return s
}

// workersOf returns the workers in a record. A worker that restarted is listed once for each life
// that still holds something. A worker of another data center that reports here for its visitors
// has a loan too, and may have the name of a worker here.
func workersOf(r *slot.Record) *status.Lent {
	s := &status.Lent{Workers: []status.Worker{}}
	at := map[status.Worker]int{}
	for i := range r.Loans {
		l := &r.Loans[i]
		w := status.Worker{Name: l.Borrower, Gone: l.Over != 0}
		k, ok := at[w]
		if !ok {
			k = len(s.Workers)
			at[w] = k
			s.Workers = append(s.Workers, w)
		}
		for i, n := range []*int64{&s.Workers[k].Held, &s.Workers[k].New} {
			if l.Over == 0 || r.Time < l.Back[i] {
				*n += l.Lent(i)
			}
		}
	}
	s.Workers = slices.DeleteFunc(s.Workers, func(w status.Worker) bool {
		return w.Gone && w.Held+w.New == 0
	})
	slices.SortFunc(s.Workers, func(a, b status.Worker) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.Name, b.Name))
	})
	if n := len(s.Workers); n > mostWorkers {
		s.Workers, s.More = s.Workers[:mostWorkers], n-mostWorkers
	}
	return s
}

// State returns the state of the room: from the host if it is this process, otherwise as last
// published.
func (s *Handle) State(of slot.LoanID, opened int64) State {
	if c := s.host.Load(); c != nil {
		return c.State(of, opened)
	}
	t := s.told.Load()
	if t == nil {
		return State{LastHeard: -time.Second}
	}
	x := t.state
	x.Hosted, x.LastHeard = false, s.cfg.Boot()-t.at
	x.Age += s.cfg.Boot() - t.at
	x.Datacenters = x.Datacenters.aged(s.cfg.Boot() - t.at)
	return x
}

// ReportNodes returns the processes that share a store as operators see them, sorted by name.
func ReportNodes(m *cluster.Members) (nodes []status.Node) {
	for _, x := range m.All() {
		nodes = append(nodes, status.Node{
			Name: x.Name, CanHost: x.CanHost, Alive: m.IsAlive(&x), Version: x.Version,
			StartedAt: x.StartedAt, SilentFor: RoundTenths(m.SilentFor(&x)), Skew: RoundTenths(x.Skew),
			Rooms: append([]string{}, x.Rooms...),
		})
	}
	return nodes
}

// Report returns what operators see of this state.
func (s *State) Report() status.Room {
	t, wait := &s.Totals, -1.0
	if s.Head.Known {
		wait = s.Head.Expect.Seconds()
	}
	return status.Room{
		Provisional: s.Provisional, ActiveUsers: s.Active, WaitingUsers: s.Waiting, Called: s.Called,
		NewUsersLastMinute: s.New, Auto: s.Auto, Hosted: s.Hosted, CallsPerSecond: s.Rate,
		MaxWaitSeconds: wait,
		Datacenters:    s.Datacenters.Report(), Draw: s.Draw, Lanes: s.Lanes, Lent: s.Lent, Bound: s.Bound,
		Record: status.Record{
			Age: RoundTenths(s.Age), WriteFailing: RoundTenths(s.Refused), Quiet: RoundTenths(s.Quiet),
			Latency: s.Latency.Seconds(), LastHeard: RoundTenths(s.LastHeard),
		},
		Totals: status.Totals{
			Called: t.Called, Claimed: t.Claimed, CallsLapsed: t.Lapsed, Writes: t.Writes, Expired: t.Expired,
			Released:         t.Released,
			WriteSeconds:     t.WriteTime.Seconds(),
			CallEmptySeconds: t.CallEmpty.Round(time.Microsecond).Seconds(),
		},
	}
}
