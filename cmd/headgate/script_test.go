package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/loopback"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"headgate": main})
}

// TestScripts runs testdata/script/*.txtar: each is a session at a terminal,
// with the real main in a process of its own. $TAKEN is an address on which
// something else listens, $RECEIVER one at which POST /takes is answered by 204,
// and all else by 404.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script") }

func runScripts(t *testing.T, dir string) {
	t.Helper()
	deadline, _ := t.Deadline()
	testscript.Run(t, testscript.Params{
		Dir:      dir,
		Deadline: deadline,
		Setup: func(env *testscript.Env) error {
			taken, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			env.Defer(func() { taken.Close() })
			env.Setenv("TAKEN", taken.Addr().String())
			mux := http.NewServeMux()
			mux.HandleFunc("POST /takes", func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNoContent)
			})
			receiver := httptest.NewServer(mux)
			env.Defer(receiver.Close)
			env.Setenv("RECEIVER", receiver.Listener.Addr().String())
			port, err := loopback.Ports(4) // a store node takes the one after its own too
			if err != nil {
				return err
			}
			env.Setenv("VISITORS", loopback.Address(port))
			env.Setenv("ADMIN", loopback.Address(port+3))
			// Under -race each process sleeps for a second at its end, to let
			// reports of other goroutines through. They have all ended here.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"awaits": func(ts *testscript.TestScript, neg bool, args []string) {
				awaits(ts, deadline, neg, args)
			},
			"exits":  exits,
			"from":   from,
			"serves": serves,
			"visits": visits,
		},
	})
}

// exits CODE COMMAND... is exec that wants this exit code and no other.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: got exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// serves SIGNAL ARGS... runs headgate until it says where visitors arrive,
// wants an HTTP answer there, sends the signal, wants exit code 0, and leaves
// what was printed in the file stdout.txt.
func serves(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM}
	if neg || len(args) < 2 || signals[args[0]] == nil {
		ts.Fatalf("usage: serves INT|TERM ARGS...")
	}
	path, err := exec.LookPath("headgate")
	ts.Check(err)
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.Getenv("WORK")
	cmd.Env = append(os.Environ(), "GORACE="+ts.Getenv("GORACE"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	killer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer killer.Stop()

	var printed strings.Builder
	lines := bufio.NewScanner(stdout)
	answered := errors.New("it did not say where visitors arrive")
	for lines.Scan() {
		printed.WriteString(lines.Text() + "\n")
		if _, url, ok := strings.Cut(lines.Text(), "visitors  "); ok {
			answered = visit(url)
			ts.Check(cmd.Process.Signal(signals[args[0]]))
		}
	}
	if err := cmd.Wait(); err != nil || answered != nil {
		ts.Fatalf("headgate ended with %v, visit with %v:\n%s", err, answered, stderr.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs("stdout.txt"), []byte(printed.String()), 0o600))
}

// visit asks what headgate answers itself: whatever may listen at the origin's address is another program.
func visit(url string) error {
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err = io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// awaits URL [TEXT] asks until the answer is 200 and has the text in it.
func awaits(ts *testscript.TestScript, end time.Time, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: awaits URL [TEXT]")
	}
	want := strings.Join(args[1:], "")
	yardstick.Await(helper{ts, end}, args[0]+" answers "+want, func() bool {
		res, err := http.Get(args[0])
		if err != nil {
			return false
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return err == nil && res.StatusCode == 200 && strings.Contains(string(b), want)
	})
}

// helper is a script as yardstick takes it.
type helper struct {
	*testscript.TestScript
	end time.Time // of go test; zero: never
}

func (helper) Helper() {}

func (h helper) Deadline() (time.Time, bool) { return h.end, !h.end.IsZero() }

// visits URL FILE asks as an app does that has no cookie yet, and keeps the answer.
func visits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: visits URL FILE")
	}
	r, err := http.NewRequest("GET", args[0], nil)
	ts.Check(err)
	r.Header.Set("Accept", "application/json")
	res, err := http.DefaultTransport.RoundTrip(r)
	ts.Check(err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
	for _, c := range res.Cookies() { // it comes back with the first poll
		r.Header.Set("Cookie", c.Name+"="+c.Value)
		r.Header.Set("Headgate-Poll", "1")
		again, err := http.DefaultTransport.RoundTrip(r)
		ts.Check(err)
		again.Body.Close()
	}
}

// from WORD FILE NEW copies the lines of FILE that begin with the one WORD
// stands alone in to NEW.
func from(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: from WORD FILE NEW")
	}
	lines := strings.Split(ts.ReadFile(args[1]), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) == args[0] })
	if at < 0 {
		ts.Fatalf("no line %s in %s", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strings.Join(lines[at:], "\n")), 0o600))
}

// Each command has a summary that fits its line, a help text on standard
// output, and an example in that or in the usage of headgate itself.
func TestEveryCommandExplainsItself(t *testing.T) {
	var usage strings.Builder
	printUsage(&usage)
	for _, c := range commands() {
		var stdout, stderr strings.Builder
		code := dispatch(t.Context(), []string{"help", c.name}, &stdout, &stderr)
		if code != exitOK || stderr.Len() > 0 {
			t.Errorf("help %s: got code %d and on stderr %q", c.name, code, stderr.String())
		}
		help := stdout.String()
		if c.summary == "" || len(c.name)+len(c.summary) > 66 {
			t.Errorf("%s: summary %q is empty or too long", c.name, c.summary)
		}
		if !strings.HasPrefix(help, "usage: headgate "+c.name) {
			t.Errorf("%s: help begins with %.40q", c.name, help)
		}
		if !strings.Contains(help+usage.String(), "\n  headgate "+c.name) {
			t.Errorf("%s: neither help nor usage has an example", c.name)
		}
		for line := range strings.Lines(help) {
			if len(line) > 81 {
				t.Errorf("%s: line is wider than 80 columns: %s", c.name, line)
			}
		}
	}
}
