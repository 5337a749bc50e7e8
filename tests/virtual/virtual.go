// Package virtual runs tests that have a real engine in virtual time.
package virtual

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server/ats" // whose variable registered is
)

// bubble is held while a bubble runs: the bubbles of a process share the pools of its packages.
var bubble sync.Mutex //nolint:gochecknoglobals // a pool belongs to the process too

// registered counts the engines of the process for which NATS keeps a clock.
//
//go:linkname registered github.com/nats-io/nats-server/v2/server/ats.refs
var registered atomic.Int64 //nolint:gochecknoglobals // the variable of another package

// Test is synctest.Test for a test that opens engines which listen nowhere. One goroutine of NATS is
// the clock of all engines of a process and waits at a channel of its package: inside a bubble,
// time would never pass, and outside it wakes up by real time, in between the goroutines of the
// bubble. Test prevents it from starting. The engines use the clock only to free memory.
//
// The client of NATS keeps timers in a pool of its package. A timer belongs to the bubble that made
// it: the process ends when another bubble waits for it. That is why bubbles run one after another,
// and why the pools are emptied before and after each.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	registered.Add(1)
	defer registered.Add(-1)
	bubble.Lock()
	defer bubble.Unlock()
	collect()
	defer collect()
	defer record(t)()
	synctest.Test(t, test)
}

// collect empties all pools: two collections do.
func collect() {
	runtime.GC()
	runtime.GC()
}

// A Link is a way to an engine in this process that can be cut.
type Link struct {
	To interface{ InProcessConn() (net.Conn, error) }

	mu   sync.Mutex
	cut  bool
	open []net.Conn
}

// InProcessConn connects to the engine. With nats.InProcessServer, a client uses the link.
func (l *Link) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.New("cut")
	}
	c, err := l.To.InProcessConn()
	if err == nil {
		l.open = append(l.open, c)
	}
	return c, err
}

// SetCut cuts the link, which ends all connections, or restores it.
func (l *Link) SetCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, c := range l.open {
		c.Close()
	}
	l.open = nil
}
