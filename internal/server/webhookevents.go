package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/internal/webhook"
)

// What happens to a room is found out by the process that counts it, and written into a record of the
// room before it is put into the queues of the webhooks: whoever counts the room next goes on from
// there. Of limits it is the process that hosts the queue of the first webhook.

// Parameters of looking. Chosen: nobody minds a second, and a record that is not there within two
// is looked for again. In a cluster a node that has just begun to count a room may know a change
// later than who counted it before: it finds it within control.FollowEvery.
const (
	happeningEvery = time.Second
	happeningWait  = 2 * time.Second
	happeningKnown = control.FollowEvery + 2*time.Second
)

// limitsWatched is the name of the limits among what is watched. No room has it.
const limitsWatched = ""

// A watched is a room, or the limits, while this process finds out what happens to it.
type watched struct {
	since    time.Time
	loaded   bool
	rec      webhook.Record
	revision uint64
	watch    webhook.Watch
}

// happeningKey is the record of what was told of a room, or of the limits.
func happeningKey(room string) string {
	if room == limitsWatched {
		return "told-limits"
	}
	return "told." + room
}

// watchHappenings finds out what there is to be told, until ctx ends.
func (s *Server) watchHappenings(ctx context.Context) {
	tick := time.NewTicker(happeningEvery)
	defer tick.Stop()
	told := false // that it fails
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

// lookAround looks at all that this process watches. It ends with the first error: what does not
// answer for one does not for the others.
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

// atHome reports whether what the configuration says is told by this data centre.
func (s *Server) atHome() bool {
	k := s.node
	return !k.Linked() || k.Rooms.AnywhereHome() == k.Config.Datacenters.Own
}

// knows reports whether who watches has the changes that were made elsewhere.
func (s *Server) knows(w *watched) bool {
	return s.node.Bus == nil || time.Since(w.since) > happeningKnown
}

// lookAt is how a room is now.
func (s *Server) lookAt(g *gate, st *headgate.Status, w *watched) *webhook.Observation {
	l := &webhook.Observation{
		Room: g.file.Name, Waiting: st.WaitingUsers > 0, Down: !st.OriginUp, Events: g.now.EventList(),
		Wants: s.hooks.wants, Home: s.atHome(),
		Figures: &webhook.Counts{Waiting: st.WaitingUsers, Active: st.ActiveUsers,
			New: st.NewUsersLastMinute, Total: st.TotalActiveUsers, Rate: st.NewUsersPerMinute},
	}
	if st.MaxWaitSeconds >= 0 {
		l.Figures.Wait = &st.MaxWaitSeconds
	}
	if s.knows(w) {
		l.Limits = map[string]map[string]string{"": {
			"total_active_users":   strconv.FormatInt(g.now.TotalActiveUsers, 10),
			"new_users_per_minute": strconv.FormatInt(g.now.NewUsersPerMinute, 10),
		}}
	}
	if g.live != nil {
		l.By = g.live.By
	}
	return l
}

// lookAtLimits is how the limits of the file, and those that were made, are now. Those of Envoy's
// rules are brought along by calls, and are told to nobody.
func (s *Server) lookAtLimits(w *watched) *webhook.Observation {
	l := &webhook.Observation{Wants: s.hooks.wants, Home: s.atHome()}
	if !s.knows(w) {
		return l
	}
	l.Limits = map[string]map[string]string{}
	for _, c := range s.limits.Rules.Limits() {
		if !control.IsEnvoys(c.Name) {
			l.Limits[c.Name] = api.LimitValues(c)
		}
	}
	return l
}

// step writes down what there is to be told after a look, and sends it.
func (s *Server) step(ctx context.Context, name string, w *watched, l *webhook.Observation) error {
	ctx, stop := context.WithTimeout(ctx, happeningWait+webhookPut)
	defer stop()
	if !w.loaded {
		if err := s.loadTold(ctx, name, w); err != nil {
			return err
		}
	}
	if err := s.sendPending(ctx, name, w); err != nil { // of who has died before it was sent
		return err
	}
	watch := w.watch
	next, changed := w.rec.Next(&watch, l, time.Now(), newMessageID)
	if !changed {
		w.watch = watch
		return nil
	}
	err := s.writeTold(ctx, name, w, next)
	if errors.Is(err, store.ErrConflict) { // another has begun to watch, or noted who changes what
		return nil
	}
	if err != nil {
		return err
	}
	w.watch = watch
	return s.sendPending(ctx, name, w)
}

func newMessageID() string { return "msg_" + strings.ToLower(rand.Text()) }

// sendPending puts what is pending into the queues, and writes down that it is there. If that is
// not written they are put again, with the same IDs.
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

// loadTold reads what was told of a room. What cannot be read is begun anew.
func (s *Server) loadTold(ctx context.Context, name string, w *watched) error {
	ctx, stop := context.WithTimeout(ctx, happeningWait)
	defer stop()
	value, revision, err := s.node.Records.Load(ctx, happeningKey(name))
	switch {
	case errors.Is(err, store.ErrNotFound):
	case errors.Is(err, store.ErrDamaged):
		s.log.Error("what webhooks were told is lost: it may be told again", "room", name, "error", err)
	case err != nil:
		return fmt.Errorf("read %s: %w", happeningKey(name), err)
	}
	rec, err := webhook.Parse(value)
	if err != nil {
		s.log.Error("what webhooks were told cannot be read: it may be told again", "room", name, "error", err)
	}
	w.rec, w.revision, w.loaded = rec, revision, true
	return nil
}

// writeTold writes the record, if nobody else has since it was read.
func (s *Server) writeTold(ctx context.Context, name string, w *watched, next webhook.Record) error {
	ctx, stop := context.WithTimeout(ctx, happeningWait)
	defer stop()
	value, err := next.Encode()
	if err == nil {
		w.revision, err = s.node.Records.CompareAndSwap(ctx, happeningKey(name), w.revision, value)
	}
	if err != nil {
		w.loaded = false // it may be there all the same
		return fmt.Errorf("write %s: %w", happeningKey(name), err)
	}
	w.rec = next
	return nil
}

// noteWait bounds how long a change waits for the note of who makes it. Chosen: the change matters more.
const noteWait = time.Second

// noteChange notes who is about to change a limit: of a room, or, where that is "", one by name. keys are
// those of the values, nil for all. Without the note the message says that the configuration has.
func (s *Server) noteChange(ctx context.Context, room, limit string, keys []string, by string) {
	if by == "" || !s.hooks.wants(webhook.LimitChanged, room) {
		return
	}
	ctx, stop := context.WithTimeout(ctx, noteWait)
	defer stop()
	for {
		w := &watched{}
		err := s.loadTold(ctx, room, w)
		if err == nil && w.rec.Format != 0 {
			note := webhook.Note{Limit: limit, Keys: keys, By: by, At: time.Now().UTC()}
			err = s.writeTold(ctx, room, w, w.rec.AddNote(note))
		}
		switch {
		case err == nil:
			return
		case ctx.Err() != nil || !errors.Is(err, store.ErrConflict):
			s.log.Debug("not noted who changes a limit", "room", room, "limit", limit, "error", err)
			return
		}
	}
}

// webhooks tells how the webhooks fare: what this process has sent, and what waits at the one that
// hosts the queue.
func (c *collector) webhooks(ch chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), collectWait)
	defer stop()
	for _, w := range slices.Clone(c.s.hooks.all()) {
		send := func(kind prometheus.ValueType, name, help string, v float64) {
			d := prometheus.NewDesc(name, help, []string{"webhook"}, nil)
			ch <- prometheus.MustNewConstMetric(d, kind, v, w.file.Name)
		}
		send(prometheus.CounterValue, "headgate_webhook_sent_total", "Messages that the receiver has taken.",
			float64(w.post.sent.Load()))
		send(prometheus.CounterValue, "headgate_webhook_failed_total", "Attempts to send that have failed.",
			float64(w.post.failed.Load()))
		send(prometheus.CounterValue, "headgate_webhook_dropped_total", "Messages given up.",
			float64(w.post.dropped.Load()))
		if !w.Hosted() {
			continue
		}
		if st, err := w.Status(ctx); err == nil {
			send(prometheus.GaugeValue, "headgate_webhook_waiting_messages", "Messages not yet taken.",
				float64(st.Depth))
			send(prometheus.GaugeValue, "headgate_webhook_oldest_seconds",
				"Since the oldest of them was put.", st.OldestAge)
		}
		st, err := w.post.state(ctx)
		if err != nil {
			continue
		}
		off := 0.0
		if st.off(w.file.URL) {
			off = 1
		}
		send(prometheus.GaugeValue, "headgate_webhook_off", "1 if the receiver has answered 410 Gone.", off)
	}
}
