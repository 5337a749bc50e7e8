// Package virtual runs tests that have a real engine in virtual time.
package virtual

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server/ats"
)

// one holds a bubble: those of a process share what its packages keep in pools.
var one sync.Mutex //nolint:gochecknoglobals // pools are of the process too

// Test is synctest.Test for a test that opens engines which listen nowhere. One goroutine
// of NATS serves all engines of a process and waits at a channel of the package: inside
// a bubble, time would never pass. Test starts it outside.
//
// The client of NATS takes the timers of its flushes from a pool of the package. A timer belongs to
// its bubble, and ends the process when another one waits for it: bubbles run one after another,
// and none finds what the one before left.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	ats.Register()
	defer ats.Unregister()
	one.Lock()
	defer one.Unlock()
	collect()
	defer collect()
	synctest.Test(t, test)
}

// collect empties all pools: two collections do.
func collect() {
	runtime.GC()
	runtime.GC()
}
