package counter

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// Abroad is the counter of a room in another data centre: where the stays and the places
// of its visitors are, wherever they go. A process without a link asks through the node
// that hosts the room here. It may be used by many goroutines at once.
type RemoteCounter struct {
	ticketDesk
	cfg  Config
	bus  *store.Bus
	site string
}

// NewAbroad makes the way to a room's counter in another data centre, from the
// configuration of the room's own.
func NewRemoteCounter(cfg Config, bus *store.Bus, site string) *RemoteCounter {
	a := &RemoteCounter{cfg: cfg, bus: bus, site: site}
	a.ticketDesk = ticketDesk{a.ask}
	return a
}

// via is the name under which a host passes on what is for another data centre.
func via(site, kind, room string) string { return "via." + site + "." + kind + "." + room }

// passes are what a host passes on.
func passes() []string { return []string{"asks", "sync"} }

// passOn passes a message on to another data centre.
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

// carry asks once.
func (a *RemoteCounter) carry(ctx context.Context, kind string, msg []byte) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, aboveTry)
	defer stop()
	if a.cfg.Sites.cfg.Links[a.site] == nil {
		return a.bus.Request(ctx, via(a.site, kind, a.cfg.Room), msg)
	}
	return a.cfg.Sites.Request(ctx, a.site, kind+"."+a.cfg.Room, msg)
}

// ask asks until the host answers, for writeWait at most.
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

// Suspect tells the host of a pass that says more than any could.
func (a *RemoteCounter) ReportSuspectPass(ctx context.Context) {
	if _, err := a.ask(ctx, request{op: opSuspect}); err != nil {
		a.cfg.Log.Warn("host not told that its record may be old", "room", a.cfg.Room,
			"datacenter", a.site, "error", err)
	}
}

// Sync asks the host until it answers; only ctx ends that.
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

// A SiteTime bounds the time of another data centre's counter, as the host of the room here
// knows it from the pictures.
type RemoteTime struct {
	Life   uint64
	Hi     slot.Time // it is not later there
	Served uint64    // all tickets below were called when it was last heard
	Lanes  []uint64  // the same of each lane, by its line
	Passed []uint64  // tickets below that waited all the same
	Known  bool
}

// siteTime is what is known of a data centre's time now.
func (c *Counter) siteTime(site string) RemoteTime {
	s := c.sitesState()
	if s == nil {
		return RemoteTime{}
	}
	for i := range s.All {
		if x := &s.All[i]; x.Site == site {
			return RemoteTime{Life: x.Life, Hi: x.Hi, Served: x.Served, Lanes: x.Lanes, Passed: x.Passed,
				Known: x.Hi > 0}
		}
	}
	return RemoteTime{}
}

// answerTime tells what is known of the data centre that msg names.
func (c *Counter) answerTime(_ context.Context, msg []byte) []byte {
	b, err := json.Marshal(c.siteTime(string(msg)))
	if err != nil {
		return nil
	}
	return b
}

// SiteTime tells what is known here of the time of another data centre.
func (c *Counter) RemoteTime(_ context.Context, site string) (RemoteTime, error) {
	return c.siteTime(site), nil
}

// reach is how far a data centre is, by its last picture.
func (s *DatacentersState) reach(site string) (late, silent bool) {
	if s == nil {
		return false, false
	}
	for i := range s.All {
		if x := &s.All[i]; x.Site == site {
			age := x.Age
			if age < 0 { // nothing has come since there is anybody here to hear it
				age = s.Since
			}
			return age > siteLate, age > siteSilent
		}
	}
	return false, false
}

// Reach reports whether a data centre is late to show itself, and whether it is out of
// reach.
func (c *Counter) Reachability(site string) (late, silent bool) { return c.sitesState().reach(site) }

// Reach reports whether a data centre is late to show itself, and whether it is out of
// reach, as the host said last.
func (s *Handle) Reachability(site string) (late, silent bool) {
	return s.State(0, 0).Sites.reach(site)
}

// SiteTime asks the room's host here what it knows of the time of another data centre.
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
	t.Hi = t.Hi.Add(s.cfg.Params.WithDefaults().Rho.Stretch(s.cfg.Boot() - sent))
	return t, err
}
