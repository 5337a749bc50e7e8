package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/store"
)

// A Config configures a queue. Name, NATS, and either Handler or Lease are required.
type Config struct {
	Name    string     // 1 to 64 of A-Z a-z 0-9 _ and -
	NATS    *nats.Conn // connection to an engine, see headgate.EngineConfig
	Handler Handler    // delivers the jobs; nil if workers claim them

	// Lease, if not 0, makes this a queue whose jobs are not delivered: workers fetch them with
	// [Queue.Claim]. It is the time that a worker has for a job if it does not ask for another one.
	Lease time.Duration

	// Capacity takes from the limits in Uses. Queues that share limits must share it. Nil means no
	// limit; Uses must then be empty.
	Capacity *Capacity
	Uses     []LimitUse
	Weight   int     // relative to queues that share a limit, default 1
	Burst    bool    // send as fast as limits allow; do not spread the jobs
	Rate     float64 // maximum jobs per second, in addition to limits; 0 is no bound
	// Pace, if not nil, returns the rate in force in place of Rate: one that is found while the queue
	// runs. A rate set with SetRate goes before it, until that is 0.
	Pace func() float64
	// OnHost, if not nil, is called when this process becomes the host, before it delivers a job: Pace may
	// depend on what another process has found. Jobs wait until it returns.
	OnHost   func(ctx context.Context)
	Throttle Throttle // slows all queues of an overloaded target; nil: none

	// Concurrency is the maximum number of jobs in flight, default DefaultConcurrency, and
	// MaxConcurrency if workers claim them.
	Concurrency int
	MaxAttempts int            // then a job is dead, default DefaultMaxAttempts
	MinBackoff  time.Duration  // before the second attempt, doubled each time; default one second
	MaxBackoff  time.Duration  // default five minutes
	MaxAge      time.Duration  // for jobs without a MaxAge; 0: no maximum
	KeyWindow   time.Duration  // how long keys are remembered, default an hour; negative: never
	Weights     map[string]int // of tenants, default 1

	// Outcomes is how many tries, outcomes and changes of jobs are remembered, for [Queue.Job]: default
	// DefaultOutcomes, at most MaxOutcomes; negative: none. They are forgotten after OutcomeAge, default a
	// day.
	Outcomes   int
	OutcomeAge time.Duration

	Schedules []Schedule // put jobs at their times, at most MaxSchedules

	// OnEnd, if not nil, gets each job that was delivered or acknowledged, has died or was canceled, at least
	// once, when that is on disk; those that a purge deletes not. The host calls it with some of them at a
	// time, in the order in which they have ended, and calls it again with the same ones while it returns an
	// error. That holds up no job. MaxEnded jobs may wait for OnEnd; then the oldest are forgotten, see
	// [Status].
	OnEnd func(ctx context.Context, ended []Ended) error
	// Ends are the states that OnEnd gets: StateDelivered, StateDead and StateCanceled, the default.
	Ends []string

	MaxWaiting int   // maximum unfinished jobs, default DefaultMaxWaiting; Schedules have room for 100 more
	MaxBytes   int64 // maximum bytes stored, default DefaultMaxBytes

	// Space returns an error if bytes more bytes must not be stored. It must not block. Nil means
	// that only the engine limits the size.
	Space func(bytes int64) error

	Replicas       int         // see headgate.EngineConfig
	Node           string      // name of this process in the cluster; "": it is alone
	OnWriteFailure func(error) // called when the engine refuses to write; must not block
	Log            *slog.Logger

	// HostRank returns how many processes should rather host what is named than this one:
	// headgate.Engine.HostRank. Each of them has a second to become the host before this process
	// does. Nil means that the first process that finds no host becomes the host.
	HostRank func(name string) (rank int, ok bool)

	// Boot is a clock that nobody can set and that runs while the machine sleeps. Only differences
	// of it have a meaning. Default: CLOCK_BOOTTIME.
	Boot func() time.Duration
}

// Defaults. Chosen: enough concurrency for a target that answers in 60 ms at 1,000 jobs per second;
// half a day of attempts; about 100 MB of memory if all waiting jobs were put one by one; and a
// disk with room for more than that.
const (
	DefaultConcurrency = 64
	DefaultMaxAttempts = 20
	DefaultMaxWaiting  = 5_000_000
	DefaultMaxBytes    = 16 << 30
	DefaultOutcomes    = 100_000 // some 8 MB of memory
	MaxOutcomes        = 1_000_000

	// MaxOutcomeAge is the longest time for which outcomes are remembered.
	MaxOutcomeAge = 40 * 24 * time.Hour

	// MaxConcurrency is the maximum number of jobs in flight: each delivery is a goroutine.
	MaxConcurrency = 10_000
	maxDead        = 100_000 // then deliveries stop until a person looks

	// MaxEnded is how many jobs may wait for OnEnd: some 20 MB of memory. Chosen.
	MaxEnded = 100_000
)

// A Throttle slows down all deliveries to one target. Its methods do not block.
type Throttle interface {
	// Pass takes n if they may leave now, or returns the time of the next try. If n is 0, it takes
	// nothing and reports whether 1 may leave.
	Pass(now time.Time, n int) (ok bool, at time.Time)
	// Busy records that the target is overloaded. after is its Retry-After.
	Busy(now time.Time, after time.Duration)
	// Done records that the target has accepted a job.
	Done(now time.Time)
}

// Errors of a Queue.
var (
	// ErrConfig is wrapped by every error about an invalid configuration.
	ErrConfig = errors.New("invalid queue")
	// ErrFull is returned when the queue has no room for the jobs.
	ErrFull = errors.New("the queue is full")
	// ErrNoHost is returned when no node hosts the queue, or the host does not answer.
	ErrNoHost = errors.New("no node hosts the queue now")
	// ErrWrite is returned when jobs could not be written; they may or may not be stored.
	ErrWrite = errors.New("the jobs could not be written")
	// ErrClosed is returned when Run has ended.
	ErrClosed = errors.New("the queue does not run")
	// ErrNotSent is returned by MaySend.
	ErrNotSent = errors.New("another node may host the queue now: the job was not sent")
	// ErrNoJob is returned when the queue has no such job, and has forgotten it if it had one.
	ErrNoJob = errors.New("the queue does not know this job (any more)")
	// ErrUnderWay is returned when a job cannot be canceled or changed, because it is under way.
	ErrUnderWay = errors.New("the job is under way")
	// ErrEnded is returned when a job cannot be canceled or changed, because it was delivered, has died or
	// was canceled.
	ErrEnded = errors.New("the job does not wait any more")
	// ErrClaim is wrapped by errors about what a worker wants or says that no worker may.
	ErrClaim = errors.New("invalid claim")
	// ErrPush is returned by Claim if the queue delivers its jobs to a target.
	ErrPush = errors.New("the queue delivers its jobs to a target: no worker can claim them")
	// ErrBusy is returned when too many workers wait for jobs.
	ErrBusy = errors.New("too many workers wait for jobs of the queue")
	// ErrLease is returned for a receipt that does not hold its job (any more).
	ErrLease = errors.New("the lease of this claim is over")
	// ErrReceipt is returned for text that is not the receipt of a claim.
	ErrReceipt = errors.New("this is not the receipt of a claim")
	// ErrTenants is returned when more tenants than MaxPausedTenants would be paused.
	ErrTenants = errors.New("too many tenants are paused")
	// ErrUnsure is returned when it is not certain that a change was written. It may take effect.
	ErrUnsure = errors.New("it is not certain that the change was written")
)

// A Queue stores jobs and delivers them. It is safe for concurrent use.
type Queue struct {
	cfg     Config                 // as passed to Open
	set     atomic.Pointer[Config] // the current one, see Reconfigure
	jobs    *store.Log
	notes   *store.Log
	bus     *store.Bus
	puts    chan *piece
	changed chan struct{} // set has changed; capacity 1
	running atomic.Bool
	ended   chan struct{} // closed when Run has ended
	lead    atomic.Pointer[host]
	totals  totals
	cache   chunkCache
	asks    chan struct{} // of workers here, to a host on another node
}

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// check fills in defaults and returns all faults at once.
func (c *Config) check() error {
	var all []error
	bad := func(format string, v ...any) { all = append(all, fmt.Errorf(format, v...)) }
	if !queueName.MatchString(c.Name) {
		bad("a name is 1 to 64 of A-Z a-z 0-9 _ and -")
	}
	if c.NATS == nil || (c.Handler == nil) == (c.Lease == 0) {
		bad("NATS and one of Handler and Lease are needed")
	}
	if len(c.Uses) > 0 && c.Capacity == nil {
		bad("limits are named, and there is no Capacity to take from")
	}
	if c.Boot == nil {
		c.Boot = boot.Now
	}
	// A queue in one process is always first in rank.
	if c.HostRank == nil {
		c.HostRank = func(string) (int, bool) { return 0, true }
	}
	c.Weight = cmp.Or(c.Weight, 1)
	if c.Lease != 0 {
		c.Concurrency = cmp.Or(c.Concurrency, MaxConcurrency)
	}
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	c.MinBackoff = cmp.Or(c.MinBackoff, time.Second)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 5*time.Minute)
	c.KeyWindow = max(0, cmp.Or(c.KeyWindow, time.Hour))
	c.Outcomes = max(0, cmp.Or(c.Outcomes, DefaultOutcomes))
	c.OutcomeAge = cmp.Or(c.OutcomeAge, 24*time.Hour)
	if len(c.Ends) == 0 {
		c.Ends = Ends()
	}
	c.MaxWaiting = cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	switch {
	case c.Weight < 1 || c.Concurrency < 1 || c.MaxAttempts < 1 || c.MaxWaiting < 1 || c.MaxBytes < 1:
		bad("a number is below 1")
	case c.Lease != 0 && (c.Lease < MinLease || c.Lease > MaxLease):
		bad("the lease is %v, want %v to %v", c.Lease, MinLease, MaxLease)
	case c.Lease != 0 && (c.Throttle != nil || c.Pace != nil):
		bad("workers claim the jobs: there is no target to slow down, and none whose pace is found")
	case c.Concurrency > MaxConcurrency:
		bad("%d deliveries at once, and %d are the most", c.Concurrency, MaxConcurrency)
	case c.MaxAttempts > maxAttempt/2:
		bad("%d attempts, and %d are the most", c.MaxAttempts, maxAttempt/2)
	case c.MinBackoff < time.Millisecond || c.MaxBackoff < c.MinBackoff || c.MaxBackoff > MaxWait:
		bad("attempts are from %v to %v apart", c.MinBackoff, c.MaxBackoff)
	case c.MaxAge < 0 || c.KeyWindow > 7*24*time.Hour:
		bad("MaxAge is below 0, or KeyWindow above a week")
	case c.Outcomes > MaxOutcomes || c.OutcomeAge < time.Second || c.OutcomeAge > MaxOutcomeAge:
		bad("%d outcomes for %v, want %d for a second to %v", c.Outcomes, c.OutcomeAge, MaxOutcomes,
			MaxOutcomeAge)
	case !(c.Rate >= 0 && c.Rate <= MaxRate):
		bad("the rate is %v, want 0 to %v", c.Rate, MaxRate)
	}
	for _, state := range c.Ends {
		if !slices.Contains(Ends(), state) {
			bad("no job ends as %.64q", state)
		}
	}
	c.Schedules = slices.Clone(c.Schedules) // checkSchedules fills in defaults
	if err := checkSchedules(c.Schedules); err != nil {
		all = append(all, err)
	}
	if len(all) > 0 {
		return fmt.Errorf("%w %q: %w", ErrConfig, c.Name, errors.Join(all...))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.cfg.Name }

// Hosted reports whether this process hosts the queue now.
func (q *Queue) Hosted() bool { return q.lead.Load() != nil }

// Paced reports whether this process delivers at the rate of Config.Pace: no other one was set with SetRate.
func (q *Queue) Paced() bool {
	h := q.lead.Load()
	if h == nil {
		return false
	}
	set := q.set.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.paced(set)
}

func (q *Queue) hostName() string { return "queue." + q.cfg.Name }

// A Failure is a delivery that failed.
type Failure struct {
	ID     string    `json:"id"` // of the job
	At     time.Time `json:"at"`
	Reason string    `json:"why"` // at most one line
}

// A totals counts what a queue has done in this process.
type totals struct {
	put, delivered, retried, busy, dead, fired, missed, notesFailed, nanos, ended, endsLost atomic.Int64

	mu      sync.Mutex
	seconds [pastSeconds]int
	newest  int64 // the second counted in seconds[newest%pastSeconds]
}

// A Job is one piece of work for the target of a queue.
type Job struct {
	ID       string            // set by the queue
	Queue    string            // set by the queue
	Key      string            // idempotency key, sent to the target; "" is none
	OrderKey string            // jobs of a tenant with the same one go one at a time, in order
	Tenant   string            // tenants get fair shares
	Priority int               // 0 to MaxPriority; higher goes first
	Cost     int64             // cost in the queue's limits; 0 means 1
	At       time.Time         // earliest time of delivery; zero means now
	Schedule string            // set by the queue: name of the schedule that has put it, for the time At
	MaxAge   time.Duration     // the job is dead when older; 0 means the default of the queue
	Headers  map[string]string // sent to the target
	Body     []byte
	Attempt  int       // 1 is the first; set by the queue
	Enqueued time.Time // set by the queue
}

// An Outcome is the result of a delivery.
type Outcome struct {
	Err        error         // nil: delivered
	Retry      bool          // try again; if false, the job is dead at once
	Busy       bool          // the target is overloaded (429, 503)
	RetryAfter time.Duration // the target's Retry-After, 0 if none
	Status     int           // of the target's HTTP answer, 0 if none: shown in JobStatus
}

// A Handler delivers jobs. Deliver must be safe for concurrent use, may block until ctx ends, and
// must not keep or change the job. As long as a Deliver blocks after that, Run does not return and the
// process does not host the queue again. Another node begins 24 s after the end of the ctx of Run.
type Handler interface {
	Deliver(ctx context.Context, j *Job) Outcome
}

type holdsKey struct{}

// MaySend returns ErrNotSent if another node may host the queue now, and may have canceled or sent the job.
// A Handler that needs time before the target sees the job, such as for a connection, calls MaySend after
// that, with the ctx of Deliver. If it returns the error as the Err of its Outcome, the job waits again, and
// no attempt is used up.
func MaySend(ctx context.Context) error {
	if holds, ok := ctx.Value(holdsKey{}).(func() bool); ok && !holds() {
		return ErrNotSent
	}
	return nil
}
