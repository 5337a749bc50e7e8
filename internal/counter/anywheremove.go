package counter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// Anywhere moves only by an operator's command. It never moves by itself, because a home that is
// only cut off would continue to lend (docs/protocol.md §9).

// moveWait limits one step of a move. Chosen: enough for a few writes and round trips.
const moveWait = 5 * time.Second

// maxMoved limits the size of a record that is sent to another data center, in bytes. Chosen: a
// typical record has a few KB.
const maxMoved = 256 << 10

var errNotHere = errors.New("nobody hosts it there now: try again")

// moveAway makes the next write of this host the last write of the record, and returns that record.
func (c *Counter) moveAway(ctx context.Context, to string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() || c.isAnywhere() && c.pool.Quiet(c.cfg.Boot()) > 0 {
		return nil, errNotHere
	}
	c.pool.MoveTo(to)
	for c.pool.Record().MovedTo != to {
		if err := c.awaitWrite(ctx); err != nil {
			c.pool.MoveTo("") // a write in flight may still contain it
			return nil, err
		}
	}
	return c.pool.Record().AppendBinary(nil)
}

// answerMove moves Anywhere to the data center that msg names, and returns its last record.
func (c *Counter) answerMove(ctx context.Context, msg []byte) []byte {
	to := string(msg)
	if !c.isAnywhere() || !c.cfg.Datacenters.knows(to) || to == c.cfg.Datacenters.Own() {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, moveWait)
	defer stop()
	b, err := c.moveAway(ctx, to)
	if err != nil {
		c.cfg.Log.Warn("Anywhere not moved", "room", c.cfg.Room, "error", err)
		return nil
	}
	c.cfg.Log.Info("Anywhere has moved", "room", c.cfg.Room, "to", to)
	return b
}

// serveMoves answers requests about records that no node hosts: records that have left this data
// center, and records that arrive. Each process that may host Anywhere runs it.
func (s *Datacenters) serveMoves() (stop func(), err error) {
	left, err := s.both("left", s.answerLeft)
	if err != nil {
		return left, err
	}
	take, err := s.both("take", s.answerTake)
	if err != nil {
		left()
		return take, err
	}
	where, err := s.both("where", s.answerHome)
	return func() { left(); take(); where() }, err
}

// Check returns an error if a data center does not answer.
func (s *Datacenters) Check(ctx context.Context, site string) error {
	ctx, stop := context.WithTimeout(ctx, aboveTry)
	defer stop()
	_, err := s.Request(ctx, site, "where", nil)
	return err
}

// both serves a name for requests from this data center and from the others.
func (s *Datacenters) both(
	name string, f func(context.Context, []byte) []byte,
) (stop func(), err error) {
	one, err := s.cfg.Bus.Serve(name, f)
	if err != nil {
		return func() {}, err
	}
	two, err := s.Serve(name, f)
	return func() { one(); two() }, err
}

// answerLeft returns the record of an Anywhere that has left this data center.
func (s *Datacenters) answerLeft(ctx context.Context, msg []byte) []byte {
	ctx, stop := context.WithTimeout(ctx, storeWait)
	defer stop()
	b, _, err := s.cfg.Store.Load(ctx, recordOf(anywhere(string(msg))))
	var r slot.Record
	if err != nil || r.UnmarshalBinary(b) != nil || r.MovedTo == "" {
		return nil
	}
	return b
}

// A taking is a record that arrives at this data center.
type taking struct {
	Room   string `json:"room"`
	Record []byte `json:"record"`
}

// answerTake stores a record that arrives here. The same record may arrive twice.
func (s *Datacenters) answerTake(ctx context.Context, msg []byte) []byte {
	var x taking
	if len(msg) > maxMoved || json.Unmarshal(msg, &x) != nil {
		return nil
	}
	if err := s.take(ctx, x); err != nil {
		return []byte(err.Error())
	}
	return []byte("ok")
}

// take stores the record of an Anywhere that moves here, unless a newer one is here already.
func (s *Datacenters) take(ctx context.Context, x taking) error {
	var r slot.Record
	if err := r.UnmarshalBinary(x.Record); err != nil {
		return err
	}
	if r.Parent != nil || len(r.Limits) != slot.MaxLimits || x.Room == "" || len(x.Room) > 64 {
		return errors.New("it is not a record of Anywhere")
	}
	r.MovedTo = ""
	b, err := r.AppendBinary(nil)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, storeWait)
	defer stop()
	key := recordOf(anywhere(x.Room))
	for {
		old, rev, err := s.cfg.Store.Load(ctx, key)
		var was slot.Record
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case was.UnmarshalBinary(old) != nil:
			return errors.New("there is a record already, and it cannot be read")
		// The message may arrive twice, and the second time after a host here has written. Its
		// record must not be replaced by the older one.
		case was.Name.Life == r.Name.Life && !r.Name.Newer(was.Name):
			return nil // already here; later hosts may have written since
		// Two Anywheres would lend the same slots twice.
		case was.Name.Life != r.Name.Life && was.MovedTo == "":
			return errors.New("an Anywhere of this room that never moved is there already")
		}
		if _, err = s.cfg.Store.CompareAndSwap(ctx, key, rev, b); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// Move moves Anywhere of one room from its home to another data center. A repeated call does the
// rest of an interrupted move. Call AnnounceAnywhere when all rooms have moved.
func (s *Datacenters) Move(ctx context.Context, room, to string) error {
	ctx, stop := context.WithTimeout(ctx, 2*moveWait)
	defer stop()
	home := s.Home()
	b, err := s.Request(ctx, home, "move."+anywhere(room), []byte(to))
	if err != nil || len(b) == 0 { // it may have left before, and the answer was lost
		if b, err = s.Request(ctx, home, "left", []byte(room)); err != nil {
			return fmt.Errorf("its home %s does not answer: if that data center is down, "+
				"and will not come back with its data, repeat the command with --home-is-off: %w", home, err)
		}
	}
	switch sent := movedTo(b); {
	case len(b) == 0:
		return errNotHere
	case sent != to:
		return fmt.Errorf("%w: move it to %s first", errElsewhere, sent)
	}
	return s.send(ctx, to, taking{Room: room, Record: b})
}

// send sends a record to a data center, which stores it.
func (s *Datacenters) send(ctx context.Context, to string, x taking) error {
	msg, err := json.Marshal(x)
	if err != nil {
		return err
	}
	b, err := s.Request(ctx, to, "take", msg)
	if err != nil {
		return fmt.Errorf("%s does not take it: repeat the command: %w", to, err)
	}
	if text := string(b); text != "ok" {
		return fmt.Errorf("%s does not take it: %s", to, strings.TrimSpace(text))
	}
	return nil
}

// AnnounceAnywhere publishes to all data centers the new home of Anywhere, for all rooms.
func (s *Datacenters) AnnounceAnywhere(ctx context.Context, to string) error {
	h := AnywhereHome{Datacenter: to, Moves: s.HomeNow().Moves + 1}
	if err := s.keepHome(ctx, h); err != nil {
		return err
	}
	s.learnHome(h)
	b, err := json.Marshal(h)
	if err == nil {
		err = s.Publish("home", b)
	}
	if err != nil { // the snapshots carry it too
		s.cfg.Log.Warn("new home of Anywhere not published to all data centers", "error", err)
	}
	return nil
}

// RecreateAnywhere makes a new record of Anywhere in this data center when the old home and its
// record are lost. This data center becomes the home. All slots are presumed lent until the data
// centers report what they hold.
func (s *Handle) RecreateAnywhere(ctx context.Context, known State) error {
	s.mu.Lock()
	cfg := s.cfg
	cfg.Settings = s.set
	s.mu.Unlock()
	if known.Datacenters == nil {
		return errors.New("the state of the data centers is not known yet: try again")
	}
	var newest slot.WriteName
	for i := range known.Datacenters.All {
		if x := known.Datacenters.All[i].Seen; newest.Life == 0 || x.Newer(newest) {
			newest = x
		}
	}
	if newest.Life == 0 {
		return errors.New("this data center has never received the state of Anywhere: move it to one that has")
	}
	// The lost home may have had later hosts whose writes never reached this data center. Each
	// later host adds at most 2^17 to the epoch.
	newest.Epoch, newest.Writes = newest.Epoch+1<<32, newest.Writes+1<<32
	r := slot.NewRecord(newest.Life, nil, cfg.Active, cfg.New)
	s.longest(ctx, r)
	r.Presume(cfg.Params, newest, known.Datacenters.Any)
	b, err := r.AppendBinary(nil)
	if err != nil {
		return err
	}
	return s.cfg.Datacenters.send(ctx, s.cfg.Datacenters.Own(), taking{Room: s.cfg.Room[1:], Record: b})
}

// longest copies the longest session lengths from the record of the room's own counter: a session
// that began before a setting was lowered may last longer than the setting says.
func (s *Handle) longest(ctx context.Context, r *slot.Record) {
	ctx, stop := context.WithTimeout(ctx, storeWait)
	defer stop()
	b, _, err := s.cfg.Store.Load(ctx, recordOf(s.cfg.Room[1:]))
	var own slot.Record
	if err != nil || own.UnmarshalBinary(b) != nil || len(own.Limits) != len(r.Limits) {
		return
	}
	for i := range r.Limits {
		r.Limits[i].Longest = max(r.Limits[i].Longest, own.Limits[i].Longest)
	}
}

// answerOff takes back the slots lent to the data centers that msg names, because an operator
// declares that they are down. It returns the names of those it still waits for.
func (c *Counter) answerOff(ctx context.Context, msg []byte) []byte {
	off := slices.DeleteFunc(strings.Split(string(msg), ","),
		func(site string) bool { return !c.cfg.Datacenters.knows(site) })
	ctx, stop := context.WithTimeout(ctx, moveWait)
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone() {
		return nil
	}
	c.off = append(slices.DeleteFunc(c.off, c.pool.IsHeard), off...) // a data center that is back is not down
	slices.Sort(c.off)
	c.off = slices.Compact(c.off)
	others := append(slices.Clone(c.cfg.Datacenters.Names()), c.cfg.Datacenters.Own())
	others = slices.DeleteFunc(others, func(site string) bool { return slices.Contains(c.off, site) })
	clk := c.cfg.Boot()
	missing := c.pool.DeclareOff(clk, off, others)
	if err := c.awaitWrite(ctx); err != nil {
		return nil
	}
	c.cfg.Log.Warn("an operator has declared data centers down", "room", c.cfg.Room, "off", off, "not heard",
		missing)
	return []byte("ok " + strings.Join(missing, ","))
}

// MarkDown declares to Anywhere of a room that data centers are down. Their slots return when their
// sessions have certainly ended. missing lists other data centers that have not reported; their
// slots are presumed lent for as long as they might be in use.
func (s *Datacenters) MarkDown(
	ctx context.Context, room string, sites []string,
) (missing []string, err error) {
	ctx, stop := context.WithTimeout(ctx, moveWait)
	defer stop()
	b, err := s.Request(ctx, s.Home(), "off."+anywhere(room), []byte(strings.Join(sites, ",")))
	if err != nil {
		return nil, fmt.Errorf("its home %s does not answer: %w", s.Home(), err)
	}
	rest, ok := strings.CutPrefix(string(b), "ok ")
	if !ok {
		return nil, errNotHere
	}
	return slices.DeleteFunc(strings.Split(rest, ","), func(x string) bool { return x == "" }), nil
}

// errElsewhere reports that Anywhere of a room was already sent to another data center and may
// still arrive there.
var errElsewhere = errors.New("it was sent elsewhere before, and may arrive there")

// movedTo returns the destination to which a record was sent, or "" if it was not sent.
func movedTo(b []byte) string {
	var r slot.Record
	if r.UnmarshalBinary(b) != nil {
		return ""
	}
	return r.MovedTo
}

// stuck notes that Anywhere of a room has left this data center but has not arrived at its
// destination.
func (s *Datacenters) stuck(ctx context.Context, room string) (to string) {
	to = movedTo(s.answerLeft(ctx, []byte(room)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = to
	return to
}

// FinishMove completes an interrupted move from this data center for all rooms. It returns the
// destination, or "" if there is nothing to complete.
func (s *Datacenters) FinishMove(ctx context.Context, rooms []string) (to string, err error) {
	s.mu.Lock()
	to = s.left
	if s.home.Datacenter != s.cfg.Own { // the move is complete
		s.left, to = "", ""
	}
	s.mu.Unlock()
	if to == "" {
		return "", nil
	}
	ctx, stop := context.WithTimeout(ctx, 2*moveWait)
	defer stop()
	if err := s.allAgree(ctx); err != nil {
		return to, err
	}
	for _, room := range rooms {
		if err := s.Move(ctx, room, to); err != nil {
			return to, fmt.Errorf("room %s: %w", room, err)
		}
	}
	return to, s.AnnounceAnywhere(ctx, to)
}

// allAgree asks every other data center where Anywhere lives. It returns an error unless all of
// them answer that Anywhere lives here.
func (s *Datacenters) allAgree(ctx context.Context) error {
	errs := make([]error, len(s.cfg.Names))
	var wg sync.WaitGroup
	for i, site := range s.cfg.Names {
		wg.Go(func() { errs[i] = s.agrees(ctx, site) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Datacenters) agrees(ctx context.Context, site string) error {
	b, err := s.Request(ctx, site, "where", nil)
	var h AnywhereHome
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err == nil {
		err = s.takeHome(ctx, h)
	}
	if err == nil && h.Datacenter != s.cfg.Own {
		err = fmt.Errorf("it says that Anywhere lives at %s", h.Datacenter)
	}
	if err != nil {
		return fmt.Errorf("data center %s must agree: %w", site, err)
	}
	return nil
}

// Run keeps the home of Anywhere up to date until ctx ends.
func (s *Datacenters) Run(ctx context.Context) error {
	stop, err := s.Subscribe("home", func(msg []byte) { s.hearHome(ctx, msg) })
	if err != nil {
		return err
	}
	defer stop()
	stopMoves := func() {}
	if len(s.cfg.Links) > 0 {
		if stopMoves, err = s.serveMoves(); err != nil {
			return err
		}
	}
	defer stopMoves()
	tick := time.NewTicker(homeEvery)
	defer tick.Stop()
	for {
		if h, err := s.readHome(ctx); err == nil {
			s.learnHome(h)
		}
		if s.IsLinked() && s.Home() == s.cfg.Own { // repeated until another data center has answered
			if err := s.ConfirmHome(ctx, false); err != nil {
				s.cfg.Log.Debug("home not confirmed by another data center", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
