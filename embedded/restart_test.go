//go:build real

package embedded

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// While the engine restarts, which takes seconds on a bad disk, calls on its connection fail at
// once: none waits longer than its own deadline.
func TestNobodyWaitsForAnEngineThatIsStartedAnew(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.mu.Lock() // as a restart does
	s.stopLocked()
	begun := time.Now()
	for time.Since(begun) < 20*connectWait { // the connection keeps trying meanwhile
		said := make(chan error, 1)
		go func() {
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			_, err := s.conn.RequestWithContext(ctx, "anybody", nil)
			said <- err
		}()
		select {
		case err := <-said:
			if err == nil || errors.Is(err, nats.ErrConnectionClosed) {
				t.Errorf("the engine is gone, and says %v", err)
			}
		case <-time.After(10 * time.Second):
			s.mu.Unlock()
			t.Fatal("a request waits for the engine, whatever its deadline")
		}
	}
	s.mu.Unlock()
	s.restart(t.Context())
	if err := s.waitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
}
