package persons

import (
	"fmt"
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
