package headgate

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads CLOCK_BOOTTIME: unlike time.Now's monotonic reading it counts
// suspend, so that a machine that slept does not believe its terms still run
// (docs/protocol.md §2). Reading it is a system call of some 0.5 µs, so it is
// read once in a while and advanced by the monotonic clock, which is not. A
// suspend shows as the wall clock gaining on the monotonic one: then it is read
// anew before anything is decided.
type bootClock struct {
	base time.Time
	mark atomic.Pointer[bootMark]
}

type bootMark struct {
	boot time.Duration // CLOCK_BOOTTIME − monotonic
	wall int64         // wall clock − monotonic, in nanoseconds
	at   time.Duration // monotonic since base
}

// Chosen: NTP slews the wall clock 0.5 ms a second at most, and no suspend is
// shorter than a few milliseconds.
const (
	bootTrust = time.Second
	bootSlack = 5 * time.Millisecond
)

func newBootClock() *bootClock { return &bootClock{base: time.Now()} }

func (c *bootClock) read() time.Duration {
	now := time.Now()
	mono := now.Sub(c.base)
	wall := now.UnixNano() - int64(mono)
	m := c.mark.Load()
	if m == nil || mono-m.at > bootTrust || wall-m.wall > int64(bootSlack) {
		m = c.look(m, wall, mono)
	}
	return mono + m.boot
}

// look reads the system's clock. The monotonic reading is taken after it, so the
// result may lag by the time between the two and is never ahead; and it never
// goes back.
func (c *bootClock) look(old *bootMark, wall int64, mono time.Duration) *bootMark {
	boot := kernelBoot()
	m := &bootMark{boot: boot - time.Since(c.base), wall: wall, at: mono}
	if old != nil {
		m.boot = max(m.boot, old.boot)
	}
	c.mark.Store(m)
	return m
}

func kernelBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("headgate: CLOCK_BOOTTIME cannot be read: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
