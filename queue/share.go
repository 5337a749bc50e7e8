package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ShareConfig says how much of a capacity a processor wants, and who is told what it has.
type ShareConfig struct {
	Leases   *Leases
	Reserved int64                           // its own, beside the partitions
	Every    time.Duration                   // a partition more is asked for, default the window
	Need     func(ctx context.Context) int64 // in each window; an error is the need of before
	Rate     func(rate int64)                // is told each change, and must not block long
	Pick     func(n int) int                 // one of n at random, default rand.IntN
	Asked    func(partition int, given bool) // is told each try; nil: nobody
}

// A Share is what one processor has of a capacity that others use too: it asks for partitions
// while it needs more, one at a time and at random, renews them, returns them early, and tells
// a lower rate when one ends. Run does it; the other methods may be called by many goroutines.
type Share struct {
	cfg  ShareConfig
	mu   sync.Mutex
	has  *Holding
	told int64
	hand int // the partition that is looked at next
}

// NewShare makes a Share. It has what is reserved, and nothing else until Run.
func NewShare(cfg ShareConfig) (*Share, error) {
	if cfg.Leases == nil || cfg.Need == nil || cfg.Rate == nil {
		return nil, fmt.Errorf("%w: Leases, Need and Rate are needed", ErrPartitioning)
	}
	cfg.Every = cmp.Or(cfg.Every, cfg.Leases.cfg.Window)
	if cfg.Pick == nil {
		cfg.Pick = rand.IntN
	}
	has, err := NewHolding(cfg.Leases.cfg.Partitioning, cfg.Reserved, cfg.Pick)
	if err != nil {
		return nil, err
	}
	return &Share{cfg: cfg, has: has, told: -1}, nil
}

// lookMost bounds the partitions of others that are looked at in a turn. Chosen: all of a
// usual capacity, and some 10 ms.
const lookMost = 32

// returnWait bounds the returning of leases at the end. Chosen: who does not manage it lets
// them end.
const returnWait = 5 * time.Second

// Run leases what is needed until ctx ends. Then it tells what is reserved as the rate, and
// returns the leases.
func (s *Share) Run(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Every)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.turn(ctx)
		s.wait(ctx, tick.C)
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), returnWait)
	defer stop()
	s.mu.Lock()
	spare := s.has.Spare(s.cfg.Leases.Now(), 0)
	s.mu.Unlock()
	s.tell()
	s.giveBack(end, spare)
}

// wait waits for the next turn. When a lease ends before, the rate falls at once.
func (s *Share) wait(ctx context.Context, tick <-chan time.Time) {
	for {
		var ends <-chan time.Time
		if falls, left := s.tell(); falls {
			ends = time.After(left)
		}
		select {
		case <-ends:
		case <-tick:
			return
		case <-ctx.Done():
			return
		}
	}
}

// turn renews what is due, returns what is spare, and asks for one partition more.
func (s *Share) turn(ctx context.Context) {
	l := s.cfg.Leases
	need := s.cfg.Need(ctx)
	s.mu.Lock()
	now := l.Now()
	due, spare := s.has.Due(now, need), s.has.Spare(now, need)
	wants := s.has.Wants(now, need, 1)
	s.mu.Unlock()
	s.tell()
	for _, lease := range due {
		asked := l.Now()
		renewed, err := l.Renew(ctx, lease)
		s.note(asked, lease, renewed, err)
	}
	s.giveBack(ctx, spare)
	for _, i := range wants {
		asked := l.Now()
		lease, err := l.Lend(ctx, i)
		s.note(asked, lease, lease, err)
		if s.cfg.Asked != nil {
			s.cfg.Asked(i, err == nil)
		}
	}
	s.tell()
	if len(wants) > 0 {
		s.look(ctx)
	}
}

// look looks at partitions of others: the sooner a lease is seen to be returned, the sooner
// its partition can be had.
func (s *Share) look(ctx context.Context) {
	l := s.cfg.Leases
	for range min(lookMost, l.cfg.Count) {
		if _, err := l.look(ctx, s.hand); err != nil {
			return // another time
		}
		s.hand = (s.hand + 1) % l.cfg.Count
	}
}

// note takes over what came of asking. An engine that is away says nothing: a lease runs to
// its end.
func (s *Share) note(asked time.Time, was, lease PartitionLease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.has.Got(asked, lease)
	case errors.Is(err, ErrLent):
		s.has.Lost(was)
	}
}

// giveBack returns leases that are not used any more. One that cannot be returned ends.
func (s *Share) giveBack(ctx context.Context, spare []PartitionLease) {
	for _, lease := range spare {
		_ = s.cfg.Leases.Return(ctx, lease)
	}
}

// tell tells the rate if it has changed, whether it falls by itself, and in how long.
func (s *Share) tell() (falls bool, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Leases.Now()
	if rate := s.has.Rate(now); rate != s.told {
		s.told = rate
		s.cfg.Rate(rate)
	}
	at := s.has.Falls(now)
	return !at.IsZero(), at.Sub(now)
}

// Has tells the rate and the partitions that it comes from.
func (s *Share) Has() (rate int64, partitions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Leases.Now()
	return s.has.Rate(now), s.has.Has(now)
}
