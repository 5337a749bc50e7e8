package lending

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// A Case is one small world of a hunt. Its text form replays it.
type Case struct {
	Seed                 uint64
	Datacenters, Workers int
	Active, New          int64
	Session, Window      time.Duration
	Visitors             int
	Length               time.Duration // period with arrivals and faults
	Dwell                time.Duration // mean
	Faults               sim.Faults
}

// A field is one number of a case: its name and its location.
type field struct {
	name string
	get  func() int64
	set  func(int64)
}

func (c *Case) fields() []field {
	number := func(name string, p *int) field {
		return field{name, func() int64 { return int64(*p) }, func(x int64) { *p = int(x) }}
	}
	whole := func(name string, p *int64) field {
		return field{name, func() int64 { return *p }, func(x int64) { *p = x }}
	}
	span := func(name string, p *time.Duration) field { // in milliseconds
		return field{name, func() int64 { return p.Milliseconds() },
			func(x int64) { *p = time.Duration(x) * time.Millisecond }}
	}
	share := func(name string, p *float64) field { // in thousandths
		return field{name, func() int64 { return int64(*p*1000 + 0.5) },
			func(x int64) { *p = float64(x) / 1000 }}
	}
	f := &c.Faults
	return []field{
		{"seed", func() int64 { return int64(c.Seed) }, func(x int64) { c.Seed = uint64(x) }},
		number("sites", &c.Datacenters), number("workers", &c.Workers),
		whole("active", &c.Active), whole("new", &c.New),
		span("session", &c.Session), span("window", &c.Window),
		number("visitors", &c.Visitors), span("length", &c.Length), span("dwell", &c.Dwell),
		share("lose", &f.Lose), share("repeat", &f.Repeat), share("drift", &f.Drift),
		span("offset", &f.Offset), span("crash", &f.Crash), span("down", &f.Down),
		span("pause", &f.Pause), span("paused", &f.Paused), span("cut", &f.Cut), span("cuts", &f.Cuts),
	}
}

// String returns the case in the form that ParseCase reads. It leaves out zero values.
func (c Case) String() string {
	var parts []string
	for _, f := range c.fields() {
		if x := f.get(); x != 0 {
			parts = append(parts, f.name+"="+strconv.FormatInt(x, 10))
		}
	}
	return strings.Join(parts, ",")
}

// ParseCase reads the text form of a case.
func ParseCase(text string) (c Case, err error) {
	fields := c.fields()
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		x, err := strconv.ParseInt(value, 10, 64)
		if !ok || i < 0 || err != nil || x < 0 || name != "seed" && x > 1e9 {
			return c, fmt.Errorf("%q is not a part of a case", part)
		}
		fields[i].set(x)
	}
	if c.Datacenters < 1 || c.Datacenters > 16 || c.Workers < 1 || c.Workers > 64 ||
		c.Active < 1 || c.New < 1 ||
		c.Session < 3*time.Second || c.Window < shortest || c.Length < time.Second ||
		c.Visitors < 1 || c.Visitors > 1e6 {
		return c, fmt.Errorf("a case needs sites (to 16), workers (to 64), active, new, visitors and, in "+
			"milliseconds, length (from 1000), session (from 3000) and window (from %d)", shortest.Milliseconds())
	}
	return c, nil
}

// shortest is the shortest window: rooms count by the minute, and a claim whose answer
// was lost is answered again for half a minute.
const shortest = 40 * time.Second

// RandomCase draws a small world. It has few slots, so that they are always short, and each kind of
// fault occurs in some worlds.
func RandomCase(seed uint64) Case {
	r := rand.New(rand.NewPCG(seed, 77))
	between := func(a, b time.Duration) time.Duration {
		return (a + time.Duration(r.Int64N(int64(b-a)))).Truncate(time.Millisecond)
	}
	c := Case{
		Seed: seed & (1<<62 - 1), Datacenters: 1 + r.IntN(3), Workers: 1 + r.IntN(3),
		Active: 1 + r.Int64N(6), New: 1 + r.Int64N(8),
		Session: between(3*time.Second, 40*time.Second), Window: between(shortest, 2*time.Minute),
		Visitors: 5 + r.IntN(60), Length: between(20*time.Second, 3*time.Minute),
	}
	if r.IntN(2) == 0 {
		c.Dwell = between(0, c.Session)
	}
	f := &c.Faults
	some := func(n int) bool { return r.IntN(n) == 0 }
	if some(2) {
		f.Lose = float64(r.IntN(200)) / 1000
	}
	if some(2) {
		f.Repeat = float64(r.IntN(200)) / 1000
	}
	if some(2) {
		f.Drift = 0.001 // ρ: what the protocol allows for
		f.Offset = between(0, 100*time.Hour)
	}
	if some(2) {
		f.Crash, f.Down = between(5*time.Second, time.Minute), between(100*time.Millisecond, 20*time.Second)
	}
	if some(2) {
		f.Pause, f.Paused = between(5*time.Second, time.Minute), between(100*time.Millisecond, 20*time.Second)
	}
	if c.Datacenters > 1 && some(2) {
		f.Cut, f.Cuts = between(5*time.Second, time.Minute), between(100*time.Millisecond, 30*time.Second)
	}
	return c
}

// scenario returns the case as a scenario. After Length there are no faults and no arrivals, and it
// runs until all waiting visitors must have been admitted.
func (c Case) scenario() *sim.Scenario {
	s := &sim.Scenario{
		Name: "case", Limits: sim.Limits{Active: c.Active, Session: c.Session, New: c.New, Window: c.Window},
		Faults: c.Faults,
	}
	for i := range c.Datacenters {
		d := sim.Datacenter{
			Name: fmt.Sprint("s", i), Workers: c.Workers,
			Local: sim.Delay{Least: 200 * time.Microsecond, Mean: 3 * time.Millisecond},
			Home: sim.Delay{Least: time.Duration(1+25*i) * time.Millisecond,
				Mean: time.Duration(3+30*i) * time.Millisecond},
		}
		s.Datacenters = append(s.Datacenters, d)
	}
	turn := max((c.Session+2*c.Dwell)/time.Duration(c.Active), c.Window/time.Duration(c.New))
	s.Length = c.Length + 3*time.Duration(c.Visitors)*turn + 4*c.Session + 4*c.Window + 2*time.Minute
	s.Arrivals = func(seed uint64) iter.Seq[sim.Arrival] {
		return func(yield func(sim.Arrival) bool) {
			r := rand.New(rand.NewPCG(seed, 5))
			at := make([]time.Duration, c.Visitors)
			for i := range at {
				at[i] = time.Duration(r.Int64N(int64(c.Length)))
			}
			slices.Sort(at)
			for _, t := range at {
				a := sim.Arrival{
					At: t, Datacenter: int32(r.IntN(c.Datacenters)), Worker: int32(r.IntN(c.Workers)),
				}
				a.Dwell = time.Duration(r.ExpFloat64() * float64(c.Dwell))
				if !yield(a) {
					return
				}
			}
		}
	}
	return s
}

// idleMost is how long a slot may be free and due while somebody waits, after the faults have
// ended. It allows for the polls of absent visitors at the head of the line, and with several data
// centers for the turn of one whose next visitor is absent too, each at most queueKept of package
// slot (chosen). Earlier faults may have left one entry too many, never one too few, for as long as
// a session or a window.
func (c *Case) idleMost() time.Duration {
	most := 6 * time.Second
	if c.Datacenters > 1 {
		most = 15 * time.Second
	}
	if !c.calm() {
		most += c.Session + c.Window
	}
	return most
}

// calm reports whether every message arrives and every process runs.
func (c *Case) calm() bool {
	f := &c.Faults
	return f.Lose == 0 && f.Crash == 0 && f.Pause == 0 && f.Cut == 0
}

// Try runs a case. broken names the broken promise, and is empty if all were kept.
func (c Case) Try(ctx context.Context) (broken string, err error) {
	s := c.scenario()
	st := Strategy()
	var m *model
	worst := time.Duration(0)
	st.Make = func(s *sim.Scenario, w *sim.World) sim.Model {
		m = newModel(s, w, c.Length)
		m.watch(&worst, c)
		return m
	}
	r, err := sim.Run(ctx, s, st, sim.Options{Seed: c.Seed})
	if err != nil {
		return "", err
	}
	// What only a lost message or a dead process can cause is no broken promise while there are
	// such faults.
	calm := c.calm()
	switch {
	case r.OvershootActive > 0:
		return fmt.Sprintf("never over: %d inside, limit %d", c.Active+r.OvershootActive, c.Active), nil
	case r.OvershootRate > 0:
		return fmt.Sprintf("never over: %d new in a window, limit %d", c.New+r.OvershootRate, c.New), nil
	case m.count.lost > 0:
		return fmt.Sprintf("a place is kept: %d tickets were not known any more", m.count.lost), nil
	case calm && m.count.late > 0:
		return fmt.Sprintf("a place is kept: %d claims were forgotten", m.count.late), nil
	case calm && m.count.thrown > 0:
		return fmt.Sprintf("a place is kept: %d who were inside were sent away", m.count.thrown), nil
	case calm && c.Datacenters == 1 && r.OvertakenWorst > 1:
		return fmt.Sprintf("in order: overtaken by one who came %.1f s later", r.OvertakenWorst), nil
	case worst > c.idleMost():
		return fmt.Sprintf("never idle: a slot was free for %.1f s while somebody waited",
			worst.Seconds()), nil
	case r.Admitted < r.Visitors:
		return fmt.Sprintf("a place is kept: %d of %d visitors never came in", r.Visitors-r.Admitted,
			r.Visitors), nil
	}
	return "", nil
}

// watch checks for idle slots after all effects of faults are over. These are shares presumed used
// for a term and a session, and tickets that have not polled since a takeover, which delay the
// others for three of the longest polling intervals.
func (m *model) watch(worst *time.Duration, c Case) {
	const every = 100 * time.Millisecond
	begin := c.Length + 2*time.Minute + max(c.Session, c.Window)*5/4
	since := time.Duration(0)
	var look func()
	look = func() {
		m.reserve()
		if in, all := m.w.Served(); all == int64(c.Visitors) && in == all {
			m.w.Stop()
			return
		}
		if now := m.w.Now(); now < begin || !m.w.Idle() {
			since = now
		} else {
			*worst = max(*worst, now-since)
		}
		m.after(every, look)
	}
	m.after(every, look)
}

// A Finding is the smallest case found that breaks a promise.
type Finding struct {
	Case   Case
	Broken string
	Tried  int // cases tried before it was found
}

// HuntOptions are the options of a hunt.
type HuntOptions struct {
	N        int    // random cases
	Seed     uint64 // of the first
	Progress func(done int)
}

// Hunt runs random cases until one breaks a promise, and shrinks it. It returns nil if none does.
func Hunt(ctx context.Context, o HuntOptions) (*Finding, error) {
	for i := range o.N {
		c := RandomCase(o.Seed + uint64(i))
		broken, err := c.Try(ctx)
		if err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(i + 1)
		}
		if broken != "" {
			f := &Finding{Case: c, Broken: broken, Tried: i + 1}
			return f, f.shrink(ctx)
		}
	}
	return nil, nil
}

// shrinkTries limits the attempts to shrink a case. Chosen: some seconds.
const shrinkTries = 400

// shrink reduces numbers of the case while a promise of the same kind breaks.
func (f *Finding) shrink(ctx context.Context) error {
	kind, _, _ := strings.Cut(f.Broken, ":")
	tries := 0
	for again := true; again && tries < shrinkTries; {
		again = false
		for i := range f.Case.fields() {
			if f.Case.fields()[i].name == "seed" {
				continue
			}
			for _, to := range smaller(f.Case.fields()[i].get()) {
				c := f.Case
				c.fields()[i].set(to)
				if _, err := ParseCase(c.String()); err != nil {
					continue
				}
				tries++
				broken, err := c.Try(ctx)
				if err != nil {
					return err
				}
				if strings.HasPrefix(broken, kind+":") {
					f.Case, f.Broken, again = c, broken, true
					break
				}
			}
		}
	}
	return nil
}

// smaller returns numbers to try instead of x.
func smaller(x int64) []int64 {
	if x <= 0 {
		return nil
	}
	list := []int64{0, 1, x / 4, x / 2, x * 3 / 4, x - 1}
	return slices.DeleteFunc(list, func(y int64) bool { return y >= x })
}
