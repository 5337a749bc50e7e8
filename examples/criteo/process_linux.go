package main

import (
	"os"
	"syscall"
)

// dieWithParent ends a node with this program, and shields it from interrupts of the terminal.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func wasKilled(p *os.ProcessState) bool {
	status, ok := p.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}
