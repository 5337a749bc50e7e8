package slot

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A modelLines knows the basic facts about each ticket: where it waits, when it polled, and whether
// it is called. It finds the next ticket of a line by checking all.
type modelLines struct {
	t       *testing.T
	lines   *Lines
	lanes   []Lane
	now     Time
	people  map[uint64]*oracleTicket
	shown   map[uint64]int64
	calls   []modelCall
	windows int
	grace   Time // until then, tickets that have not polled hold up the rest
}

// A modelCall is a call, with the lines that had a present ticket.
type modelCall struct {
	line int
	had  [1 + MaxLanes]bool
}

func newModelLines(t *testing.T, lanes ...Lane) *modelLines {
	m := &modelLines{t: t, lines: NewLines(), people: map[uint64]*oracleTicket{}}
	m.setLanes(lanes)
	for line := range 1 + MaxLanes { // the first ticket fixes tick 0
		if m.lines.Line(line) != nil {
			m.join(line)
		}
	}
	return m
}

func (m *modelLines) setLanes(lanes []Lane) {
	m.t.Helper()
	if err := CheckLanes(lanes); err != nil {
		m.t.Fatal(err)
	}
	m.judge()
	m.lanes = lanes
	m.lines.SetLanes(lanes)
	m.shown = map[uint64]int64{}
}

func (m *modelLines) join(line int) uint64 {
	n := m.lines.Join(line, m.now, 2*time.Second, time.Minute)
	if m.people[n] != nil || LaneIndex(n) != line {
		m.t.Fatalf("number %d of line %d was issued before, or is of another", n, line)
	}
	m.people[n] = &oracleTicket{seen: m.now, window: ticks(5 * time.Second), hold: time.Minute}
	if m.lines.laned {
		for other := range m.shown { // a ticket that joins another line may go in before
			if LaneIndex(other) != line {
				delete(m.shown, other)
			}
		}
	}
	return n
}

func (m *modelLines) seen(n uint64) {
	x := m.people[n]
	st := m.lines.Polled(n, m.now, 2*time.Second)
	if x.state != called && x.over(m.now) {
		delete(m.people, n)
		delete(m.shown, n)
		return
	}
	if st != TicketWaiting && st != TicketLate && st != TicketCalled {
		m.t.Fatalf("ticket %d of line %d has lost its place: it is %v", n&(1<<laneShift-1), LaneIndex(n), st)
	}
	x.seen, x.unheard = m.now, false
	if x.state == late {
		x.state = waiting
	}
}

// there returns the tickets of a line that could be called, and whether a ticket holds them up.
func (m *modelLines) there(line int) (all []uint64, blocked bool) {
	first := uint64(1<<63 - 1)
	for n, x := range m.people {
		if LaneIndex(n) == line && x.unheard && m.now < m.grace {
			first = min(first, n)
		}
	}
	for n, x := range m.people {
		if LaneIndex(n) == line && x.state == waiting && x.present(m.now) && n < first {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, first < 1<<63-1
}

func (m *modelLines) call() (uint64, bool) {
	m.t.Helper()
	var next [1 + MaxLanes][]uint64
	var c modelCall
	blocked := false
	for line := range next {
		var b bool
		next[line], b = m.there(line)
		c.had[line] = len(next[line]) > 0
		blocked = blocked || b
	}
	n, ok := m.lines.Call(m.now)
	if !ok {
		if slices.Contains(c.had[:], true) && !blocked {
			m.t.Fatalf("nobody is called of %v", next)
		}
		return 0, false
	}
	c.line = LaneIndex(n)
	if !blocked && (len(next[c.line]) == 0 || next[c.line][0] != n) {
		m.t.Fatalf("line %d: %d is called before %v", c.line, n, next[c.line])
	}
	m.people[n].state = called
	m.calls = append(m.calls, c)
	return n, true
}

func (m *modelLines) use(n uint64) {
	if !m.lines.Use(n) {
		m.t.Fatalf("called ticket %d is not used", n)
	}
	delete(m.people, n)
	delete(m.shown, n)
}

// positions checks that no position has risen, and that every ticket with a place has one.
func (m *modelLines) positions() {
	m.t.Helper()
	for n, x := range m.people {
		p, ok := m.lines.Position(n)
		if !ok && (x.state == called || !x.over(m.now)) {
			m.t.Fatalf("ticket %d of line %d has no place", n&(1<<laneShift-1), LaneIndex(n))
		}
		if was, known := m.shown[n]; known && p > was {
			m.t.Fatalf("ticket %d of line %d was at %d and is at %d", n&(1<<laneShift-1), LaneIndex(n), was,
				p)
		}
		m.shown[n] = p
	}
}

// judge checks the shares in every hundred consecutive calls, and starts again.
func (m *modelLines) judge() {
	m.t.Helper()
	const all = 100
	lanes := m.lines.Lanes()
	for from := 0; from+all <= len(m.calls); from++ {
		var got [1 + MaxLanes]int
		had := [...]bool{true, true, true, true, true}
		for _, c := range m.calls[from : from+all] {
			got[c.line]++
			for line := range had {
				had[line] = had[line] && c.had[line]
			}
		}
		if !had[0] {
			continue
		}
		m.windows++
		sum := 0
		for line := 1; line <= MaxLanes; line++ {
			if m.lines.lanes[line].gone {
				sum = all
				continue
			}
			share := lanes[line].Share
			if sum += share; got[line] > share || had[line] && got[line] < share {
				m.t.Fatalf("calls %d to %d: %d of line %d, whose share is %d", from, from+all, got[line],
					line, share)
			}
		}
		if got[0] < all-sum {
			m.t.Fatalf("calls %d to %d: %d of the ordinary line", from, from+all, got[0])
		}
	}
	m.calls = nil
}

// restart forgets everything that is not in the record.
func (m *modelLines) restart(hold, grace time.Duration) {
	m.t.Helper()
	m.judge()
	x := m.lines.Ordinary()
	r := NewRecord(1, nil, Limit{Kind: AtOnce, N: 1, Per: time.Minute})
	r.Next, r.Issued, r.Frontier = x.End()+3, x.End(), x.Frontier()
	r.Skipped = x.AppendSkipped(nil, skippedBytes)
	r.Unconfirmed = x.AppendUnconfirmed(nil, 100)
	r.Lanes = m.lines.LaneParts(m.now, skippedBytes, 100)
	b, err := r.AppendBinary(nil)
	var got Record
	if err == nil {
		err = got.UnmarshalBinary(b)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	all := func(int) func(uint64) time.Duration {
		return func(uint64) time.Duration { return grace }
	}
	lines, err := RestoreLines(Restored{
		At: m.now, Next: got.Next, Issued: got.Issued, Frontier: got.Frontier, Skipped: got.Skipped,
		Unconfirmed: got.Unconfirmed, Hold: hold, UnconfirmedGrace: grace,
	}, got.Lanes, all)
	if err != nil {
		m.t.Fatal(err)
	}
	m.lines, m.grace, m.shown = lines, m.now.Add(grace), map[uint64]int64{}
	m.lines.SetLanes(m.lanes)
	for i := range lines.all { // tick 0 of the model
		if lines.all[i] != nil && lines.all[i].origin != m.now {
			m.t.Fatalf("line %d begins at %v", i, lines.all[i].origin)
		}
	}
	// A restored line counts from the restart, and so does the model.
	m.grace -= m.now
	for _, x := range m.people {
		x.unheard, x.seen, x.hold, x.state = true, 0, hold, waiting
	}
	m.restored()
}

func (m *modelLines) restored() {
	for i := range m.lines.all {
		if x := m.lines.all[i]; x != nil {
			x.restored.At, x.origin = 0, 0
		}
	}
	m.now = 0
}

// TestLinesWalk walks at random and checks shares, order, places and positions.
func TestLinesWalk(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	windows := 0
	for range 6 {
		var lanes []Lane
		left := MaxShare
		for i := range 1 + rng.IntN(OwnLanes) {
			share := 1 + rng.IntN(left/2)
			left -= share
			lanes = append(lanes, Lane{string(rune('a' + i)), share})
		}
		m := newModelLines(t, lanes...)
		for range 4000 {
			m.walk(rng)
		}
		m.judge()
		windows += m.windows
	}
	if windows < 50 {
		t.Errorf("%d windows were judged: the walk leaves the ordinary line empty too often", windows)
	}
}

func (m *modelLines) walk(rng *rand.Rand) {
	m.t.Helper()
	numbers := slices.Sorted(maps.Keys(m.people))
	one := func() uint64 { return numbers[rng.IntN(len(numbers))] }
	switch op := rng.IntN(100); {
	case op < 30 && len(numbers) < 300:
		line := 0
		if rng.IntN(3) > 0 {
			line = m.lines.Lane(m.lanes[rng.IntN(len(m.lanes))].ID())
		}
		for range rng.IntN(8) {
			m.join(line)
		}
	case op < 75:
		for range rng.IntN(6) {
			if n, ok := m.call(); ok && rng.IntN(8) > 0 {
				m.use(n)
			}
		}
	case op < 80:
		m.now += Time(time.Duration(rng.IntN(4)) * time.Second)
		for _, n := range numbers {
			if rng.IntN(20) > 0 {
				m.seen(n)
			}
		}
	case len(numbers) == 0:
	case op < 84:
		m.seen(one())
	case op < 87:
		if n := one(); m.people[n].state == called && m.lines.Lapse(n, m.now) {
			m.people[n].state = late
			if m.people[n].over(m.now) {
				delete(m.people, n)
				delete(m.shown, n)
			}
		}
	case op < 89:
		n := one()
		m.lines.Leave(n)
		delete(m.people, n)
		delete(m.shown, n)
	case op == 89:
		m.lines.Expire(m.now, 1000)
	case op == 90 && rng.IntN(20) == 0:
		m.restart(time.Minute, 0)
	default:
		m.positions()
	}
}

// TestEveryHundredTurns checks that for all shares, any hundred consecutive turns have exactly each
// share, and across two tables at most two more.
func TestEveryHundredTurns(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	most := 0
	for range 400 {
		w := [1 + MaxLanes]int{100}
		for i := 1; i <= MaxLanes; i++ {
			w[i] = rng.IntN(w[0])
			w[0] -= w[i]
		}
		turns := evenly100(w)
		var got [1 + MaxLanes]int
		for _, lane := range turns {
			got[lane]++
		}
		if got != w {
			t.Fatalf("shares %v have turns %v", w, got)
		}
		for k := range turns { // k turns to the end of one table, the rest from the start
			for from := range turns {
				var across [1 + MaxLanes]int
				for i := range 100 {
					at := i - k
					if i < k {
						at = (from + i) % 100
					}
					across[turns[at]]++
				}
				for i := 1; i <= MaxLanes; i++ {
					most = max(most, across[i]-w[i])
				}
				if from > 20 { // enough
					break
				}
			}
		}
	}
	if most > 2 {
		t.Errorf("across a restart a lane had %d more than its share of a hundred calls", most)
	}
	t.Logf("across a restart a lane had at most %d more than its share", most)
}

// TestAnEmptyLineLeavesItsTurns checks that the others get the turns of an empty line, so that no
// present visitor waits without need.
func TestAnEmptyLineLeavesItsTurns(t *testing.T) {
	m := newModelLines(t, Lane{"a", 56}, Lane{"b", 28})
	for range 400 {
		m.join(1)
		m.join(2)
	}
	ordinary, _ := m.call() // the one that fixes tick 0
	for LaneIndex(ordinary) > 0 {
		ordinary, _ = m.call()
	}
	m.calls = nil
	for range 300 {
		m.call()
	}
	var got [1 + MaxLanes]int
	for _, c := range m.calls {
		got[c.line]++
	}
	if got != [...]int{0, 200, 100, 0, 0} {
		t.Errorf("with nobody in the ordinary line 56 and 28 share 300 calls as %v", got)
	}
}

// TestALaneThatIsTakenAwayIsServed checks that the visitors of a removed lane keep their places and
// get its share of the calls that the others leave. A lane that is added again is found as it was.
// The removed lane's line is used again.
// TestOnlyOpenLanesAreCalled: a hold has exceptions, which are called in their order and by their shares, and
// take no place of the others; positions there count no line that is held.
func TestOnlyOpenLanesAreCalled(t *testing.T) {
	l := NewLines()
	l.SetLanes([]Lane{{Name: "gold", Share: 60}, {Name: "silver", Share: 20}, {Name: "other", Share: 5}})
	for range 200 {
		for lane := range 4 {
			l.Join(lane, 1, time.Hour, time.Hour)
		}
	}
	l.Hold(true)
	if _, ok := l.Call(2); ok || l.Callable() != 0 {
		t.Fatal("called in a hold")
	}
	l.Hold(true, "gold", "silver", "", "unknown")
	if n := l.Callable(); n != 400 {
		t.Errorf("%d may be called, want 400", n)
	}
	if p, _ := l.Position(l.Line(1).First()); p != 2 { // at most one of silver goes in before
		t.Errorf("the first one of gold is at %d", p)
	}
	if p, _ := l.Position(l.Line(0).First()); p < 3 {
		t.Errorf("the first one of the ordinary line is at %d", p)
	}
	called := map[int]int{}
	last := map[int]uint64{}
	for range 200 {
		n, ok := l.Call(2)
		lane := LaneIndex(n)
		if !ok || lane != 1 && lane != 2 || n <= last[lane] {
			t.Fatalf("ticket %d of lane %d after %d", n, lane, last[lane])
		}
		called[lane]++
		last[lane] = n
		l.Use(n)
	}
	if called[1] < 149 || called[1] > 151 {
		t.Errorf("%v: want three to one", called)
	}
	l.Hold(false)
	for called = map[int]int{}; called[1] < 50; { // as if nothing had been
		n, _ := l.Call(2)
		called[LaneIndex(n)]++
		l.Use(n)
	}
	if called[0] < 12 || called[2] < 16 {
		t.Errorf("%v after the hold", called)
	}
}

func TestALaneThatIsTakenAwayIsServed(t *testing.T) {
	m := newModelLines(t, Lane{"a", 50}, Lane{"b", 20}, Lane{"c", 9})
	for range 1000 {
		for line := range 4 {
			m.join(line)
		}
	}
	m.setLanes([]Lane{{"b", 20}, {"c", 9}})
	count := func(calls int) (got [1 + MaxLanes]int) {
		for range calls {
			n, _ := m.call()
			got[LaneIndex(n)]++
		}
		return got
	}
	if got := count(1000); got != [...]int{355, 355, 200, 90, 0} {
		t.Errorf("of 1000 calls the lines got %v", got)
	}
	m.setLanes([]Lane{{"b", 20}, {"c", 9}, {"d", 60}})
	if left := m.lines.SetLanes(m.lanes); len(left) != 1 || left[0].Name != "d" {
		t.Errorf("while a has people there is a line for all but %v", left)
	}
	if m.lines.Lane(Lane{Name: "a"}.ID()) != 0 {
		t.Error("a lane that was taken away is joined")
	}
	m.setLanes([]Lane{{"b", 20}, {"a", 40}})
	if line := m.lines.Lane(Lane{Name: "a"}.ID()); line != 1 {
		t.Errorf("the lane that came back has line %d", line)
	}
	m.setLanes([]Lane{{"d", 70}})
	for n := range m.people {
		if line := LaneIndex(n); line == 1 {
			m.lines.Leave(n)
			delete(m.people, n)
		}
	}
	end := m.lines.End(firstOf(1))
	m.setLanes([]Lane{{"d", 70}})
	if line := m.lines.Lane(Lane{Name: "d"}.ID()); line != 1 || m.join(1) != end {
		t.Errorf("the empty line is not used again: d has line %d", line)
	}
}

// TestABlockedOrdinaryLineLosesNoTurn checks that a lane is called only in its own turns while a
// ticket of the ordinary line from before a restart may still poll.
func TestABlockedOrdinaryLineLosesNoTurn(t *testing.T) {
	m := newModelLines(t, Lane{"a", 50})
	for range 10 {
		m.join(0)
		m.join(1)
	}
	m.restart(time.Hour, time.Minute)
	for n := range m.people {
		if LaneIndex(n) == 1 {
			m.seen(n)
		}
	}
	got := 0
	for range 20 {
		if _, ok := m.lines.Call(m.now); ok {
			got++
		}
	}
	if got > 1 {
		t.Errorf("%d of a lane were called while the ordinary line could not be", got)
	}
	m.now = m.now.Add(time.Minute + time.Second)
	for n := range m.people {
		m.lines.Polled(n, m.now, time.Second)
	}
	if _, ok := m.lines.Call(m.now); !ok {
		t.Error("when the grace is over nobody is called")
	}
}

// TestLinesDraw checks draws within a line, by the same turns.
func TestLinesDraw(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	l := NewLines()
	l.SetLanes([]Lane{{"a", 25}})
	for range 500 {
		l.Join(0, 0, time.Minute, time.Hour)
		l.Join(1, 0, time.Minute, time.Hour)
	}
	var got [2]int
	ordered := true
	last := [2]uint64{}
	for range 400 {
		n, ok := l.Draw(sec, rng.IntN)
		if !ok || !l.Use(n) {
			t.Fatal("nobody is drawn")
		}
		line := LaneIndex(n)
		got[line]++
		ordered = ordered && n > last[line]
		last[line] = n
	}
	if got != [2]int{300, 100} || ordered {
		t.Errorf("of 400 draws the lines got %v, in order: %v", got, ordered)
	}
}

// TestLinesWithoutLanesAllocateNothing checks that Lines without lanes costs the same as a Line.
func TestLinesWithoutLanesAllocateNothing(t *testing.T) {
	l := NewLines()
	l.SetLanes(nil)
	for range 5000 {
		l.Join(0, 0, time.Minute, time.Hour)
	}
	if n := testing.AllocsPerRun(1000, func() {
		n, _ := l.Call(sec)
		l.Position(n)
		l.Polled(n, sec, time.Minute)
		l.Use(n)
		l.SetLanes(nil)
	}); n > 0 {
		t.Errorf("%v allocations a visitor", n)
	}
}

// TestARecordWithLanes checks that a record with lanes survives, and that it is rejected when a
// lane has another's numbers.
func TestARecordWithLanes(t *testing.T) {
	want := codecSample()
	want.Lanes = []LanePart{
		{Lane: Lane{"a", 30}, Next: firstOf(1) + 900, Issued: firstOf(1) + 800, Frontier: firstOf(1) + 700,
			Skipped: []Run{
				{firstOf(1) + 500, 30},
				{firstOf(1) + 2, 3},
			}, Unconfirmed: []Run{{firstOf(1) + 800, 9}},
			Heads: []byte{1, 2, 3}},
		{Next: firstOf(2), Issued: firstOf(2), Frontier: firstOf(2)},
	}
	b, err := want.AppendBinary(nil)
	var got Record
	if err != nil || b[0] != 5 || got.UnmarshalBinary(b) != nil || len(got.Lanes) != 2 {
		t.Fatalf("format %d, %+v, %v", b[0], got.Lanes, err)
	}
	for i := range b {
		if new(Record).UnmarshalBinary(b[:i]) == nil {
			t.Fatalf("cut at %d of %d was read", i, len(b))
		}
	}
	no := func(int) func(uint64) time.Duration { return nil }
	if _, err := RestoreLines(Restored{Next: 1, Frontier: 1}, got.Lanes, no); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*LanePart){
		"next":     func(p *LanePart) { p.Next = firstOf(2) },
		"frontier": func(p *LanePart) { p.Frontier = 7 },
		"skipped":  func(p *LanePart) { p.Skipped[1].First = 5 },
		"share":    func(p *LanePart) { p.Share = 100 },
	} {
		lanes := cloneLanes(got.Lanes)
		change(&lanes[0])
		if _, err := RestoreLines(Restored{Next: 1, Frontier: 1}, lanes, no); err == nil {
			t.Errorf("a lane with an impossible %s is restored", name)
		}
	}
}

func TestLanesThatCannotBe(t *testing.T) {
	for name, lanes := range map[string][]Lane{
		"no name":       {{"", 5}},
		"a long name":   {{"123456789012345678901234567890123", 5}},
		"twice":         {{"a", 5}, {"a", 6}},
		"no share":      {{"a", 0}},
		"all":           {{"a", 100}},
		"all together":  {{"a", 50}, {"b", 40}},
		"the built-in":  {{"network", 5}},
		"four of them":  {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}},
		"below nothing": {{"a", -1}},
	} {
		if CheckLanes(lanes) == nil {
			t.Errorf("%s: %v are taken", name, lanes)
		}
	}
	if err := CheckLanes([]Lane{{"a", 29}, {"b", 30}, {"c", 30}}); err != nil {
		t.Error(err)
	}
}

func BenchmarkLinesWithLanes(b *testing.B) {
	l := NewLines()
	l.SetLanes([]Lane{{"a", 30}, {"b", 10}})
	for i := range 1_000_000 {
		l.Join(i%3, 0, 30*time.Second, minute5)
	}
	b.ReportAllocs()
	for b.Loop() {
		n, ok := l.Call(0)
		if !ok || !l.Use(n) {
			b.Fatal("nobody is called")
		}
		l.Position(l.Join(LaneIndex(n), 0, 30*time.Second, minute5))
	}
}

// TestPositionsAreWhenTheyAreCalled checks that without joins and leaves a ticket is called at
// about its position, in any line.
func TestPositionsAreWhenTheyAreCalled(t *testing.T) {
	l := NewLines()
	l.SetLanes([]Lane{{"a", 25}, {"b", 5}})
	for i := range 300 {
		l.Join(0, 0, time.Minute, time.Hour)
		if i < 200 {
			l.Join(1, 0, time.Minute, time.Hour)
		}
		if i < 3 {
			l.Join(2, 0, time.Minute, time.Hour)
		}
	}
	shown := map[uint64]int64{}
	for line, n := range []int{300, 200, 3} {
		for i := range n {
			number := firstOf(line) + uint64(i)
			shown[number], _ = l.Position(number)
		}
	}
	for rank := int64(1); rank <= 503; rank++ {
		n, ok := l.Call(sec)
		if !ok || !l.Use(n) {
			t.Fatal("nobody is called")
		}
		turn := []int64{2, 4, 20}[LaneIndex(n)] // calls from one of its turns to the next
		if off := shown[n] - rank; off < -turn || off > turn {
			t.Errorf("ticket %d of line %d was shown %d and is called %d", n&(1<<laneShift-1), LaneIndex(n),
				shown[n], rank)
		}
	}
}

// TestWhoIsCalledBesideTheLinesTakesATurnOfTheOrdinaryOne checks that a call outside the lines uses
// a turn of the ordinary line, and none of a lane.
func TestWhoIsCalledBesideTheLinesTakesATurnOfTheOrdinaryOne(t *testing.T) {
	l := NewLines()
	l.SetLanes([]Lane{{"a", 25}})
	for range 200 {
		l.Join(1, 0, time.Minute, time.Hour)
	}
	lane := 0
	for range 100 {
		if l.Turn(sec) == 0 {
			l.Pass()
			continue
		}
		if n, ok := l.Call(sec); ok && LaneIndex(n) == 1 {
			lane++
		}
	}
	if lane != 25 {
		t.Errorf("of 100 calls %d were of the lane, want 25", lane)
	}
}

// Call is CallOf with one free slot.
func (l *Lines) Call(now Time) (number uint64, ok bool) { return l.CallOf(now, 1) }
