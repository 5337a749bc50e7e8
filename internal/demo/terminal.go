package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/headgate/headgate/internal/platform"
)

// A terminal is a terminal prepared for the picture. Keys arrive one by one and are not echoed, and
// the picture has a screen of its own.
type terminal struct {
	in, out *os.File
	restore func() error
	ends    func() // stops reading keys, if it runs, and waits for its end
}

// IsTerminal reports whether in and out are both terminals, so that the demo can show a picture and
// read keys.
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
		if !platform.IsTerminal(f) {
			return nil, nil, false
		}
	}
	return i, o, true
}

// keyPatience is the timeout of one read of keys.
const keyPatience = 100 * time.Millisecond

// openTerminal prepares the terminal. An interrupt still works. Only ^Z is off, because it would
// stop the process with the screen in this state. The caller must call close.
func openTerminal(in io.Reader, out io.Writer) (*terminal, error) {
	i, o, ok := both(in, out)
	if !ok {
		return nil, fmt.Errorf("not a terminal")
	}
	restore, err := platform.SendKeys(i)
	if err != nil {
		return nil, err
	}
	io.WriteString(o, "\x1b[?1049h\x1b[?25l") // a screen of its own, no cursor
	return &terminal{in: i, out: o, restore: restore, ends: func() {}}, nil
}

// close restores the terminal. Reading must have stopped before: a read in line mode does not
// return.
func (t *terminal) close() error {
	t.ends()
	io.WriteString(t.out, "\x1b[0m\x1b[?25h\x1b[?1049l")
	return t.restore()
}

// size returns the size of the terminal, or the usual one if it is unknown.
func (t *terminal) size() (width, height int) {
	w, err := platform.TerminalSize(t.out)
	if err != nil || w.Columns == 0 || w.Rows == 0 {
		return columns, rows
	}
	return w.Columns, w.Rows
}

// listen sends each key until ctx is done or the terminal is closed. spawn runs the reader. It
// ignores arrow keys and similar sequences, and the letters in them.
func (t *terminal) listen(ctx context.Context, spawn func(func() error)) <-chan byte {
	ctx, stop := context.WithCancel(ctx)
	to, ended := make(chan byte), make(chan struct{})
	t.ends = func() {
		stop()
		<-ended
	}
	spawn(func() error {
		defer close(ended)
		var b [16]byte
		var e escape
		for ctx.Err() == nil {
			n, err := platform.ReadKeys(t.in, b[:], keyPatience)
			if errors.Is(err, io.EOF) {
				err = errors.New("the terminal is gone")
			}
			if err != nil {
				return fmt.Errorf("read a key: %w", err)
			}
			if n == 0 {
				e = none // a byte this long after an Escape is a key of its own
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
	})
	return to
}

// An escape is the parser state of a control sequence (ECMA-48 §5.4: ESC [, parameters, a final
// byte from @ to ~; terminals also send ESC O and one byte).
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
