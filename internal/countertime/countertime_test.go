package countertime

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

const second = slot.Time(time.Second)

// knows returns a Clock that knows the counter time of an epoch; 0: of none.
func knows(epoch uint64, lo, hi slot.Time) *Clock {
	began := time.Now()
	c := New(func() time.Duration { return time.Hour + time.Since(began) }, slot.DefaultDrift)
	if epoch > 0 {
		k := &Known{Life: 7, Heard: c.boot(), Until: 2 * time.Hour}
		k.Time.ReceiveBounds(epoch, lo, hi, c.boot(), c.boot(), c.drift)
		c.Learn(k)
	}
	return c
}

// Of the times of other processes only one of a later host counts. Its bounds contain the time that
// the request took, and it comes with no term.
func TestATimeOfALaterHostIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			knows, says uint64
			life        uint64
			taken       bool
		}{{0, 5, 7, true}, {4, 5, 7, true}, {5, 5, 7, false}, {6, 5, 7, false}, {4, 5, 8, false}} {
			c := knows(x.knows, 10*second, 10*second)
			c.Ask = func(context.Context, []byte) ([]byte, error) {
				time.Sleep(200 * time.Millisecond)
				return json.Marshal(answer{Life: x.life, Epoch: x.says, Lo: 3 * second, Hi: 4 * second})
			}
			c.askOthers(t.Context())
			lo, hi, life, ok := c.Bounds()
			if !x.taken {
				if k := c.Load(); k.Time.Epoch != x.knows || lo < 10*second {
					t.Errorf("%+v: epoch %d", x, k.Time.Epoch)
				}
				continue
			}
			if !ok || life != 7 || lo != 3*second || hi < 4*second+second/5 || c.Load().Until != 0 {
				t.Errorf("%+v: from %v to %v, %+v", x, lo, hi, c.Load())
			}
		}
	})
}

// A process answers with what it knows, and only one that knows less.
func TestWhoKnowsMoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		knowing := knows(5, 3*second, 4*second)
		for _, epoch := range []uint64{0, 4, 5, 6} {
			c := knows(epoch, second, second)
			c.Ask = func(ctx context.Context, msg []byte) ([]byte, error) {
				return knowing.Answer(ctx, msg), nil
			}
			c.askOthers(t.Context())
			if got := c.Estimate(); got.Epoch != max(5, epoch) {
				t.Errorf("knew epoch %d, now %d", epoch, got.Epoch)
			}
		}
		if b := knowing.Answer(t.Context(), []byte("what?")); b != nil {
			t.Errorf("answered %q", b)
		}
		if b := knows(0, 0, 0).Answer(t.Context(), []byte("0")); b != nil {
			t.Errorf("knows nothing, and answered %q", b)
		}
	})
}

// An answer of the counter neither hides the time of a later host nor loosens the bounds.
func TestAnAnswerKeepsWhatIsKnownBetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := knows(5, 3*second, 4*second)
		for _, epoch := range []uint64{4, 5} {
			k := &Known{Life: 7}
			k.Time.ReceiveBounds(epoch, 2*second, 50*second, c.boot(), c.boot(), c.drift)
			c.Learn(k)
			if lo, hi, _, _ := c.Bounds(); lo != 3*second || hi != 4*second {
				t.Errorf("epoch %d: from %v to %v", epoch, lo, hi)
			}
		}
		k := &Known{Life: 7}
		k.Time.ReceiveBounds(6, second, 2*second, c.boot(), c.boot(), c.drift)
		c.Learn(k)
		if lo, hi, _, _ := c.Bounds(); lo != second || hi != 2*second {
			t.Errorf("a later epoch: from %v to %v", lo, hi)
		}
	})
}

// However many visitors wait, the other processes are asked seldom.
func TestOthersAreAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := knows(0, 0, 0)
		var asked atomic.Int64
		c.Ask = func(context.Context, []byte) ([]byte, error) { asked.Add(1); return nil, context.Canceled }
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		for range 50 {
			go c.Await(ctx, func() {}, func() bool { return false })
		}
		synctest.Wait()
		<-ctx.Done()
		synctest.Wait()
		if n, most := asked.Load(), int64(time.Second/askEvery)+1; n < 2 || n > most {
			t.Errorf("asked %d times in a second, want at most %d", n, most)
		}
	})
}
