package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/internal/smallfile"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/ratelimit"
)

// openTarget reads the files of a target.
func openTarget(queue string, c *config.QueueTarget, s *Server) (*target, error) {
	t := &target{queue: queue, file: *c, log: s.log, around: s.around(), dial: s.machine.Dial}
	return t, t.readLocked() // no lock needed: not shared yet
}

// Deliver implements queue.Handler.
func (t *target) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	return t.current.Load().Deliver(ctx, j)
}

// close closes idle connections.
func (t *target) close() { t.current.Load().Close() }

func (t *target) stamps() certs.Stamps {
	names := slices.Clone(t.file.SecretFiles)
	for _, name := range []string{t.file.CA, t.file.Certificate, t.file.Key} {
		if name != "" {
			names = append(names, name)
		}
	}
	return certs.StampsOf(names...)
}

func (t *target) readLocked() error {
	seen := t.stamps()
	d, err := readTarget(&t.file)
	if err != nil {
		return err
	}
	d.Around, d.Dial = t.around, t.dial
	d.KeyIsID = t.keyIsID
	next, err := deliver.Open(d)
	if err != nil {
		return err
	}
	if was := t.current.Swap(next); was != nil {
		was.Close()
	}
	t.seen, t.told = seen, ""
	return nil
}

// changed reports whether a file has changed since it was read.
func (t *target) changed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.stamps().Equal(t.seen)
}

// look reads files that have changed. Invalid files are tried again each time, because the other
// file of a pair may not have been written yet.
func (t *target) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stamps().Equal(t.seen) {
		return
	}
	err := t.readLocked()
	switch {
	case err == nil:
		t.log.Info("files of a target taken up", "queue", t.queue)
	case err.Error() != t.told:
		t.told = err.Error()
		t.log.Error("new files of a target refused, the old ones stay", "queue", t.queue, "error", err)
	}
}

// checkTargets reads the files of all targets and webhooks.
func checkTargets(cfg *config.Config) error {
	var errs []error
	check := func(key, of string, c *config.QueueTarget) {
		t, err := readTarget(c)
		var d *deliver.HTTP
		if err == nil {
			d, err = deliver.Open(t)
		}
		if err != nil {
			errs = append(errs, &config.Fault{File: cfg.File, Key: key, Problem: of + ": " + err.Error(),
				Hint: "name files that are there, and that only the user of headgate may read"})
			return
		}
		d.Close()
	}
	for i := range cfg.Queues {
		c := &cfg.Queues[i]
		if c.Pull.Lease > 0 {
			continue
		}
		check(fmt.Sprintf("queues[%d].target", i), "queue "+strconv.Quote(c.Name), &c.Target)
	}
	for i := range cfg.Webhooks {
		c := &cfg.Webhooks[i]
		check(fmt.Sprintf("webhooks[%d]", i), "webhook "+strconv.Quote(c.Name), targetOf(c))
	}
	return errors.Join(errs...)
}

// readTarget reads the secrets of a target.
func readTarget(c *config.QueueTarget) (t deliver.Target, err error) {
	t = deliver.Target{URL: c.URL, Method: c.Method, Headers: map[string]string{}, Timeout: c.Timeout,
		CA: c.CA, Certificate: c.Certificate, Key: c.Key}
	for _, h := range c.Headers {
		name, value, _ := strings.Cut(h, ": ")
		t.Headers[name] = value
	}
	for _, file := range c.SecretFiles {
		b, err := smallfile.ReadSecret(file)
		if err != nil {
			return t, fmt.Errorf("secret_files: %w", err)
		}
		t.Secrets = append(t.Secrets, string(bytes.TrimSpace(b)))
	}
	return t, nil
}

// lookAtFiles is how often the files of targets are checked. Chosen: the same as for certificates.
const lookAtFiles = 10 * time.Second

// watchTargets reads the files of targets again when they change, until ctx ends.
func (s *Server) watchTargets(ctx context.Context) {
	tick := time.NewTicker(lookAtFiles)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, q := range *s.jobs.set.Load() {
			if q.target != nil {
				q.target.look()
			}
		}
		for _, w := range s.hooks.all() {
			w.target.look()
		}
	}
}

// lookAtPace is how often the limit is read. Chosen: as often as queues read theirs.
const lookAtPace = 250 * time.Millisecond

// Pass implements queue.Throttle.
func (t *throttle) Pass(now time.Time, n int) (ok bool, at time.Time) {
	t.follow(now)
	return t.Throttle.Pass(now, n)
}

// again makes the throttle read the rate of its limit again, because another limit was set.
func (t *throttle) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looked, t.pace = time.Time{}, deliver.Pace{}
}

// follow takes over changes of the limit.
func (t *throttle) follow(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.looked) < lookAtPace {
		return
	}
	t.looked = now
	v, err := t.rules.AllowAll(context.Background(), []ratelimit.Check{{Limit: t.limit}}, false)
	if err != nil {
		return // without its limit the queue may take nothing
	}
	l := v[0].Limit
	pace := deliver.Pace{Amount: l.Amount, Window: l.Window, Shared: true}
	if pace != t.pace && l.Amount > 0 && t.Throttle.Change(now, pace) == nil {
		t.pace = pace
	}
}

// targetOf returns the target that a webhook posts to.
func targetOf(c *config.Webhook) *config.QueueTarget {
	return &config.QueueTarget{URL: c.URL, Method: "POST", SecretFiles: c.SecretFiles,
		Timeout: webhookTimeout}
}
