package counter

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/slot"
)

// As TestAFrozenHostGivesUpItsWrite, but a recall of Anywhere is the first that comes after the pause.
func TestARecallIsTheFirstAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var frozen atomic.Int64
		disk := &silent{}
		c, err := Open(t.Context(), Config{
			Room: "shop", Host: "a", Store: disk, Settings: Settings{
				Active: slot.Limit{Kind: slot.AtOnce, N: 3, Per: time.Minute},
				New:    slot.Limit{Kind: slot.PerWindow, N: 1000, Per: time.Minute},
				Line:   LineConfig{MaxWaiting: 1000, PollMin: time.Second, PollMax: 30 * time.Second},
			},
			Boot: func() time.Duration {
				return time.Since(start) + time.Hour + time.Duration(frozen.Load())
			},
			Log: slog.New(slog.DiscardHandler),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Second)
		disk.off.Store(true)
		go c.Sync(ctx, &slot.Sync{Borrower: "w", Loan: 1, Seq: slot.Seq{Epoch: 1, N: 1}, Want: 1})
		time.Sleep(500 * time.Millisecond)
		frozen.Store(int64(8 * time.Second))
		woke := time.Now()
		c.recalledUp()
		if err := <-ended; !errors.Is(err, ErrFenced) || time.Since(woke) > time.Second {
			t.Errorf("the host ended with %v, %v after it woke up", err, time.Since(woke))
		}
	})
}
