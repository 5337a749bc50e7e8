package counter

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

func TestAMoveIsInTheRecordBeforeAnybodyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &refusing{}
		c := host(t, "a", s, 1)
		join(t, c)
		p := join(t, c)
		m := Move{Life: p.Life, Number: p.Number, To: 7}
		s.down.Store(true)
		if err := c.Move(t.Context(), m); !errors.Is(err, ErrSlow) {
			t.Fatalf("moved without a write: %v", err)
		}
		if got, err := c.Poll(t.Context(), p.Life, p.Number, 0); err == nil && got.Moved {
			t.Error("the old device is told what is in no record")
		}
		if err := c.Leave(t.Context(), p.Life, p.Number, 0); err != nil {
			t.Fatal(err)
		}
		s.down.Store(false)
		time.Sleep(time.Second)
		if err := c.Move(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Poll(t.Context(), p.Life, p.Number, 0); err != nil || !got.Moved {
			t.Errorf("the old device: %+v %v", got, err)
		}
		if got, err := c.Poll(t.Context(), p.Life, p.Number, 7); err != nil || got.Position != 2 {
			t.Errorf("the new device: %+v %v", got, err)
		}
		if _, err := c.Claim(t.Context(), p.Life, p.Number, 0, 0); !errors.Is(err, ErrNotCalled) {
			t.Errorf("the old device claims: %v", err)
		}
		next := host(t, "b", s, 1) // takes over
		if got, err := next.Poll(t.Context(), p.Life, p.Number, 0); err != nil || !got.Moved {
			t.Errorf("the old device, at the next host: %+v %v", got, err)
		}
		got, err := next.Poll(t.Context(), p.Life, p.Number, 7)
		if err != nil || got.Moved || got.Position == 0 {
			t.Errorf("the new device, at the next host: %+v %v", got, err)
		}
		m.From, m.To = 7, 8
		if err := c.Move(t.Context(), m); !errors.Is(err, ErrFenced) {
			t.Errorf("the host of before moves a place: %v", err)
		}
	})
}

func TestOfManyMovesOneCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &flaky{}, 1)
		join(t, c)
		p := join(t, c)
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range uint64(50) {
			wg.Go(func() {
				if c.Move(t.Context(), Move{Life: p.Life, Number: p.Number, To: i + 1}) == nil {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d have the place", won.Load())
		}
	})
}

// Two devices have the same ticket, which is called and then used.
func TestOnlyTheNewDeviceClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 1)
		p := join(t, c)
		time.Sleep(time.Second)
		if err := c.Move(t.Context(), Move{Life: p.Life, Number: p.Number, To: 7}); err != nil {
			t.Fatal(err)
		}
		claim := func(key uint64) error {
			_, err := c.Claim(t.Context(), p.Life, p.Number, key, 0)
			return err
		}
		got, err := c.Poll(t.Context(), p.Life, p.Number, 7)
		if got.Status != slot.TicketCalled || err != nil {
			t.Fatalf("%+v %v", got, err)
		}
		for _, want := range []error{ErrNotCalled, nil, ErrNotCalled} {
			key := uint64(0)
			if want == nil {
				key = 7
			}
			if err := claim(key); !errors.Is(err, want) {
				t.Errorf("a claim with the key %d: %v, want %v", key, err, want)
			}
		}
		m := Move{Life: p.Life, Number: p.Number, From: 7, To: 8}
		if err := c.Move(t.Context(), m); !errors.Is(err, ErrNoTicket) {
			t.Errorf("a used ticket moves: %v", err)
		}
	})
}

// A network that moves thousands of places, and gives them up, does not use up the moves of others.
func TestMovesOfOneNetworkLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := host(t, "a", &store.Memory{}, 1)
		p := join(t, c)
		lane, err := c.Join(t.Context(), slot.NetworkLane().ID(), time.Hour, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Poll(t.Context(), lane.Life, lane.Number, 0); err != nil { // its cookie has come back
			t.Fatal(err)
		}
		c.Hold(true)
		fill := func(n int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			now := c.pool.CounterTime(c.cfg.Boot())
			c.moved = nil
			for i := range uint64(n) { // all over now, by their numbers
				c.moved = append(c.moved, slot.Moved{Number: 1<<30 + i, Key: 1, Held: now})
			}
		}
		move := func(p PlaceInfo) error {
			return c.Move(t.Context(), Move{Life: p.Life, Number: p.Number, To: 7})
		}
		fill(slot.MaxMoved / 2)
		if err := move(lane); !errors.Is(err, ErrFull) {
			t.Errorf("a place in the lane of a network takes more than half: %v", err)
		}
		if err := move(p); err != nil {
			t.Errorf("any other place: %v", err)
		}
		fill(slot.MaxMoved)
		time.Sleep(movedLeast - 2*time.Second)
		if err := move(p); !errors.Is(err, ErrFull) {
			t.Errorf("those that were over a moment ago are forgotten: %v", err)
		}
		if time.Sleep(2 * time.Second); move(p) != nil {
			t.Error("those that are over keep others from moving")
		}
	})
}

func TestMovedPlacesAreBoundedAndForgotten(t *testing.T) {
	if testing.Short() {
		return // long, and nothing for the race detector: make all runs it
	}
	synctest.Test(t, func(t *testing.T) {
		s := &store.Memory{}
		c := host(t, "a", s, 1)
		join(t, c)
		p := join(t, c)
		c.Hold(true) // no calls: a called visitor that never comes in loses its place
		c.mu.Lock()
		now := c.pool.CounterTime(c.cfg.Boot())
		for i := range uint64(slot.MaxMoved) { // over long ago, by their numbers
			c.moved = append(c.moved, slot.Moved{Number: 1<<30 + i, Key: 1, Held: now})
		}
		c.mu.Unlock()
		m := Move{Life: p.Life, Number: p.Number, To: 7}
		if err := c.Move(t.Context(), m); !errors.Is(err, ErrFull) {
			t.Fatalf("one more than fit: %v", err)
		}
		told := func(key uint64) PlaceInfo {
			got, err := c.Poll(t.Context(), p.Life, p.Number, key)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for range 14 * 5 { // longer than movedKept, and the place stays
			time.Sleep(time.Minute)
			told(0)
		}
		if err := c.Move(t.Context(), m); err != nil {
			t.Fatalf("none is over for an hour: %v", err)
		}
		for range 14 * 5 {
			time.Sleep(time.Minute)
			told(7)
		}
		if !told(0).Moved {
			t.Error("forgotten while its place stands")
		}
		if err := c.Leave(t.Context(), p.Life, p.Number, 7); err != nil {
			t.Fatal(err)
		}
		if time.Sleep(movedKept / 2); !told(0).Moved {
			t.Error("a device that slept is not told")
		}
		time.Sleep(movedKept)
		if told(0).Moved {
			t.Error("never forgotten")
		}
		join(t, c)
		time.Sleep(time.Minute)
		if b, _, err := s.Load(t.Context(), c.key()); err != nil || b[0] >= 5 {
			t.Errorf("a program of before cannot read it any more: format %d, %v", b[0], err)
		}
	})
}
