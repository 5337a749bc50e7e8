package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/store"
)

// The errors of a Lender and its leases.
var (
	ErrLender    = errors.New("impossible lease")
	ErrNever     = errors.New("the limit never lets so much pass: ask for less, or raise it")
	ErrLeaseOver = errors.New("the lease is over, or has less left: ask for another one")
)

// DefaultTerm is how long a lease lasts. Chosen: as long as a process that nobody hears keeps
// what it was lent.
const DefaultTerm = 5 * time.Second

// LenderConfig says what is leased, and where the fences are kept.
type LenderConfig struct {
	Name     string     // of the fences: 1 to 64 of A-Z a-z 0-9 _ and -
	NATS     *nats.Conn // to an engine as headgate.EngineConfig has it
	Capacity *Capacity  // shared with the queues of this process
	Use      LimitUse   // whose units are leased, in the limit's own unit; not PerTenant
	Term     time.Duration
	Weight   int // among the queues and lenders that share the limit, default 1

	Replicas int         // as headgate.EngineConfig
	Heal     func(error) // is told when the engine refuses to write; must not block
	Log      *slog.Logger
}

// A Lender leases a limit to who has jobs of its own and only wants the capacity: a
// continuous share of the limit, for as much as is asked for, beside all others who use it,
// and wherever they do. It may be used by many goroutines at once.
type Lender struct {
	cfg   LenderConfig
	store store.Store
	clock func() time.Time
	self  *member
}

// OpenLender makes a Lender.
func OpenLender(ctx context.Context, cfg LenderConfig) (*Lender, error) {
	if cfg.NATS == nil {
		return nil, fmt.Errorf("%w: want NATS", ErrLender)
	}
	records, err := store.OpenNATS(ctx, store.NATSConfig{
		Conn: cfg.NATS, Replicas: cfg.Replicas, OnWriteFailure: cfg.Heal, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("leases of %q: %w", cfg.Name, err)
	}
	return newLender(cfg, records)
}

func newLender(cfg LenderConfig, records store.Store) (*Lender, error) {
	cfg.Term, cfg.Weight = cmp.Or(cfg.Term, DefaultTerm), cmp.Or(cfg.Weight, 1)
	switch {
	case !queueName.MatchString(cfg.Name):
		return nil, fmt.Errorf("%w: a name is 1 to 64 of A-Z a-z 0-9 _ and -", ErrLender)
	case cfg.Capacity == nil || cfg.Use.Limit == "" || cfg.Use.PerTenant:
		return nil, fmt.Errorf("%w: want a Capacity, and a Use of one key", ErrLender)
	case cfg.Term < time.Millisecond || cfg.Term > time.Hour || cfg.Weight < 1:
		return nil, fmt.Errorf("%w: a term of %v by weight %d, want 1 ms to 1 h by 1 at least",
			ErrLender, cfg.Term, cfg.Weight)
	}
	return &Lender{cfg, records, bootTime, &member{weight: float64(cfg.Weight)}}, nil
}

// A Lease is some of a limit until its term is over. Its methods do not block, and may be
// called by many goroutines at once.
type Lease struct {
	// Fence is greater than that of each lease before it of this name. A target that
	// remembers the greatest one it has seen can refuse a holder that was thought to be gone.
	Fence uint64

	term  time.Duration
	clock func() time.Time
	mu    sync.Mutex
	taken taken
	left  int64
	until time.Time // by clock
	timer *time.Timer
}

// Lease waits until n units are free, and holds them for a term. Each is to be said to be
// used, after the target has answered, or returned; what is left when the term is over counts
// as used then. It costs a write of the engine. ErrNever is not worth trying again.
func (l *Lender) Lease(ctx context.Context, n int64) (*Lease, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: of %d units, want 1 at least", ErrLender, n)
	}
	t, err := l.await(ctx, n)
	if err != nil {
		return nil, err
	}
	fence, err := l.fence(ctx)
	if err != nil {
		l.cfg.Capacity.giveBack(l.self, t)
		return nil, err
	}
	x := &Lease{Fence: fence, term: l.cfg.Term, clock: l.clock, taken: t, left: n}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.until = x.clock().Add(x.term)
	x.timer = time.AfterFunc(x.term, x.ended)
	return x, nil
}

// await takes n as soon as it can.
func (l *Lender) await(ctx context.Context, n int64) (taken, error) {
	for {
		t, no, err := l.cfg.Capacity.take(ctx, l.self, []LimitUse{l.cfg.Use}, load{cost: n, units: true})
		switch {
		case err != nil:
			return taken{}, err
		case no != nil && no.never != "":
			return taken{}, fmt.Errorf("%w: %d of %s", ErrNever, n, no.never)
		}
		until := t.at // of what is paced
		if no != nil {
			until = no.until
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			l.cfg.Capacity.giveBack(l.self, t)
			return taken{}, ctx.Err()
		}
		if no == nil {
			return t, nil
		}
	}
}

// fence draws the next fence: who has written it was the only one to.
func (l *Lender) fence(ctx context.Context) (uint64, error) {
	key := "leases/" + l.cfg.Name + "/fence"
	for {
		value, revision, err := l.store.Load(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, fmt.Errorf("read the fence of %q: %w", l.cfg.Name, err)
		}
		d := codec.NewReader(value)
		last := d.Uint()
		if revision > 0 && d.Bad() {
			return 0, fmt.Errorf("the fence of %q: %w", l.cfg.Name, errLease)
		}
		_, err = l.store.CompareAndSwap(ctx, key, revision, codec.AppendUint(nil, last+1))
		switch {
		case err == nil:
			return last + 1, nil
		case !errors.Is(err, store.ErrConflict):
			return 0, fmt.Errorf("write the fence of %q: %w", l.cfg.Name, err)
		}
	}
}

// Left is how many units are left, and for how long.
func (x *Lease) Left() (n int64, term time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endLocked()
	return x.left, max(0, x.until.Sub(x.clock()))
}

// Use says that n units were used now at the latest: the target has answered.
func (x *Lease) Use(n int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.endLocked(); n < 0 || n > x.left {
		return ErrLeaseOver
	}
	x.useLocked(n)
	return nil
}

func (x *Lease) useLocked(n int64) {
	x.left -= n
	for i := range x.taken.parts {
		x.taken.parts[i].held.Use(n)
	}
}

// Renew lets the term begin anew. It needs nobody: what is held is held as long as the
// process is heard.
func (x *Lease) Renew() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.endLocked(); x.left == 0 {
		return ErrLeaseOver
	}
	x.until = x.clock().Add(x.term)
	x.timer.Reset(x.term)
	return nil
}

// Return gives back what was not used, and ends the lease.
func (x *Lease) Return() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.endLocked(); x.left > 0 {
		for i := range x.taken.parts {
			x.taken.parts[i].held.Return(x.left)
		}
		x.left = 0
	}
	x.timer.Stop()
}

// ended ends the lease if its term is over: it may just have been renewed.
func (x *Lease) ended() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.endLocked(); x.left > 0 {
		x.timer.Reset(max(time.Millisecond, x.until.Sub(x.clock())))
	}
}

// endLocked counts what is left as used when the term is over.
func (x *Lease) endLocked() {
	if x.left > 0 && !x.clock().Before(x.until) {
		x.useLocked(x.left)
	}
}
