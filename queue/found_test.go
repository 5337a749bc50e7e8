package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// A rate that an operator has set goes before the one that is found, until it is 0.
func TestAnOperatorsRateGoesBeforeTheOneThatIsFound(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testAnOperatorsRateGoesBeforeTheOneThatIsFound)
}

func testAnOperatorsRateGoesBeforeTheOneThatIsFound(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.Rate, c.Pace = 30, func() float64 { return 10 }
	})
	if b.q.Paced() {
		t.Error("a process that does not host the queue delivers")
	}
	b.hosts()
	for _, c := range []struct {
		asked, want float64
		paced       bool
	}{{-1, 10, true}, {2, 2, false}, {0, 10, true}} {
		if c.asked >= 0 {
			if err := b.q.SetRate(t.Context(), c.asked); err != nil {
				t.Fatal(err)
			}
		}
		before := b.target.count()
		b.put(many(6)...)
		until(t, "all delivered", func() bool { return b.target.count() == before+6 })
		at := b.target.at[before:]
		each := time.Duration(float64(time.Second) / c.want)
		if took := at[5].Sub(at[1]); took < 4*each-mostBehind || took > 5*each {
			t.Errorf("four more jobs in %v, want %v a second", took, c.want)
		}
		if s := b.status(); s.Rate != c.want || b.q.Paced() != c.paced {
			t.Errorf("asked for %v: %v a second, paced: %v", c.asked, s.Rate, b.q.Paced())
		}
	}
}

// The host knows the rate that was found before it delivers the first job: it may have been another process
// that has found it.
func TestNoJobLeavesBeforeTheRateIsKnown(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testNoJobLeavesBeforeTheRateIsKnown)
}

func testNoJobLeavesBeforeTheRateIsKnown(t *testing.T) {
	var begun atomic.Int64
	var rate atomic.Int64
	rate.Store(1000)
	know := make(chan struct{})
	b := newBench(t, func(c *Config) {
		c.Pace = func() float64 { return float64(rate.Load()) }
		c.OnHost = func(context.Context) {
			begun.Add(1)
			<-know
			rate.Store(2)
		}
	})
	until(t, "a host", func() bool { return begun.Load() == 1 })
	b.put(many(5)...)
	time.Sleep(2 * time.Second)
	if n := b.target.count(); n > 0 {
		t.Errorf("%d jobs left before the rate was known", n)
	}
	close(know)
	until(t, "all delivered", func() bool { return b.target.count() == 5 })
	if took := b.target.at[4].Sub(b.target.at[1]); took < 1500*time.Millisecond-mostBehind {
		t.Errorf("three more jobs in %v, want two a second", took)
	}
	b.end()
	b.start()
	until(t, "the next host", func() bool { return begun.Load() == 2 })
}
