// Package boot is the clock that decides: it counts suspend, and nobody sets it.
//
// # The promise
//
// A Clock never goes back and is never ahead of Now (docs/protocol.md §2). Now is CLOCK_BOOTTIME on
// Linux, CLOCK_MONOTONIC_RAW on macOS, and the interrupt time of Windows.
//
// # Concurrency and cost
//
// It may be read by many goroutines at once, for a tenth of a microsecond: once a second, and when
// the machine may have slept, that is a system call.
//
// # What it does not do
//
// It tells no time of day.
package boot

import (
	"sync/atomic"
	"time"
)

// A Clock reads Now: unlike the monotonic reading of time.Now it counts suspend, so that a machine
// that slept does not believe its terms still run (docs/protocol.md §2). Now is a system call, so it
// is read once in a while and advanced by the monotonic clock, which is none. A
// suspend shows as the wall clock gaining on the monotonic one: then it is read
// anew before anything is decided.
type Clock struct {
	base time.Time
	mark atomic.Pointer[reading]
}

type reading struct {
	boot time.Duration // Now − monotonic
	wall int64         // wall clock − monotonic, in nanoseconds
	at   time.Duration // monotonic since base
}

// Chosen: NTP slews the wall clock 0.5 ms a second at most, and no suspend is
// shorter than a few milliseconds.
const (
	trust = time.Second
	slack = 5 * time.Millisecond
)

// New starts a clock. Where it begins means nothing.
func New() *Clock { return &Clock{base: time.Now()} }

// Read is the time since some moment.
func (c *Clock) Read() time.Duration {
	now := time.Now()
	mono := now.Sub(c.base)
	wall := now.UnixNano() - int64(mono)
	m := c.mark.Load()
	if m == nil || mono-m.at > trust || wall-m.wall > int64(slack) {
		m = c.look(m, wall, mono)
	}
	return mono + m.boot
}

// look reads the system's clock. The monotonic reading is taken after it, so the
// result may lag by the time between the two and is never ahead; and it never
// goes back.
func (c *Clock) look(old *reading, wall int64, mono time.Duration) *reading {
	boot := Now()
	m := &reading{boot: boot - time.Since(c.base), wall: wall, at: mono}
	if old != nil {
		m.boot = max(m.boot, old.boot)
	}
	c.mark.Store(m)
	return m
}

// Now is the time by a clock that nobody sets and that counts suspend. Only its differences mean
// anything.
func Now() time.Duration {
	now, err := read()
	if err != nil {
		panic("headgate: " + err.Error())
	}
	return now
}

// Check returns an error if Now would panic.
func Check() error {
	_, err := read()
	return err
}
