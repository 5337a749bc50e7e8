//go:build unix

package http1

import (
	"errors"
	"syscall"
)

// Supported reports whether Carries accepts any request on this operating system.
const Supported = true

var errNotChecked = errors.New("http1: this kind of connection cannot be checked before it is used again")

func (c *conn) prepare() error {
	sys, ok := c.Conn.(syscall.Conn)
	if !ok {
		return errNotChecked
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return err
	}
	c.raw = raw
	c.peek = func(fd uintptr) bool {
		var b [1]byte
		n, err := syscall.Read(int(fd), b[:])
		c.still = n <= 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
		return true
	}
	return nil
}

// quiet reports whether an idle connection is open and has nothing to read: an answer that comes
// before its request must never be taken for the answer to the next one.
func (c *conn) quiet() bool {
	c.still = false
	return c.raw.Read(c.peek) == nil && c.still
}
