package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// ShareConfig configures a Share. Leases, Need and Rate are required.
type ShareConfig struct {
	Leases   *Leases
	Reserved int64                           // capacity of its own, in addition to partitions
	Every    time.Duration                   // interval of requests for another partition, default the window
	Need     func(ctx context.Context) int64 // amount needed per window
	Rate     func(rate int64)                // called on each change; must not block long
	Pick     func(n int) int                 // random number below n, default rand.IntN
	Asked    func(partition int, given bool) // called after each request; may be nil
}

// A Share is the part of a shared capacity that one processor has. While it needs more, it requests
// partitions one at a time and at random. It renews them, returns them early, and reports a lower
// rate when one ends. Run does this work. The other methods are safe for concurrent use.
type Share struct {
	cfg  ShareConfig
	mu   sync.Mutex
	has  *Holding
	told int64
	hand int // next partition to look at
}

// NewShare returns a Share. Until Run is called it has only the reserved capacity.
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

// lookMost is how many partitions of others are read per turn. Chosen: all of a usual capacity, in
// about 10 ms.
const lookMost = 32

// returnWait bounds the time for returning leases at the end. Chosen: a lease that is not returned
// in time expires.
const returnWait = 5 * time.Second

// Run leases what is needed until ctx ends. Then it reports the reserved capacity as the rate and
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

// wait waits for the next turn. If a lease ends earlier, the rate falls at once.
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

// turn renews leases that are due, returns spare ones, and requests one more partition if needed.
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

// look reads the records of partitions of others: a returned partition can be leased the sooner,
// the sooner its return is seen.
func (s *Share) look(ctx context.Context) {
	l := s.cfg.Leases
	for range min(lookMost, l.cfg.Count) {
		if _, err := l.look(ctx, s.hand); err != nil {
			return // next time
		}
		s.hand = (s.hand + 1) % l.cfg.Count
	}
}

// note records the result of a request. If the engine does not answer, a lease stays valid until
// its end.
func (s *Share) note(asked time.Time, was, lease Lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.has.Got(asked, lease)
	case errors.Is(err, ErrLent):
		s.has.Lost(was)
	}
}

// giveBack returns leases that are not used any more. A lease that cannot be returned expires.
func (s *Share) giveBack(ctx context.Context, spare []Lease) {
	for _, lease := range spare {
		_ = s.cfg.Leases.Return(ctx, lease)
	}
}

// tell reports the rate if it has changed. It returns whether the rate will fall by itself, and
// after how long.
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

// Has returns the rate and the partitions that it comes from.
func (s *Share) Has() (rate int64, partitions []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Leases.Now()
	return s.has.Rate(now), s.has.Has(now)
}
