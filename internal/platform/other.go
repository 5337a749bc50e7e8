//go:build !linux

package platform

import (
	"errors"
	"os"
)

// LockHolder returns 0: only Linux lists locks.
func LockHolder(*os.File) (pid int) { return 0 }

// OpenFilesOf returns 0: only Linux shows the limits of other processes.
func OpenFilesOf(int) uint64 { return 0 }

// IsWallClockSynced cannot be known here.
func IsWallClockSynced() (bool, error) { return false, errors.ErrUnsupported }
