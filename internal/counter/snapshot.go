package counter

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// Every data centre's picture of a room reaches every other one: its host shows it to the
// hosts of the others and gets theirs for it. Of a pair the one whose name sorts first
// asks, so a picture each way costs a message each way.

// Parameters of the pictures. Chosen: a picture is never older than two seconds between
// data centres that are connected, one that has missed two is late, and one that has
// missed three is out of reach.
const (
	pictureEvery = 1500 * time.Millisecond
	pictureWait  = time.Second
	pictureMost  = 4 << 10 // bytes
	siteSilent   = 5 * time.Second
	siteLate     = 2*pictureEvery + 500*time.Millisecond
	siteMinutes  = 5 // of traffic that are shown
)

// A Picture is what a data centre shows of a room to the others.
type Snapshot struct {
	Site    string          `json:"site"`
	Home    AnywhereHome    `json:"home"`
	Life    uint64          `json:"life"`  // of its counter
	Epoch   uint64          `json:"epoch"` // of its time
	Time    slot.Time       `json:"time"`
	Active  int64           `json:"active"` // stays that were reported
	Waiting int64           `json:"waiting"`
	Called  int64           `json:"called"`
	Served  uint64          `json:"served"`           // all tickets below were called
	Lanes   []uint64        `json:"lanes,omitempty"`  // the same of each lane, by its line
	Passed  []uint64        `json:"passed,omitempty"` // tickets below that wait all the same
	New     int64           `json:"new"`              // slots of the window in use
	Held    int64           `json:"held"`             // slots of the first limit that Anywhere has lent to it
	Unused  int64           `json:"unused"`           // of them in nobody's use
	Workers int             `json:"workers"`          // that borrow there
	Rate    float64         `json:"rate"`             // calls a second
	Minutes []int64         `json:"minutes"`          // new users by minute, the newest first
	Oldest  time.Duration   `json:"oldest"`           // for how long the first has waited
	Unsure  time.Duration   `json:"unsure"`           // of when its visitors came, in Anywhere's time
	Seen    slot.WriteName  `json:"seen"`             // the newest write of Anywhere it has heard of
	Lends   *AnywhereTotals `json:"lends,omitempty"`
}

// Lends is where Anywhere stands.
type AnywhereTotals struct {
	Limit    int64 `json:"limit"` // of the first limit
	Free     int64 `json:"free"`
	Presumed int64 `json:"presumed"` // lent to counters that nobody hears
	Lent     int64 `json:"lent"`     // to all counters, what is presumed included
	Bound    int64 `json:"bound"`    // of Lent, at the same moment
}

// A greeting is a picture on its way, with what its receiver needs to know the sender's
// time: when the picture of before came.
type greeting struct {
	Picture Snapshot  `json:"picture"`
	Stamp   uint64    `json:"stamp"`         // of an answer: to be told back
	Of      uint64    `json:"of,omitempty"`  // the stamp of the last answer
	Got     slot.Time `json:"got,omitempty"` // the sender's time when it came
}

// seen is what is known of another data centre.
type seen struct {
	Snapshot
	at  time.Duration // own clock when it came; 0: never
	est slot.Estimate // of its counter's time
	rtt time.Duration // smoothed; 0: not measured

	stamp uint64 // of the last answer we gave, and when
	told  time.Duration
	of    uint64 // of the last answer we got, and our time then
	got   slot.Time
}

// gallery holds the pictures of the other data centres.
type gallery struct {
	mu    sync.Mutex
	sites map[string]*seen
	began time.Duration // own clock: since then pictures might have come
}

// of is what is known of a data centre. The gallery's lock is held.
func (g *gallery) of(site string) *seen {
	if g.sites == nil {
		g.sites = map[string]*seen{}
	}
	if g.sites[site] == nil {
		g.sites[site] = &seen{Snapshot: Snapshot{Site: site}}
	}
	return g.sites[site]
}

// picture is what this data centre shows now.
func (c *Counter) picture() Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	clk, r := c.cfg.Boot(), c.pool.Record()
	now := c.pool.CounterTime(clk)
	p := Snapshot{
		Site: c.cfg.Sites.Own(), Home: c.cfg.Sites.HomeNow(), Life: r.Name.Life, Epoch: r.Name.Epoch,
		Time: now, Active: r.Limits[0].Ends.After(now), New: r.Limits[1].Ends.After(now),
		Waiting: c.waiting(), Called: c.pool.Called(), Minutes: c.up.traffic.minutes(clk),
	}
	c.passed(&p)
	if r.Parent != nil {
		p.Held = r.Parent.Granted - r.Parent.Returned[0]
		p.Unused = max(0, p.Held-p.Active-p.Called)
		p.Seen, _ = c.pool.ParentSeen(clk)
	}
	if c.pool.IsCold(clk) { // it cannot tell the time
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
		p.Unsure = hi.Sub(lo) + slot.ArrivalStep
	}
	if c.cfg.Anywhere != nil && p.Home.Site == p.Site {
		p.Lends = c.cfg.Anywhere.State(0, 0).Lends
	}
	return p
}

// show shows our picture to the data centres that sort after us, until ctx ends.
func (c *Counter) show(ctx context.Context) {
	if c.cfg.Sites == nil || c.isAnywhere() {
		return
	}
	var wg sync.WaitGroup
	for _, site := range c.cfg.Sites.Names() {
		if site > c.cfg.Sites.Own() {
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

func (c *Counter) showOnce(ctx context.Context, site string) {
	ctx, stop := context.WithTimeout(ctx, pictureWait)
	defer stop()
	c.sites.mu.Lock()
	x := c.sites.of(site)
	g := greeting{Of: x.of, Got: x.got}
	c.sites.mu.Unlock()
	g.Picture = c.picture()
	msg, err := json.Marshal(&g)
	if err != nil {
		return
	}
	sent := c.cfg.Boot()
	b, err := c.cfg.Sites.Request(ctx, site, "picture."+c.cfg.Room, msg)
	var a greeting
	if err != nil || len(b) > pictureMost || json.Unmarshal(b, &a) != nil || a.Picture.Site != site {
		return
	}
	clk := c.cfg.Boot()
	c.sites.mu.Lock()
	if x.rtt == 0 {
		x.rtt = clk - sent
	}
	x.rtt += (clk - sent - x.rtt) / 4
	x.of, x.got = a.Stamp, c.tau()
	if a.Picture.Epoch > 0 {
		x.est.Receive(a.Picture.Epoch, a.Picture.Time, sent, clk, c.cfg.Params.WithDefaults().Rho)
	}
	x.Snapshot, x.at = a.Picture, clk
	c.sites.mu.Unlock()
	c.met(ctx, a.Picture.Home)
}

// tau is counter time now.
func (c *Counter) tau() slot.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.CounterTime(c.cfg.Boot())
}

// answerPicture takes another data centre's picture in and gives ours for it.
func (c *Counter) answerPicture(ctx context.Context, msg []byte) []byte {
	var g greeting
	if len(msg) > pictureMost || json.Unmarshal(msg, &g) != nil ||
		!slices.Contains(c.cfg.Sites.Names(), g.Picture.Site) {
		return nil
	}
	a := greeting{Picture: c.picture()}
	clk := c.cfg.Boot()
	c.sites.mu.Lock()
	x := c.sites.of(g.Picture.Site)
	if g.Of == x.stamp && x.told > 0 && g.Picture.Epoch > 0 { // when we told it, its time was Got at most
		x.est.Receive(g.Picture.Epoch, g.Got, x.told, clk, c.cfg.Params.WithDefaults().Rho)
	}
	x.Snapshot, x.at = g.Picture, clk
	x.stamp++
	x.told, a.Stamp = clk, x.stamp
	c.sites.mu.Unlock()
	c.met(ctx, g.Picture.Home)
	b, err := json.Marshal(&a)
	if err != nil {
		return nil
	}
	return b
}

// met takes over what a picture says of where Anywhere lives, and tells the forecast.
func (c *Counter) met(ctx context.Context, h AnywhereHome) {
	if c.cfg.Sites.learnHome(h) {
		if err := c.cfg.Sites.keepHome(ctx, h); err != nil {
			c.cfg.Log.Warn("home of Anywhere not kept: it is looked up again", "error", err)
		}
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

// SiteState is what an operator is told of one data centre.
type DatacenterState struct {
	Snapshot
	Age       time.Duration // of the picture; below 0: none has come
	RoundTrip time.Duration // 0: not measured
	Hi        slot.Time     // its counter's time was not later when this was said; 0: not known
}

// SitesState is where all data centres of a room stand, as one of them knows it.
type DatacentersState struct {
	Own    string
	Home   AnywhereHome
	Unsure time.Duration     // of the order between data centres: the worst that any has told
	All    []DatacenterState // by name, the own one included
	Lends  *AnywhereTotals   // nil: not heard of
	Heard  time.Duration     // how old Lends is
	Any    slot.Time         // Anywhere's time, 0 if not known
	Since  time.Duration     // for so long pictures might have come
}

// sitesState is where the data centres stand; nil with one alone.
func (c *Counter) sitesState() *DatacentersState {
	if c.cfg.Sites == nil || c.isAnywhere() || c.damaged != nil {
		return nil
	}
	own := c.picture()
	s := &DatacentersState{Own: own.Site, Home: own.Home, Unsure: own.Unsure, Lends: own.Lends}
	s.All = append(s.All, DatacenterState{Snapshot: own})
	rho, clk := c.cfg.Params.WithDefaults().Rho, c.cfg.Boot()
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
		if y.Age >= 0 && y.Age < siteSilent {
			s.Unsure = max(s.Unsure, x.Unsure)
		}
		if x.Lends != nil && site == s.Home.Site {
			s.Lends, s.Heard = x.Lends, y.Age
		}
		s.All = append(s.All, y)
	}
	for _, site := range c.cfg.Sites.Names() {
		if c.sites.sites[site] == nil {
			s.All = append(s.All, DatacenterState{Snapshot: Snapshot{Site: site}, Age: -1})
		}
	}
	slices.SortFunc(s.All, func(a, b DatacenterState) int { return strings.Compare(a.Site, b.Site) })
	return s
}

// aged is s as it stands d later: the pictures are older, no time is known better.
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

// lends is where Anywhere stands, of its own counter. Holds the lock.
func (c *Counter) lends() *AnywhereTotals {
	if !c.isAnywhere() || c.damaged != nil {
		return nil
	}
	r := c.pool.Record()
	return &AnywhereTotals{
		Limit: r.Limits[0].N, Free: max(0, c.pool.FreeOf(0)), Presumed: c.pool.Presumed(),
		Lent: c.pool.UsedAt(0, c.cfg.Boot(), 0, 0), Bound: c.pool.Bound(0),
	}
}

// minutes are the new users of the last minutes, the newest first.
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
