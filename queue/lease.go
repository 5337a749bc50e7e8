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

// Errors of a Lender and its leases.
var (
	// ErrLender is wrapped by every error about an invalid LenderConfig or number of units.
	ErrLender = errors.New("invalid lease")
	// ErrNever is returned when the limit can never allow as many units as requested.
	ErrNever = errors.New("more units than the limit ever allows: request fewer, or raise the limit")
	// ErrLeaseOver is returned when a lease has ended or has fewer units left than requested.
	ErrLeaseOver = errors.New("the lease is over, or has fewer units left: request another one")
)

// DefaultTerm is the term of a lease. Chosen: equal to the time for which a process that has lost
// contact keeps its loans.
const DefaultTerm = 5 * time.Second

// LenderConfig configures a Lender.
type LenderConfig struct {
	Name     string     // prefix of the fences: 1 to 64 of A-Z a-z 0-9 _ and -
	NATS     *nats.Conn // connection to an engine, see headgate.EngineConfig
	Capacity *Capacity  // shared with the queues of this process
	Use      LimitUse   // the limit to lease, in the limit's own unit; not PerTenant
	Term     time.Duration
	Weight   int // relative to other users of the limit, default 1

	Replicas int         // see headgate.EngineConfig
	Heal     func(error) // called when the engine refuses to write; must not block
	Log      *slog.Logger
}

// A Lender leases capacity of a limit to programs that keep their own jobs. Each lease takes its
// fair share of the limit next to all other users of it, in every process. A Lender is safe for
// concurrent use.
type Lender struct {
	cfg   LenderConfig
	store store.Store
	clock func() time.Time
	self  *member
}

// OpenLender returns a new Lender.
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
		return nil, fmt.Errorf("%w: want a Capacity, and one Use with one key", ErrLender)
	case cfg.Term < time.Millisecond || cfg.Term > time.Hour || cfg.Weight < 1:
		return nil, fmt.Errorf("%w: term %v and weight %d, want a term of 1 ms to 1 h and a weight of at least 1",
			ErrLender, cfg.Term, cfg.Weight)
	}
	return &Lender{cfg, records, bootTime, &member{weight: float64(cfg.Weight)}}, nil
}

// A Lease is a number of units of a limit, held until the term ends. Its methods do not block and
// are safe for concurrent use.
type Lease struct {
	// Fence is greater than the fence of every earlier lease of the same name. A target that
	// remembers the greatest fence it has seen can reject a holder whose lease has ended.
	Fence uint64

	term  time.Duration
	clock func() time.Time
	mu    sync.Mutex
	taken taken
	left  int64
	until time.Time // by clock
	timer *time.Timer
}

// Lease waits until n units are free and holds them for a term. The holder must call Use for each
// unit after the target has answered, or Return for the rest. Units that are left at the end of the
// term count as used then. A lease costs one write to the engine. ErrNever means that a retry
// cannot succeed.
func (l *Lender) Lease(ctx context.Context, n int64) (*Lease, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: %d units, want at least 1", ErrLender, n)
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

// await takes n units as soon as they are free.
func (l *Lender) await(ctx context.Context, n int64) (taken, error) {
	for {
		t, no, err := l.cfg.Capacity.take(ctx, l.self, []LimitUse{l.cfg.Use}, load{cost: n, units: true})
		switch {
		case err != nil:
			return taken{}, err
		case no != nil && no.never != "":
			return taken{}, fmt.Errorf("%w: %d of %s", ErrNever, n, no.never)
		}
		until := t.at // if the limit spreads usage
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

// fence returns the next fence. Only one process can write a given number, so each fence is unique.
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

// Left returns how many units are left, and the remaining term.
func (x *Lease) Left() (n int64, term time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.endLocked()
	return x.left, max(0, x.until.Sub(x.clock()))
}

// Use marks n units as used, now at the latest: the target has answered.
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

// Renew starts the term again. It needs no round trip: the limit holds the units as long as this
// process is connected.
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

// Return returns the unused units and ends the lease.
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

// ended ends the lease if its term is over. The timer may have fired just as the lease was renewed.
func (x *Lease) ended() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.endLocked(); x.left > 0 {
		x.timer.Reset(max(time.Millisecond, x.until.Sub(x.clock())))
	}
}

// endLocked marks the remaining units as used at the end of the term.
func (x *Lease) endLocked() {
	if x.left > 0 && !x.clock().Before(x.until) {
		x.useLocked(x.left)
	}
}
