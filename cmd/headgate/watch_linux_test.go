package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/status"
)

// terminal opens a pseudo-terminal of so many lines; screen is its other end.
func terminal(t *testing.T, lines uint16) (tty, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	fd := int(screen.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: 80}); err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return tty, screen
}

// On a terminal the table is drawn over the last one, on a screen of its own,
// and the terminal is left as it was, with the last table on it.
func TestWatchOnATerminal(t *testing.T) {
	visitors, admin := loopback.Free(t), loopback.Free(t)
	runs, stopRun := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stopRun()
	wg.Go(func() {
		args := []string{"run", "--origin", "http://127.0.0.1:9", "--total-active-users", "5",
			"--new-users-per-minute", "5", "--data", t.TempDir(),
			"--listen", visitors, "--admin-listen", admin}
		var stderr bytes.Buffer
		if code := dispatch(runs, args, io.Discard, &stderr); code != exitOK {
			t.Errorf("run ended with %d: %s", code, stderr.String())
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if res, err := http.Get("http://" + admin + "/readyz"); err == nil {
			res.Body.Close()
			break
		}
	}
	tty, screen := terminal(t, 3) // one line of time, one of heads: no room is seen
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	code := make(chan int, 1)
	wg.Go(func() {
		code <- dispatch(ctx, []string{"status", "--watch", "--admin", "http://" + admin}, tty, io.Discard)
		tty.Close()
	})
	var seen strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := screen.Read(buf)
		seen.Write(buf[:n])
		if strings.Count(seen.String(), "\x1b[H") >= 2 {
			interrupt()
		}
		if err != nil { // EIO: the other end is closed
			break
		}
	}
	got := seen.String()
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d", c)
	}
	const enter, leave = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
	drawn, last, left := strings.Cut(got, leave)
	if !strings.HasPrefix(got, enter) || !left || strings.Contains(drawn, "\x1b[2J") {
		t.Errorf("%q", got)
	}
	for i, frame := range strings.Split(drawn, "\x1b[H")[1:] {
		if strings.Count(frame, "\n") != 2 || !strings.HasSuffix(frame, "\x1b[J") ||
			!strings.Contains(frame, "room               state") || strings.Contains(frame, "main") {
			t.Errorf("picture %d: %q", i, frame)
		}
	}
	if !strings.Contains(last, "\r\nmain ") || strings.Contains(last, "\x1b") {
		t.Errorf("left behind: %q", last)
	}
}

func TestTableTellsOfTroubles(t *testing.T) {
	s := status.Room{Name: "shop", Status: "queueing", ActiveUsers: 200, TotalActiveUsers: 200,
		WaitingUsers: 12_345, MaxWaitSeconds: 754, NewUsersLastMinute: 49, NewUsersPerMinute: 50,
		Record: status.Record{WriteFailing: 12, Quiet: 180}}
	const want = `room               state            inside   waiting     wait  new/minute origin
shop               queueing        200/200     12345   13 min       49/50 DOWN
shop: the data folder takes no writes, for 12 s: the log says why
shop: the record was old at the start: nobody new comes in for 3 min
`
	if diff := cmp.Diff(want, table([]status.Room{s})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 99_999: "99999", 100_000: "100k", 999_999: "999k",
		1_000_000: "1.0M", 1_290_000: "1.2M", 2_147_483_647: "2.1G"} {
		if got := count(n); got != want {
			t.Errorf("count(%d): %s, want %s", n, got, want)
		}
	}
	for s, want := range map[float64]string{-1: "unknown", 0: "0 s", 0.6: "1 s", 119: "119 s",
		120: "2 min", 3599: "60 min", 7199: "120 min", 7200: "2 h", 90000: "25 h"} {
		if got := about(s); got != want {
			t.Errorf("about(%v): %s, want %s", s, got, want)
		}
	}
	for word, want := range map[string]string{"plain-word_1=2:./@%": "plain-word_1=2:./@%", "": "''",
		"a b": "'a b'", "it's": `'it'\''s'`, "$(rm x)": "'$(rm x)'", "a;b": "'a;b'", "ü": "'ü'", "~": "'~'"} {
		if got := config.ShellWord(word); got != want {
			t.Errorf("config.ShellWord(%q): %s, want %s", word, got, want)
		}
	}
}
