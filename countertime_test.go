package headgate

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/countertime"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
)

// Seed 3: the time of an earlier host that answered a moment ago is not the time of the host that
// accepted the claim: on that scale the new session was over, and its visitor was told to wait.
func TestAClaimWaitsForTheTimeOfItsHost(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60})
		w := g.room.worker
		epoch, began := w.epoch(), time.Now()
		_, hi, _, _ := w.clock.Bounds()
		if w.learnEnd(t.Context(), epoch+1, hi.Add(time.Hour)) || time.Since(began) < askWait {
			t.Errorf("after %v the time of an earlier epoch is taken for that of the next", time.Since(began))
		}
		if began = time.Now(); !w.learnEnd(t.Context(), epoch, hi.Add(time.Hour)) || time.Since(began) > 0 {
			t.Errorf("%v for a time that is known", time.Since(began))
		}
	})
}

// Seeds 66 and 84: the answer to a request from before a suspension bounds the counter time from
// above as if the whole suspension had passed. By that bound a session seemed over that had just
// begun, and its visitor was sent to the end of the line.
func TestALateAnswerEndsNoSession(t *testing.T) {
	loosen := func(w *worker) {
		k := *w.clock.Load()
		lo, hi, _, _ := w.clock.Bounds()
		epoch := k.Time.Epoch
		k.Time = slot.Estimate{}
		k.Time.ReceiveBounds(epoch, lo, hi.Add(time.Hour), w.boot(), w.boot(), w.par.Drift)
		w.retime(&k)
	}
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: 30 * time.Second,
		PollMin: time.Second, PollMax: time.Second}
	bubble(t, "a pass", func(t *testing.T) {
		g := openGate(t, cfg)
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("one is to be inside")
		}
		loosen(g.room.worker)
		if !a.in() {
			t.Error("the visitor inside is sent to the line")
		}
	})
	bubble(t, "a claim", func(t *testing.T) {
		g := openGate(t, cfg)
		a, b := g.visitor(), g.visitor()
		if !a.in() || b.in() {
			t.Fatal("one is to be inside")
		}
		for range 100 {
			if time.Sleep(time.Second); b.poll().State == StateCalled {
				break
			}
		}
		loosen(g.room.worker)
		if !b.in() {
			t.Error("the called visitor is not let in")
		}
	})
}

// A node that has just started asks a peer for the time. The peer last heard the counter three minutes
// ago, in epoch 4. If that counted as heard now, a pass of epoch 5 from two minutes ago would seem to
// be of a record that was rolled back since.
func TestATimeThatAPeerHeardLongAgoIsNotTheTimeOfALaterEpoch(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 60})
		w := g.room.worker
		w.par.Alone = false
		time.Sleep(5 * time.Minute)
		now := w.boot()
		peer := countertime.New(w.boot, w.par.Drift) // was suspended, or is cut off from the host
		k := &countertime.Known{Life: 7, Heard: now - 3*time.Minute}
		k.Time.ReceiveBounds(4, slot.Time(time.Hour), slot.Time(time.Hour), k.Heard, k.Heard, w.par.Drift)
		peer.Learn(k)
		w.mu.Lock()
		w.clock = countertime.New(w.boot, w.par.Drift) // has just started
		w.clock.Ask = func(ctx context.Context, msg []byte) ([]byte, error) {
			return peer.Answer(ctx, msg), nil
		}
		w.mu.Unlock()
		tok := ticket.Token{Life: 7, Epoch: 5, Checked: time.Now().Add(-2 * time.Minute).Unix()}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		isKnown := func() bool { return w.clock.Load() != nil && !w.behind(&tok) }
		known := w.clock.Await(ctx, func() {}, isKnown)
		if known {
			t.Errorf("epoch %d is taken for the time of a pass of epoch 5", w.epoch())
		}
	})
}
