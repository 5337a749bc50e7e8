package counter

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/status"
)

// Data centers exchange snapshots of a room: the host of the room sends its snapshot to the hosts
// in the others and gets theirs in the answer. Of each pair, the data center whose name sorts first
// sends the request, so one message each way carries both snapshots.

// Parameters of the snapshots. Chosen: between connected data centers a snapshot is never older
// than two seconds. A data center that has missed two is late, and one that has missed three is out
// of reach.
const (
	pictureEvery = 1500 * time.Millisecond
	pictureWait  = time.Second
	pictureMost  = 4 << 10 // bytes
	siteSilent   = 5 * time.Second
	siteLate     = 2*pictureEvery + 500*time.Millisecond
	siteMinutes  = 5 // minutes of traffic in a snapshot
)

// picture returns the current snapshot of this data center.
func (c *Counter) picture() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	clk, r := c.cfg.Boot(), c.pool.Record()
	now := c.pool.CounterTime(clk)
	p := Snapshot{
		Datacenter: c.cfg.Datacenters.Own(), Home: c.cfg.Datacenters.HomeNow(),
		Life: r.Name.Life, Epoch: r.Name.Epoch,
		Time: now, Active: r.Limits[0].Ends.After(now), New: r.Limits[1].Ends.After(now),
		Waiting: c.waiting(), Called: c.pool.Called(), Minutes: c.up.traffic.minutes(clk),
	}
	c.passed(&p)
	if r.Parent != nil {
		p.Held = r.Parent.Granted - r.Parent.Returned[0]
		p.Unused = max(0, p.Held-p.Active-p.Called)
		p.Seen, _ = c.pool.ParentSeen(clk)
	}
	if c.pool.IsCold(clk) { // its counter time is not usable
		p.Epoch = 0
	}
	for i := range r.Loans {
		if r.Loans[i].Over == 0 {
			p.Workers++
		}
	}
	p.Rate, _ = c.left.over(clk, 30)
	if first := c.arrivals(clk, 1); len(first) > 0 {
		p.Oldest = max(0, now.Sub(first[0]))
	}
	if _, lo, hi, ok := c.pool.ParentTime(clk); ok {
		p.Uncertainty = hi.Sub(lo) + slot.ArrivalStep
	}
	if c.cfg.Anywhere != nil && p.Home.Datacenter == p.Datacenter {
		p.Lends = c.cfg.Anywhere.State(0, 0).Lends
	}
	return p
}

// show sends our snapshot to the data centers that sort after ours, until ctx ends.
func (c *Counter) show(ctx context.Context) {
	if c.cfg.Datacenters == nil || c.isAnywhere() {
		return
	}
	var wg sync.WaitGroup
	for _, site := range c.cfg.Datacenters.Names() {
		if site > c.cfg.Datacenters.Own() {
			wg.Go(func() { c.showTo(ctx, site) })
		}
	}
	wg.Wait()
}

func (c *Counter) showTo(ctx context.Context, site string) {
	for {
		c.showOnce(ctx, site)
		if !wait(ctx, pictureEvery) {
			return
		}
	}
}

// showOnce sends a snapshot to one data center and takes in its own. One message does both, and its
// round trip bounds the clock of the other.
func (c *Counter) showOnce(ctx context.Context, site string) {
	ctx, stop := context.WithTimeout(ctx, pictureWait)
	defer stop()
	c.sites.mu.Lock()
	x := c.sites.of(site)
	g := greeting{Of: x.of, Got: x.got}
	c.sites.mu.Unlock()
	g.Snapshot = c.picture()
	msg, err := json.Marshal(&g)
	if err != nil {
		return
	}
	sent := c.cfg.Boot()
	b, err := c.cfg.Datacenters.Request(ctx, site, "picture."+c.cfg.Room, msg)
	var a greeting
	if err != nil || len(b) > pictureMost || json.Unmarshal(b, &a) != nil || a.Snapshot.Datacenter != site {
		return
	}
	clk := c.cfg.Boot()
	c.sites.mu.Lock()
	if x.rtt == 0 {
		x.rtt = clk - sent
	}
	x.rtt += (clk - sent - x.rtt) / 4
	x.of, x.got = a.Stamp, c.tau()
	if a.Snapshot.Epoch > 0 {
		x.est.Receive(a.Snapshot.Epoch, a.Snapshot.Time, sent, clk, c.cfg.Params.WithDefaults().Drift)
	}
	x.Snapshot, x.at = a.Snapshot, clk
	c.sites.mu.Unlock()
	c.met(ctx, a.Snapshot.Home)
}

// tau returns the counter time now.
func (c *Counter) tau() slot.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.CounterTime(c.cfg.Boot())
}

// answerPicture stores the snapshot of another data center and returns ours.
func (c *Counter) answerPicture(ctx context.Context, msg []byte) []byte {
	var g greeting
	if len(msg) > pictureMost || json.Unmarshal(msg, &g) != nil ||
		!slices.Contains(c.cfg.Datacenters.Names(), g.Snapshot.Datacenter) ||
		g.Snapshot.Datacenter != c.cfg.Datacenters.origin(ctx) {
		return nil
	}
	a := greeting{Snapshot: c.picture()}
	clk := c.cfg.Boot()
	c.sites.mu.Lock()
	x := c.sites.of(g.Snapshot.Datacenter)
	if g.Of == x.stamp && x.told > 0 &&
		g.Snapshot.Epoch > 0 { // when we sent x.stamp, its time was at most Got
		x.est.Receive(g.Snapshot.Epoch, g.Got, x.told, clk, c.cfg.Params.WithDefaults().Drift)
	}
	x.Snapshot, x.at = g.Snapshot, clk
	x.stamp++
	x.told, a.Stamp = clk, x.stamp
	c.sites.mu.Unlock()
	c.met(ctx, g.Snapshot.Home)
	b, err := json.Marshal(&a)
	if err != nil {
		return nil
	}
	return b
}

// met takes over the home of Anywhere from a snapshot, and updates the totals for the forecast.
func (c *Counter) met(ctx context.Context, h AnywhereHome) {
	if err := c.cfg.Datacenters.takeHome(ctx, h); err != nil {
		c.cfg.Log.Warn("home of Anywhere not kept: it is looked up again", "error", err)
	}
	var others Others
	c.sites.mu.Lock()
	for _, x := range c.sites.sites {
		if c.cfg.Boot()-x.at < siteSilent {
			others.Waiting += x.Waiting
			others.Active += x.Active
			others.New += x.New
		}
	}
	c.sites.mu.Unlock()
	c.mu.Lock()
	c.elsewhere = others
	c.mu.Unlock()
}

// DatacenterState is the state of one data center, for operators.
type DatacenterState struct {
	Snapshot
	Age       time.Duration // of the snapshot; below 0: none received
	RoundTrip time.Duration // 0: not measured
	Hi        slot.Time     // upper limit of its counter time when this was built; 0: unknown
}

// DatacentersState is the state of all data centers of a room, as one of them knows it.
type DatacentersState struct {
	Own    string
	Home   AnywhereHome
	Unsure time.Duration          // uncertainty of the order between data centers: the largest
	All    []DatacenterState      // by name, including the own one
	Lends  *status.AnywhereTotals // nil: not received
	Heard  time.Duration          // age of Lends
	Any    slot.Time              // Anywhere's time; 0: unknown
	Since  time.Duration          // for how long snapshots could have arrived
}

// sitesState returns the state of the data centers; nil if there is only one.
func (c *Counter) sitesState() *DatacentersState {
	if c.cfg.Datacenters == nil || c.isAnywhere() || c.damaged != nil {
		return nil
	}
	own := c.picture()
	s := &DatacentersState{Own: own.Datacenter, Home: own.Home, Unsure: own.Uncertainty, Lends: own.Lends}
	s.All = append(s.All, DatacenterState{Snapshot: own})
	rho, clk := c.cfg.Params.WithDefaults().Drift, c.cfg.Boot()
	c.mu.Lock()
	s.Any = c.cameAt(clk)
	c.mu.Unlock()
	c.sites.mu.Lock()
	defer c.sites.mu.Unlock()
	s.Since = clk - c.sites.began
	for _, site := range slices.Sorted(maps.Keys(c.sites.sites)) {
		x := c.sites.sites[site]
		y := DatacenterState{Snapshot: x.Snapshot, Age: -1, RoundTrip: x.rtt}
		if x.at > 0 {
			y.Age = clk - x.at
		}
		if x.est.Known() {
			y.Hi = x.est.Hi(clk, rho)
		}
		// A silent data center does not make the order of the others less certain.
		if y.Age >= 0 && y.Age < siteSilent {
			s.Unsure = max(s.Unsure, x.Uncertainty)
		}
		if x.Lends != nil && site == s.Home.Datacenter {
			s.Lends, s.Heard = x.Lends, y.Age
		}
		s.All = append(s.All, y)
	}
	for _, site := range c.cfg.Datacenters.Names() {
		if c.sites.sites[site] == nil {
			s.All = append(s.All, DatacenterState{Snapshot: Snapshot{Datacenter: site}, Age: -1})
		}
	}
	slices.SortFunc(s.All,
		func(a, b DatacenterState) int { return strings.Compare(a.Datacenter, b.Datacenter) })
	return s
}

// aged returns s as it is d later: the snapshots are older.
func (s *DatacentersState) aged(d time.Duration) *DatacentersState {
	if s == nil {
		return nil
	}
	t := *s
	t.All = slices.Clone(s.All)
	t.Heard += d
	t.Since += d
	for i := range t.All {
		if t.All[i].Age >= 0 {
			t.All[i].Age += d
		}
	}
	return &t
}

// lends returns the state of Anywhere, for its own counter. The caller holds the lock.
func (c *Counter) lends() *status.AnywhereTotals {
	if !c.isAnywhere() || c.damaged != nil {
		return nil
	}
	r := c.pool.Record()
	return &status.AnywhereTotals{
		Limit: r.Limits[0].N, New: r.Limits[1].N, Auto: c.auto, Free: max(0, c.pool.FreeOf(0)), Presumed: c.pool.Presumed(),
		Lent: c.pool.UsedAt(0, c.cfg.Boot(), 0, 0), Bound: c.pool.Bound(0),
	}
}

// minutes returns the new users of the last minutes, the newest first.
func (t *traffic) minutes(clk time.Duration) []int64 {
	t.roll(clk)
	const per = int64(time.Minute / trafficBin)
	var out []int64
	for m := range trafficBins / per {
		n := int64(0)
		for k := m * per; k < (m+1)*per; k++ {
			n += t.bins[((t.head-k)%trafficBins+trafficBins)%trafficBins]
		}
		out = append(out, n)
	}
	return out[:min(len(out), siteMinutes)]
}

// Report returns the report of the data centers, nil with only one.
func (s *DatacentersState) Report() *status.Datacenters {
	if s == nil {
		return nil
	}
	d := &status.Datacenters{
		Own: s.Own, Home: s.Home.Datacenter, Moves: s.Home.Moves,
		Uncertainty: millis(s.Unsure), Anywhere: status.Anywhere{Age: -1},
	}
	if l := s.Lends; l != nil {
		d.Anywhere = status.Anywhere{Age: RoundTenths(s.Heard), AnywhereTotals: *l}
	}
	for i := range s.All {
		x := &s.All[i]
		y := status.Datacenter{
			Name: x.Datacenter, Age: -1, Active: x.Active, Waiting: x.Waiting, Called: x.Called, Held: x.Held,
			Unused: x.Unused, New: x.New, Traffic: append([]int64{}, x.Minutes...), Workers: x.Workers,
			Calls: x.Rate, OldestWait: RoundTenths(x.Oldest), RoundTrip: millis(x.RoundTrip),
		}
		if x.Age >= 0 {
			y.Age = RoundTenths(x.Age)
		}
		d.Datacenters = append(d.Datacenters, y)
	}
	return d
}

// millis returns d in seconds, rounded to a tenth of a millisecond.
func millis(d time.Duration) float64 { return d.Round(100 * time.Microsecond).Seconds() }

// RoundTenths returns d in seconds, rounded to a tenth of a second.
func RoundTenths(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }

// passed fills a snapshot with, for each line, the number below which no ticket waits except those
// that it names.
func (c *desk) passed(p *Snapshot) {
	for lane := 0; lane <= slot.MaxLanes && c.line.Line(lane) != nil; lane++ {
		line := c.line.Line(lane)
		below, but := line.Served(), []uint64(nil)
		if some, all := line.Passed(mostPassed); all {
			but = some
		} else {
			below = line.First()
		}
		if p.Passed = append(p.Passed, but...); lane == 0 {
			p.Served = below
		} else {
			p.Lanes = append(p.Lanes, below)
		}
	}
}

// mostPassed limits the tickets of a line that a snapshot names. Chosen: all four lines take 2 KB
// at most.
const mostPassed = 32
