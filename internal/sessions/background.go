package sessions

import (
	"context"
	"sync"
	"time"
)

// RequestWait is how long a request, and the next one on its connection, waits for other nodes. Chosen.
const RequestWait = 250 * time.Millisecond

// A Background goes on with what the request that began it does not wait for. Begin and End must be
// called once.
type Background struct {
	mu   sync.Mutex
	over context.Context // of Begin; nil before
	all  sync.WaitGroup
}

// Begin makes Run not wait from now on, until ctx ends.
func (b *Background) Begin(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = ctx
}

// End waits for all that goes on. None begins any more.
func (b *Background) End() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all.Wait()
}

// Run calls f, and returns when f does or after RequestWait, whichever is first.
func (b *Background) Run(ctx context.Context, f func(context.Context)) {
	ctx, stop := context.WithCancel(ctx)
	b.mu.Lock()
	if b.over != nil && b.over.Err() == nil {
		b.all.Go(func() { defer context.AfterFunc(b.over, stop)(); f(ctx); stop() })
		b.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(RequestWait):
		}
		return
	}
	b.mu.Unlock()
	defer stop()
	f(ctx)
}
