//go:build linux

package platform

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	getModes         = unix.TCGETS
	setModes         = unix.TCSETS
	setModesAndFlush = unix.TCSETSF
)

// Limits returns what headgate cannot do on this operating system, a sentence each.
func Limits() []string { return nil }

// LockHolder returns the process that has locked the file, 0 if that cannot be known. It looks it
// up in the kernel's list of locks: "1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF"
// (proc_locks(5)).
func LockHolder(f *os.File) (pid int) {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	list, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer list.Close()
	for lines := bufio.NewScanner(list); lines.Scan(); {
		w := strings.Fields(lines.Text())
		if len(w) >= 6 && w[1] == "FLOCK" && w[3] == "WRITE" && w[5] == want {
			pid, _ := strconv.Atoi(w[4])
			return pid
		}
	}
	return 0
}

// OpenFilesOf returns the most files that a process may open, 0 if that cannot be known.
func OpenFilesOf(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			if w := strings.Fields(rest); len(w) >= 2 {
				n, _ := strconv.ParseUint(w[1], 10, 64)
				return n
			}
		}
	}
	return 0
}

// TieToParent makes a process end with this one, however this one ends, and keeps interrupts of
// the terminal from it.
func TieToParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// IsWallClockSynced reports whether a time service keeps the wall clock right.
func IsWallClockSynced() (bool, error) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, err
}
