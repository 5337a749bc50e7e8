package server

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/webhook"
	"github.com/headgate/headgate/status"
)

// The process that hosts the counter of a room detects what happens to it. It writes that to a
// record of the room before it puts messages into the queues of the webhooks, so that the next host
// can continue from there. For limits, the host of the first webhook's queue does this.

// Parameters of the checks. Chosen: a second of delay does not matter, and a record that does not
// arrive within two is requested again. In a cluster a new host of a counter may learn of a change
// later than the host before it: it does within control.FollowEvery.
const (
	happeningEvery = time.Second
	happeningWait  = 2 * time.Second
	happeningKnown = control.FollowEvery + 2*time.Second
)

// limitsWatched is the name that stands for the limits among the watched things. No room has this
// name.
const limitsWatched = ""

// happeningKey returns the key of the record of what was sent about a room, or about the limits.
func happeningKey(room string) string {
	if room == limitsWatched {
		return "told-limits"
	}
	return "told." + room
}

// watchHappenings detects what webhooks must be sent, until ctx ends.
func (s *Server) watchHappenings(ctx context.Context) {
	tick := time.NewTicker(happeningEvery)
	defer tick.Stop()
	told := false // the failure is logged
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.lookAround(ctx)
		if err != nil && !told && ctx.Err() == nil {
			s.log.Warn("what happens is not told to webhooks yet: it is tried again", "error", err)
		}
		told = err != nil
	}
}

// lookAround checks everything that this process watches. It stops at the first error, since a
// store that fails for one fails for the others too.
func (s *Server) lookAround(ctx context.Context) error {
	h := s.hooks
	now := map[string]*watched{}
	watch := func(name string, here bool) *watched {
		if !here {
			return nil
		}
		if now[name] = h.watched[name]; now[name] == nil {
			now[name] = &watched{since: time.Now()}
		}
		return now[name]
	}
	var err error
	if all := h.all(); len(all) > 0 {
		for _, g := range s.set.Load().gates {
			st := g.room.Status()
			w := watch(g.file.Name, st.Hosted && st.Record.Damaged == "")
			if w != nil && err == nil {
				err = s.step(ctx, g.file.Name, w, s.lookAt(g, &st, w))
			}
		}
		if w := watch(limitsWatched, all[0].Hosted()); w != nil && err == nil {
			err = s.step(ctx, limitsWatched, w, s.lookAtLimits(w))
		}
	}
	h.watched = now
	return err
}

// atHome reports whether this data center sends the messages about the configuration.
func (s *Server) atHome() bool {
	k := s.node
	return !k.Linked() || k.Rooms.AnywhereHome() == k.Config.Datacenters.Own
}

// knows reports whether this process has watched long enough to have received the changes made by
// other nodes.
func (s *Server) knows(w *watched) bool {
	return s.node.Bus == nil || time.Since(w.since) > happeningKnown
}

// foundBy begins the author of limits that were found; the reason follows.
const foundBy = "auto: "

// lookAt returns the current state of a room.
func (s *Server) lookAt(g *gate, st *status.Room, w *watched) *webhook.Observation {
	l := &webhook.Observation{
		Room: g.file.Name, Waiting: st.WaitingUsers > 0, Down: !st.OriginUp, Events: g.now.EventList(),
		Wants: s.hooks.wants, Home: s.atHome(),
		Figures: &webhook.Counts{Waiting: st.WaitingUsers, Active: st.ActiveUsers,
			New: st.NewUsersLastMinute, Total: st.TotalActiveUsers, Rate: st.NewUsersPerMinute},
	}
	if st.MaxWaitSeconds >= 0 {
		l.Figures.Wait = &st.MaxWaitSeconds
	}
	active, fresh := g.now.TotalActiveUsers, g.now.NewUsersPerMinute // limits set by an event do not count
	if st.Auto != nil {
		active, fresh = st.TotalActiveUsers, st.NewUsersPerMinute
	}
	if s.knows(w) && (st.Auto != nil) == (g.now.Auto.Mode != "") { // else an event has limits of its own
		l.Limits = map[string]map[string]string{"": {
			"total_active_users":   strconv.FormatInt(active, 10),
			"new_users_per_minute": strconv.FormatInt(fresh, 10),
		}}
	}
	switch {
	case st.Auto != nil && st.Auto.Mode == config.AutoOn:
		l.By = foundBy + st.Auto.Reason
	case g.live != nil:
		l.By = g.live.By
	}
	return l
}

// lookAtLimits returns the current state of the limits of the file and of those made by the API.
// Limits of Envoy's rules come with calls, and no messages are sent about them.
func (s *Server) lookAtLimits(w *watched) *webhook.Observation {
	l := &webhook.Observation{Wants: s.hooks.wants, Home: s.atHome()}
	if !s.knows(w) {
		return l
	}
	l.Limits, l.Found = map[string]map[string]string{}, map[string]string{}
	for _, c := range s.limits.Rules.Limits() {
		if !control.IsEnvoys(c.Name) {
			l.Limits[c.Name] = api.LimitValues(c)
		}
		if a := s.limits.Found(c.Name); a != nil && c.Auto.Mode == config.AutoOn {
			l.Found[c.Name] = foundBy + a.Reason
		}
	}
	return l
}

// step records the messages that follow from an observation, and sends them.
func (s *Server) step(ctx context.Context, name string, w *watched, l *webhook.Observation) error {
	ctx, stop := context.WithTimeout(ctx, happeningWait+webhookPut)
	defer stop()
	if !w.loaded {
		if err := s.loadTold(ctx, name, w); err != nil {
			return err
		}
	}
	if err := s.sendPending(ctx, name, w); err != nil { // left by a process that died before it sent them
		return err
	}
	watch := w.watch
	newID := func() string { return "msg_" + strings.ToLower(rand.Text()) }
	next, changed := w.rec.Next(&watch, l, time.Now(), newID)
	if !changed {
		w.watch = watch
		return nil
	}
	err := s.writeTold(ctx, name, w, next)
	if errors.Is(err, store.ErrConflict) { // another process watches now, or noted an author
		return nil
	}
	if err != nil {
		return err
	}
	w.watch = watch
	return s.sendPending(ctx, name, w)
}

// sendPending puts the pending messages into the queues and records that. If the record cannot be
// written, they are put again later with the same IDs.
func (s *Server) sendPending(ctx context.Context, name string, w *watched) error {
	if len(w.rec.Pending) == 0 {
		return nil
	}
	if err := s.send(ctx, w.rec.Pending); err != nil {
		return err
	}
	err := s.writeTold(ctx, name, w, w.rec.MarkSent())
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// told returns the record of what was sent about a room. One that cannot be read is started anew.
func (s *Server) told(name string) *store.Doc[webhook.Record] {
	lost := func(err error) {
		s.log.Error("what webhooks were told cannot be read: it may be told again", "room", name, "error", err)
	}
	return &store.Doc[webhook.Record]{Store: s.node.Records, Key: happeningKey(name), Lost: lost,
		Encode: webhook.Record.Encode,
		Decode: func(b []byte) (webhook.Record, error) {
			rec, err := webhook.Parse(b)
			if err != nil {
				lost(err)
			}
			return rec, nil
		}}
}

// loadTold reads the record of what was sent about a room.
func (s *Server) loadTold(ctx context.Context, name string, w *watched) error {
	ctx, stop := context.WithTimeout(ctx, happeningWait)
	defer stop()
	rec, revision, err := s.told(name).Load(ctx)
	if err == nil {
		w.rec, w.revision, w.loaded = rec, revision, true
	}
	return err
}

// writeTold writes the record, unless it was changed by others since it was read.
func (s *Server) writeTold(ctx context.Context, name string, w *watched, next webhook.Record) (err error) {
	ctx, stop := context.WithTimeout(ctx, happeningWait)
	defer stop()
	if w.revision, err = s.told(name).Swap(ctx, w.revision, next); err != nil {
		w.loaded = false // it may have been written all the same
		return err
	}
	w.rec = next
	return nil
}

// noteWait bounds how long a change waits until its author is recorded. Chosen: the change matters
// more.
const noteWait = time.Second

// noteChange records who is about to change a limit: a limit of a room, or, if room is "", the
// named rate limit. keys are the keys of the changed values, nil for all. Without this record the
// message names the configuration as the author.
func (s *Server) noteChange(ctx context.Context, room, limit string, keys []string, by string) {
	if by == "" || !s.hooks.wants(webhook.LimitChanged, room) {
		return
	}
	ctx, stop := context.WithTimeout(ctx, noteWait)
	defer stop()
	note := webhook.Note{Limit: limit, Keys: keys, By: by, At: time.Now().UTC()}
	_, err := s.told(room).Edit(ctx, func(rec *webhook.Record) (bool, error) {
		if rec.Format == 0 {
			return false, nil
		}
		*rec = rec.AddNote(note)
		return true, nil
	})
	if err != nil {
		s.log.Debug("not noted who changes a limit", "room", room, "limit", limit, "error", err)
	}
}
