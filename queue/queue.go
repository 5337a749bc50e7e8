package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/store"
)

// Config describes a queue. Name, NATS and Handler are needed.
type Config struct {
	Name    string     // 1 to 64 of A-Z a-z 0-9 _ and -
	NATS    *nats.Conn // to an engine as headgate.EngineConfig has it
	Handler Handler    // delivers the jobs

	// Capacity is what the queue may take from the limits of Uses, shared with the other
	// queues of these limits. Nil is no limit, and then Uses must be empty.
	Capacity *Capacity
	Uses     []LimitUse
	Weight   int      // of this queue among those that share a limit, default 1
	Burst    bool     // send what a limit lets pass at once, and do not spread it
	Rate     float64  // jobs a second at most, beside the limits; 0 is no bound
	Throttle Throttle // slows the whole target down when it is overrun; nil: not

	Concurrency int            // deliveries under way at most, default DefaultConcurrency
	MaxAttempts int            // then a job is dead, default DefaultMaxAttempts
	MinBackoff  time.Duration  // before the second attempt, doubled for each more; default a second
	MaxBackoff  time.Duration  // default five minutes
	MaxAge      time.Duration  // of jobs that say nothing of it; 0: however old
	KeyWindow   time.Duration  // keys are known for so long, default an hour; below 0: never
	Weights     map[string]int // of tenants, default 1

	MaxWaiting int   // jobs that are not done with, default DefaultMaxWaiting
	MaxBytes   int64 // of what is kept of them, default DefaultMaxBytes

	// Room says whether so many bytes more may be put: nil if so, else why not. It must not
	// block. Nil: whatever the engine takes.
	Space func(bytes int64) error

	Replicas       int         // as headgate.EngineConfig
	Node           string      // this process among those that share the engine; "": it is alone
	OnWriteFailure func(error) // is told when the engine refuses to write; must not block
	Log            *slog.Logger

	// Boot is a clock that nobody sets, and that goes on while the machine sleeps. Only its
	// differences mean anything. Default: CLOCK_BOOTTIME.
	Boot func() time.Duration
}

// Defaults. Chosen: a second of a target that answers in 60 ms at 1,000 a second; half a day
// of attempts; some 100 MB of memory when all waiting jobs came one by one; and a disk that
// has room for more than that.
const (
	DefaultConcurrency = 64
	DefaultMaxAttempts = 20
	DefaultMaxWaiting  = 5_000_000
	DefaultMaxBytes    = 16 << 30

	// MaxConcurrency bounds deliveries under way at once: each is a goroutine.
	MaxConcurrency = 10_000
	maxDead        = 100_000 // then nothing is delivered until a person looks
)

// A Throttle slows down all that goes to one target. Its methods do not block.
type Throttle interface {
	// Pass takes n if they may go now, and says else when to ask again. An n of 0 takes
	// nothing and asks whether 1 may go.
	Pass(now time.Time, n int) (ok bool, at time.Time)
	// Busy says that the target is overrun, and what it said in Retry-After.
	Busy(now time.Time, after time.Duration)
	// Done says that the target has taken a job.
	Done(now time.Time)
}

// The errors of a Queue.
var (
	ErrConfig = errors.New("impossible queue")
	ErrFull   = errors.New("the queue is full")
	ErrNoHost = errors.New("no node hosts the queue now")
	ErrWrite  = errors.New("the jobs could not be written")
	ErrClosed = errors.New("the queue does not run")
)

// A Queue keeps jobs and delivers them. All methods may be called by many goroutines at
// once.
type Queue struct {
	cfg     Config                 // as of Open
	set     atomic.Pointer[Config] // as of now: see Reconfigure
	jobs    *store.Log
	notes   *store.Log
	bus     *store.Bus
	puts    chan *piece
	changed chan struct{} // set is another one; has room for one
	running atomic.Bool
	ended   chan struct{} // closed when Run has ended
	lead    atomic.Pointer[host]
	totals  totals
	cache   chunkCache
}

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c *Config) check() error {
	var all []error
	bad := func(format string, v ...any) { all = append(all, fmt.Errorf(format, v...)) }
	if !queueName.MatchString(c.Name) {
		bad("a name is 1 to 64 of A-Z a-z 0-9 _ and -")
	}
	if c.NATS == nil || c.Handler == nil {
		bad("NATS and Handler are needed")
	}
	if len(c.Uses) > 0 && c.Capacity == nil {
		bad("limits are named, and there is no Capacity to take from")
	}
	if c.Boot == nil {
		c.Boot = boot.Now
	}
	c.Weight = cmp.Or(c.Weight, 1)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	c.MinBackoff = cmp.Or(c.MinBackoff, time.Second)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 5*time.Minute)
	c.KeyWindow = max(0, cmp.Or(c.KeyWindow, time.Hour))
	c.MaxWaiting = cmp.Or(c.MaxWaiting, DefaultMaxWaiting)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	switch {
	case c.Weight < 1 || c.Concurrency < 1 || c.MaxAttempts < 1 || c.MaxWaiting < 1 || c.MaxBytes < 1:
		bad("a number is below 1")
	case c.Concurrency > MaxConcurrency:
		bad("%d deliveries at once, and %d are the most", c.Concurrency, MaxConcurrency)
	case c.MaxAttempts > maxAttempt/2:
		bad("%d attempts, and %d are the most", c.MaxAttempts, maxAttempt/2)
	case c.MinBackoff < time.Millisecond || c.MaxBackoff < c.MinBackoff || c.MaxBackoff > MaxWait:
		bad("attempts are from %v to %v apart", c.MinBackoff, c.MaxBackoff)
	case c.MaxAge < 0 || c.KeyWindow > 7*24*time.Hour:
		bad("MaxAge is below 0, or KeyWindow above a week")
	case !(c.Rate >= 0 && c.Rate <= MaxRate):
		bad("the rate is %v, want 0 to %v", c.Rate, MaxRate)
	}
	if len(all) > 0 {
		return fmt.Errorf("%w %q: %w", ErrConfig, c.Name, errors.Join(all...))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Open finds or makes what is kept of a queue. Run must follow; the connection stays the
// caller's.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	q := &Queue{cfg: cfg, changed: make(chan struct{}, 1), puts: make(chan *piece),
		ended: make(chan struct{})}
	q.set.Store(&cfg)
	lc := store.LogConfig{
		Conn:           cfg.NATS,
		Replicas:       cfg.Replicas,
		OnWriteFailure: cfg.OnWriteFailure,
		Log:            cfg.Log,
	}
	var err error
	lc.Name = cfg.Name + "_notes"
	if q.notes, err = store.OpenLog(ctx, lc); err != nil {
		return nil, fmt.Errorf("queue %q: %w", cfg.Name, err)
	}
	lc.Name, lc.MaxBytes = cfg.Name+"_jobs", cfg.MaxBytes
	if q.jobs, err = store.OpenLog(ctx, lc); err != nil {
		return nil, fmt.Errorf("queue %q: %w", cfg.Name, err)
	}
	if cfg.Node != "" {
		q.bus = store.NewBus(cfg.NATS)
	}
	return q, nil
}

// Name is the queue's.
func (q *Queue) Name() string { return q.cfg.Name }

// Hosted tells whether this process delivers the queue now.
func (q *Queue) Hosted() bool { return q.lead.Load() != nil }

// Run takes jobs in and, where this process hosts the queue, delivers them, until ctx ends.
// Then it lets deliveries under way end, for some seconds.
func (q *Queue) Run(ctx context.Context) error {
	if q.running.Swap(true) {
		return fmt.Errorf("%w: it runs already", ErrConfig)
	}
	defer close(q.ended)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { q.writePuts(ctx) })
	for ctx.Err() == nil {
		err := q.host(ctx)
		if ctx.Err() != nil {
			break
		}
		level := slog.LevelWarn
		if errors.Is(err, errFenced) {
			level = slog.LevelInfo // another node has taken over
		}
		q.cfg.Log.Log(ctx, level, "queue is not delivered by this node", "queue", q.cfg.Name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(hostAgain):
		}
	}
	return nil
}
