package slot

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// MaxLanes is how many lanes a room may have beside its ordinary line: those of the operator, and
// NetworkLane. Three bits of a ticket's number identify its line.
const (
	MaxLanes = OwnLanes + 1
	OwnLanes = 3
)

// NetworkLane returns the lane for newcomers of a network that sends too many. One network must not
// take the slots of all others, but none of its visitors is rejected. The lane exists while
// somebody waits in it.
func NetworkLane() Lane { return Lane{Name: "network", Share: 10} }

// UnsolvedLane is the name of the lane of visitors whose challenge is not solved. A ticket of it can be
// released.
const UnsolvedLane = "unsolved"

// MaxShare bounds the sum of the shares of the operator's lanes: NetworkLane has 10 of a hundred
// calls, and the ordinary line keeps 1.
const MaxShare = 89

// laneShift leaves each line 2^38 numbers: a thousand per second for eight years.
const laneShift = 38

// A Lane is a line beside the ordinary one. Of any hundred calls it gets at most Share while a
// present visitor waits in the ordinary line.
type Lane struct {
	Name  string
	Share int // 1 to 99
}

// ID returns the number that identifies the lane's name between machines. It is not 0.
func (l Lane) ID() uint64 {
	h := fnv.New64a()
	h.Write([]byte(l.Name)) // never fails
	return h.Sum64() | 1
}

// LaneIndex returns the index of the line that a ticket waits in. 0 is the ordinary line.
func LaneIndex(number uint64) int { return int(number >> laneShift) }

// MaxLaneName is the maximum length of a lane's name in bytes.
const MaxLaneName = 32

// ErrLanes is wrapped by every error about invalid lanes.
var ErrLanes = errors.New("invalid lanes")

// CheckLanes returns an error if the lanes of a room are invalid.
func CheckLanes(lanes []Lane) error {
	sum := 0
	for i, x := range lanes {
		same := func(y Lane) bool { return y.Name == x.Name }
		switch sum += x.Share; {
		case x.Name == "" || len(x.Name) > MaxLaneName:
			return fmt.Errorf("%w: a name of 1 to %d bytes is needed", ErrLanes, MaxLaneName)
		case slices.ContainsFunc(lanes[:i], same):
			return fmt.Errorf("%w: %q occurs twice: remove one of the two", ErrLanes, x.Name)
		case x.Name == NetworkLane().Name:
			return fmt.Errorf("%w: %q is the name of the built-in lane: choose another one", ErrLanes, x.Name)
		case x.Share < 1 || sum > MaxShare:
			return fmt.Errorf("%w: shares are 1 to %d of a hundred calls, and %d of all lanes together: "+
				"the built-in lane has %d, and the ordinary line keeps 1", ErrLanes, MaxShare, MaxShare,
				NetworkLane().Share)
		}
	}
	if len(lanes) > OwnLanes {
		return fmt.Errorf("%w: %d; %d are the most", ErrLanes, len(lanes), OwnLanes)
	}
	return nil
}

// TicketsEnd returns a number above those of all tickets.
func TicketsEnd() uint64 { return firstOf(MaxLanes + 1) }

func firstOf(lane int) uint64 { return uint64(lane)<<laneShift + 1 }

// Lines is the waiting line of a room with its lanes. A ticket's number contains its line, which
// never changes.
//
// The promises, each with a test in lines_test.go:
//   - Each line keeps all promises of a Line.
//   - While the shares stay the same, a lane gets at most its share of any hundred consecutive
//     calls during which the ordinary line had somebody to call, and exactly its share if the
//     lane had somebody too.
//   - No call is left unused while a present visitor waits.
//
// A table contains which line is next in each of a hundred calls, spread as evenly as possible.
// Only the position in the table is remembered. A restart or a change of shares starts the table
// again, so in a hundred calls across one a lane may get two calls more than its share.
//
// A removed lane keeps its visitors, and gets its share of the calls that the others leave until it
// is empty.
//
// Without lanes Lines behaves like a Line and costs the same.
type Lines struct {
	all   [1 + MaxLanes]*Line // all[0] is the ordinary line; nil: never used
	lanes [1 + MaxLanes]lane
	laned bool // any lane has a share

	held bool // nobody is called, except in the lanes with these names
	open []string

	turns, rest     [100]uint8 // the line of each of a hundred calls; rest: of the calls no lane takes
	turn, restTurn  int
	weights, rested [1 + MaxLanes]int
}

// lane is the state of a line beside the ordinary one.
type lane struct {
	Lane
	gone bool // removed: nobody can join it any more
}

// NewLines makes empty lines that have issued no number.
func NewLines() *Lines { return &Lines{all: [1 + MaxLanes]*Line{NewLine(1)}} }

// Line returns the line with an index; 0 is the ordinary one. It returns nil if there is no such
// lane.
func (l *Lines) Line(lane int) *Line {
	if lane < 0 || lane > MaxLanes {
		return nil
	}
	return l.all[lane]
}

// Ordinary returns the line of all visitors outside lanes.
func (l *Lines) Ordinary() *Line { return l.all[0] }

// of returns the line of a ticket, or an empty line for a number that no line can have.
func (l *Lines) of(number uint64) *Line {
	if lane := LaneIndex(number); lane <= MaxLanes && l.all[lane] != nil {
		return l.all[lane]
	}
	return NewLine(firstOf(min(LaneIndex(number), MaxLanes)))
}

// Lane returns the index of the lane with an ID, or 0 if no such lane can be joined.
func (l *Lines) Lane(id uint64) int {
	if !l.laned || id == 0 {
		return 0
	}
	return max(0, slices.IndexFunc(l.lanes[:], func(x lane) bool {
		return x.Name != "" && !x.gone && x.ID() == id
	}))
}

// Lanes returns the lanes that can be joined or hold visitors, by index. An entry without a Name is
// not in use.
func (l *Lines) Lanes() (all [1 + MaxLanes]Lane) {
	for i := range l.lanes {
		all[i] = l.lanes[i].Lane
	}
	return all
}

// Holds reports whether the lane with a name holds any visitor.
func (l *Lines) Holds(name string) bool {
	for i := range l.lanes {
		if x := l.all[i]; i > 0 && x != nil && l.lanes[i].Name == name {
			return x.counts[liveSet]+x.counts[provisionalSet] > 0
		}
	}
	return false
}

// SetLanes puts lanes into force. A current lane that is not in want stays while it holds visitors.
// If this leaves no line for a new lane, SetLanes returns that lane.
func (l *Lines) SetLanes(want []Lane) (left []Lane) {
	for i := 1; i <= MaxLanes; i++ {
		x := &l.lanes[i]
		at := slices.IndexFunc(want, func(w Lane) bool { return w.Name == x.Name })
		switch {
		case x.Name != "" && at >= 0:
			x.Lane, x.gone = want[at], false
		case l.all[i] != nil && l.all[i].counts[liveSet]+l.all[i].counts[provisionalSet] > 0:
			x.gone = true
		default:
			*x = lane{}
		}
	}
	for _, w := range want {
		if slices.ContainsFunc(l.lanes[1:], func(x lane) bool { return x.Name == w.Name }) {
			continue
		}
		from, to := 1, MaxLanes // the last line is the built-in lane's
		if w.Name == NetworkLane().Name {
			from, to = MaxLanes, MaxLanes+1
		}
		i := from + slices.IndexFunc(l.lanes[from:to], func(x lane) bool { return x == lane{} })
		if i < from {
			left = append(left, w)
			continue
		}
		l.lanes[i].Lane = w
		if l.all[i] == nil {
			l.all[i] = NewLine(firstOf(i))
		}
	}
	l.weigh()
	return left
}

// Hold stops the calls of all lines, except of the lanes with the given names, or lets them go on. The
// ordinary line has no name.
func (l *Lines) Hold(yes bool, open ...string) { l.held, l.open = yes, open }

// IsOpen reports whether the tickets of a line may be called.
func (l *Lines) IsOpen(lane int) bool {
	return !l.held || lane > 0 && lane <= MaxLanes && slices.Contains(l.open, l.lanes[lane].Name)
}

// Callable returns the number of places that wait for a call in the lines whose tickets may be called.
func (l *Lines) Callable() (n int) {
	for i, x := range l.all {
		if x != nil && l.IsOpen(i) {
			n += x.Len() - x.Called()
		}
	}
	return n
}

// weigh builds the tables again if the shares have changed.
func (l *Lines) weigh() {
	const all = 100
	weights, rested := [1 + MaxLanes]int{all}, [1 + MaxLanes]int{all}
	gone := 0
	for i := range l.lanes {
		if x := &l.lanes[i]; x.gone {
			gone++
		} else {
			weights[i] += x.Share
			weights[0] -= x.Share
		}
	}
	for i := range l.lanes {
		if l.lanes[i].gone { // leave one call each for the lanes behind it and the ordinary line
			rested[i] = max(1, min(l.lanes[i].Share*rested[0]/all, rested[0]-gone))
			rested[0] -= rested[i]
			gone--
		}
	}
	if weights == l.weights && rested == l.rested {
		return
	}
	l.weights, l.rested = weights, rested
	l.turns, l.turn = evenly100(weights), 0
	l.rest, l.restTurn = evenly100(rested), 0
	l.laned = weights[0] < all || rested[0] < all
}

// evenly100 spreads a hundred turns by weights that add up to a hundred. Each turn goes to the line
// that is owed most (smooth weighted round robin). The sequence repeats after a hundred turns, so
// any hundred consecutive turns have exactly each line's weight.
func evenly100(weights [1 + MaxLanes]int) (turns [100]uint8) {
	var owed [1 + MaxLanes]int
	for t := range turns {
		next := 0
		for i, w := range weights {
			if owed[i] += w; owed[i] > owed[next] {
				next = i
			}
		}
		owed[next] -= len(turns)
		turns[t] = uint8(next)
	}
	return turns
}

// CallOf calls the next ticket of the line whose turn it is; see Line.CallOf for free. If a lane has
// nobody to call, the ordinary line gets its turn. If the ordinary line is empty, the lanes get its
// turns. While a restored ticket holds up the ordinary line, the lanes do not take its turns.
//
// With lanes no slot is kept.
// Otherwise a line that could go on with kept slots would take the turns of a line that waits for
// its own slots.
func (l *Lines) CallOf(now Time, free int) (number uint64, ok bool) {
	if !l.laned {
		return l.all[0].CallOf(now, free)
	}
	l.all[0].unkeepAll() // kept before there were lanes
	return l.pick(func(x *Line) (number uint64, ok, blocked bool) {
		number, ok = x.Call(now)
		return number, ok, !ok && x.frontier < x.next
	})
}

// CallKept calls a ticket that has polled and for which a slot is kept; see Line.CallKept.
func (l *Lines) CallKept(now Time, free int) (number uint64, ok bool) {
	if l.laned {
		return 0, false
	}
	return l.all[0].CallKept(now, free)
}

// KeptBack reports whether CallKept may call somebody.
func (l *Lines) KeptBack() bool { return !l.laned && l.all[0].keptBack > 0 }

// Draw draws a ticket of the line whose turn it is.
func (l *Lines) Draw(now Time, random func(n int) int) (number uint64, ok bool) {
	if !l.laned {
		return l.all[0].Draw(now, random)
	}
	return l.pick(func(x *Line) (number uint64, ok, blocked bool) {
		number, ok = x.Draw(now, random)
		return number, ok, false
	})
}

// pick calls the next ticket by turn.
func (l *Lines) pick(call func(*Line) (number uint64, ok, blocked bool)) (number uint64, ok bool) {
	var tried [1 + MaxLanes]bool
	blocked := false
	try := func(lane uint8) bool {
		x := l.all[lane]
		if tried[lane] || x == nil || x.counts[liveSet] == x.counts[calledSet] || !l.IsOpen(int(lane)) {
			return false
		}
		tried[lane] = true
		number, ok, blocked = call(x)
		return ok
	}
	if lane := l.turns[l.turn]; lane > 0 && try(lane) {
		l.step(0)
		return number, true
	}
	if try(l.rest[l.restTurn]) || try(0) {
		l.Pass()
		return number, true
	}
	if blocked && tried[0] { // it was the last one tried
		return 0, false
	}
	for k := range l.rest { // the ordinary line is empty
		if try(l.rest[(l.restTurn+k)%len(l.rest)]) {
			l.restTurn = (l.restTurn + k) % len(l.rest)
			l.Pass()
			return number, true
		}
	}
	for k := range l.turns {
		if try(l.turns[(l.turn+k)%len(l.turns)]) {
			l.step(k)
			return number, true
		}
	}
	return 0, false
}

// step moves behind a turn that was taken, k after the one that was due.
func (l *Lines) step(k int) { l.turn = (l.turn + k + 1) % len(l.turns) }

// Pass uses up a turn of the ordinary line for a visitor that is called outside it.
func (l *Lines) Pass() {
	l.step(0)
	l.restTurn = (l.restTurn + 1) % len(l.rest)
}

// Turn returns the index of the line whose ticket Call would call next, or 0 if there is nobody to
// call.
func (l *Lines) Turn(now Time) int {
	if !l.laned {
		return 0
	}
	for _, lane := range [...]uint8{l.turns[l.turn], l.rest[l.restTurn]} {
		if lane > 0 && l.all[lane] != nil {
			for range l.all[lane].Next(now, 1) {
				return int(lane)
			}
		}
	}
	return 0
}

// Position returns the number of places up to and including this ticket's that may go in before it:
// those of its own line, and of each other line as many as hold a place and its share allows. ok is
// false for a ticket without a place. The position rises only when visitors join another line.
func (l *Lines) Position(number uint64) (position int64, ok bool) {
	x := l.of(number)
	position, ok = x.Position(number)
	if ok && l.laned {
		position += l.Beside(LaneIndex(number), position)
	}
	return position, ok
}

// Beside returns how many tickets of the other lines may be called while the given number of places
// of one line are called.
func (l *Lines) Beside(line int, places int64) (n int64) {
	own := l.weight(line)
	waits := func(other int) int64 {
		if l.IsOpen(line) && !l.IsOpen(other) { // not before that line is open too
			return 0
		}
		return l.waits(other)
	}
	switch {
	case !l.laned:
		return 0
	case line == 0:
		return l.besideOrdinary(places)
	case own == 0:
		return waits(0) // its share changes soon
	}
	n = waits(0)
	for i := 1; i <= MaxLanes; i++ {
		if i != line {
			n += min(waits(i), ceilDiv(places*l.weight(i), own))
		}
	}
	return min(n, ceilDiv(places*(calls-own), own)) // the ordinary line takes the turns of empty lanes
}

// besideOrdinary is Beside for the ordinary line. It gets a lane's turns once the lane is empty.
func (l *Lines) besideOrdinary(places int64) (n int64) {
	left := int64(calls) // of all calls, for the ordinary line and the lanes empty by then
	lanes := make([]int, 0, MaxLanes)
	for i := 1; i <= MaxLanes; i++ {
		if w := l.weight(i); w > 0 {
			left, lanes = left-w, append(lanes, i)
		}
	}
	slices.SortFunc(lanes, func(a, b int) int { // by which lane is empty first
		return cmp.Compare(l.waits(a)*l.weight(b), l.waits(b)*l.weight(a))
	})
	for _, i := range lanes {
		if w := l.waits(i); w < ceilDiv(places*l.weight(i), left) {
			places, left, n = places+w, left+l.weight(i), n+w
		} else {
			n += ceilDiv(places*l.weight(i), left)
		}
	}
	return n
}

// waits returns the number of places of a line that positions count.
func (l *Lines) waits(line int) int64 {
	if x := l.all[line]; x != nil {
		return int64(x.counts[liveSet] - x.counts[hiddenSet])
	}
	return 0
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// calls is the whole of which a weight is a part.
const calls = 100 * 100

// weight returns a line's part of calls while visitors wait in all lines.
func (l *Lines) weight(lane int) int64 {
	if lane > 0 && !l.lanes[lane].gone {
		return int64(l.weights[lane]) * 100
	}
	return int64(l.weights[0]) * int64(l.rested[lane])
}

// Join adds a visitor to the end of a line; see Line.Join.
func (l *Lines) Join(lane int, now Time, interval, hold time.Duration) uint64 {
	return l.all[lane].Join(now, interval, hold)
}

// JoinProvisional issues the next number of a line; see Line.JoinProvisional.
func (l *Lines) JoinProvisional(lane int, now Time, hold time.Duration) uint64 {
	return l.all[lane].JoinProvisional(now, hold)
}

// SetProvisionalInterval records the interval that the visitor of a provisional ticket got.
func (l *Lines) SetProvisionalInterval(number uint64, interval time.Duration) {
	l.of(number).SetProvisionalInterval(number, interval)
}

// Confirm records that the cookie of a ticket has come back; see Line.Confirm.
func (l *Lines) Confirm(number uint64, now Time) { l.of(number).Confirm(number, now) }

// Doubtful is Line.Doubtful plus the calls of other lanes that Position counts for those tickets.
func (l *Lines) Doubtful(number uint64, now Time) (ahead int64, present time.Duration) {
	x := l.of(number)
	ahead, present = x.Doubtful(number, now)
	if places, ok := x.Position(number); ok && ahead > 0 && l.laned {
		lane := LaneIndex(number)
		ahead += l.Beside(lane, places) - l.Beside(lane, places-ahead)
	}
	return ahead, present
}

// SetArrival sets an earlier arrival for a ticket that has just joined; see Line.SetArrival.
func (l *Lines) SetArrival(number uint64, at Time) { l.of(number).SetArrival(number, at) }

// Polled records that a ticket polled now; see Line.Polled.
func (l *Lines) Polled(number uint64, now Time, interval time.Duration) TicketStatus {
	return l.of(number).Polled(number, now, interval)
}

// Heard records that a ticket is there and must not be called; see Line.Heard.
func (l *Lines) Heard(number uint64, now Time) TicketStatus { return l.of(number).Heard(number, now) }

// IsBlocked reports whether the ordinary line waits for a restored ticket that has not polled yet.
func (l *Lines) IsBlocked(now Time) bool {
	x := l.all[0]
	number, p := x.from(liveSet, x.frontier)
	return p != nil && x.blocks(number, p, now)
}

// PollInterval returns about the interval that a ticket got at its last poll.
func (l *Lines) PollInterval(number uint64) time.Duration { return l.of(number).PollInterval(number) }

// Status returns the status of a ticket; see Line.Status.
func (l *Lines) Status(number uint64) TicketStatus { return l.of(number).Status(number) }

// SilentFor returns how long ago a ticket polled last; see Line.SilentFor.
func (l *Lines) SilentFor(number uint64, now Time) (silent, kept time.Duration, ok bool) {
	return l.of(number).SilentFor(number, now)
}

// Rank returns where a ticket lies in its line: its number, or its rank in a draw.
func (l *Lines) Rank(number uint64) uint64 { return l.of(number).rank(number) }

// Use records that a called ticket was claimed; see Line.Use.
func (l *Lines) Use(number uint64) bool { return l.of(number).Use(number) }

// Lapse records that a call was not claimed in time; see Line.Lapse.
func (l *Lines) Lapse(number uint64, now Time) bool { return l.of(number).Lapse(number, now) }

// Defer records that the visitor of a called ticket learned of the call and did not come in; see
// Line.Defer.
func (l *Lines) Defer(number uint64, now Time) bool { return l.of(number).Defer(number, now) }

// Leave gives up a place; see Line.Leave.
func (l *Lines) Leave(number uint64) TicketStatus { return l.of(number).Leave(number) }

// Extend reserves all numbers of a line below next; see Line.Extend. The line may be that of a lane
// that the record does not contain.
func (l *Lines) Extend(next uint64, now Time, hold time.Duration) {
	lane := LaneIndex(next - 1)
	if lane > MaxLanes {
		return
	}
	if l.all[lane] == nil {
		l.all[lane] = NewLine(firstOf(lane))
	}
	l.all[lane].Extend(next, now, hold)
}

// End returns the number that the next Join of a ticket's line issues, or 0 if no ticket can have
// the given number.
func (l *Lines) End(number uint64) uint64 {
	if LaneIndex(number) > MaxLanes {
		return 0
	}
	return l.of(number).next
}

// sum adds up the results of f for all lines.
func (l *Lines) sum(f func(*Line) int) (n int) {
	for _, x := range l.all {
		if x != nil {
			n += f(x)
		}
	}
	return n
}

// Len returns the number of places; see Line.Len.
func (l *Lines) Len() int { return l.sum((*Line).Len) }

// Unconfirmed returns the number of tickets that were reserved before a restart and have not polled
// since.
func (l *Lines) Unconfirmed() int { return l.sum((*Line).Unconfirmed) }

// IsUnconfirmed reports whether a ticket is one of those.
func (l *Lines) IsUnconfirmed(number uint64) bool { return l.of(number).IsUnconfirmed(number) }

// Provisional returns the number of tickets whose cookie has not come back.
func (l *Lines) Provisional() int { return l.sum((*Line).Provisional) }

// LapseProvisional drops provisional tickets whose time is over. budget applies to each line.
func (l *Lines) LapseProvisional(now Time, budget int) {
	l.sum(func(x *Line) int { x.LapseProvisional(now, budget); return 0 })
}

// Late returns the number of tickets that were passed over or not claimed.
func (l *Lines) Late() int { return l.sum((*Line).Late) }

// SkippedCount is Line.SkippedCount of one line, or 0 if there is no such lane.
func (l *Lines) SkippedCount(lane int) int {
	if x := l.Line(lane); x != nil {
		return x.SkippedCount()
	}
	return 0
}

// Expired returns the number of places whose hold ended; see Line.Expired.
func (l *Lines) Expired() int { return l.sum((*Line).Expired) }

// Called returns the number of called tickets that have neither claimed nor lapsed.
func (l *Lines) Called() int { return l.sum((*Line).Called) }

// Hide removes the numbers that have not polled from positions; see Line.Hide.
func (l *Lines) Hide() { l.sum(func(x *Line) int { x.Hide(); return 0 }) }

// Expire drops places whose hold has ended. budget applies to each line.
func (l *Lines) Expire(now Time, budget int) (dropped int) {
	return l.sum(func(x *Line) int { return x.Expire(now, budget) })
}

// ForgetPolls makes every place count as not polled; see Line.ForgetPolls. grace returns the grace
// of a line.
func (l *Lines) ForgetPolls(now Time, grace func(lane int) func(distance uint64) time.Duration) {
	for i, x := range l.all {
		if x != nil {
			x.ForgetPolls(now, grace(i))
		}
	}
}

// Arrivals returns the arrivals of up to k tickets that could be called now, earliest first;
// without lanes, in the order in which Call would call them.
func (l *Lines) Arrivals(now Time, k int) []Time {
	var at []Time
	if l.IsOpen(0) {
		at = l.all[0].Arrivals(now, k)
	}
	if !l.laned {
		return at
	}
	for i, x := range l.all[1:] {
		if x != nil && l.IsOpen(i+1) {
			at = append(at, x.Arrivals(now, k)...)
		}
	}
	slices.Sort(at)
	return at[:min(k, len(at))]
}
