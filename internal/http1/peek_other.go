//go:build !unix

package http1

import "errors"

// Supported reports whether Carries accepts any request on this operating system.
const Supported = false

func (c *conn) prepare() error { return errors.ErrUnsupported }

func (c *conn) quiet() bool { return false }
