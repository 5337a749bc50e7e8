//go:build !linux

package main

import (
	"os"
	"syscall"
)

// dieWithParent works only on Linux. Elsewhere a node outlives this program if it is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }

// wasKilled treats every failure as a kill, because Windows does not report it.
func wasKilled(p *os.ProcessState) bool { return !p.Success() }
