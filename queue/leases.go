package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// ErrLent: somebody else has the partition, or had it until just now.
var ErrLent = errors.New("the partition is lent")

// LeasesConfig says where leases are kept, and of what.
type LeasesConfig struct {
	Name string     // of the capacity: 1 to 64 of A-Z a-z 0-9 _ and -
	NATS *nats.Conn // to an engine as headgate.EngineConfig has it
	Partitioning

	Replicas int         // as headgate.EngineConfig
	Heal     func(error) // is told when the engine refuses to write; must not block
	Log      *slog.Logger
}

// Leases lend partitions to processors that share an engine and nothing else: it is
// Partitions without a lender. A record says of each partition whether it is lent, and only
// who has read the newest may write the next. How long ago it was written nobody knows by the
// clock of another: who finds a lease waits for its whole term from when he first saw it.
//
// They may be used by many goroutines at once. Each call is a reading or a write of the
// engine, on its disk before it is told.
type Leases struct {
	cfg   LeasesConfig
	store store.Store
	clock func() time.Time

	mu   sync.Mutex
	seen map[int]sighting
}

// A sighting is the record of a partition when it was seen first.
type sighting struct {
	revision uint64
	at       time.Time
	record   leaseRecord
}

// leaseRecord is what is kept of a partition.
type leaseRecord struct {
	fence uint64
	lent  bool
}

// OpenLeases finds or makes what is kept of leases.
func OpenLeases(ctx context.Context, cfg LeasesConfig) (*Leases, error) {
	if !queueName.MatchString(cfg.Name) || cfg.NATS == nil {
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

// Now is the time that leases go by: what a Holding of them must be told.
func (l *Leases) Now() time.Time { return l.clock() }

// Lend asks for a partition. ErrLent is the usual answer when others have it.
func (l *Leases) Lend(ctx context.Context, i int) (PartitionLease, error) {
	if i < 0 || i >= l.cfg.Count {
		return PartitionLease{}, fmt.Errorf("%w: no partition %d of %d", ErrPartitioning, i, l.cfg.Count)
	}
	s, err := l.look(ctx, i)
	if err != nil {
		return PartitionLease{}, err
	}
	if s.revision > 0 && l.clock().Before(s.free(&l.cfg.Partitioning)) {
		return PartitionLease{}, ErrLent
	}
	return l.write(ctx, i, s, leaseRecord{s.record.fence + 1, true})
}

// free is when the next may have the partition.
func (s *sighting) free(p *Partitioning) time.Time {
	at := s.at.Add(p.Rest)
	if s.record.lent {
		at = at.Add(slot.DefaultDrift.Up(p.Term))
	}
	return at
}

// Renew begins the term of a lease anew, from when this was called. ErrLent says that it has
// ended, and another has the partition or may have it.
func (l *Leases) Renew(ctx context.Context, lease PartitionLease) (PartitionLease, error) {
	s, err := l.own(ctx, lease)
	if err != nil {
		return PartitionLease{}, err
	}
	return l.write(ctx, lease.Partition, s, s.record)
}

// Return ends a lease before its time. Its holder has stopped to use it before.
func (l *Leases) Return(ctx context.Context, lease PartitionLease) error {
	s, err := l.own(ctx, lease)
	if err != nil {
		return err
	}
	_, err = l.write(ctx, lease.Partition, s, leaseRecord{lease.Fence, false})
	return err
}

// own looks whether a lease is the newest of its partition.
func (l *Leases) own(ctx context.Context, lease PartitionLease) (sighting, error) {
	if lease.Partition < 0 || lease.Partition >= l.cfg.Count {
		return sighting{}, ErrLent
	}
	s, err := l.look(ctx, lease.Partition)
	if err == nil && (s.record != leaseRecord{lease.Fence, true}) {
		err = ErrLent
	}
	return s, err
}

// look reads the record of a partition, and remembers since when it has been as it is.
func (l *Leases) look(ctx context.Context, i int) (sighting, error) {
	value, revision, err := l.store.Load(ctx, l.key(i))
	if errors.Is(err, store.ErrNotFound) {
		return sighting{}, nil
	}
	if err != nil {
		return sighting{}, fmt.Errorf("read the lease of partition %d: %w", i, err)
	}
	now := l.clock() // it was written before
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

// write writes the record of a partition, if nobody has since s was read.
func (l *Leases) write(ctx context.Context, i int, s sighting, r leaseRecord) (PartitionLease, error) {
	revision, err := l.store.CompareAndSwap(ctx, l.key(i), s.revision, r.encode())
	if errors.Is(err, store.ErrConflict) {
		return PartitionLease{}, ErrLent
	}
	if err != nil {
		return PartitionLease{}, fmt.Errorf("write the lease of partition %d: %w", i, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[i] = sighting{revision, l.clock(), r}
	return PartitionLease{i, r.fence, l.cfg.Term}, nil
}

func (l *Leases) key(i int) string { return fmt.Sprintf("leases/%s/%d", l.cfg.Name, i) }

// leaseFormat is the first byte of a record; then the fence, and 1 if it is lent.
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

// bootTime is the time by a clock that nobody sets, and that goes on while the machine sleeps:
// else a holder that slept would believe that its lease still runs (docs/protocol.md §2). Only
// its differences mean anything.
func bootTime() time.Time { return time.Unix(0, int64(boot.Now())) }
