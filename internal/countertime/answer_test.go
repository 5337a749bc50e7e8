package countertime

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// An answer must not name one epoch and give the bounds of another one.
func TestAnAnswerHasTheBoundsOfItsEpoch(t *testing.T) {
	c := New(func() time.Duration { return time.Hour }, slot.DefaultDrift)
	learn := func(e uint64) {
		k := &Known{Life: 7, Heard: time.Hour}
		at := slot.Time(e) * 1000 * second
		k.Time.ReceiveBounds(e, at, at, time.Hour, time.Hour, c.drift)
		c.Learn(k)
	}
	learn(1)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for e := uint64(2); ; e++ {
			select {
			case <-stop:
				return
			default:
				learn(e)
			}
		}
	})
	mixed := 0
	n := 0
	for ; n < 20_000; n++ {
		var a answer
		if json.Unmarshal(c.Answer(t.Context(), []byte("0")), &a) == nil && a.Lo != slot.Time(a.Epoch)*1000*second {
			mixed++
		}
	}
	close(stop)
	wg.Wait()
	if mixed > 0 {
		t.Errorf("%d of %d answers name one epoch and give the bounds of another", mixed, n)
	}
}
