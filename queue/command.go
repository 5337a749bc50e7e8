package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/store"
)

// Operations that only the host can perform. Nodes send them to each other.
const (
	opStatus = "status"
	opPause  = "pause"
	opResume = "resume"
	opRate   = "rate"
	opPurge  = "purge"
	// Nodes before this one would pause the queue, and drop or redrive all dead jobs.
	opPauseTenant  = "pause_tenant"
	opResumeTenant = "resume_tenant"
	opPurgeDead    = "drop_some"
	opRedrive      = "redrive_some"

	opDuplicates = "twins"
	opJob        = "job"
	opCancel     = "cancel"
	opChange     = "change"
	opClaim      = "claim"
	opAck        = "ack"
	opNack       = "nack"
	opExtend     = "extend"
	opSchedules  = "schedules"
	opDead       = "dead_some" // "dead" was all in another order, "dead_last" all
	opTenant     = "tenant"
)

// A command is an operation that a node requests from the host.
type command struct {
	Op    string  `json:"op"`
	Rate  float64 `json:"rate,omitempty"`
	After string  `json:"after,omitempty"`
	Count int     `json:"count,omitempty"`

	Tenant string     `json:"tenant,omitempty"`
	Dead   DeadFilter `json:"dead,omitzero"`

	Put []keyedJob `json:"put,omitempty"`

	Job    JobName    `json:"job,omitzero"`
	Change *JobChange `json:"change,omitempty"`

	Want     *Want         `json:"want,omitempty"`
	Receipts []string      `json:"receipts,omitempty"`
	Nack     Nack          `json:"nack,omitzero"`
	Lease    time.Duration `json:"lease,omitempty"`
}

// A result is the answer of the host to a command.
type result struct {
	Status *Status   `json:"status,omitempty"`
	Count  int       `json:"count"`
	Dead   []DeadJob `json:"dead,omitempty"`
	Next   string    `json:"next,omitempty"` // where the list continues after Dead
	Error  string    `json:"error,omitempty"`
	Code   string    `json:"code,omitempty"` // of an error that the other node must recognize

	Job *JobStatus `json:"job,omitempty"`

	Claims  []sentClaim `json:"claims,omitempty"`
	Settled []Settled   `json:"settled,omitempty"`

	Schedules []ScheduleStatus `json:"schedules,omitempty"`

	Tenant *TenantStatus `json:"tenant,omitempty"`

	Duplicates map[int]string `json:"twins,omitempty"` // for Put: the ID of the first job for each duplicate
}

// Status returns the state of the queue. It requests it from the node that hosts the queue, and
// returns ErrNoHost if there is no host now.
func (q *Queue) Status(ctx context.Context) (Status, error) {
	r, err := q.do(ctx, command{Op: opStatus})
	if err != nil {
		return Status{Name: q.cfg.Name}, err
	}
	return *r.Status, nil
}

// Pause stops deliveries until Resume is called, even across a restart. Deliveries in flight end
// normally.
func (q *Queue) Pause(ctx context.Context) error {
	_, err := q.do(ctx, command{Op: opPause})
	return err
}

// Resume starts deliveries again after Pause.
func (q *Queue) Resume(ctx context.Context) error {
	_, err := q.do(ctx, command{Op: opResume})
	return err
}

// PauseTenant stops deliveries of the jobs of one tenant until ResumeTenant is called, even across a restart;
// "" are the jobs without a tenant. The jobs keep their places, and those of other tenants go on. Deliveries
// in flight end normally. The error is ErrTenants if too many tenants are paused.
func (q *Queue) PauseTenant(ctx context.Context, tenant string) error {
	return q.steerTenant(ctx, opPauseTenant, tenant)
}

// ResumeTenant starts deliveries again after PauseTenant.
func (q *Queue) ResumeTenant(ctx context.Context, tenant string) error {
	return q.steerTenant(ctx, opResumeTenant, tenant)
}

func (q *Queue) steerTenant(ctx context.Context, op, tenant string) error {
	if err := checkTenant(tenant); err != nil {
		return err
	}
	_, err := q.do(ctx, command{Op: op, Tenant: tenant})
	return err
}

// checkTenant returns an error for the name of a tenant that no message can carry.
func checkTenant(name string) error {
	if len(name) > MaxTenant || !utf8.ValidString(name) {
		return fmt.Errorf("%w: a tenant is text of up to %d bytes", ErrJob, MaxTenant)
	}
	return nil
}

// SetRate limits the queue to rate jobs per second in addition to its limits. A rate of 0 removes
// this bound. The rate survives a restart. It ends when the configuration changes to another rate.
func (q *Queue) SetRate(ctx context.Context, rate float64) error {
	if !(rate >= 0 && rate <= MaxRate) {
		return fmt.Errorf("%w: the rate is %v, want 0 to %v", ErrConfig, rate, MaxRate)
	}
	_, err := q.do(ctx, command{Op: opRate, Rate: rate})
	return err
}

// Purge deletes all waiting jobs and all idempotency keys, and returns the number of deleted jobs.
// Jobs in flight and dead jobs stay.
func (q *Queue) Purge(ctx context.Context) (int, error) {
	r, err := q.do(ctx, command{Op: opPurge})
	return r.Count, err
}

// PurgeDead deletes the dead jobs of a filter and returns how many it deleted.
func (q *Queue) PurgeDead(ctx context.Context, which DeadFilter) (int, error) {
	return q.steerDead(ctx, opPurgeDead, which)
}

// Redrive puts the dead jobs of a filter back into the queue and returns how many it put back. Their
// attempts are counted from the start again.
func (q *Queue) Redrive(ctx context.Context, which DeadFilter) (int, error) {
	return q.steerDead(ctx, opRedrive, which)
}

func (q *Queue) steerDead(ctx context.Context, op string, which DeadFilter) (int, error) {
	if err := which.check(); err != nil {
		return 0, err
	}
	r, err := q.do(ctx, command{Op: op, Dead: which})
	return r.Count, err
}

// errNoAnswer is wrapped when the host may have performed a command.
var errNoAnswer = errors.New("its answer did not come")

// do performs a command on the host, in this process or on another node.
func (q *Queue) do(ctx context.Context, c command) (result, error) {
	if h := q.lead.Load(); h != nil {
		return h.do(ctx, &c)
	}
	if q.bus == nil {
		return result{}, ErrNoHost
	}
	ctx, stop := context.WithTimeout(ctx, writeWait)
	defer stop()
	return q.ask(ctx, q.hostName(), c)
}

// ask performs a command on the host on another node, which serves it by this name.
func (q *Queue) ask(ctx context.Context, name string, c command) (result, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return result{}, err
	}
	b, err = q.bus.Request(ctx, name, b)
	switch {
	case errors.Is(err, store.ErrNoResponder):
		return result{}, ErrNoHost
	case err != nil:
		return result{}, fmt.Errorf("%w: %w: %w", ErrNoHost, errNoAnswer, err)
	}
	var r result
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("the host's answer: %w", err)
	}
	if known := codedErrors()[r.Code]; known != nil {
		return r, &farError{r.Error, known}
	}
	if r.Error != "" || c.Op == opStatus && r.Status == nil {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// serve answers commands of other nodes until silence is called.
func (h *host) serve() (silence func(), err error) {
	if h.q.bus == nil {
		return func() {}, nil
	}
	answer := func(ctx context.Context, msg []byte) []byte {
		var c command
		if json.Unmarshal(msg, &c) != nil {
			return nil
		}
		r, err := h.do(ctx, &c)
		if err != nil {
			r.Error = err.Error()
			for code, known := range codedErrors() {
				if errors.Is(err, known) {
					r.Code = code
				}
			}
		}
		b, err := json.Marshal(r)
		if err != nil {
			return nil
		}
		return b
	}
	end, err := h.q.bus.Serve(h.q.hostName(), answer)
	if err != nil {
		return nil, err
	}
	// Workers that wait must not take the places of other commands.
	endClaims, err := h.q.bus.Serve(h.q.claimName(), answer)
	if err != nil {
		end()
		return nil, err
	}
	return func() { end(); endClaims() }, nil
}

// do runs a command at the host.
func (h *host) do(ctx context.Context, c *command) (r result, err error) {
	switch c.Op {
	case opStatus:
		s := h.status(ctx)
		r.Status = &s
	case opPause, opResume:
		err = h.control(ctx, func() { h.paused = c.Op == opPause })
	case opRate:
		err = h.control(ctx, func() {
			h.asked = askedRate{true, max(0, min(c.Rate, MaxRate)), h.q.set.Load().Rate}
		})
	case opPurge:
		r.Count, err = h.purge(ctx)
	case opPauseTenant, opResumeTenant:
		err = h.stopTenant(ctx, c.Tenant, c.Op == opPauseTenant)
	case opTenant:
		r.Tenant, err = h.tenant(ctx, c.Tenant, c.Count)
	case opPurgeDead:
		r.Count, err = h.purgeDead(ctx, &c.Dead)
	case opRedrive:
		r.Count, err = h.redrive(ctx, &c.Dead)
	case opDead:
		r, err = h.listDead(ctx, &c.Dead, c.After, c.Count)
	case opJob:
		r.Job, err = h.job(ctx, &c.Job)
	case opCancel:
		r.Job, err = h.cancel(ctx, &c.Job)
	case opChange:
		r.Job, err = h.changeJob(ctx, &c.Job, c.Change)
	case opClaim:
		r.Claims, err = h.claimFor(ctx, c.Want)
	case opAck, opNack, opExtend:
		r.Settled, err = h.settleAll(ctx, c)
	case opSchedules:
		r.Schedules, err = h.schedules(ctx)
	case opDuplicates:
		r.Duplicates, err = h.duplicates(ctx, c.Put)
	default:
		err = fmt.Errorf("a node of another version asks for %q", c.Op)
	}
	return r, err
}

// codedErrors are the errors that a node recognizes in the answer of another one.
func codedErrors() map[string]error {
	return map[string]error{"no_job": ErrNoJob, "under_way": ErrUnderWay, "ended": ErrEnded,
		"unsure": ErrUnsure, "no_host": ErrNoHost, "job": ErrJob,
		"tenants": ErrTenants, "push": ErrPush, "busy": ErrBusy, "claim": ErrClaim}
}

// A farError is an error of the host, at another node.
type farError struct {
	text string
	is   error
}

func (e *farError) Error() string { return e.text }
func (e *farError) Unwrap() error { return e.is }

// control changes how the queue is delivered, and stores the change.
func (h *host) control(ctx context.Context, change func()) error {
	return h.sayNow(ctx, func() []note {
		change()
		return []note{{kind: noteControl, paused: h.paused, asked: h.asked}}
	})
}

// stopTenant pauses one tenant or lets it go on, and stores that.
func (h *host) stopTenant(ctx context.Context, tenant string, paused bool) (err error) {
	if err := checkTenant(tenant); err != nil {
		return err
	}
	wrote := h.sayNow(ctx, func() []note {
		if !h.index.stop(tenant, paused) {
			err = fmt.Errorf("%w: %d are the most; resume others, or pause the queue", ErrTenants, MaxPausedTenants)
			return nil
		}
		return []note{{kind: noteTenant, text: tenant, paused: paused}}
	})
	return errors.Join(err, wrote)
}

// purge drops all waiting jobs. The note names the last chunk of now, so that what is put later
// stays.
func (h *host) purge(ctx context.Context) (count int, err error) {
	err = h.sayNow(ctx, func() []note {
		upTo := h.purged
		if n := len(h.index.order); n > 0 {
			upTo = max(upTo, h.index.order[n-1])
		}
		h.purged = upTo
		count = h.index.purge()
		// A job in flight may still fail. Then it does not belong to the purged jobs and is tried
		// again.
		notes := []note{{kind: notePurge, ref: refOf(upTo, 0), attempt: h.index.purges}}
		for r := range h.index.flying {
			if h.index.claims[r] != nil { // its note stays
				continue
			}
			t := h.index.tries[r]
			h.index.tries[r] = t // restate writes it from here
			notes = append(notes, note{kind: noteTry, ref: r, attempt: t.attempt, since: t.since})
		}
		return notes
	})
	return count, err
}

func (h *host) purgeDead(ctx context.Context, f *DeadFilter) (count int, err error) {
	err = h.sayNow(ctx, func() (notes []note) {
		for _, r := range h.index.deadOf(f) {
			notes = append(notes, note{kind: noteDone, ref: r, done: []int{r.index()}})
			h.index.finish(r)
		}
		count = len(notes)
		return notes
	})
	return count, err
}

// redrive gives dead jobs new attempts. A note makes that durable: without it the jobs would be
// dead again at the next host.
func (h *host) redrive(ctx context.Context, which *DeadFilter) (int, error) {
	h.mu.Lock()
	refs := h.index.deadOf(which)
	h.mu.Unlock()
	d := &dispatcher{host: h}
	now := time.Now().UnixMilli()
	count := 0
	var err error
	for _, r := range refs {
		var f *flight
		if f, err = d.load(ctx, r); err != nil {
			break
		}
		h.mu.Lock()
		if _, dead := h.index.dead[r]; !dead || f == nil {
			h.mu.Unlock()
			continue
		}
		delete(h.index.dead, r)
		h.index.tries[r] = try{since: now}
		h.index.again(r, &f.head, 0)
		h.queueNotes([]note{h.happens(note{kind: noteTry, ref: r, since: now}, eventRedriven)}, nil)
		h.mu.Unlock()
		count++
	}
	if err = errors.Join(err, h.sayNow(ctx, func() []note { return nil })); err != nil {
		return 0, err
	}
	return count, nil
}
