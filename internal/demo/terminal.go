package demo

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A terminal is one that has been made ready for a picture: keys come one by one
// and are not echoed, and the picture has a screen of its own.
type terminal struct {
	in, out *os.File
	before  unix.Termios
	ends    func() // ends the reading of keys, if there is any, and waits for its end
}

// IsTerminal reports whether both are a terminal, so that there can be a picture
// and keys.
func IsTerminal(in io.Reader, out io.Writer) bool {
	_, _, ok := both(in, out)
	return ok
}

func both(in io.Reader, out io.Writer) (*os.File, *os.File, bool) {
	i, ok1 := in.(*os.File)
	o, ok2 := out.(*os.File)
	if !ok1 || !ok2 {
		return nil, nil, false
	}
	for _, f := range []*os.File{i, o} {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
			return nil, nil, false
		}
	}
	return i, o, true
}

// keyPatience is how long is waited for a key at a time, in milliseconds.
const keyPatience = 100

// openTerminal makes the terminal ready. An interrupt stays one; only what would
// stop us with the screen in this state (^Z) is off. close must follow.
func openTerminal(in io.Reader, out io.Writer) (*terminal, error) {
	i, o, ok := both(in, out)
	if !ok {
		return nil, fmt.Errorf("not a terminal")
	}
	t := &terminal{in: i, out: o, ends: func() {}}
	was, err := unix.IoctlGetTermios(int(i.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's modes: %w", err)
	}
	t.before = *was
	now := *was
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 0, 0
	now.Cc[unix.VSUSP] = 0
	if err := unix.IoctlSetTermios(int(i.Fd()), unix.TCSETS, &now); err != nil {
		return nil, fmt.Errorf("set the terminal's modes: %w", err)
	}
	io.WriteString(o, "\x1b[?1049h\x1b[?25l") // a screen of its own, no cursor
	return t, nil
}

// close puts the terminal back as it was. Nobody reads it any more by then: a read of one that
// waits for whole lines does not end.
func (t *terminal) close() error {
	t.ends()
	io.WriteString(t.out, "\x1b[0m\x1b[?25h\x1b[?1049l")
	return unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETSF, &t.before)
}

// size is the terminal's, or the usual one if it does not say.
func (t *terminal) size() (width, height int) {
	w, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil || w.Col == 0 || w.Row == 0 {
		return columns, rows
	}
	return int(w.Col), int(w.Row)
}

// listen gives each key until ctx is done or the terminal is closed or gone. spawn runs the
// reading.
func (t *terminal) listen(ctx context.Context, spawn func(func() error)) <-chan byte {
	ctx, stop := context.WithCancel(ctx)
	to, ended := make(chan byte), make(chan struct{})
	t.ends = func() {
		stop()
		<-ended
	}
	spawn(func() error {
		defer close(ended)
		return t.keys(ctx, to)
	})
	return to
}

// keys sends each key until ctx is done or the terminal is gone. An arrow or the like is none,
// and neither are its letters.
func (t *terminal) keys(ctx context.Context, to chan<- byte) error {
	var b [16]byte
	var e escape
	in := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		n, err := unix.Poll(in, keyPatience) // a read alone waits for a line if somebody has made it so
		if n > 0 && err == nil {
			n, err = unix.Read(int(t.in.Fd()), b[:])
		}
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a key: %w", err)
		}
		if n == 0 && in[0].Revents&unix.POLLHUP != 0 {
			return fmt.Errorf("read a key: the terminal is gone")
		}
		if n == 0 {
			e = none // what follows an Escape by so much is a key of its own
		}
		for _, k := range b[:n] {
			if !e.key(k) {
				continue
			}
			select {
			case to <- k:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// An escape is how far a control sequence has been read (ECMA-48 §5.4: ESC [, parameters, a
// final byte from @ to ~; terminals also send ESC O and one byte).
type escape int

const (
	none     escape = iota
	begun           // ESC
	sequence        // ESC [ or ESC O
)

// key takes the next byte and reports whether it is a key.
func (e *escape) key(b byte) bool {
	switch {
	case b == '\x1b':
		*e = begun
	case *e == begun && (b == '[' || b == 'O'):
		*e = sequence
	case *e == sequence && (b < '@' || b > '~'):
	case *e != none:
		*e = none
	default:
		return true
	}
	return false
}
