package counter

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// A scene is a crowd in front of one Core in virtual time, with all answers that its visitors got.
// They poll on time, come in when they are called, request pages while they are inside, and leave
// explicitly or silently. The same seed gives the same scene.
type scene struct {
	t      *testing.T
	now    time.Duration
	desk   *Core
	rng    *rand.Rand
	events events
	order  int
	look   int // number of the latest look
	share  *slot.Share
	people map[uint64]*visitor
	all    []*visitor
}

// A visitor is one visitor of the crowd, identified by its ticket number or a session of its own.
type visitor struct {
	number uint64
	stay   stayPlan
	came   time.Duration
	in     time.Duration // 0: still waiting
	told   []saidRange
}

// A saidRange is the range that a visitor got at a time.
type saidRange struct {
	at  time.Duration
	eta ETA
}

// A stayPlan is what a visitor does inside: it requests a page after each think time until it is
// done.
type stayPlan struct {
	inside, think time.Duration
	word          bool // it leaves explicitly
}

// events is a heap.Interface.
type events []event

type event struct {
	at    time.Duration
	order int
	f     func()
}

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

const sceneStart = time.Hour // in the clock of the host

// newScene returns a scene with an open room.
func newScene(t *testing.T, seed uint64, active, perMinute int64, session time.Duration) *scene {
	t.Helper()
	s := &scene{t: t, now: sceneStart, people: map[uint64]*visitor{}, rng: rand.New(rand.NewPCG(seed, 1))}
	limits := []slot.Limit{
		{Kind: slot.AtOnce, N: active, Per: session},
		{Kind: slot.PerWindow, N: perMinute, Per: time.Minute},
	}
	s.desk = NewCore(Config{
		Room: "shop", Host: "a", Random: s.rng.Float64,
		Settings: Settings{Active: limits[0], New: limits[1], Spread: true, Line: LineConfig{
			MaxWaiting: 1 << 20, PollMin: time.Second, PollMax: 30 * time.Second, Hold: 15 * time.Minute,
		}},
	}, slot.NewRecord(1, nil, limits...), true, func() { s.after(0, s.round) })
	s.share = slot.NewShare(slot.Params{}, "w", 7, limits...)
	s.desk.TakeOver(s.now)
	if err := s.desk.Begin(s.now); err != nil {
		t.Fatal(err)
	}
	s.round()
	s.flush()
	return s
}

func (s *scene) after(d time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, event{s.now + max(0, d), s.order, do})
}

// run runs the scene until a time.
func (s *scene) run(until time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= sceneStart+until {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.f()
	}
}

// round writes if a write is due, and calls the visitors that may be called, like Counter.Run.
func (s *scene) round() {
	s.write(false)
	_, next := s.desk.CallNext(s.now)
	s.look++
	mine := s.look
	s.after(max(next, groupGap), func() {
		if mine == s.look {
			s.round()
		}
	})
}

func (s *scene) write(asked bool) {
	replies, wr := s.desk.Build(s.now, asked)
	s.hear(replies)
	if wr == nil {
		return
	}
	replies, claims := s.desk.Stored(s.now)
	s.hear(replies)
	for _, c := range claims {
		s.enter(s.people[uint64(c.ID)])
	}
}

func (s *scene) hear(replies []slot.Reply) {
	for _, r := range replies {
		s.share.Receive(s.now, &r.Answer)
	}
}

// sync is a Sync of the worker: it requests slots, and reports the visitors seen inside.
func (s *scene) sync(need int64) {
	s.share.Return(s.share.Held())
	s.share.Settle(s.desk.Pool().CounterTime(s.now))
	if x := s.share.Sync(s.now, need, 0); x != nil {
		s.desk.Receive(s.now, x)
	}
	s.write(false)
}

// flush reports each second.
func (s *scene) flush() {
	s.sync(0)
	s.after(0, s.round)
	s.after(time.Second, s.flush)
}

// arrive adds a visitor at a time. It is admitted at once while slots are free and nobody waits.
func (s *scene) arrive(at time.Duration, stay stayPlan) {
	s.after(sceneStart+at-s.now, func() {
		v := &visitor{stay: stay, came: s.now}
		s.all = append(s.all, v)
		if waiting, _ := s.desk.Waiting(); waiting == 0 {
			s.sync(1)
			v.number = 1<<63 | uint64(len(s.all))
			if _, ok := s.share.Open(s.now, slot.SessionID(v.number), 0, 0); ok {
				s.enter(v)
				s.sync(0)
				return
			}
		}
		if !s.desk.IsReady(s.now, true) {
			s.write(true)
		}
		p := s.desk.Join(s.now, 15*time.Minute, 0)
		v.number = p.Number
		p = s.desk.Poll(s.now, v.number) // its cookie comes back
		s.people[p.Number] = v
		s.hears(v, p)
	})
}

// hears handles the answer to a visitor's poll.
func (s *scene) hears(v *visitor, p PlaceInfo) {
	switch p.Status {
	case slot.TicketCalled:
		s.after(20*time.Millisecond, func() {
			if s.desk.Claim(s.now, v.number, false) {
				s.after(0, s.round)
			} else {
				s.poll(v)
			}
		})
	case slot.TicketWaiting, slot.TicketLate:
		if !p.Called {
			v.told = append(v.told, saidRange{s.now, p.ETA})
		}
		if e := p.ETA; e.Known && (e.Low < 0 || e.Low > e.Expect || e.Expect > e.High) {
			s.t.Fatalf("position %d is told %v, from %v to %v", p.Position, e.Expect, e.Low, e.High)
		}
		s.after(max(p.PollAfter, time.Millisecond), func() { s.poll(v) })
	default:
		s.t.Fatalf("ticket %d is %v", v.number, p.Status)
	}
}

func (s *scene) poll(v *visitor) {
	if !s.desk.IsReady(s.now, false) {
		s.write(true)
	}
	s.hears(v, s.desk.Poll(s.now, v.number))
}

func (s *scene) enter(v *visitor) {
	v.in = s.now
	s.browse(v)
}

// browse requests pages, and then leaves.
func (s *scene) browse(v *visitor) {
	id, pool, end := slot.SessionID(v.number), s.desk.Pool(), v.in+v.stay.inside
	s.after(min(end-s.now, v.stay.think), func() {
		it := slot.Item{Op: slot.Renew, ID: id, From: pool.EndOf(id), At: pool.CounterTime(s.now)}
		if s.now >= end && v.stay.word {
			it.Op = slot.Leave
		}
		s.share.AddItem(it)
		if s.now < end {
			s.browse(v)
		}
	})
}

// A verdict is how many ranges, seen at one part of the waits, came true.
type verdict struct {
	judged, early, late int
	width, wait         time.Duration // medians
}

func (v verdict) inside() float64 { return 1 - float64(v.early+v.late)/float64(max(1, v.judged)) }

// judge compares the ranges that visitors got nearest to a part of their wait with their
// admissions, without slack, as headgate crowd does.
func (s *scene) judge(part float64) (r verdict) {
	var widths, waits []time.Duration
	for _, v := range s.all {
		if v.in == 0 || len(v.told) == 0 {
			continue
		}
		at := v.came + time.Duration(part*float64(v.in-v.came))
		x := slices.MinFunc(v.told, func(a, b saidRange) int {
			return int((a.at - at).Abs() - (b.at - at).Abs())
		})
		switch wait := v.in - x.at; {
		case !x.eta.Known:
			continue
		case wait < x.eta.Low:
			r.early++
		case wait > x.eta.High:
			r.late++
		}
		r.judged++
		widths, waits = append(widths, x.eta.High-x.eta.Low), append(waits, v.in-v.came)
	}
	slices.Sort(widths)
	slices.Sort(waits)
	if r.judged > 0 {
		r.width, r.wait = widths[r.judged/2], waits[r.judged/2]
	}
	return r
}
