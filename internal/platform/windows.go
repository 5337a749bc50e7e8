//go:build windows

package platform

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// Limits returns what headgate cannot do on this operating system, a sentence each.
func Limits() []string {
	return []string{
		"headgate is tested on Linux alone: use Windows for development",
		"there is no SIGHUP: reload with headgate reload",
		"the access rights of keys, tokens and join files are not checked: keep them in a folder of your own",
		"new files are not sure to survive a power failure: Windows cannot sync a folder",
		"a terminal sends no single keys: headgate demo prints lines instead of a picture",
		"a demo that is killed leaves its rooms running",
	}
}

// lockedByte is the byte that a lock covers: past the end of every file, because Windows keeps
// other processes from reading what is locked.
var lockedByte = windows.Overlapped{OffsetHigh: math.MaxInt32}

// Lock waits for an exclusive lock on the file, which ends when the file is closed.
func Lock(f *os.File) error { return lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// TryLock takes an exclusive lock on the file, which ends when the file is closed, or returns
// ErrLocked.
func TryLock(f *os.File) error {
	return lock(f, windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY)
}

// IsLocked reports whether a process, this one included, has locked the file through another
// descriptor.
func IsLocked(f *os.File) bool {
	return errors.Is(lock(f, windows.LOCKFILE_FAIL_IMMEDIATELY), ErrLocked)
}

func lock(f *os.File, flags uint32) error {
	at := lockedByte
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}

// Space returns how many bytes the user of this process may still write where dir is, and the size
// of the file system.
func Space(dir string) (free, size uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &free, &size, nil)
	return free, size, err
}

// SyncDir does nothing: Windows flushes files alone.
func SyncDir(string) error { return nil }

// Owner returns who owns a file; ok is false where files have no such numbers.
func Owner(fs.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

// IsPrivate returns true: access lists decide, and a mode does not show them.
func IsPrivate(fs.FileMode) bool { return true }

// OpenFiles returns no limit: Windows has none for a process.
func OpenFiles() (limit, most uint64, err error) { return math.MaxUint64, math.MaxUint64, nil }

// RaiseOpenFiles has nothing to raise.
func RaiseOpenFiles(uint64) error { return nil }

// IsTerminal reports whether the file is a terminal that can send single keys.
func IsTerminal(*os.File) bool { return false }

// TerminalSize returns the size of the terminal.
func TerminalSize(f *os.File) (Winsize, error) {
	var s windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &s); err != nil {
		return Winsize{}, err
	}
	return Winsize{Columns: int(s.Window.Right-s.Window.Left) + 1,
		Rows: int(s.Window.Bottom-s.Window.Top) + 1}, nil
}

// SendKeys is for the terminals that IsTerminal accepts.
func SendKeys(*os.File) (restore func() error, err error) { return nil, errors.ErrUnsupported }

// ReadKeys is for the terminals that IsTerminal accepts.
func ReadKeys(*os.File, []byte, time.Duration) (n int, err error) { return 0, errors.ErrUnsupported }

// TieToParent keeps interrupts of the terminal from a process. It cannot make it end with this one.
func TieToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}
