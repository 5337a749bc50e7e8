//go:build darwin

package platform

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	getModes         = unix.TIOCGETA
	setModes         = unix.TIOCSETA
	setModesAndFlush = unix.TIOCSETAF
)

// Limits returns what headgate cannot do on this operating system, a sentence each.
func Limits() []string {
	return []string{
		"headgate is tested on Linux alone: use macOS for development",
		"headgate doctor cannot read the limits of a running process",
		"a demo that is killed leaves its rooms running",
	}
}

// TieToParent keeps interrupts of the terminal from a process. It cannot make it end with this one.
func TieToParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
