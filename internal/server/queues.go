package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/completion"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/cron"
	"github.com/headgate/headgate/internal/deliver"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/queue"
)

// openQueues finds or creates the queues of the configuration.
func (s *Server) openQueues(ctx context.Context) error {
	s.jobs = &jobQueues{capacity: queue.NewCapacity(s.limits.Rules), room: newDiskRoom(s.cfg.Data),
		throttles: map[string]*deliver.Throttle{}, rates: map[string]*control.QueueRate{},
		leaving: map[string]*task{}}
	set := []*openQueue{}
	for i := range s.cfg.Queues {
		q, err := s.describe(s.cfg, &s.cfg.Queues[i])
		if err == nil {
			q.Queue, err = queue.Open(ctx, q.config)
		}
		if err != nil {
			return fmt.Errorf("open queue %q: %w", s.cfg.Queues[i].Name, err)
		}
		s.forgetRate(ctx, q)
		set = append(set, q)
	}
	s.jobs.set.Store(&set)
	s.jobs.settle(time.Now())
	s.tellLeftQueues(ctx)
	return nil
}

// tellLeftQueues logs the stored queues that are not in the configuration. After a renaming, their
// jobs wait but nothing delivers them.
func (s *Server) tellLeftQueues(ctx context.Context) {
	if s.node.Engine == nil { // a user of an external NATS may not be allowed to list streams
		return
	}
	ctx, stop := context.WithTimeout(ctx, collectWait)
	defer stop()
	logs, err := store.LogSizes(ctx, s.node.Engine.Conn())
	if err != nil {
		s.log.Warn("queues that are not in the configuration are not looked for", "error", err)
		return
	}
	for _, log := range slices.Sorted(maps.Keys(logs)) {
		name, ok := strings.CutSuffix(log, "_jobs")
		if !ok || strings.HasPrefix(name, "webhook_") || s.jobs.find(name) != nil {
			continue
		}
		s.log.Warn("the disk has jobs of a queue that is not in the configuration: nobody delivers them",
			"queue", name, "bytes", logs[log], "hint", "name the queue again in the configuration, "+
				"and headgate queue save or purge them if they are of no use there")
	}
}

// describe prepares what a queue needs, and reads the files of its target.
func (s *Server) describe(cfg *config.Config, c *config.Queue) (*openQueue, error) {
	q := &openQueue{file: *c, pace: paceOf(cfg, c)}
	var err error
	k := s.node
	q.config = queue.Config{
		Name: c.Name, Lease: c.Pull.Lease, Capacity: s.jobs.capacity,
		Weight: c.Weight,
		Burst:  !c.Spread, Rate: float64(c.Rate), Concurrency: c.Concurrency, MaxAttempts: c.MaxAttempts,
		MinBackoff: c.MinBackoff, MaxBackoff: c.MaxBackoff, MaxAge: c.MaxAge,
		KeyWindow: cmp.Or(c.KeyWindow, -1), // a zero KeyWindow would select the queue's default
		Outcomes:  cmp.Or(c.Outcomes, -1), OutcomeAge: c.OutcomeAge,
		MaxWaiting: int(c.MaxWaiting), MaxBytes: c.MaxBytes, Weights: map[string]int{},
		NATS: k.Config.NATS, Replicas: k.Config.Replicas, Node: k.Config.Node,
		HostRank: k.Rooms.HostRank, Log: s.log,
		Boot: s.machine.Boot,
	}
	if c.Pull.Lease == 0 {
		if q.target, err = openTarget(c.Name, &c.Target, s); err == nil {
			q.config.Throttle, err = s.throttleOf(q)
		}
		if err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		q.config.Handler = s.traces.Deliveries(s.rateOf(q))
	}
	if q.rate != nil {
		q.config.Pace, q.config.OnHost = q.rate.Rate, q.rate.Host
	}
	if k.Engine != nil {
		q.config.NATS, q.config.OnWriteFailure = k.Engine.Conn(), k.Engine.Heal
		if s.cfg.Cluster == nil || s.cfg.Cluster.IsStore() {
			q.config.Space = s.jobs.room.take
		}
	}
	if to := c.Completion.Queue; to != "" {
		q.config.Ends, q.config.OnEnd = c.Completion.On, s.completionsTo(to)
	}
	for i := range c.Schedules {
		s, err := scheduleOf(&c.Schedules[i])
		if err != nil {
			return nil, fmt.Errorf("schedule %q: %w", c.Schedules[i].Name, err)
		}
		q.config.Schedules = append(q.config.Schedules, s)
	}
	for name, weight := range c.Tenants {
		q.config.Weights[name] = int(weight)
	}
	for _, name := range c.Limits {
		u := queue.LimitUse{Limit: name}
		if c.Reserved > 0 {
			u.Reserved = c.Name
		}
		q.config.Uses = append(q.config.Uses, u)
	}
	for _, name := range c.TenantLimits {
		q.config.Uses = append(q.config.Uses, queue.LimitUse{Limit: name, PerTenant: true})
	}
	return q, nil
}

// completionsTo returns what puts the completions of jobs into a queue.
func (s *Server) completionsTo(name string) func(context.Context, []queue.Ended) error {
	return func(ctx context.Context, ended []queue.Ended) error {
		q := s.jobs.find(name) // a reload replaces it
		if q == nil {
			return fmt.Errorf("queue %q is not in the configuration any more", name)
		}
		if _, err := q.Put(ctx, completion.Jobs(ended)); err != nil {
			return fmt.Errorf("queue %q: %w", name, err)
		}
		return nil
	}
}

// scheduleOf prepares a schedule. The configuration has checked it; the machine may have lost its time zones
// since.
func scheduleOf(c *config.QueueSchedule) (queue.Schedule, error) {
	s := queue.Schedule{Name: c.Name, Rule: c.Cron + " " + c.TimeZone, Missed: queue.Missed(c.Missed)}
	zone, err := time.LoadLocation(c.TimeZone)
	if err != nil {
		return s, err
	}
	line, err := cron.Parse(c.Cron, zone)
	if err != nil {
		return s, err
	}
	s.Next = line.Next
	s.Job, err = queue.ParseJob([]byte(c.Job))
	return s, err
}

// rateOf returns the handler of a queue, and sets its rate if it is one that is found. What the queue has
// learned goes on.
func (s *Server) rateOf(q *openQueue) queue.Handler {
	if q.file.Auto.Mode == "" {
		return q.target
	}
	if q.rate = s.jobs.rates[q.file.Name]; q.rate == nil {
		q.rate = control.NewQueueRate(s.node, q.file.Name, s.log)
		q.rate.SetBounds(&q.file) // later with the reload
		s.jobs.rates[q.file.Name] = q.rate
	}
	return &measuredTarget{q.target, q.rate.Meter}
}

// forgetRate forgets what was found about the rate of a queue, if it is a number now.
func (s *Server) forgetRate(ctx context.Context, q *openQueue) {
	if q.rate == nil {
		control.ForgetRate(ctx, s.node, q.file.Name, s.log)
	}
}

// A measuredTarget measures deliveries.
type measuredTarget struct {
	next  queue.Handler
	meter *signals.Meter
}

// Deliver implements queue.Handler.
func (t *measuredTarget) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	t.meter.Enter()
	defer t.meter.Leave()
	began := time.Now()
	o := t.next.Deliver(ctx, j)
	what := signals.Answered // what is dead at once was answered too
	switch {
	case ctx.Err() != nil, errors.Is(o.Err, queue.ErrNotSent):
		return o
	case o.Busy:
		what = signals.Refused
	case o.Retry:
		what = signals.Failed
	}
	t.meter.Note(http.MethodPost, "", 0, what, time.Since(began))
	return o
}

// seekRates finds the rates of queues, until ctx ends.
func (s *Server) seekRates(ctx context.Context) {
	signals.Each(ctx, func(wg *sync.WaitGroup) {
		for _, q := range *s.jobs.set.Load() {
			if q.rate != nil {
				wg.Go(func() {
					ctx, stop := context.WithTimeout(ctx, signals.Every)
					defer stop()
					q.rate.Seek(ctx, q.Paced())
				})
			}
		}
	})
}

// paceOf returns the name of the limit that is the full rate of a target with other users.
func paceOf(cfg *config.Config, c *config.Queue) string {
	if l := cfg.Pace(c); c.Target.Shared && l != nil {
		return l.Name
	}
	return ""
}

// throttleOf returns the throttle of a queue's target. Queues with the same scheme and host share
// one, because overload concerns the machine as a whole.
func (s *Server) throttleOf(q *openQueue) (queue.Throttle, error) {
	u, err := url.Parse(q.file.Target.URL)
	if err != nil {
		return nil, err
	}
	at := siteOf(u)
	t := s.jobs.throttles[at]
	if t == nil {
		if t, err = deliver.NewThrottle(deliver.Pace{}); err != nil {
			return nil, err
		}
		s.jobs.throttles[at] = t
	}
	if q.pace == "" {
		return t, nil
	}
	return &throttle{Throttle: t, rules: s.limits.Rules, limit: q.pace}, nil
}

// siteOf returns the scheme, host and port of a target in a normalized spelling.
func siteOf(u *url.URL) string {
	scheme := strings.ToLower(u.Scheme)
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// settle sets the pace of each throttle from the set of queues, and removes unused throttles.
func (j *jobQueues) settle(now time.Time) {
	used := map[*deliver.Throttle]*throttle{}
	rates := map[string]*control.QueueRate{} // one that is not used learns nothing, and is not gone on with
	for _, q := range *j.set.Load() {
		if q.rate != nil {
			q.rate.SetBounds(&q.file)
			rates[q.file.Name] = q.rate
		}
		switch t := q.config.Throttle.(type) {
		case *throttle:
			used[t.Throttle] = t
		case *deliver.Throttle:
			if _, known := used[t]; !known {
				used[t] = nil
			}
		}
	}
	j.rates = rates
	for at, t := range j.throttles {
		switch paced, is := used[t]; {
		case !is:
			delete(j.throttles, at)
		case paced != nil:
			paced.again()
		default:
			_ = t.Change(now, deliver.Pace{}) // an empty pace is always valid
		}
	}
}

// runQueue starts a queue, after a removed queue of the same name has ended.
func (s *Server) runQueue(q *openQueue) {
	q.runs = s.runAfter(s.jobs.leaving, "queue", q.file.Name, q.Run)
}

// runAfter runs f after the removed task of the same name has ended.
func (s *Server) runAfter(
	leaving map[string]*task, what, name string, f func(context.Context) error,
) *task {
	before := leaving[name]
	delete(leaving, name)
	return s.crew.start(func(ctx context.Context) error {
		if before != nil {
			<-before.done
		}
		if err := f(ctx); err != nil {
			return fmt.Errorf("%s %q: %w", what, name, err)
		}
		return nil
	})
}

// queues prepares the queues of the new configuration: it opens new ones, and prepares changes
// without putting them into force.
func (w *swap) queues(ctx context.Context) error {
	for i := range w.new.cfg.Queues {
		c := &w.new.cfg.Queues[i]
		was := w.s.jobs.find(c.Name)
		if was != nil && reflect.DeepEqual(was.file, *c) && was.pace == paceOf(w.new.cfg, c) &&
			(was.target == nil || !was.target.changed()) {
			w.jobs = append(w.jobs, was)
			continue
		}
		q, err := w.s.describe(w.new.cfg, c)
		switch {
		case err != nil:
		case was == nil:
			w.got.Queues.Added = append(w.got.Queues.Added, c.Name)
			q.Queue, err = queue.Open(ctx, q.config)
		default:
			w.got.Queues.Changed = append(w.got.Queues.Changed, c.Name)
			q.Queue, q.runs = was.Queue, was.runs
		}
		if err != nil {
			return fmt.Errorf("queue %q: %w", c.Name, err)
		}
		w.jobs = append(w.jobs, q)
	}
	return nil
}

// reconfigureQueues puts changes of existing queues into force.
func (w *swap) reconfigureQueues(ctx context.Context) error {
	for _, q := range w.jobs {
		was := w.s.jobs.find(q.file.Name)
		if was == nil || was == q {
			continue
		}
		if err := q.Reconfigure(ctx, q.config); err != nil {
			return err
		}
		w.undo = append(w.undo, func() error {
			ctx, stop := control.Afterwards(ctx)
			defer stop()
			return was.Reconfigure(ctx, was.config)
		})
	}
	return nil
}

// commitQueues starts the new set of queues. It cannot fail.
func (w *swap) commitQueues(ctx context.Context) {
	j := w.s.jobs
	old := *j.set.Load()
	j.set.Store(&w.jobs)
	for _, was := range old {
		switch q := j.find(was.file.Name); {
		case q == nil:
			w.got.Queues.Removed = append(w.got.Queues.Removed, was.file.Name)
			w.s.removeQueue(was)
		case q != was:
			if was.target != nil {
				was.target.close()
			}
			w.s.forgetRate(ctx, q)
			if q.rate != nil && q.rate != was.rate && q.Hosted() {
				q.rate.Host(ctx)
			}
		}
	}
	for _, q := range w.jobs {
		if q.runs == nil {
			w.s.runQueue(q)
		}
	}
	j.settle(time.Now())
}

// removeQueue ends a queue that is no longer in the configuration. Its jobs stay in the store.
func (s *Server) removeQueue(q *openQueue) {
	args := []any{"queue", q.file.Name}
	if q.Hosted() {
		ctx, stop := context.WithTimeout(context.Background(), collectWait)
		if st, err := q.Status(ctx); err == nil {
			args = append(args, "jobs", st.Depth, "dead", st.Dead)
		}
		stop()
	}
	s.log.Warn("queue removed: what is in it stays on the disk, and goes on when the queue is in the "+
		"configuration again", args...)
	leave(s.jobs.leaving, q.file.Name, q.runs)
}
