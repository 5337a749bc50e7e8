package queue

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/tests/virtual"
)

// twoNodes returns a queue hosted at n1, and the same queue at n2, which hosts nothing.
func twoNodes(t *testing.T) (host *bench, other *Queue) {
	t.Helper()
	b := newBench(t, func(c *Config) {
		if c.Node == "" {
			c.Node = "n1"
		}
	})
	b.hosts()
	other, stop := b.open("n2")
	t.Cleanup(stop)
	return b, other
}

func putAt(t *testing.T, q *Queue, keys ...string) []Receipt {
	t.Helper()
	jobs := make([]Job, len(keys))
	for i, key := range keys {
		jobs[i] = Job{Key: key, Body: []byte(key)}
	}
	r, err := q.Put(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A duplicate is reported at once, at every node.
func TestADuplicateIsToldAtEachNode(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testADuplicateIsToldAtEachNode)
}

func testADuplicateIsToldAtEachNode(t *testing.T) {
	b, other := twoNodes(t)
	at := map[string]*Queue{"the host": b.q, "another node": other}
	for first, q := range at {
		for again, q2 := range at {
			for i := range 20 {
				key := fmt.Sprint(first, ", then ", again, i)
				one, two := putAt(t, q, key)[0], putAt(t, q2, key, "", key)
				if one.Duplicate || one.ID == "" {
					t.Fatalf("%s: %+v", key, one)
				}
				if twin := (Receipt{one.ID, true}); two[0] != twin || two[2] != twin || two[1].Duplicate {
					t.Errorf("%s: put as %+v, and then told %+v", key, one, two)
				}
			}
		}
	}
	// More keys than fit into a message, with bytes that are not text.
	keys := make([]string, 3000)
	for i := range keys {
		keys[i] = strings.Repeat("\xff", MaxKey-8) + fmt.Sprintf("%08d", i)
	}
	all := putAt(t, other, keys...)
	for i, r := range putAt(t, other, keys...) {
		if all[i].Duplicate || r != (Receipt{all[i].ID, true}) {
			t.Fatalf("key %d: %+v, then %+v", i, all[i], r)
		}
	}
}

// If many clients put the same key at the same time at different nodes, one job is reported as new,
// and all clients get the same ID.
func TestOfJobsPutAtOnceOneIsNew(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testOfJobsPutAtOnceOneIsNew)
}

func testOfJobsPutAtOnceOneIsNew(t *testing.T) {
	b, other := twoNodes(t)
	const keys, putters = 200, 8
	var mu sync.Mutex
	isNew, ids := map[string]int{}, map[string]string{}
	var wg sync.WaitGroup
	for i := range putters {
		wg.Go(func() {
			q := b.q
			if i%2 == 1 {
				q = other
			}
			for k := range keys {
				key := fmt.Sprint(k)
				r, err := q.Put(t.Context(), []Job{{Key: key, Body: []byte(key)}})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if !r[0].Duplicate {
					isNew[key]++
				}
				if id, is := ids[key]; is && id != r[0].ID {
					t.Errorf("key %s is %s and %s", key, id, r[0].ID)
				}
				ids[key] = r[0].ID
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key, n := range isNew {
		if n != 1 {
			t.Errorf("key %s was new %d times", key, n)
		}
	}
	until(t, "each is delivered", func() bool { return b.target.count() >= keys })
	until(t, "no more", func() bool { s := b.status(); return s.Depth == 0 })
	b.target.mu.Lock()
	defer b.target.mu.Unlock()
	if len(isNew) != keys || len(b.target.order) != keys {
		t.Errorf("%d of %d keys were new, %d were delivered", len(isNew), keys, len(b.target.order))
	}
	for body := range maps.Keys(b.target.got) {
		if b.target.got[body] != 1 {
			t.Errorf("%s was delivered %d times", body, b.target.got[body])
		}
	}
}

// While a queue has no host a duplicate is not reported, but it is dropped all the same.
func TestADuplicateIsLetGoWithoutAHost(t *testing.T) {
	t.Parallel()
	virtual.Test(t, testADuplicateIsLetGoWithoutAHost)
}

func testADuplicateIsLetGoWithoutAHost(t *testing.T) {
	b, other := twoNodes(t)
	first := putAt(t, other, "a")[0]
	h := b.q.lead.Load()
	b.stop()
	b.stop = func() {}
	again := putAt(t, other, "a")[0] // before or after the other one hosts
	if again.ID == "" || again.Duplicate != (again.ID == first.ID) {
		t.Errorf("%+v, then %+v", first, again)
	}
	until(t, "the other one hosts", func() bool { return other.Hosted() })
	if last := putAt(t, other, "a")[0]; last != (Receipt{first.ID, true}) {
		t.Errorf("%+v, then %+v", first, last)
	}
	until(t, "one is delivered", func() bool { return b.target.count() == 1 })
	until(t, "the others are let go", func() bool { s, _ := other.Status(t.Context()); return s.Depth == 0 })
	if n := b.target.count(); n != 1 {
		t.Errorf("%d were delivered", n)
	}
	if err := h.reaches(context.Background(), 1<<40); err == nil {
		t.Error("a host that has left waits for more")
	}
}
