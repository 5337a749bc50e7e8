package counter

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

// gated delays the write of the takeover until it is released.
type gated struct {
	store.Store
	came, pass chan struct{}
}

func (s *gated) CompareAndSwap(ctx context.Context, k string, r uint64, b []byte) (uint64, error) {
	select {
	case s.came <- struct{}{}:
	default:
	}
	<-s.pass
	return s.Store.CompareAndSwap(ctx, k, r, b)
}

// A process that must hold the room while it takes it over holds it afterwards.
func TestHoldWhileTakingOver(t *testing.T) { virtual.Test(t, testHoldWhileTakingOver) }

func testHoldWhileTakingOver(t *testing.T) {
	c := newCluster(t)
	n := c.start("n1")
	n.stop()
	mem := &gated{&store.Memory{}, make(chan struct{}, 1), make(chan struct{})}
	cfg := n.seat.cfg
	cfg.Store = mem
	s := NewHandle(cfg, n.seat.bus, n.members, func() {})
	got := make(chan *Counter)
	go func() {
		x, err := s.take(t.Context())
		if err != nil {
			t.Error(err)
		}
		s.seat(x)
		got <- x
	}()
	<-mem.came
	s.Hold(true)
	close(mem.pass)
	x := <-got
	if !x.State(0, 0).Held {
		t.Error("the room is to be held, and its host calls")
	}
}

// A limit is lowered and in force at the host, and the host stops before another node has learned
// of it. The limit does not rise again.
func TestALoweredLimitDoesNotRiseAtATakeover(t *testing.T) {
	virtual.Test(t, testALoweredLimitDoesNotRiseAtATakeover)
}

func testALoweredLimitDoesNotRiseAtATakeover(t *testing.T) {
	c := newCluster(t)
	all := []*node{c.start("n1"), c.start("n2")}
	c.await("a host", 10*time.Second, func() bool { return len(c.hosts(all...)) == 1 })
	old, other := all[0], all[1]
	if old.seat.host.Load() == nil {
		old, other = other, old
	}
	set := c.settings()
	set.Active.N = 2
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	if err := old.seat.Reconfigure(ctx, set); err != nil {
		t.Fatal(err)
	}
	old.stop()
	c.await("the next host", 10*time.Second, func() bool { return other.seat.host.Load() != nil })
	open := 0
	for range 5 {
		a, err := other.seat.Sync(t.Context(), other.share.Sync(c.boot(), 10, 0))
		if err != nil || !other.share.Receive(c.boot(), &a) {
			t.Fatal(err)
		}
		for {
			if _, ok := other.share.Open(c.boot(), slot.SessionID(100+open), 0, 0); !ok {
				break
			}
			open++
		}
	}
	if open > 2 {
		t.Errorf("%d let in of 2, that was confirmed as in force", open)
	}
}
