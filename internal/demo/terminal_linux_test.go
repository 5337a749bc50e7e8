package demo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openPTY opens a pseudo-terminal: what is typed on the first arrives at the second.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

func modes(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

// read reads what the terminal shows until it has seen text.
func read(t *testing.T, master *os.File, text string) string {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(b.String(), text) {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v, after %q", err, b.String())
		}
		b.Write(buf[:n])
	}
	return b.String()
}

func TestTerminalIsPutBack(t *testing.T) {
	master, slave := openPTY(t)
	before := modes(t, slave)
	term, err := openTerminal(slave, slave)
	if err != nil {
		t.Fatal(err)
	}
	if during := modes(t, slave); during.Lflag&(unix.ICANON|unix.ECHO) != 0 ||
		during.Lflag&unix.ISIG == 0 {
		t.Error("keys are echoed or wait for a line, or ^C is none")
	}
	read(t, master, "\x1b[?25l")
	if w, h := term.size(); w != 80 || h != 24 {
		t.Errorf("a terminal that does not say is %d by %d", w, h)
	}
	size := unix.Winsize{Row: 50, Col: 132}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		t.Fatal(err)
	}
	if w, h := term.size(); w != 132 || h != 50 {
		t.Errorf("a terminal of 132 by 50 is %d by %d", w, h)
	}
	if err := term.close(); err != nil {
		t.Fatal(err)
	}
	shown := read(t, master, "\x1b[?1049l")
	if !strings.Contains(shown, "\x1b[?25h") {
		t.Errorf("the cursor stays hidden: %q", shown)
	}
	if after := modes(t, slave); after != before {
		t.Errorf("modes %+v, were %+v", after, before)
	}
}

func TestKeys(t *testing.T) {
	master, slave := openPTY(t)
	term, err := openTerminal(slave, slave)
	if err != nil {
		t.Fatal(err)
	}
	defer term.close()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var wg sync.WaitGroup
	keys := term.listen(ctx, func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	})
	// An arrow, F5, Alt with a letter, F1: no keys, though keys are read with them.
	const typed, want = "k\x1b[Au\x1b[15~ \x1bx\x1bOPk", "ku k"
	if _, err := master.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		select {
		case k := <-keys:
			if k != want[i] {
				t.Errorf("typed %q, got %q as key %d, want %q", typed, k, i+1, want[i])
			}
		case <-ctx.Done():
			t.Errorf("typed %q, got nothing as key %d, want %q", typed, i+1, want[i])
		}
	}
	stop()
	wg.Wait() // keys ends though nobody types
}

// TestNobodyReadsAClosedTerminal: once it waits for whole lines again, a read of it would end
// only when somebody presses Enter, and the demo with it.
func TestNobodyReadsAClosedTerminal(t *testing.T) {
	master, slave := openPTY(t)
	term, err := openTerminal(slave, slave)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	term.listen(t.Context(), func(f func() error) { go func() { ended <- f() }() })
	// Somebody else does so, as stty sane does: we are reading, and must find the end still.
	lines := modes(t, slave)
	lines.Lflag |= unix.ICANON
	lines.Cc[unix.VMIN] = 1
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, &lines); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- term.close() }()
	for what, over := range map[string]chan error{"closed": closed, "read no more": ended} {
		select {
		case err := <-over:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("the terminal is not %s before somebody presses Enter", what)
		}
	}
	master.WriteString("\n") // else a read that goes on holds the slave open
}

func TestKeysEndWithTheirTerminal(t *testing.T) {
	master, slave := openPTY(t)
	term, err := openTerminal(slave, slave)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	term.listen(t.Context(), func(f func() error) { go func() { ended <- f() }() })
	master.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the terminal is gone, and nothing is told")
		}
	case <-time.After(10 * time.Second):
		t.Error("the terminal is gone, and still read")
	}
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if IsTerminal(f, f) || IsTerminal(os.Stdin, &strings.Builder{}) {
		t.Error("a file is taken for a terminal")
	}
	if _, err := openTerminal(f, f); err == nil {
		t.Error("a file is made ready for a picture")
	}
}

func TestGuarded(t *testing.T) {
	err := guarded(func() error { panic("quack") })
	if err == nil || !strings.Contains(err.Error(), "panic: quack") {
		t.Errorf("%v, want an error that tells of the panic", err)
	}
}
