package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/internal/webhook"
	"github.com/headgate/headgate/queue"
)

// Parameters of delivery. Chosen: attempts from a second to an hour apart, for three days as
// Standard Webhooks recommends, one message of a webhook at a time. The waiting messages take about
// 10 MB.
const (
	webhookTimeout  = 15 * time.Second
	webhookBackoff  = time.Hour
	webhookAttempts = 10_000 // more than fit into three days
	webhookWaiting  = 10_000
	webhookBytes    = 64 << 20
	webhookKeys     = 24 * time.Hour
	webhookPut      = 5 * time.Second
)

// openWebhooks finds or creates the queues of the webhooks.
func (s *Server) openWebhooks(ctx context.Context) error {
	s.hooks = &webhooks{leaving: map[string]*task{}, watched: map[string]*watched{}}
	set := []*openWebhook{}
	for i := range s.cfg.Webhooks {
		w, err := s.openWebhook(ctx, &s.cfg.Webhooks[i], nil)
		if err != nil {
			return err
		}
		set = append(set, w)
	}
	s.hooks.set.Store(&set)
	return nil
}

// openWebhook prepares what a webhook needs. was is the former webhook of this name, or nil.
func (s *Server) openWebhook(
	ctx context.Context, c *config.Webhook, was *openWebhook,
) (*openWebhook, error) {
	w := &openWebhook{file: *c, choice: webhook.Filter{Kinds: c.On, Rooms: c.Rooms}}
	w.target = &target{queue: config.WebhookQueue + c.Name, keyIsID: true, log: s.log, dial: s.machine.Dial,
		file: *targetOf(c)}
	err := w.target.readLocked() // no lock needed: not shared yet
	switch {
	case err != nil:
	case was != nil:
		w.Queue, w.post, w.runs = was.Queue, was.post, was.runs
		return w, nil
	default:
		w.post = &webhookPost{name: c.Name, store: s.node.Records, log: s.log}
		w.post.set.Store(w)
		w.Queue, err = s.openWebhookQueue(ctx, w)
	}
	if err != nil {
		return nil, fmt.Errorf("webhook %q: %w", c.Name, err)
	}
	return w, nil
}

func (s *Server) openWebhookQueue(ctx context.Context, w *openWebhook) (*queue.Queue, error) {
	slow, err := deliver.NewThrottle(deliver.Pace{}) // not shared: another webhook's receiver may be healthy
	if err != nil {
		return nil, err
	}
	k := s.node
	c := queue.Config{
		Name: w.target.queue, Handler: w.post, Throttle: slow, Burst: true, Concurrency: 1,
		MaxAttempts: webhookAttempts, MinBackoff: time.Second, MaxBackoff: webhookBackoff,
		Outcomes: -1, KeyWindow: webhookKeys, MaxWaiting: webhookWaiting, MaxBytes: webhookBytes,
		NATS: k.Config.NATS, Replicas: k.Config.Replicas, Node: k.Config.Node,
		HostRank: k.Rooms.HostRank, Log: s.log,
		Boot: s.machine.Boot,
	}
	if k.Engine != nil {
		c.NATS, c.OnWriteFailure = k.Engine.Conn(), k.Engine.Heal
	}
	return queue.Open(ctx, c)
}

// runWebhook starts a webhook, after a removed one of the same name has ended. The caller holds
// turn.
func (s *Server) runWebhook(w *openWebhook) {
	w.runs = s.runAfter(s.hooks.leaving, "webhook", w.file.Name, w.Run)
}

// webhooks prepares the webhooks of the new configuration.
func (w *swap) webhooks(ctx context.Context) error {
	for i := range w.new.cfg.Webhooks {
		c := &w.new.cfg.Webhooks[i]
		was := w.s.hooks.find(c.Name)
		if was != nil && reflect.DeepEqual(was.file, *c) && !was.target.changed() {
			w.hooks = append(w.hooks, was)
			continue
		}
		next, err := w.s.openWebhook(ctx, c, was)
		if err != nil {
			return err
		}
		if was == nil {
			w.got.Webhooks.Added = append(w.got.Webhooks.Added, c.Name)
		} else {
			w.got.Webhooks.Changed = append(w.got.Webhooks.Changed, c.Name)
		}
		w.hooks = append(w.hooks, next)
	}
	return nil
}

// commitWebhooks starts the new set of webhooks. It cannot fail.
func (w *swap) commitWebhooks(ctx context.Context) {
	h := w.s.hooks
	old := h.all()
	if w.hooks == nil {
		w.hooks = []*openWebhook{}
	}
	h.set.Store(&w.hooks)
	for _, was := range old {
		switch next := h.find(was.file.Name); {
		case next == nil:
			w.got.Webhooks.Removed = append(w.got.Webhooks.Removed, was.file.Name)
			w.s.removeWebhook(ctx, was)
		case next != was:
			next.post.set.Store(next)
			was.target.close()
		}
	}
	for _, next := range w.hooks {
		if next.runs == nil {
			w.s.runWebhook(next)
		}
	}
}

// removeWebhook ends a webhook that is no longer in the configuration, and deletes its waiting
// messages: if the name is used again, they would be out of date.
func (s *Server) removeWebhook(ctx context.Context, w *openWebhook) {
	if w.Hosted() {
		ctx, stop := context.WithTimeout(ctx, collectWait)
		if n, err := w.Purge(ctx); err != nil || n > 0 {
			s.log.Warn("webhook removed", "webhook", w.file.Name, "forgotten", n, "error", err)
		}
		stop()
	}
	leave(s.hooks.leaving, w.file.Name, w.runs)
}

// send puts messages into the queues of the webhooks that want them. A message for a full queue is
// dropped. After any other error the caller must send again.
func (s *Server) send(ctx context.Context, all []webhook.Message) error {
	ctx, stop := context.WithTimeout(ctx, webhookPut)
	defer stop()
	for _, w := range s.hooks.all() {
		var jobs []queue.Job
		for i := range all {
			if m := &all[i]; w.choice.Wants(m.Kind, m.Room) {
				jobs = append(jobs, messageJob(m.ID, m.Body(s.node.About.Datacenter, w.file.Dashboard)))
			}
		}
		if err := w.put(ctx, jobs); err != nil {
			return fmt.Errorf("webhook %q: %w", w.file.Name, err)
		}
	}
	return nil
}

func messageJob(id string, body []byte) queue.Job {
	return queue.Job{Key: id, Body: body, Headers: map[string]string{"Content-Type": "application/json"}}
}

// testWebhook sends a message of the kind test.
func (s *Server) testWebhook(ctx context.Context, name, by string) (id string, err error) {
	w := s.hooks.find(name)
	if w == nil {
		return "", api.ErrNoWebhook
	}
	ctx, stop := context.WithTimeout(ctx, webhookPut)
	defer stop()
	id = testPrefix + strings.ToLower(rand.Text())
	body := webhook.TestBody(name, by, s.node.About.Datacenter, w.file.Dashboard, time.Now())
	_, err = w.Put(ctx, []queue.Job{messageJob(id, body)})
	return id, err
}

// listWebhooks returns the state of all webhooks.
func (s *Server) listWebhooks(ctx context.Context) (all []api.Webhook) {
	for _, w := range s.hooks.all() {
		x := api.Webhook{Name: w.file.Name, Address: addressOf(w.file.URL), On: w.file.On,
			Rooms: append([]string{}, w.file.Rooms...)}
		q, err := w.Status(ctx)
		if err != nil {
			x.Why = err.Error()
		}
		x.Node, x.Waiting, x.Oldest = q.Node, q.Depth, q.OldestAge
		st, err := w.post.state(ctx)
		if err != nil {
			x.Why = err.Error()
		}
		x.Sent, x.Failed, x.Dropped = st.Sent, st.Failed, st.Dropped
		x.LastSuccess, x.LastFailure = st.Success, st.Failure
		if st.off(w.file.URL) {
			x.OffSince = &st.GoneAt
		}
		all = append(all, x)
	}
	return all
}

// addressOf returns the scheme and host of a URL: the rest may contain a secret.
func addressOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// put puts jobs into the queue of a webhook. If the queue is full they are dropped.
func (w *openWebhook) put(ctx context.Context, jobs []queue.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	_, err := w.Put(ctx, jobs)
	if errors.Is(err, queue.ErrFull) {
		w.post.dropped.Add(int64(len(jobs)))
		w.post.keep(ctx, postState{Dropped: int64(len(jobs))})
		w.post.log.Error("messages of a webhook given up: too many wait for its receiver",
			"webhook", w.file.Name, "messages", len(jobs))
		return nil
	}
	return err
}
