package boot

import "golang.org/x/sys/unix"

// Both monotonic clocks of macOS count sleep (clock_gettime(3): "will continue to increment while
// the system is asleep"); CLOCK_UPTIME_RAW and time.Now do not. CLOCK_MONOTONIC is computed from the
// wall clock and the time of boot, in microseconds, and follows adjustments; CLOCK_MONOTONIC_RAW is
// mach_continuous_time, which nobody sets (gen/clock_gettime.c of Apple's Libc).
const (
	clockID   = unix.CLOCK_MONOTONIC_RAW
	clockName = "CLOCK_MONOTONIC_RAW"
)
