package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// ErrLent is returned when another processor has the partition, or had it until a moment ago.
var ErrLent = errors.New("the partition is lent")

// Config configures Leases.
type Config struct {
	Name string     // name of the capacity: 1 to 64 of A-Z a-z 0-9 _ and -
	NATS *nats.Conn // connection to an engine, see headgate.EngineConfig
	Partitioning

	Replicas int         // see headgate.EngineConfig
	Heal     func(error) // called when the engine refuses to write; must not block
	Log      *slog.Logger
}

// Leases lends partitions to processors that share only an engine. A partition is lent to one
// processor at a time, and to nobody during the rest after a lease. A record for each partition
// says whether it is lent, and only a processor that has read the newest record can write the next
// one. The clocks of two machines cannot be compared, so a processor that finds a lease waits for
// its whole term from the moment when it first saw it.
//
// Leases is safe for concurrent use. Each call reads from or writes to the engine, and a write is
// on disk before the call returns.
type Leases struct {
	cfg   Config
	store store.Store
	clock func() time.Time

	mu   sync.Mutex
	seen map[int]sighting
}

// capacityName is what a name may be.
var capacityName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// A sighting is the record of a partition and the time when it was first seen.
type sighting struct {
	revision uint64
	at       time.Time
	record   leaseRecord
}

// A leaseRecord is the stored state of a partition.
type leaseRecord struct {
	fence uint64
	lent  bool
}

// Open opens the stored leases, and creates the storage if there is none.
func Open(ctx context.Context, cfg Config) (*Leases, error) {
	if !capacityName.MatchString(cfg.Name) || cfg.NATS == nil {
		return nil, fmt.Errorf("%w: want NATS, and a name of 1 to 64 of A-Z a-z 0-9 _ and -", ErrPartitioning)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	records, err := store.OpenNATS(ctx, store.NATSConfig{
		Conn: cfg.NATS, Replicas: cfg.Replicas, OnWriteFailure: cfg.Heal, Log: cfg.Log})
	if err != nil {
		return nil, fmt.Errorf("leases %q: %w", cfg.Name, err)
	}
	return &Leases{cfg: cfg, store: records, clock: bootTime, seen: map[int]sighting{}}, nil
}

// Now returns the time of the clock that leases use. Pass it to the methods of a Holding.
func (l *Leases) Now() time.Time { return l.clock() }

// Lend leases partition i. It returns ErrLent if another processor has it, which is a normal
// result.
func (l *Leases) Lend(ctx context.Context, i int) (Lease, error) {
	if i < 0 || i >= l.cfg.Count {
		return Lease{}, fmt.Errorf("%w: no partition %d of %d", ErrPartitioning, i, l.cfg.Count)
	}
	s, err := l.look(ctx, i)
	if err != nil {
		return Lease{}, err
	}
	if s.revision > 0 && l.clock().Before(s.free(&l.cfg.Partitioning)) {
		return Lease{}, ErrLent
	}
	return l.write(ctx, i, s, leaseRecord{s.record.fence + 1, true})
}

// free returns when the partition can be lent again.
func (s *sighting) free(p *Partitioning) time.Time {
	at := s.at.Add(p.Rest)
	if s.record.lent {
		at = at.Add(slot.DefaultDrift.Up(p.Term))
	}
	return at
}

// Renew starts the term of a lease again, from the time of the call. It returns ErrLent if the
// lease has ended and another processor has, or may have, the partition.
func (l *Leases) Renew(ctx context.Context, lease Lease) (Lease, error) {
	s, err := l.own(ctx, lease)
	if err != nil {
		return Lease{}, err
	}
	return l.write(ctx, lease.Partition, s, s.record)
}

// Return ends a lease early. The holder must have stopped using the partition before.
func (l *Leases) Return(ctx context.Context, lease Lease) error {
	s, err := l.own(ctx, lease)
	if err != nil {
		return err
	}
	_, err = l.write(ctx, lease.Partition, s, leaseRecord{lease.Fence, false})
	return err
}

// own returns the record of a lease if it is the newest of its partition.
func (l *Leases) own(ctx context.Context, lease Lease) (sighting, error) {
	if lease.Partition < 0 || lease.Partition >= l.cfg.Count {
		return sighting{}, ErrLent
	}
	s, err := l.look(ctx, lease.Partition)
	if err == nil && (s.record != leaseRecord{lease.Fence, true}) {
		err = ErrLent
	}
	return s, err
}

// look reads the record of a partition and remembers since when it has been unchanged.
func (l *Leases) look(ctx context.Context, i int) (sighting, error) {
	value, revision, err := l.store.Load(ctx, l.key(i))
	if errors.Is(err, store.ErrNotFound) {
		return sighting{}, nil
	}
	if err != nil {
		return sighting{}, fmt.Errorf("read the lease of partition %d: %w", i, err)
	}
	now := l.clock() // the record is older than that
	l.mu.Lock()
	defer l.mu.Unlock()
	s, known := l.seen[i]
	if known && s.revision == revision {
		return s, nil
	}
	s = sighting{revision: revision, at: now}
	if s.record, err = parseLease(value); err != nil {
		return s, fmt.Errorf("the lease of partition %d: %w", i, err)
	}
	l.seen[i] = s
	return s, nil
}

// write writes the record of a partition, unless another processor has written since s was read.
func (l *Leases) write(ctx context.Context, i int, s sighting, r leaseRecord) (Lease, error) {
	revision, err := l.store.CompareAndSwap(ctx, l.key(i), s.revision, r.encode())
	if errors.Is(err, store.ErrConflict) {
		return Lease{}, ErrLent
	}
	if err != nil {
		return Lease{}, fmt.Errorf("write the lease of partition %d: %w", i, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[i] = sighting{revision, l.clock(), r}
	return Lease{i, r.fence, l.cfg.Term}, nil
}

func (l *Leases) key(i int) string { return fmt.Sprintf("leases/%s/%d", l.cfg.Name, i) }

// leaseFormat is the first byte of a record. The fence follows, and then 1 if the partition is
// lent.
const leaseFormat = 1

var errLease = errors.New("not a lease, or a damaged one")

func (r leaseRecord) encode() []byte {
	return codec.AppendUint([]byte{leaseFormat}, r.fence, codec.Bit(r.lent))
}

func parseLease(b []byte) (leaseRecord, error) {
	d := codec.NewReader(b)
	format, fence, lent := d.Byte(), d.Uint(), d.Byte()
	if format != leaseFormat || lent > 1 || !d.Done() {
		return leaseRecord{}, errLease
	}
	return leaseRecord{fence, lent == 1}, nil
}

// bootTime returns the time of a clock that nobody can set and that runs while the machine sleeps.
// With another clock, a holder that was asleep would believe that its lease is still valid
// (docs/protocol.md §2). Only differences of it have a meaning.
func bootTime() time.Time { return time.Unix(0, int64(boot.Now())) }
