package chanmutex

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTimePassesWhileAGoroutineWaitsForATurn: the holder sleeps. With a sync.Mutex, time in the
// bubble would stand still.
func TestTimePassesWhileAGoroutineWaitsForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Mutex
		var wg sync.WaitGroup
		n, began := 0, time.Now()
		for range 100 {
			wg.Go(func() {
				turn.Lock()
				defer turn.Unlock()
				was := n
				time.Sleep(time.Second)
				n = was + 1
			})
		}
		wg.Wait()
		if took := time.Since(began); n != 100 || took != 100*time.Second {
			t.Errorf("%d turns in %v, want 100 of a second each", n, took)
		}
	})
}

// TestALoopDoesNotStarveAWaiter: a loop that follows a store locks again as soon as it has unlocked.
func TestALoopDoesNotStarveAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Mutex
		var wg sync.WaitGroup
		const loops = 3
		for range loops {
			wg.Go(func() {
				for range 100 {
					turn.Lock()
					time.Sleep(time.Second)
					turn.Unlock()
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		turn.Lock()
		took := time.Since(began)
		turn.Unlock()
		wg.Wait()
		if took > loops*time.Second {
			t.Errorf("locked after %v; one second for each of %d loops is enough", took, loops)
		}
	})
}
