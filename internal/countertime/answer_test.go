package countertime

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// While a node answers with the time of one epoch, it learns the time of the next one. The bounds in
// the answer must be those of the epoch in the answer. Here the node learns a later epoch whenever it
// reads its clock.
func TestAnAnswerHasTheBoundsOfItsEpoch(t *testing.T) {
	var c *Clock
	epoch, learning := uint64(0), false
	c = New(func() time.Duration {
		if !learning {
			learning = true
			epoch++
			k := &Known{Life: 7, Heard: time.Hour}
			at := slot.Time(epoch) * 1000 * second
			k.Time.ReceiveBounds(epoch, at, at, time.Hour, time.Hour, c.drift)
			c.Learn(k)
			learning = false
		}
		return time.Hour
	}, slot.DefaultDrift)
	c.boot()
	var a answer
	if err := json.Unmarshal(c.Answer(t.Context(), []byte("0")), &a); err != nil {
		t.Fatal(err)
	}
	if want := slot.Time(a.Epoch) * 1000 * second; a.Epoch == 0 || a.Lo != want || a.Hi != want || epoch < 2 {
		t.Errorf("the answer has the bounds %d to %d and epoch %d, want %d", a.Lo, a.Hi, a.Epoch, want)
	}
}
