package server

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/queue"
)

func TestJobsLeaveRoomOnTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, looks := uint64(130<<20), 0
		d := newDiskRoom("data")
		d.look = func(string) (uint64, uint64, error) { looks++; return free, 10 << 30, nil }
		for i, st := range []struct {
			bytes int64
			fits  bool
		}{{20 << 20, true}, {20 << 20, false}, {10 << 20, true}, {1, false}} {
			if err := d.take(st.bytes); (err == nil) != st.fits {
				t.Errorf("%d: %d bytes of 30 MB: %v", i, st.bytes, err)
			}
		}
		if looks != 1 {
			t.Errorf("%d looks at once", looks)
		}
		time.Sleep(lookAgain)
		if err := d.take(20 << 20); err != nil {
			t.Errorf("after another look: %v", err)
		}
		time.Sleep(lookAgain)
		free, d.look = 3<<20, func(string) (uint64, uint64, error) { return free, 40 << 20, nil }
		if d.take(1<<20) != nil || d.take(1) == nil {
			t.Error("of a small disk a twentieth is kept free")
		}
	})
}

// The queues of the configuration ask for room, and a reload does not lose that.
func TestAPutIsRefusedWhileTheDiskIsNearlyFull(t *testing.T) {
	g := newSink(t)
	p := run(t, shop)
	queues := "queues:\n  - {name: one, rate: 50, target: {url: '" + g.URL + "'}}\n"
	p.write(shop + queues)
	p.reload()
	p.write(shop + strings.Replace(queues, "rate: 50", "rate: 70", 1))
	p.reload()
	room := p.s.jobs.room
	set := func(free uint64) {
		room.mu.Lock()
		defer room.mu.Unlock()
		room.at, room.look = time.Time{}, func(string) (uint64, uint64, error) { return free, 1 << 40, nil }
	}
	set(keptFree)
	_, err := p.queue("one").Put(t.Context(), []queue.Job{{Body: []byte("a")}})
	if !errors.Is(err, queue.ErrFull) || !strings.Contains(err.Error(), "100 MB are kept free") {
		t.Errorf("a put on a full disk: %v", err)
	}
	set(keptFree + 1<<20)
	p.put("one", "b")
	eventually(t, "delivered", func() bool { return g.got() == "b" })
}
