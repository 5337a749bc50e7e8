// Package virtual runs tests that have a real engine in virtual time.
package virtual

import (
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server/ats"
)

// Test is synctest.Test for a test that opens engines which listen nowhere. One goroutine
// of NATS serves all engines of a process and waits at a channel of the package: inside
// a bubble, time would never pass. Test starts it outside.
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	ats.Register()
	defer ats.Unregister()
	synctest.Test(t, test)
}
