package slot

import (
	"testing"
	"time"
)

// The worked examples of the seed documents, by name. A: Cloudflare, "How
// Waiting Room makes queueing decisions" (2023-09-20). B: Cloudflare Japan,
// "Waiting Room thresholds" (2022).

// tree is Anywhere, counters and workers on one clock, without delay between them. It counts what
// the protocol lends.
type tree struct {
	t     *testing.T
	clk   time.Duration
	root  *Pool
	sites map[string]*Pool
	desks map[string]*Share
}

var exampleLimits = []Limit{{AtOnce, 200, 5 * time.Minute}, {PerWindow, 200, time.Minute}}

func newTree(t *testing.T, active, fresh int64, sites ...string) *tree {
	limits := []Limit{{AtOnce, active, 5 * time.Minute}, {PerWindow, fresh, time.Minute}}
	e := &tree{t: t, clk: time.Hour, sites: map[string]*Pool{}, desks: map[string]*Share{}}
	e.root = NewPool(Params{Counters: true, Allotment: Counter}, "anywhere", NewRecord(1, nil, limits...))
	e.root.Takeover(e.clk)
	e.root.Confirm(e.clk)
	for i, s := range sites {
		up := &ParentLoan{Loan: LoanID(i + 100)}
		e.sites[s] = NewPool(Params{Allotment: Counter}, s, NewRecord(uint64(i+2), up, limits...))
		e.sites[s].Takeover(e.clk)
		e.sites[s].Confirm(e.clk)
		e.up(s, 0, 0)
	}
	return e
}

// write runs one write of a pool and returns its replies.
func (e *tree) write(p *Pool) []Reply {
	now, wr := p.Begin(e.clk, true)
	if wr != nil {
		rs, _ := p.Confirm(e.clk)
		now = append(now, rs...)
	}
	return now
}

// up lets a data center Sync with Anywhere until its request is answered, and recalls the others
// when Anywhere wants it.
func (e *tree) up(site string, need, want int64) {
	p := e.sites[site]
	x := p.ParentSync(e.clk, want, 0, nil)
	x.Need = need
	e.root.Receive(x)
	for range 4 {
		for _, r := range e.write(e.root) {
			p.ReceiveParent(e.clk, r.Answer)
		}
		if e.root.Recalls(e.clk) {
			for name, other := range e.sites {
				if name != site {
					e.recall(other)
				}
			}
		}
	}
	e.write(p)
}

// recall makes a data center return its idle slots.
func (e *tree) recall(p *Pool) {
	for range 2 { // one Sync to learn that slots are wanted, one to return them
		e.root.Receive(p.ParentSync(e.clk, 0, 0, nil))
		for _, r := range e.write(e.root) {
			p.ReceiveParent(e.clk, r.Answer)
		}
		e.write(p)
	}
}

func (e *tree) desk(name, site string) *Share {
	if e.desks[name] == nil {
		p := e.sites[site]
		var limits []Limit
		for i := range p.rec.Limits {
			limits = append(limits, p.rec.Limits[i].Limit)
		}
		e.desks[name] = NewShare(Params{}, name, LoanID(1000+len(e.desks)), limits...)
	}
	return e.desks[name]
}

// arrive sends n newcomers to a worker of a data center and returns how many pass.
func (e *tree) arrive(name, site string, n int) (passed int) {
	d, p := e.desk(name, site), e.sites[site]
	for i := range n {
		if _, ok := d.Open(e.clk, SessionID(len(e.desks)*1_000_000+int(p.rec.Name.Writes)*1000+i), 0, 0); ok {
			passed++
			continue
		}
		for range 2 { // the counter's own slots, then Anywhere's
			p.Receive(d.Sync(e.clk, 1, 0))
			e.answer(d, p)
			if d.Left(e.clk) > 0 {
				break
			}
			e.up(site, 1, 0)
		}
		if _, ok := d.Open(e.clk, SessionID(n*7+i), 0, 0); ok {
			passed++
		}
	}
	return passed
}

func (e *tree) answer(d *Share, p *Pool) {
	for _, r := range e.write(p) {
		d.Receive(e.clk, &r.Answer)
	}
	if d.InFlight() != nil { // its request stayed open: nobody returned a slot
		e.clk += 100 * time.Millisecond
		for _, r := range e.write(p) {
			d.Receive(e.clk, &r.Answer)
		}
	}
}

func TestExampleA1SlotsAvailable(t *testing.T) {
	r := NewRecord(1, nil, exampleLimits...)
	r.Limits[0].Ends.Add(Time(time.Minute), 50)
	if got := r.Free(); got != 150 {
		t.Errorf("200 slots, 50 active users: %d available, the document says 150", got)
	}
}

func TestExampleA2A4SplitAmongDatacenters(t *testing.T) {
	parts, anywhere := Split(150, 200, []int64{20, 30})
	if parts[0] != 15 || parts[1] != 22 || anywhere != 113 {
		t.Errorf("San Jose %d, London %d, Anywhere %d; the document says 15, 22, 113",
			parts[0], parts[1], anywhere)
	}
}

func TestExampleB1SplitByTwoMinutesOfTraffic(t *testing.T) {
	for _, c := range []struct{ a, b, wantA, wantB int64 }{{50, 50, 375, 375}, {40, 60, 300, 450}} {
		parts, anywhere := Split(750, 100, []int64{c.a, c.b})
		if parts[0] != c.wantA || parts[1] != c.wantB || anywhere != 0 {
			t.Errorf("%d:%d of 750: %v and %d", c.a, c.b, parts, anywhere)
		}
	}
}

func TestExampleB4NewUsersByGroups(t *testing.T) {
	if percent := 200 * 100 / 750; percent != 26 {
		t.Errorf("200 of 750 is %d %% a minute, the document says 26 %%", percent)
	}
	// At a limit of 750, all of them enter in the first minute; at 200, 200 do.
	for _, c := range []struct{ fresh, want int64 }{{750, 750}, {200, 200}} {
		e := newTree(t, 750, c.fresh, "tyo")
		if got := e.arrive("w", "tyo", 800); int64(got) != c.want {
			t.Errorf("750 at once, %d new a minute: %d enter at once, want %d", c.fresh, got, c.want)
		}
	}
}

func TestExampleA11CounterSevenAndOne(t *testing.T) {
	e := newTree(t, 10, 10, "sjc")
	if a, b := e.arrive("w1", "sjc", 7), e.arrive("w2", "sjc", 1); a+b != 8 {
		t.Errorf("%d of 7 and %d of 1 pass, the document says all 8", a, b)
	}
}

func TestExampleA12CounterFifteenForTen(t *testing.T) {
	e := newTree(t, 10, 10, "sjc")
	if a, b := e.arrive("w1", "sjc", 8), e.arrive("w2", "sjc", 7); a+b != 10 {
		t.Errorf("%d and %d pass, the document says 10 pass and 5 wait", a, b)
	}
}

// sanJose sets up A13: 50 active users, 15 slots lent to San Jose, 22 to London, and 113 with
// Anywhere. London's slots are in use or idle.
func sanJose(t *testing.T, londonUses bool) *tree {
	e := newTree(t, 150, 150, "sjc", "lhr")
	e.up("sjc", 15, 0)
	e.up("lhr", 22, 0)
	if londonUses {
		if n := e.arrive("l", "lhr", 22); n != 22 {
			t.Fatalf("London lets in %d of its 22", n)
		}
	}
	if got := e.root.FreeOf(0); got != 113 {
		t.Fatalf("Anywhere holds %d, want 113", got)
	}
	return e
}

func TestExampleA13SanJoseThenAnywhere(t *testing.T) {
	if got := sanJose(t, true).arrive("w", "sjc", 160); got != 128 {
		t.Errorf("London's 22 in use: San Jose lets in %d, the document says 128", got)
	}
}

func TestExampleA13LondonIdleAndRecalled(t *testing.T) {
	if got := sanJose(t, false).arrive("w", "sjc", 160); got != 150 {
		t.Errorf("London's 22 idle: San Jose lets in %d, want 150", got)
	}
}
