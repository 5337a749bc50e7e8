//go:build real

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/tests/yardstick"
)

// TestTutorial follows docs/tutorial.md from top to bottom in one shell: it writes the files that have a
// title, types each command after $, and waits for the lines that the page shows.
func TestTutorial(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	port, err := loopback.Ports(4)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for i, named := range []string{"3000", "8080", "8081", "9000"} {
		text = strings.ReplaceAll(text, named, strconv.Itoa(port+i))
	}
	s := startShell(t, "HEADGATE_ADMIN=http://"+loopback.Address(port+2))
	blocks := regexp.MustCompile("(?ms)^```(\\w+)(?: title=\"([\\w.]+)\")?\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	commands := 0
	for _, b := range blocks {
		if b[2] != "" {
			if err := os.WriteFile(filepath.Join(s.dir, b[2]), []byte(b[3]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, part := range strings.Split("\n"+b[3], "\n$ ")[1:] {
			command, shown, _ := strings.Cut(part, "\n")
			s.run(command, strings.Split(strings.TrimSpace(shown), "\n"))
			commands++
		}
	}
	if commands < 15 {
		t.Errorf("the page has only %d commands", commands)
	}
}

// A shell is a bash that has headgate as bin/headgate in its folder.
type shell struct {
	t   *testing.T
	dir string
	in  io.Writer

	mu    sync.Mutex
	lines []string // what it has printed
}

func startShell(t *testing.T, env ...string) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir()}
	program, err := exec.LookPath("headgate") // testscript.Main put it there
	if err == nil {
		err = os.Mkdir(filepath.Join(s.dir, "bin"), 0o700)
	}
	if err == nil {
		err = os.Symlink(program, filepath.Join(s.dir, "bin", "headgate"))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // all that it starts ends with it
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr, s.in = w, w, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.mu.Lock()
			s.lines = append(s.lines, lines.Text())
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		cmd.Wait() // it was killed
		w.Close()
		reading.Wait()
		if t.Failed() {
			t.Logf("the terminal:\n%s", strings.Join(s.lines, "\n"))
		}
	})
	return s
}

// run types a command, and waits until it has ended and has printed what the page shows, in this order.
// A command that goes on in the background prints whenever it wants. One that asks for the status asks
// again, as a reader would.
func (s *shell) run(command string, shown []string) {
	s.t.Helper()
	s.mu.Lock()
	begin := len(s.lines)
	s.mu.Unlock()
	typed := 0
	enter := func() {
		typed++
		fmt.Fprintf(s.in, "%s\necho ended %d\n", command, begin+typed)
	}
	enter()
	yardstick.Await(s.t, "what the page shows after: "+command, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		ended, want := false, shown
		for _, line := range s.lines[begin:] {
			if line == fmt.Sprint("ended ", begin+typed) {
				ended = true
			} else if len(want) > 0 && stable(line) == stable(want[0]) {
				want = want[1:]
			}
		}
		if done := len(want) == 0 || want[0] == ""; ended && !done && strings.Contains(command, " status") {
			enter()
		} else if ended {
			return done
		}
		return false
	})
}

// stable is a line without what differs from run to run: times, rates, and the ID of a token.
func stable(line string) string {
	line = regexp.MustCompile(`\btoken \w+,`).ReplaceAllString(line, "token ID,")
	line = regexp.MustCompile(`\d+(\.\d+| min\b| s\b| h\b)`).ReplaceAllString(line, "N")
	return strings.Join(strings.Fields(line), " ")
}
