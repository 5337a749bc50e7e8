package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/internal/proxy"
)

// written is a log that may be read while it is written.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) lines(with string) (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.b.String()) {
		if strings.Contains(line, with) {
			all = append(all, line)
		}
	}
	return all
}

// An operator whose visitors all get 502 finds the reason in the log, with the number that the
// visitor was shown, and once.
func TestTheLogSaysWhyTheOriginDidNotAnswer(t *testing.T) {
	resets := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer resets.Close()
	tls := httptest.NewTLSServer(http.NotFoundHandler()) // of a CA that nobody knows
	tls.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer tls.Close()
	closed := loopback.Free(t)
	for origin, want := range map[string]string{
		resets.URL:         `error=EOF`,
		tls.URL:            `certificate signed by unknown authority`,
		"http://" + closed: `connection refused`,
	} {
		var log written
		visitors := startLogged(t, origin, &log)
		first := get(t, visitors+"/", "")
		for range 3 {
			get(t, visitors+"/", first.cookie)
		}
		lines := log.lines("origin did not answer")
		if first.StatusCode != 502 || len(lines) != 1 || !strings.Contains(lines[0], want) ||
			!strings.Contains(lines[0], "request="+first.Header.Get("X-Request-Id")+" ") ||
			!strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "room=shop") {
			t.Errorf("%s: %d, logged %q, want one line with %q", origin, first.StatusCode, lines, want)
		}
	}
}

func startLogged(t *testing.T, origin string, log *written) (visitors string) {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\n"+
		"data: "+t.TempDir()+"\nrooms:\n"+strings.ReplaceAll(oneRoom, "ORIGIN", origin)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), cfg, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait) // t.Context has ended by then
	operators := "http://" + s.AdminAddr().String()
	eventually(t, "ready", func() bool { return get(t, operators+"/readyz", "").StatusCode == 200 })
	return "http://" + s.Addr().String()
}

func TestBrokenAnswersAreToldOnceAMinute(t *testing.T) {
	var b brokenAnswers
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		after time.Duration
		code  int
		more  int
		due   bool
	}{
		{0, 502, 0, true},
		{0, 502, 0, false},
		{time.Second, 504, 0, true}, // another fault has a line of its own
		{59*time.Second - 1, 502, 0, false},
		{1, 502, 2, true},
		{time.Minute, 502, 0, true},
		{0, 503, 0, false}, // a stay that is over
		{0, 413, 0, false}, // the client's doing
		{0, 504, 0, true},
	} {
		at = at.Add(step.after)
		if more, due := b.due(step.code, at); more != step.more || due != step.due {
			t.Errorf("step %d: %d more, due %v; want %d, %v", i, more, due, step.more, step.due)
		}
	}
}

func TestWhatTheOriginWroteIsCutInTheLog(t *testing.T) {
	long := &proxy.Error{Status: 502, Err: errors.New(strings.Repeat("é", mostReason))}
	if got := shortly(long); len(got) > mostReason+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes, ends %q", len(got), got[len(got)-8:])
	}
	if got := shortly(&proxy.Error{Status: 502, Err: errors.New("EOF")}); got != "EOF" {
		t.Errorf("%q", got)
	}
}
