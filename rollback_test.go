package headgate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// The store is rolled back by ten minutes: a stream was restored in the operator's own NATS, and
// all processes were restarted. No pass of the lost epoch is accepted, whether its epoch is below
// the new one or above.
func TestRolledBackPassesOfAGreaterEpochAreNotHonored(t *testing.T) {
	greater, lower := 0, 0
	over := []int{}
	for try := 0; try < 40 && (greater < 3 || lower < 3); try++ {
		synctest.Test(t, func(t *testing.T) {
			e, _ := plugged(memoryEngine())
			e.alone = false
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 2, NewUsersPerMinute: 600, SessionDuration: time.Minute, Engine: e,
			})
			time.Sleep(5 * time.Second)
			mem := e.store.(*plug).Memory
			old, _, err := mem.Load(t.Context(), "counter.shop")
			if err != nil {
				t.Fatal(err)
			}
			next := func(down time.Duration) {
				e.store.(*plug).pulled.Store(true)
				g.stop()
				<-g.done
				time.Sleep(down)
				cfg := g.room.Config()
				e2, _ := plugged(e)
				e2.alone = false
				cfg.Engine, e = e2, e2
				g = openGate(t, cfg)
			}
			next(0) // a takeover
			time.Sleep(10 * time.Minute)
			var in []*visitor
			for range 2 {
				v := g.visitor()
				for i := 0; !v.in() && i < 30; i++ {
					time.Sleep(time.Second)
				}
				in = append(in, v)
			}
			lost := in[0].pass()
			back := &store.Memory{}
			if _, err := back.CompareAndSwap(t.Context(), "counter.shop", 0, old); err != nil {
				t.Fatal(err)
			}
			e.store.(*plug).Memory = back
			next(2 * time.Minute) // everybody's stay would be over by now, had the record not gone back
			time.Sleep(90 * time.Second)
			now := g.room.worker.epoch()
			fill := 0
			for range 2 {
				if v := g.visitor(); v.in() {
					fill++
				}
			}
			honored := 0
			for _, v := range in {
				v.g = g
				if v.in() {
					honored++
				}
			}
			quiet := g.room.Status().Record.Quiet
			t.Logf("epoch of the passes %d, now %d: %d newcomers and %d old passes inside of 2; quiet %v",
				lost.Epoch, now, fill, honored, quiet)
			if lost.Epoch > now {
				greater++
			} else {
				lower++
			}
			if fill+honored > 2 {
				over = append(over, fill+honored)
			}
			for i, v := range in { // they come as any newcomer does
				for second := 0; !v.in(); second++ {
					if second > 600 {
						t.Fatalf("visitor %d of epoch %d waits for ever: the room is at %d", i, lost.Epoch, now)
					}
					time.Sleep(time.Second)
				}
			}
			g.stop()
		})
	}
	if len(over) > 0 {
		t.Errorf("%v inside of 2", over)
	}
}
