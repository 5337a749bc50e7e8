package queue

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time by a clock that nobody sets, and that goes on while the machine sleeps:
// else a holder that slept would believe that its lease still runs (docs/protocol.md §2). Only
// its differences mean anything.
func bootTime() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("headgate: CLOCK_BOOTTIME cannot be read: " + err.Error())
	}
	return time.Unix(0, ts.Nano())
}
