// Package platform has what operating systems do differently: locks of files, space on disks, owners,
// limits of a process, terminals, and the end of a child process.
//
// # The promise
//
// Its functions mean the same on Linux, macOS and Windows, or return an error that matches
// errors.ErrUnsupported. Limits returns what a system cannot do, for people to read.
//
// # Concurrency and cost
//
// Functions may be called by many goroutines at once. Each is a few system calls.
//
// # What it does not do
//
// The clock that decides is in package boot. Only Linux is tested by make test: the others are vetted.
package platform

import (
	"errors"
	"io"
	"os"
)

// ErrLocked is returned by TryLock for a file that another process has locked.
var ErrLocked = errors.New("locked by another process")

// IsScreen reports whether w is a terminal.
func IsScreen(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// Winsize is the size of a terminal in characters.
type Winsize struct{ Columns, Rows int }
