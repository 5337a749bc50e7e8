package quota

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
)

// Usage counted in another data center is unknown here, and no block contains it, even if the
// answer to the write that made this process the host was lost.
func TestWhatWasCountedElsewhereIsPresumedThoughAnAnswerIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, limit.Rule{Algorithm: limit.SlidingLog, Amount: 10, Window: time.Hour})
	h, s := b.host("a")
	h.ledger.lease.Store(int64(b.boot() + time.Hour))
	b.write(func(x *Assignment) { *x = Assignment{UsageLost: true, Moved: true} })
	b.clock.Add(int64(3 * time.Second))
	s.late.Store(true)
	h.keep(t.Context(), true)
	(*s.last.Load())() // it was written after all
	h.keep(t.Context(), true)
	h.keep(t.Context(), true)
	if i := int(shardOf("api", "k")); h.ledger.roleOf(i) != hosts {
		t.Fatalf("its part in the shard is %d, want that of the host", h.ledger.roleOf(i))
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	q := &request{kind: kindBorrow, shard: shardOf("api", "k"), limit: "api", key: "k"}
	q.Borrower, q.Loan, q.Need, q.Least = 7, 1, 1, 1
	if r := h.ledger.decide(ctx, []*request{q}); r == nil || r[0].given != 0 {
		t.Errorf("lent %+v of what may have been used elsewhere", r)
	}
}

// A data center that was switched off while the home moved away does not host when it is back: it
// sends a request to the others first.
func TestAFormerHomeAsksBeforeItHosts(t *testing.T) {
	t.Parallel()
	b := newBench(t, byMinute)
	stop, err := b.bus.Serve("b.where", func(context.Context, []byte) []byte {
		return []byte(`{"site":"b","moves":1}`)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	h, _ := b.host("a")
	h.cfg.Datacenters = counter.NewDatacenters(counter.DatacentersConfig{
		Own: "a", Home: "a", Names: []string{"b"}, Links: map[string]*store.Bus{"b": b.bus}, Bus: b.bus,
		Store: b.store, Log: slog.New(slog.DiscardHandler),
	})
	h.ledger.lease.Store(int64(b.boot() + time.Hour))
	b.write(func(x *Assignment) { *x = Assignment{UsageLost: true} })
	b.clock.Add(int64(3 * time.Second))
	for range 3 {
		h.keep(t.Context(), true)
	}
	if i := int(shardOf("api", "k")); h.ledger.roleOf(i) == hosts {
		t.Error("it hosts what the new home hosts")
	}
	if h.home() {
		t.Error("it does not know yet where the home is")
	}
}
