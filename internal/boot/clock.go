// Package boot provides the clock for decisions. It counts time in suspend, and nobody can set it.
//
// # The promise
//
// A Clock never goes back and is never ahead of Now (docs/protocol.md §2). Now is CLOCK_BOOTTIME on
// Linux, CLOCK_MONOTONIC_RAW on macOS, and the interrupt time of Windows.
//
// # Concurrency and cost
//
// A Clock may be read by many goroutines at once, for a tenth of a microsecond. Once a second, and
// when the machine may have slept, a read is a system call.
//
// # What it does not do
//
// It has no time of day.
package boot

import (
	"sync/atomic"
	"time"
)

// A Clock reads Now. Unlike the monotonic reading of time.Now, Now counts suspend, so that a
// machine that slept does not believe that its terms still run (docs/protocol.md §2). Now is a
// system call, so a Clock calls it only from time to time, and advances the value by the monotonic
// clock, which needs no system call. After a suspend the wall clock has gained on the monotonic
// one. Then the Clock calls Now before it returns a time.
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

// New starts a clock. Its start value has no meaning.
func New() *Clock { return &Clock{base: time.Now()} }

// Read returns the time since an arbitrary moment.
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

// look reads the system's clock. It takes the monotonic reading afterwards, so the result may lag
// by the time between the two, and is never ahead. It never goes back.
func (c *Clock) look(old *reading, wall int64, mono time.Duration) *reading {
	boot := Now()
	m := &reading{boot: boot - time.Since(c.base), wall: wall, at: mono}
	if old != nil {
		m.boot = max(m.boot, old.boot)
	}
	c.mark.Store(m)
	return m
}

// Now returns the time of a clock that nobody sets and that counts suspend. Only differences are
// meaningful.
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
