//go:build real

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"
)

// TestMain builds headgate as a user would: the room of these tests is the real one.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "headgate-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		built = filepath.Join(folder, "headgate")
		cmd := exec.Command("go", "build", "-o", built, "github.com/headgate/headgate/cmd/headgate")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build headgate: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// TestDemo kills a real room under a real crowd. The shop and the visitors judge.
func TestDemo(t *testing.T) {
	t.Parallel()
	var lines, text strings.Builder
	cfg := shortDemo(t, built, &lines)
	s, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(&text); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s%s", &lines, &text)
	if f := s.Faults(); f != nil {
		t.Errorf("faults: %v", f)
	}
	if len(s.seen.Kills) != 1 || s.seen.Kills[0].waiting < 10 || s.seen.Kills[0].again < 10 {
		t.Errorf("kills %+v, want one that some ten survived in line", s.seen.Kills)
	}
	if s.report.Tight != (reach{5, 5}) {
		t.Errorf("most inside %v: the room was never full, so nothing was judged", s.report.Tight)
	}
	if n := strings.Count(lines.String(), "\n"); n < 8 || n > 11 {
		t.Errorf("%d lines in %v", n, s.took)
	}
	if left := append(leftovers(t, cfg.Temp), livesIn(cfg.Temp)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestDemoSeesLoss: a room that forgets at each start is found out.
func TestDemoSeesLoss(t *testing.T) {
	t.Parallel()
	forgetful := filepath.Join(t.TempDir(), "forgetful")
	script := fmt.Sprintf("#!/bin/sh\nrm -rf data\nexec %s \"$@\"\n", built)
	if err := os.WriteFile(forgetful, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := Run(t.Context(), shortDemo(t, forgetful, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	if s.seen.Lost < 10 || s.seen.Kills[0].lost < 10 || len(s.Faults()) == 0 {
		t.Errorf("%d places lost, faults %v: a room that forgets passes", s.seen.Lost, s.Faults())
	}
}

// TestRoomThatDies: an end that the demo did not mean is an error, and ends it.
func TestRoomThatDies(t *testing.T) {
	t.Parallel()
	dying := filepath.Join(t.TempDir(), "dying")
	script := fmt.Sprintf("#!/bin/sh\necho quack >&2\nexec timeout -s KILL 2 %s \"$@\"\n", built)
	if err := os.WriteFile(dying, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := shortDemo(t, dying, io.Discard)
	cfg.Kills = 0
	_, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), "ended by itself") ||
		!strings.Contains(err.Error(), "quack") {
		t.Errorf("%v, want an error with the room's last words", err)
	}
}

// TestNothingIsLeft ends the demo in each way there is. A demo that is killed can
// remove no files, but takes its room along.
func TestNothingIsLeft(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP,
		syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			cmd, out := startDemo(t, folder, "--for", "1m")
			room := childOf(t, cmd.Process.Pid)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(out)
			cmd.Wait()
			awaitGone(t, room)
			if sig == syscall.SIGKILL {
				return
			}
			if left := leftovers(t, folder); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if !strings.Contains(string(rest), "most inside at once") {
				t.Errorf("no summary:\n%s", rest)
			}
		})
	}
}

// startDemo runs the demo in a process of its own, until it says something.
func startDemo(t *testing.T, folder string, args ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	args = append([]string{"demo", "--listen", "127.0.0.1:0"}, args...)
	cmd := exec.CommandContext(t.Context(), built, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+folder)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // a line: it runs
		t.Fatal(err)
	}
	return cmd, out
}

// childOf is the one process that another has started.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	all := childrenOf(t, pid)
	if len(all) == 0 {
		t.Fatal("the demo has no room")
	}
	return all[0]
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	yardstick.Await(t, fmt.Sprintf("gone: the room, process %d", pid), func() bool {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

// TestKeysWork plays a whole session at a terminal: raise the limit, hold the line,
// kill, quit; and looks at it with a browser's requests.
func TestKeysWork(t *testing.T) {
	t.Parallel()
	master, slave := openPTY(t)
	before := modes(t, slave)
	cmd := exec.CommandContext(t.Context(), built, "demo", "--listen", "127.0.0.1:0")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(os.Environ(), "NO_COLOR=1", "TERM=xterm", "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Minute, func() {
		cmd.Process.Kill()
		slave.WriteString("\nno end within a minute\n") // who reads would wait for ever
	})
	defer kill.Stop()
	awaitPicture(t, master, `20 of 20`)
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(
		awaitPicture(t, master, `waiting [1-9]\d`))
	stop := joinAsPerson(t, url)
	awaitPicture(t, master, `you: (next|\d+\w\w)`)
	stop()
	press := func(key, want string) {
		t.Helper()
		if _, err := master.WriteString(key); err != nil {
			t.Fatal(err)
		}
		awaitPicture(t, master, want)
	}
	press("u", `\d+ of 25`)
	press(" ", `held`)
	press(" ", `║▒▒║\x1b`)
	press("d", `[■□]  \d+ of 20`)
	press("k", `(?s)killed once.*\d+ were waiting then: \d+ have their place`)
	press("q", `(?s)\x1b\[\?1049l.*most inside at once`)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the demo ended with %v", err)
	}
	if modes(t, slave) != before {
		t.Error("the terminal is not as it was")
	}
}

// awaitPicture reads what the terminal shows until it matches, and returns that.
func awaitPicture(t *testing.T, master *os.File, pattern string) string {
	t.Helper()
	want := regexp.MustCompile(pattern)
	var shown strings.Builder
	buf := make([]byte, 64<<10)
	for !want.MatchString(shown.String()) {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v, waiting for %s after:\n%s", err, pattern, tailOf(shown.String()))
		}
		shown.Write(buf[:n])
	}
	return shown.String()
}

func tailOf(s string) string { return s[max(0, len(s)-4000):] }

// joinAsPerson waits in line as a browser does, until it is stopped.
func joinAsPerson(t *testing.T, url string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	ask := func(cookie string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		r.Header.Set("Accept", "text/html")
		if cookie != "" {
			r.Header.Set("Accept", "application/json")
			r.Header.Set("Headgate-Poll", "1")
			r.Header.Set("Cookie", cookie)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return cookie, err
		}
		defer resp.Body.Close()
		for _, c := range resp.Cookies() {
			cookie = c.Name + "=" + c.Value
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return cookie, err
	}
	go func() {
		cookie, err := ask("")
		for err == nil && rest(ctx, 500*time.Millisecond) {
			cookie, err = ask(cookie)
		}
		done <- err
	}()
	return func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
