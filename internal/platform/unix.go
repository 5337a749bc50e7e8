//go:build unix

package platform

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lock waits for an exclusive lock on the file, which ends when the file is closed.
func Lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }

// TryLock takes an exclusive lock on the file, which ends when the file is closed, or returns
// ErrLocked.
func TryLock(f *os.File) error { return flock(f, unix.LOCK_EX) }

// IsLocked reports whether a process, this one included, has locked the file through another
// descriptor.
func IsLocked(f *os.File) bool { return errors.Is(flock(f, unix.LOCK_SH), ErrLocked) }

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// Space returns how many bytes the user of this process may still write where dir is, and the size
// of the file system.
func Space(dir string) (free, size uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}

// SyncDir makes renames and new files of a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Owner returns who owns a file; ok is false where files have no such numbers.
func Owner(info fs.FileInfo) (uid, gid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// IsPrivate reports whether only the owner may read or write a file of this mode.
func IsPrivate(mode fs.FileMode) bool { return mode.Perm()&0o077 == 0 }

// OpenFiles returns how many files this process may open, and how far it may raise that.
func OpenFiles() (limit, most uint64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, err
	}
	return l.Cur, l.Max, nil
}

// RaiseOpenFiles raises how many files this process may open to the most that it may.
func RaiseOpenFiles(most uint64) error {
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most})
}

// IsTerminal reports whether the file is a terminal that can send single keys.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), getModes)
	return err == nil
}

// TerminalSize returns the size of the terminal.
func TerminalSize(f *os.File) (Winsize, error) {
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return Winsize{}, err
	}
	return Winsize{Columns: int(w.Col), Rows: int(w.Row)}, nil
}

// SendKeys lets a terminal send each key as it is pressed, and not echo it. An interrupt remains
// one; ^Z, which would leave the terminal in this state, becomes a key. Restore undoes it.
func SendKeys(f *os.File) (restore func() error, err error) {
	before, err := unix.IoctlGetTermios(int(f.Fd()), getModes)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's modes: %w", err)
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 0, 0
	now.Cc[unix.VSUSP] = 0
	if err := unix.IoctlSetTermios(int(f.Fd()), setModes, &now); err != nil {
		return nil, fmt.Errorf("set the terminal's modes: %w", err)
	}
	return func() error { return unix.IoctlSetTermios(int(f.Fd()), setModesAndFlush, before) }, nil
}

// ReadKeys reads what was typed on a terminal that sends keys, and waits no longer than patience
// for it: n is 0 then. The error is io.EOF when the terminal is gone. It asks by select before it
// reads: a read alone would wait for a line if somebody has made the terminal send lines again,
// and poll knows no terminals on macOS.
func ReadKeys(f *os.File, b []byte, patience time.Duration) (n int, err error) {
	fd := int(f.Fd())
	var in unix.FdSet
	in.Set(fd)
	limit := unix.NsecToTimeval(int64(patience))
	ready, err := unix.Select(fd+1, &in, nil, nil, &limit)
	if ready > 0 && err == nil {
		if n, err = unix.Read(fd, b); n == 0 && err == nil {
			err = io.EOF
		}
	}
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	return max(n, 0), err
}
