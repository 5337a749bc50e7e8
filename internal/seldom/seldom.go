// Package seldom keeps repeated lines out of a log.
//
// # The promise
//
// Of each kind of line, one is let through per minute. Others can cause such lines: a full disk,
// another machine that is down, an attacker. They must not fill the disk or the memory.
//
// # Concurrency and cost
//
// Lines may be used by many goroutines at once. It keeps one entry for each kind, at most 1,024.
//
// # What it does not do
//
// It writes no line and counts none: its caller does.
package seldom

import (
	"sync"
	"time"
)

// Parameters of a log. Chosen: an operator who reads along sees that something continues, and the
// callers have some dozens of kinds.
const (
	again = time.Minute
	most  = 1024
)

// Lines lets each kind of log line through once a minute. The zero value is ready for use.
type Lines struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// Due reports whether a line of a kind should be written now.
func (l *Lines) Due(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if last, ok := l.last[kind]; ok && now.Sub(last) < again {
		return false
	}
	if l.last == nil || len(l.last) >= most {
		l.last = map[string]time.Time{}
	}
	l.last[kind] = now
	return true
}
