package persons

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// What was used is known to each later host, of another life too, until the end and a bit. Others leave as
// people do.
func TestAUsedInvitationStaysUntilItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{}
		end := time.Now().Add(3 * time.Hour)
		used, waited, live := IDOf("shop", "used"), IDOf("shop", "waited"), IDOf("shop", "live")
		h := run(t, l, 1, func(n uint64) bool { return n == 3 })
		h.IsReady()
		if err := h.Await(t.Context(), Mark{}); err != nil {
			t.Fatal(err)
		}
		for i, id := range []ID{used, waited, live} {
			_, m := h.Find(id)
			x := Hold{Number: uint64(i + 1), Until: uint32(end.Unix()), Used: id != waited}
			if err := h.Await(t.Context(), h.Set(id, x, m)); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string, want ...bool) {
			t.Helper()
			for i, id := range []ID{used, waited, live} {
				if x, _ := h.Find(id); x.Used != want[i] || (x != Hold{}) != want[i] {
					t.Errorf("%s: invitation %d is %+v", when, i, x)
				}
			}
		}
		restart := func(life uint64) {
			h.end()
			h = run(t, l, life, func(n uint64) bool { return n == 3 })
			h.IsReady()
			if err := h.Await(t.Context(), Mark{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * RewriteAfter)
		check("two hours later", true, false, true)
		restart(1)
		check("at the next host", true, false, true)
		time.Sleep(time.Minute)
		check("a minute later", true, false, true)
		if len(l.all()) > 4 {
			t.Errorf("%d entries of the log for two invitations", len(l.all()))
		}
		restart(2)
		check("in another life", true, false, true)
		time.Sleep(time.Hour - 5*time.Minute)
		check("at the end", true, false, true)
		time.Sleep(time.Hour + 10*time.Minute)
		check("an hour after the end", false, false, false)
		if h.Len() != 0 || h.codes != 0 {
			t.Errorf("%d in memory, %d counted", h.Len(), h.codes)
		}
		h.end()
	})
}

// Each of many people joins in a write of its own: the log does not grow faster than it is rewritten.
func TestManySmallWritesLeaveTheLogInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{}
		h := run(t, l, 1, nil)
		defer h.end()
		const people = 1000
		for i := range uint64(people) {
			if _, err := h.ticket(t.Context(), IDOf("shop", fmt.Sprint(i)), func() uint64 { return i + 1 }); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(RewriteAfter + time.Minute)
		if n := len(l.all()); n > 10 || h.Len() != people {
			t.Errorf("%d entries of the log for %d of %d people", n, h.Len(), people)
		}
	})
}

func TestBatchesWithoutEndsAreRead(t *testing.T) {
	key := [32]byte{1}
	b := append(codec.AppendUint(nil, withoutEnds, 7), key[:]...)
	b = codec.AppendUint(codec.AppendFixed(codec.AppendUint(b, 1), 9), 5)
	if k, life, entries, ok := parse(b); !ok || k != key || life != 7 || len(entries) != 1 ||
		entries[0] != (entry{9, Hold{Number: 5}}) {
		t.Errorf("%v %d %v %v", k, life, entries, ok)
	}
}

// Two hosts, of which each believes that it is the only one, let people join by codes of three uses while
// writes fail, hosts die and the log is rewritten. What Taken says is what the log says, and never more than
// three visitors of a code have been told that they have joined.
func TestUsesAreCountedByEachHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		l := &memoryLog{takes: time.Millisecond}
		l.fail = func() (before, after bool) { n := rng.IntN(8); return n == 0, n == 1 }
		end := uint32(time.Now().Add(2 * time.Hour).Unix())
		dead := func(uint64) bool { return false } // all were used
		const uses, codes, visitors = 3, 4, 6
		code := func(i int) ID { return IDOf("shop", fmt.Sprint("code ", i)) }
		var mu sync.Mutex
		in := map[int]map[int]bool{} // by code, the visitors
		hosts := []*host{run(t, l, 7, dead), run(t, l, 7, dead)}
		join := func(h *host, x, visitor int) {
			id := IDOf("shop", fmt.Sprint("code ", x, "/", visitor))
			for {
				h.IsReady()
				if h.Await(t.Context(), Mark{}) != nil {
					return
				}
				has, m := h.Find(id)
				name, taken := h.Taken(code(x))
				if has.Code != name && taken >= uses {
					return
				}
				next := Hold{Number: uint64(x*100 + visitor + 1), Until: end, Code: name, Used: true}
				if h.Await(t.Context(), h.Set(id, next, m)) == nil {
					mu.Lock()
					if in[x] == nil {
						in[x] = map[int]bool{}
					}
					in[x][visitor] = true
					mu.Unlock()
					return
				}
			}
		}
		for round := range 5 {
			var wg sync.WaitGroup
			for i := range codes * visitors * 2 {
				wg.Go(func() {
					time.Sleep(time.Duration(i%7) * 300 * time.Microsecond)
					join(hosts[i%2], i%codes, i/codes%visitors)
				})
			}
			wg.Wait()
			if round == 2 {
				time.Sleep(RewriteAfter + time.Minute)
			}
			hosts[round%2].end()
			hosts[round%2] = run(t, l, 7, dead)
		}
		for x := range codes {
			if len(in[x]) != uses {
				t.Errorf("code %d let in the visitors %v, not %d", x, in[x], uses)
			}
			for i, h := range hosts {
				h.IsReady()
				if err := h.Await(t.Context(), Mark{}); err != nil {
					t.Fatal(err)
				}
				if _, n := h.Taken(code(x)); n != uses {
					t.Errorf("host %d counts %d uses of code %d", i, n, x)
				}
			}
		}
		hosts[0].end()
		time.Sleep(2*time.Hour + 5*time.Minute)
		hosts[1].end()
		if h := hosts[1]; len(h.taken) != 0 || h.Len() != 0 {
			t.Errorf("%d entries and %d codes an hour after their end", h.Len(), len(h.taken))
		}
	})
}

// A place that was lost gives its use back, and one of another life too.
func TestAPlaceThatIsOverTakesNoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memoryLog{}
		end := uint32(time.Now().Add(24 * time.Hour).Unix())
		code := IDOf("shop", "code 1")
		h := run(t, l, 7, func(n uint64) bool { return n != 1 })
		set := func(visitor string, number uint64, used bool) {
			h.IsReady()
			if err := h.Await(t.Context(), Mark{}); err != nil {
				t.Fatal(err)
			}
			_, m := h.Find(IDOf("shop", visitor))
			name, _ := h.Taken(code)
			x := Hold{Number: number, Until: end, Used: used, Code: name}
			if err := h.Await(t.Context(), h.Set(IDOf("shop", visitor), x, m)); err != nil {
				t.Fatal(err)
			}
		}
		counts := func(when string, want int) {
			t.Helper()
			h.IsReady()
			if err := h.Await(t.Context(), Mark{}); err != nil {
				t.Fatal(err)
			}
			if _, n := h.Taken(code); n != want {
				t.Errorf("%s: %d uses are taken, want %d", when, n, want)
			}
		}
		set("lost", 1, false)
		set("waits", 2, false)
		set("used", 3, true)
		set("used", 3, true) // again
		counts("at once", 3)
		time.Sleep(5 * time.Second)
		counts("the place is lost", 2)
		h.end()
		h = run(t, l, 7, nil)
		counts("at the next host", 2)
		h.end()
		h = run(t, l, 8, nil)
		counts("in another life", 1)
		h.end()
	})
}

func TestTheNumberOfInvitationsIsBounded(t *testing.T) {
	r := New(Config{})
	r.set(1, Hold{Number: 1, Until: 1})
	if r.codes != 1 {
		t.Fatal(r.codes)
	}
	r.codes = MaxCodes - 1                          // as many more of them
	r.set(1, Hold{Number: 1, Until: 1, Used: true}) // the same one again
	r.set(MaxCodes+5, Hold{Number: 7})              // a person
	if r.IsFull() {
		t.Error("full too early")
	}
	r.set(MaxCodes+6, Hold{Number: 8, Until: 1})
	if !r.IsFull() {
		t.Error("not full")
	}
	if r.set(1, Hold{}); r.IsFull() {
		t.Error("full for ever")
	}
}
