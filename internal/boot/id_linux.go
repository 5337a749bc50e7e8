package boot

import "golang.org/x/sys/unix"

// CLOCK_MONOTONIC stands still while Linux sleeps, CLOCK_BOOTTIME does not (clock_gettime(2)).
const (
	clockID   = unix.CLOCK_BOOTTIME
	clockName = "CLOCK_BOOTTIME"
)
