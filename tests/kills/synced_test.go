//go:build kills || soak

package kills

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

// claims is how many claims are traced, one after the other.
const claims = 12

// TestSyncedBeforeTold traces the system calls of headgate while visitors are
// let in from the line one by one: the record with the claim is written and
// synced before the origin or the visitor hears of it. Then it takes the syncs
// out of the very trace, and the proof must fail.
func TestSyncedBeforeTold(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v: install strace", err)
	}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Mark", strings.TrimPrefix(r.URL.Path, "/"))
		if strings.HasSuffix(r.URL.Path, judge.LeavePath) {
			w.Header().Set("Headgate-Command", "revoke")
		}
	}))
	defer origin.Close()
	p := newProcess(t, "--origin", origin.URL, "--total-active-users", "1",
		"--new-users-per-minute", "6000", "--session-duration", "1m")
	trace := filepath.Join(p.dir, "trace")
	p.startTraced(trace)

	queue := newQueue(t, "http://"+p.public)
	for i := range claims {
		queue.claim(i)
	}
	p.stopTraced()

	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	proved, err := proveAll(string(text), p.data())
	if err != nil {
		t.Errorf("%d of %d claims proved: %v", proved, claims, err)
	}
	var spoilt []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "sync(") && !strings.Contains(line, "sync resumed>") {
			spoilt = append(spoilt, line)
		}
	}
	if n, err := proveAll(strings.Join(spoilt, ""), p.data()); err == nil || n != 0 {
		t.Errorf("without its syncs the same trace proves %d claims: %v", n, err)
	}
	t.Logf("%d of %d claims were synced before they were told, %d lines of trace", proved, claims,
		strings.Count(string(text), "\n"))
}

// proveAll proves every claim, or says how many it could before the first error.
func proveAll(trace, data string) (proved int, err error) {
	calls, err := readTrace(strings.NewReader(trace))
	if err != nil {
		return 0, err
	}
	for i := range claims {
		_, wrong := proveClaim(calls, mark(i), data+"/engine/", "headgate.record.counter.")
		if wrong == nil {
			proved++
		} else if err == nil {
			err = wrong
		}
	}
	return proved, err
}

func mark(i int) string { return fmt.Sprintf("claim-%d-", i) }

// startTraced starts headgate below strace, which takes its time.
func (p *process) startTraced(trace string) {
	p.start(append([]string{"strace", "-f", "--seccomp-bpf", "-ttt", "-yy", "-s", "4096",
		"-e", "trace=read,write,writev,pwrite64,pwritev,fsync,fdatasync", "-e", "signal=none",
		"-o", trace, p.bin}, p.args...)...)
}

// stopTraced ends headgate; strace ends with it.
func (p *process) stopTraced() {
	pid := p.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		p.t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(child, syscall.SIGTERM)
	}
	if err != nil {
		p.t.Fatalf("stop headgate: %v", err)
	}
	if err := <-p.ended; err != nil {
		p.t.Errorf("headgate: %v", err)
	}
	p.cmd = nil
}

// A queue is one visitor inside a room of one, and others behind it.
type queue struct {
	t       *testing.T
	url     string
	inside  string // cookie
	tickets []string
}

// newQueue lets one in and puts the rest in line.
func newQueue(t *testing.T, url string) *queue {
	t.Helper()
	q := &queue{t: t, url: url}
	for i := range claims + 1 {
		a := q.get("/first", "", false)
		switch {
		case a.cookie == nil || (a.state == "") != (i == 0):
			t.Fatalf("visitor %d was told %+v", i, a)
		case i == 0:
			q.inside = *a.cookie
		default:
			q.tickets = append(q.tickets, *a.cookie)
		}
	}
	return q
}

func (q *queue) get(path, cookie string, poll bool) answer {
	q.t.Helper()
	req, err := http.NewRequestWithContext(q.t.Context(), http.MethodGet, q.url+path, nil)
	if err != nil {
		q.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	if poll {
		req.Header.Set("Headgate-Poll", "1")
	}
	if cookie != "" {
		req.Header.Set("Cookie", cookie)
	}
	a, err := roundTrip(http.DefaultTransport, req)
	if err != nil {
		q.t.Fatal(err)
	}
	return a
}

// claim makes the one inside leave and the next in line enter with a marked
// request.
func (q *queue) claim(i int) {
	q.t.Helper()
	if a := q.get(judge.LeavePath, q.inside, false); a.state != "" {
		q.t.Fatalf("the one inside was told %+v", a)
	}
	deadline := time.After(60 * time.Second)
	for {
		a := q.get("/wait", q.tickets[i], true)
		if a.cookie != nil {
			q.tickets[i] = *a.cookie
		}
		if a.state == stateCalled {
			break
		}
		select {
		case <-time.After(max(a.after, 10*time.Millisecond)):
		case <-deadline:
			q.t.Fatalf("ticket %d was not called within 60 s: %+v", i, a)
		}
	}
	a := q.get("/"+mark(i), q.tickets[i], false)
	if a.state != "" || a.cookie == nil {
		q.t.Fatalf("ticket %d was called and told %+v", i, a)
	}
	q.inside = *a.cookie
}
