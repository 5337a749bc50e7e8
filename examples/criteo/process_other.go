//go:build !linux

package main

import (
	"os"
	"syscall"
)

// dieWithParent is for Linux alone: elsewhere a node outlives this program if that one is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }

// wasKilled takes every failure for the kill: Windows does not show it.
func wasKilled(p *os.ProcessState) bool { return !p.Success() }
