package slot

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// FuzzLine reads a script of operations, three bytes each, and compares a Line with the oracle
// after each.
func FuzzLine(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x04\x00\x00\x07\x00\x01"))
	f.Add(bytes.Repeat([]byte("\x01\x09\x05\x08\x40\x03\x04\x00\x00\x02\x07\x07\x06\x02\x01"), 20))
	f.Add(bytes.Repeat([]byte("\x01\xff\x05\x0b\x00\xff\x04\x00\x00\x0c\x07\x07\x0a\x02\x01"), 20))
	f.Fuzz(func(t *testing.T, script []byte) {
		runLineScript(t, script[:min(len(script), 900)])
	})
}

// TestLineWalk runs the fuzz test on random scripts of every length.
func TestLineWalk(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 40 {
		script := make([]byte, 3*(10+rng.IntN(190)))
		for j := range script {
			script[j] = byte(rng.Uint32())
		}
		if i%2 == 0 { // some scripts in which time hardly passes
			for j := 0; j < len(script); j += 3 {
				if script[j]%lineOps == opFreeze {
					script[j+1] = 0
				}
			}
		}
		runLineScript(t, script)
	}
}

const (
	opJoin = iota
	opJoinMany
	opSeen
	opSeenMany
	opCall
	opCallMany
	opUse
	opLapse
	opLeave
	opExpire
	opFreeze
	opLeaveMany
	opRestart
	opClaimAll
	opExtend
	opHide
	opDraw
	opProvisional
	opConfirm
	opLapseProvisional
	opDefer
	lineOps
)

type lineScript struct {
	t      *testing.T
	line   *Line
	oracle *oracleLine
	now    Time
	places map[uint64]int64
	used   map[uint64]bool
	before []oracleTicket // scratch
}

func runLineScript(t *testing.T, script []byte) {
	t.Helper()
	s := &lineScript{t: t, places: map[uint64]int64{}, used: map[uint64]bool{}}
	first := uint64(lineSize - 3)
	s.line, s.oracle = NewLine(first), &oracleLine{first: first, frontier: first}
	// The first ticket fixes tick 0, so that the oracle's clock agrees.
	s.line.Join(0, time.Second, time.Minute)
	s.oracle.join(0, time.Second, time.Minute)
	for ; len(script) >= 3; script = script[3:] {
		s.step(script[0]%lineOps, script[1], script[2])
		s.compareSums()
		if script[2]%8 == 0 {
			s.compareAll()
		}
	}
	s.compareAll()
}

// number picks a ticket: mostly a recent one, sometimes one never issued.
func (s *lineScript) number(a, b byte) uint64 {
	low := s.oracle.first - 2
	span := s.oracle.next() + 2 - low
	if a >= 128 { // near the frontier
		low, span = max(s.oracle.frontier, 6)-6, 12
	}
	return low + (uint64(a)<<8+uint64(b))*31%span
}

func (s *lineScript) step(op, a, b byte) {
	told := []time.Duration{0, time.Second / 3, time.Second, 7 * time.Second, 2 * time.Minute}[a%5]
	hold := []time.Duration{0, 5 * time.Second, time.Minute, 5 * time.Minute, time.Hour}[b%5]
	switch op {
	case opJoin:
		same(s, "join", s.line.Join(s.now, told, hold), s.oracle.join(s.now, told, hold))
	case opJoinMany:
		for range int(a) * 2 {
			if s.oracle.next()-s.oracle.first < 4*lineSize {
				same(s, "join", s.line.Join(s.now, told, hold), s.oracle.join(s.now, told, hold))
			}
		}
	case opSeen:
		n := s.number(a, b)
		s.heard(n)
		same(s, "seen", s.line.Polled(n, s.now, told), s.oracle.seen(n, s.now, told))
	case opSeenMany:
		for n := s.number(a, b); n < s.oracle.next(); n += 1 + uint64(b%7) {
			s.heard(n)
			same(s, "seen", s.line.Polled(n, s.now, told), s.oracle.seen(n, s.now, told))
		}
	case opCall:
		s.call(1 + int(a>>4)*int(b%2))
	case opCallMany:
		for i := range int(a) { // most are not used yet
			s.call(max(1, int(b)-i))
		}
	case opDraw:
		for i := range int(a)%9 + 1 {
			s.draw(int(b) + i)
		}
	case opProvisional:
		for range max(1, int(a)) {
			if s.oracle.next()-s.oracle.first < 4*lineSize {
				n := s.line.JoinProvisional(s.now, hold)
				s.line.SetProvisionalInterval(n, told)
				same(s, "join", n, s.oracle.joinProvisional(s.now, told, hold))
			}
		}
	case opConfirm:
		for n := s.number(a, b); n < s.oracle.next(); n += 1 + uint64(b%7) {
			if s.oracle.status(n) == TicketProvisional { // from now on those behind count it
				s.places = map[uint64]int64{}
			}
			s.line.Confirm(n, s.now)
			s.oracle.confirm(n, s.now)
		}
	case opLapseProvisional:
		s.line.LapseProvisional(s.now, int(a))
		s.oracle.lapseProvisional(s.now, int(a))
	case opUse:
		s.use(s.number(a|128, b))
	case opLapse:
		n := s.number(a|128, b)
		same(s, "lapse", s.line.Lapse(n, s.now), s.oracle.lapse(n, s.now))
	case opDefer:
		n := s.number(a|128, b)
		same(s, "defer", s.line.Defer(n, s.now), s.oracle.deferCall(n, s.now))
	case opLeave:
		n := s.number(a, b)
		same(s, "leave", s.line.Leave(n), s.oracle.leave(n))
	case opLeaveMany:
		for i, n := 0, s.number(a, 0); i < int(b)*8; i, n = i+1, n+1 {
			same(s, "leave", s.line.Leave(n), s.oracle.leave(n))
		}
	case opExpire:
		same(s, "expire", s.line.Expire(s.now, int(a)), s.oracle.expire(s.now, int(a)))
	case opRestart:
		s.restart(a, b)
	case opClaimAll:
		for i := range s.oracle.tickets {
			if n := s.oracle.first + uint64(i); s.oracle.status(n) == TicketCalled {
				s.use(n)
			}
		}
	case opExtend:
		if s.oracle.next()-s.oracle.first < 4*lineSize {
			s.line.Extend(s.line.End()+uint64(b), s.now, hold)
			s.oracle.extend(s.oracle.next()+uint64(b), s.now, hold)
		}
	case opHide:
		s.line.Hide()
		s.oracle.hide()
	case opFreeze:
		if b%8 == 0 {
			s.freeze(a)
		}
		fallthrough
	default:
		s.now += Time(a) * Time(a) * Time(time.Second/50)
	}
}

// freeze simulates a process that stands still.
func (s *lineScript) freeze(a byte) {
	s.now += Time(a) * Time(time.Minute)
	grace := func(distance uint64) time.Duration {
		return time.Duration(a)*100*time.Millisecond + time.Duration(distance)*time.Millisecond
	}
	s.line.ForgetPolls(s.now, grace)
	o := s.oracle
	o.grace, o.at, o.restored = grace, s.now, o.frontier
	for i := range o.tickets {
		t := &o.tickets[i]
		if t.trial {
			t.seen = s.now
			continue
		}
		if !t.unheard {
			t.hear(s.now)
		}
		t.unheard, t.seen, t.window, t.due = true, s.now, 0, 0
	}
}

// heard allows positions to rise that now count a ticket that was unconfirmed.
func (s *lineScript) heard(n uint64) {
	if t := s.oracle.get(n); t != nil && t.unsure && s.oracle.loose && len(s.places) > 0 {
		s.places = map[uint64]int64{}
	}
}

func (s *lineScript) call(free int) {
	s.t.Helper()
	s.before = append(s.before[:0], s.oracle.tickets...)
	frontier := s.oracle.frontier
	n, ok := s.line.CallOf(s.now, free)
	want, wantOK := s.oracle.call(s.now, free)
	same(s, "call", n, want)
	same(s, "call ok", ok, wantOK)
	same(s, "kept", s.line.Kept(), len(s.oracle.kept()))
	if !ok {
		return
	}
	its := n < frontier && s.before[n-s.oracle.first].kept
	if kept := s.line.Kept(); !its && kept > free-1 {
		s.t.Fatalf("%d is called with the slot of one of %d for whom %d are kept", n, kept, free)
	}
	if s.used[n] {
		s.t.Fatalf("%d was used and is called again", n)
	}
	for i, t := range s.before {
		m := s.oracle.first + uint64(i)
		const tick = Time(lineTick) // a ticket that polled just before its time is not waited for
		onTime := !t.unheard && (time.Duration(s.now-t.seen) <= 2*t.told ||
			s.now <= t.due && t.due > t.seen+3*tick)
		overtaken := t.state == waiting && m < n || t.state == back && (m < n || n >= frontier)
		if its && !t.kept { // the slot was kept before the late one polled
			overtaken = false
		}
		if m != n && onTime && overtaken {
			s.t.Fatalf("%d polled on time and was overtaken by %d", m, n)
		}
	}
}

// draw lets the line choose and the oracle check the choice.
func (s *lineScript) draw(seed int) {
	s.t.Helper()
	o := s.oracle
	there := 0
	for _, t := range o.tickets {
		if t.state != dead && t.state != called && !t.lapsed && t.present(s.now) {
			there++
		}
	}
	for _, t := range o.kept() {
		t.kept = false
	}
	n, ok := s.line.Draw(s.now, func(n int) int { return (seed*7919 + 13*n/3) % n })
	same(s, "draw ok", ok, there > 0)
	for i := range o.tickets { // a draw may find tickets whose hold has ended
		t, status := &o.tickets[i], s.line.Status(o.first+uint64(i))
		if t.state != called && t.over(s.now) && (status == TicketUsed || status == TicketGone) {
			t.state = dead
		}
	}
	if !ok {
		return
	}
	t := o.get(n)
	if s.used[n] || t == nil || t.state == dead || t.state == called || t.lapsed ||
		!t.present(s.now) {
		s.t.Fatalf("%d was drawn: %+v, used %v", n, t, s.used[n])
	}
	t.state = called
	for ; o.frontier <= n; o.frontier++ {
		if t := o.get(o.frontier); t.state == waiting {
			t.state = late
		}
	}
}

func (s *lineScript) use(n uint64) {
	s.t.Helper()
	ok := s.line.Use(n)
	same(s, "use", ok, s.oracle.use(n))
	if ok && s.used[n] {
		s.t.Fatalf("%d is used twice", n)
	}
	s.used[n] = s.used[n] || ok
}

func (s *lineScript) restart(a, b byte) {
	s.t.Helper()
	s.compareAll()
	frontier, issued, next := s.line.Frontier(), s.line.End(), s.line.End()+uint64(b)
	if a%2 == 0 {
		issued = 0
	}
	unsure := s.line.AppendUnconfirmed(nil, 1<<20)
	limit := skippedBytes
	if a%4 == 0 {
		limit = int(b)
	}
	runs := s.line.AppendSkipped(nil, limit)
	written := AppendRuns(nil, frontier, runs)
	if len(written) > limit {
		s.t.Fatalf("skipped tickets take %d bytes of %d", len(written), limit)
	}
	runs, err := ParseRuns(written, frontier)
	if err != nil {
		s.t.Fatal(err)
	}
	oldest, ok := s.line.Oldest(s.now)
	if !ok {
		oldest = s.now
	}
	// The oracle counts ticks from 0. So does a line whose oldest arrival is on a tick, and every
	// result of Oldest is on a tick.
	r := Restored{
		At: s.now, Oldest: max(oldest, 1), Frontier: frontier, Next: next, Skipped: runs,
		Issued: issued, Unconfirmed: unsure, Loose: a%4 == 2,
		UnconfirmedGrace: time.Duration(b) * 50 * time.Millisecond,
		Hold:             time.Duration(b) * time.Second,
		Grace: func(distance uint64) time.Duration {
			return time.Duration(a)*100*time.Millisecond + time.Duration(distance)*time.Millisecond
		},
	}
	if a%8 == 1 {
		r.Grace = nil
	}
	if r.Oldest == 1 || !ok {
		r.Oldest = Time(time.Second / 16)
		s.now = max(s.now, r.Oldest)
		r.At = s.now
	}
	if s.line, err = RestoreLine(r); err != nil {
		s.t.Fatal(err)
	}
	s.oracle = s.oracle.restart(r)
	clear(s.places) // places of gone tickets may count again
	s.compareAll()
}

// compareSums compares what is cheap to read after each step.
func (s *lineScript) compareSums() {
	s.t.Helper()
	o := s.oracle
	same(s, "frontier", s.line.Frontier(), o.frontier)
	same(s, "end", s.line.End(), o.next())
	var in [dead + 1]int
	for _, t := range o.tickets {
		in[t.state]++
	}
	unsure, unsureLate := 0, 0
	for _, t := range o.tickets {
		if t.unsure && t.state != dead {
			unsure++
			if t.state == late {
				unsureLate++
			}
		}
	}
	same(s, "unsure", s.line.Unconfirmed(), unsure)
	same(s, "len", s.line.Len(), len(o.tickets)-in[dead]-unsure)
	same(s, "late", s.line.Late(), in[late]+in[back]+in[again]-unsureLate-len(o.kept()))
	same(s, "called", s.line.Called(), in[called])
	trials := 0
	for _, t := range o.tickets {
		if t.trial {
			trials++
		}
	}
	same(s, "provisional", s.line.Provisional(), trials)
	all, blocked := o.upcoming(s.now)
	oldest, ok := s.line.Oldest(s.now)
	same(s, "oldest ok", ok, len(all) > 0)
	if ok {
		s.compareOldest(oldest, all[0])
	}
	if blocked {
		all = all[:len(all)-1]
	}
	for _, k := range []int{0, 3, 1 << 20} {
		want := all[:min(k, len(all))]
		if got := slices.Collect(s.line.Next(s.now, k)); !slices.Equal(got, want) {
			s.t.Fatalf("next %d (-want +got):\n%s", k, cmp.Diff(want, got))
		}
	}
}

// compareOldest allows an arrival to be too early by less than a tick, and by more when the
// neighbors of the same 64 came more than 68 minutes before.
func (s *lineScript) compareOldest(got Time, n uint64) {
	s.t.Helper()
	want := s.oracle.get(n).joined
	early := want
	for m := max(n&^63, s.oracle.first); m < n; m++ {
		early = min(early, s.oracle.get(m).joined)
	}
	exact := want-early < Time(4095*time.Second)
	if got > want || got < early-Time(lineTick) || exact && want-got >= Time(lineTick) {
		s.t.Fatalf("oldest is %d, arrived %d", got, want)
	}
}

// compareAll compares each ticket.
func (s *lineScript) compareAll() {
	s.t.Helper()
	rank, behind := int64(0), int64(0) // counted up to here, and deferred ones
	for n := s.oracle.first - min(s.oracle.first, 3); n < s.oracle.next()+3; n++ {
		same(s, "status", s.line.Status(n), s.oracle.status(n))
		same(s, "used", s.line.Status(n) == TicketUsed, s.oracle.status(n) == TicketUsed)
		t := s.oracle.get(n)
		live := t != nil && t.state != dead
		ahead := behind
		switch {
		case live && !t.hidden && t.deferred:
			behind++
		case live && !t.hidden:
			rank++
		}
		got, ok := s.line.Position(n)
		same(s, "position ok", ok, live || t != nil && t.trial)
		if !ok {
			continue
		}
		want := rank
		if t.hidden || t.trial || t.deferred { // the ticket itself counts
			want++
		}
		for others := want; others > 0 && ahead > 0; others -= 9 { // each tenth call goes to a deferred one
			want++
			ahead--
		}
		same(s, "position", got, want)
		if was, known := s.places[n]; known && got > was {
			s.t.Fatalf("position of %d rose from %d to %d", n, was, got)
		}
		s.places[n] = got
	}
	if diff := cmp.Diff(s.oracle.unsure(), s.line.AppendUnconfirmed(nil, 1<<20)); diff != "" {
		s.t.Fatalf("unsure (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(s.oracle.skipped(), slices.Collect(s.line.Skipped())); diff != "" {
		s.t.Fatalf("skipped (-want +got):\n%s", diff)
	}
}

func same[T comparable](s *lineScript, what string, got, want T) {
	if got != want {
		s.t.Helper()
		s.t.Fatalf("%s is %v, want %v", what, got, want)
	}
}
