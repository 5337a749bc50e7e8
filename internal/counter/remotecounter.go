package counter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"

	"github.com/headgate/headgate/internal/persons"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// A RemoteCounter is the counter of a room in another data center. Sessions and places of that data
// center's visitors stay with it when they roam. A process without a link of its own sends its
// requests through the node that hosts the room here. It may be used by many goroutines at once.
type RemoteCounter struct {
	ticketDesk
	cfg  Config
	bus  *store.Bus
	site string
}

// NewRemoteCounter returns the counter of a room in another data center, from the configuration of
// the own room.
func NewRemoteCounter(cfg Config, bus *store.Bus, site string) *RemoteCounter {
	a := &RemoteCounter{cfg: cfg, bus: bus, site: site}
	a.ticketDesk = ticketDesk{a.ask}
	return a
}

// People finds the counter that knows a person. With several data centers each person has a home, the same
// for all of them, whose counter has the person's place: two counters would have to agree otherwise.
type People struct {
	own    string
	here   roomHost
	abroad map[string]*RemoteCounter
}

// NewPeople returns the people of the counter of this data center.
func NewPeople(own string, here roomHost) *People {
	return &People{own: own, here: here, abroad: map[string]*RemoteCounter{}}
}

type roomHost interface {
	personHost
	Reachability(datacenter string) (late, silent bool)
}

// Add adds the counter of another data center.
func (p *People) Add(name string, c *RemoteCounter) { p.abroad[name] = c }

// Home returns the name of a person's data center, by rendezvous hashing: when one is added, people move to
// it from each of the others, and nobody else moves.
func (p *People) Home(id persons.ID) string {
	home, most := p.own, homeWeight(id, p.own)
	for name := range p.abroad {
		if w := homeWeight(id, name); w > most {
			home, most = name, w
		}
	}
	return home
}

func homeWeight(id persons.ID, datacenter string) uint64 {
	sum := sha256.Sum256(append(id[:], datacenter...))
	return binary.BigEndian.Uint64(sum[:])
}

// JoinPerson asks the counter of the person's home. While that is out of reach nobody else may answer, and no
// request waits for it.
func (p *People) JoinPerson(ctx context.Context, x PersonJoin) (PlaceInfo, slot.ClaimReply, error) {
	home := p.Home(x.Person)
	a := p.abroad[home]
	if a == nil {
		return p.here.JoinPerson(ctx, x)
	}
	if late, _ := p.here.Reachability(home); late {
		return PlaceInfo{}, slot.ClaimReply{}, ErrSlow
	}
	return a.JoinPerson(ctx, x)
}

// via returns the name under which a host forwards requests for another data center.
func via(site, kind, room string) string { return "via." + site + "." + kind + "." + room }

// passes returns the kinds of requests that a host forwards.
func passes() []string { return []string{"asks", "sync"} }

// passOn forwards a message to another data center.
func (s *Datacenters) passOn(site, name string) func(context.Context, []byte) []byte {
	return func(ctx context.Context, msg []byte) []byte {
		ctx, stop := context.WithTimeout(ctx, aboveTry)
		defer stop()
		b, err := s.Request(ctx, site, name, msg)
		if err != nil {
			return nil
		}
		return b
	}
}

// carry sends a request once.
func (a *RemoteCounter) carry(ctx context.Context, kind string, msg []byte) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, aboveTry)
	defer stop()
	if a.cfg.Datacenters.cfg.Links[a.site] == nil {
		return a.bus.Request(ctx, via(a.site, kind, a.cfg.Room), msg)
	}
	return a.cfg.Datacenters.Request(ctx, a.site, kind+"."+a.cfg.Room, msg)
}

// ask sends a request until the host answers, for at most writeWait.
func (a *RemoteCounter) ask(ctx context.Context, q request) (r reply, err error) {
	ctx, stop := context.WithTimeout(ctx, writeWait)
	defer stop()
	msg := appendRequests(nil, []request{q})
	for {
		b, err := a.carry(ctx, "asks", msg)
		if err == nil {
			var all []reply
			all, err = parseReplies(b)
			if err == nil && len(all) == 1 && !errors.Is(all[0].fault.err(), ErrFenced) {
				return all[0], all[0].fault.err()
			}
		}
		if !wait(ctx, askAgain) {
			return r, ErrSlow
		}
	}
}

// ReportSuspectPass reports to the host a pass that cannot exist if the record is complete.
func (a *RemoteCounter) ReportSuspectPass(ctx context.Context) {
	if _, err := a.ask(ctx, request{op: opSuspect}); err != nil {
		a.cfg.Log.Warn("old record not reported to the host", "room", a.cfg.Room,
			"datacenter", a.site, "error", err)
	}
}

// Sync sends a Sync to the host until the host answers or ctx ends.
func (a *RemoteCounter) Sync(ctx context.Context, x *slot.Sync) (got slot.Answer, err error) {
	msg, err := x.AppendBinary(nil)
	if err != nil {
		return got, err
	}
	for {
		b, err := a.carry(ctx, "sync", msg)
		if err == nil && got.UnmarshalBinary(b) == nil {
			return got, nil
		}
		if !wait(ctx, repeatEvery) {
			return got, ctx.Err()
		}
	}
}

// A RemoteTime limits the counter time of another data center, as the host of the room here knows
// it from the snapshots.
type RemoteTime struct {
	Life   uint64
	Hi     slot.Time // its time is at most this
	Served uint64    // at the last snapshot all lower tickets were called
	Lanes  []uint64  // the same for each lane, by line
	Passed []uint64  // exceptions: lower tickets that waited
	Known  bool
}

// siteTime returns what is known now of a data center's time.
func (c *Counter) siteTime(site string) RemoteTime {
	s := c.sitesState()
	if s == nil {
		return RemoteTime{}
	}
	for i := range s.All {
		if x := &s.All[i]; x.Datacenter == site {
			return RemoteTime{Life: x.Life, Hi: x.Hi, Served: x.Served, Lanes: x.Lanes, Passed: x.Passed,
				Known: x.Hi > 0}
		}
	}
	return RemoteTime{}
}

// answerTime answers what is known of the data center that msg names.
func (c *Counter) answerTime(_ context.Context, msg []byte) []byte {
	b, err := json.Marshal(c.siteTime(string(msg)))
	if err != nil {
		return nil
	}
	return b
}

// RemoteTime returns what this host knows of the time of another data center.
func (c *Counter) RemoteTime(_ context.Context, site string) (RemoteTime, error) {
	return c.siteTime(site), nil
}

// reach returns whether a data center is late or out of reach, by the age of its last snapshot.
func (s *DatacentersState) reach(site string) (late, silent bool) {
	if s == nil {
		return false, false
	}
	for i := range s.All {
		if x := &s.All[i]; x.Datacenter == site {
			age := x.Age
			if age < 0 { // none received since this host started
				age = s.Since
			}
			return age > siteLate, age > siteSilent
		}
	}
	return false, false
}

// Reachability reports whether the snapshot of a data center is late, and whether the data center
// is out of reach.
func (c *Counter) Reachability(site string) (late, silent bool) { return c.sitesState().reach(site) }

// Reachability reports whether the snapshot of a data center is late, and whether the data center
// is out of reach, as the host last published.
func (s *Handle) Reachability(site string) (late, silent bool) {
	return s.State(0, 0).Datacenters.reach(site)
}

// RemoteTime asks the host of the room here for what it knows of the time of another data center.
func (s *Handle) RemoteTime(ctx context.Context, site string) (t RemoteTime, err error) {
	if c := s.host.Load(); c != nil {
		return c.siteTime(site), nil
	}
	ctx, stop := context.WithTimeout(ctx, aboveTry)
	defer stop()
	sent := s.cfg.Boot()
	b, err := s.bus.Request(ctx, s.name("time"), []byte(site))
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	t.Hi = t.Hi.Add(s.cfg.Params.WithDefaults().Drift.Stretch(s.cfg.Boot() - sent))
	return t, err
}

// WasCalled reports whether a ticket of the data center had been called at the last snapshot.
func (t *RemoteTime) WasCalled(number uint64) bool {
	lane := slot.LaneIndex(number)
	switch {
	case slices.Contains(t.Passed, number):
		return false
	case lane == 0:
		return number < t.Served
	}
	return lane <= len(t.Lanes) && number < t.Lanes[lane-1]
}
