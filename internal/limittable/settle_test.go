package limittable

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/limit"
)

// After each settlement as much remains as if the call had had that cost from the start.
func TestSettledIsAsIfTakenSo(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 31))
		for _, r := range append(rules(random), limit.Rule{Algorithm: limit.SlidingLog, Amount: 9,
			Window: 5e6}) {
			if r.Algorithm.HasBurst() {
				continue
			}
			table := newTable(t, r, nil, 10)
			spare, calls, now := oracle(r), []call{}, Time(1_700_000_000_000_000_000+random.Int64N(1e9))
			type open struct {
				id uint64
				i  int
			}
			var held []open
			for step := range 200 {
				now += Time(random.Int64N(2*int64(r.Window)/max(1, r.Amount) + 1))
				if len(held) > 0 && random.IntN(2) == 0 {
					k := random.IntN(len(held))
					h := held[k]
					held = append(held[:k:k], held[k+1:]...)
					calls[h.i].n = 1 + random.Int64N(calls[h.i].n) // at least 1: a first hit stays one
					if err := table.Settle(now, 7, h.id, calls[h.i].n); err != nil {
						t.Fatal(err)
					}
				} else {
					n := 1 + random.Int64N(4)
					d, _ := table.Reserve(now, 7, "k", n, time.Hour)
					if d.Allowed {
						calls = append(calls, call{now, n})
						held = append(held, open{d.ID, len(calls) - 1})
					}
				}
				d := table.Peek(now, 7, "k", 0)
				if want := max(0, spare(calls, now)); d.Remaining != want {
					t.Fatalf("seed %d step %d, %s: %d remain, want %d", seed, step, name(r), d.Remaining, want)
				}
			}
		}
	}
}

// What a settlement exceeds the remaining amount by is owed, unless the limit rejects nothing.
func TestForgivingOwesNothing(t *testing.T) {
	const now, most = Time(1_700_000_000_000_000_000), 9
	for _, r := range rules(rand.New(rand.NewPCG(3, 1))) {
		if r.Algorithm == limit.Concurrency || r.Paced {
			continue
		}
		r.Amount = most
		if r.Algorithm.HasBurst() {
			r.Burst = most
		}
		for _, forgives := range []bool{false, true} {
			table, want := newTable(t, r, nil, 10), int64(1000)
			if table.SetForgiving(forgives); forgives {
				want = most
			}
			d, err := table.Reserve(now, 7, "k", 2, time.Hour)
			if err != nil || !d.Allowed {
				t.Fatal(name(r), d, err)
			}
			if err := table.Settle(now, 7, d.ID, 1000); err != nil {
				t.Fatal(name(r), err)
			}
			if all, _ := table.Usage(now, 0, 1); len(all) != 1 || all[0].Used != want {
				t.Errorf("%s, nothing is owed: %v: %+v, want %d to be used", name(r), forgives, all, want)
			}
		}
	}
}

// A call in progress counts until its lease is over. Only its own renewal restarts the lease.
func TestARenewedCallCounts(t *testing.T) {
	const lease, most = 10 * time.Second, 20
	type open struct {
		id  uint64
		n   int64
		end Time
	}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 32))
		r := limit.Rule{Algorithm: limit.Concurrency, Amount: most, Lease: lease}
		table, copied := newTable(t, r, nil, 10), newTable(t, r, nil, 10)
		var calls []open
		now := Time(1_700_000_000_000_000_000)
		for step := range 300 {
			now += Time(random.Int64N(int64(3 * time.Second)))
			under := int64(0)
			for _, c := range calls {
				if c.end > now {
					under += c.n
				}
			}
			i := random.IntN(len(calls) + 1)
			switch what := random.IntN(4); {
			case i == len(calls) || what == 0:
				n := 1 + random.Int64N(4)
				d, _ := table.Take(now, 7, "k", n)
				if d.Allowed != (under+n <= most) {
					t.Fatalf("seed %d step %d: %d of %d under way, %d more: %+v", seed, step, under, most, n, d)
				} else if d.Allowed {
					calls, under = append(calls, open{d.ID, n, now + Time(lease)}), under+n
					copied.Replicate(now, now, 7, "k", &Entry{Kind: EntryTake, N: n, ID: d.ID, TTL: lease})
				}
			case what == 1:
				err := table.Settle(now, 7, calls[i].id, 0)
				if (err == nil) != (calls[i].end > now) {
					t.Fatalf("seed %d step %d: settled: %v", seed, step, err)
				} else if err == nil {
					under -= calls[i].n
				}
				copied.Replicate(now, now, 7, "k", &Entry{Kind: EntrySettle, ID: calls[i].id})
				calls = append(calls[:i:i], calls[i+1:]...)
			default:
				n, ttl, err := table.Renew(now, 7, calls[i].id)
				if (err == nil) != (calls[i].end > now) || err == nil && (n != calls[i].n || ttl != lease) {
					t.Fatalf("seed %d step %d: renewed: %d for %v, %v", seed, step, n, ttl, err)
				} else if err == nil {
					calls[i].end = now + Time(lease)
					copied.Replicate(now, now, 7, "k", &Entry{Kind: EntryTake, N: n, ID: calls[i].id, TTL: ttl})
					copied.Replicate(now, now, 7, "k", &Entry{Kind: EntrySettle, ID: calls[i].id})
				}
			}
			for who, x := range map[string]*Table{"the table": table, "its copy": copied} {
				if d := x.Peek(now, 7, "k", 0); d.Remaining != most-under {
					t.Fatalf("seed %d step %d: %s has %d left, want %d", seed, step, who, d.Remaining, most-under)
				}
			}
		}
	}
}

// Only a call has a lease that can be renewed, and a shorter lease does not shorten a running one.
func TestWhatIsNotRenewed(t *testing.T) {
	const now = Time(1_700_000_000_000_000_000)
	table := newTable(t, limit.Rule{Algorithm: limit.TokenBucket, Amount: 9, Window: time.Minute,
		Burst: 9}, nil, 10)
	d, err := table.Reserve(now, 7, "k", 2, time.Minute)
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	for _, id := range []uint64{0, d.ID, d.ID + 1} {
		if _, _, err := table.Renew(now, 7, id); err != ErrSettled {
			t.Errorf("%d: %v", id, err)
		}
	}
	calls := newTable(t, limit.Rule{Algorithm: limit.Concurrency, Amount: 9, Lease: time.Second}, nil, 10)
	if d, err = calls.Reserve(now, 7, "k", 2, time.Minute); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if n, ttl, err := calls.Renew(now, 7, d.ID); n != 2 || ttl != time.Minute || err != nil {
		t.Errorf("%d for %v, %v", n, ttl, err)
	}
	if _, _, err := calls.Renew(now, 8, d.ID); err != ErrSettled {
		t.Errorf("of another key: %v", err)
	}
}
