package crowd

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rehearse runs cfg against f in a bubble, where three minutes take none.
func rehearse(t *testing.T, make func() *fakeRoom, cfg Config) (*Result, *fakeRoom) {
	t.Helper()
	var r *Result
	var f *fakeRoom
	synctest.Test(t, func(t *testing.T) {
		f = make()
		cfg.URL, cfg.Transport = "http://room.example/shop", f
		var err error
		if r, err = Run(t.Context(), cfg, nil); err != nil {
			t.Fatal(err)
		}
	})
	return r, f
}

func TestAllAreServed(t *testing.T) {
	for _, mode := range []Mode{ModePage, ModeJSON} {
		t.Run(string(mode), func(t *testing.T) {
			r, f := rehearse(t, func() *fakeRoom { return newFakeRoom(50, 200*time.Millisecond) },
				Config{N: 400, Mode: mode, LeavePath: "leave", Seed: 7})
			s := r.Summary()
			if s.Outcomes[OutcomeLeft] != 400 || !s.OK() || s.Direct < 50 {
				t.Errorf("summary: %+v", s)
			}
			if s.Order.Judged < 300 || s.Order.Missed != 0 || s.RisenPlace != 0 {
				t.Errorf("order: %+v, risen %d", s.Order, s.RisenPlace)
			}
			if s.Accuracy.Judged < 200 || s.Accuracy.Share() < 0.95 {
				t.Errorf("accuracy: %+v", s.Accuracy)
			}
			if f.revoked != s.Revoked || f.revoked < 150 || f.revoked > 250 {
				t.Errorf("revoked: origin saw %d, crowd %d; want about half of 400",
					f.revoked, s.Revoked)
			}
			if f.stale != 0 {
				t.Errorf("%d requests carried an old cookie", f.stale)
			}
			reached := 0
			for _, n := range f.visits {
				reached += n
			}
			if want := s.Requests + s.Admitted; reached != want {
				t.Errorf("origin saw %d requests, the crowd made %d", reached, want)
			}
			if len(f.visits) != 400 {
				t.Errorf("origin saw %d visitors", len(f.visits))
			}
			if mode == ModeJSON && f.asked[AskPage]+f.asked[AskPoll] > 0 ||
				mode == ModePage && f.asked[AskJSON] > 0 {
				t.Errorf("asked %v in mode %s", f.asked, mode)
			}
		})
	}
}

// A visitor asks exactly when told to, and loads the page at once when called.
func TestPollsWhenTold(t *testing.T) {
	r, _ := rehearse(t, func() *fakeRoom { return newFakeRoom(0, 3*time.Second) },
		Config{N: 20, Arrive: time.Second})
	for _, v := range r.Visitors {
		for i := 1; i < len(v.Polls); i++ {
			before, p := v.Polls[i-1], v.Polls[i]
			want := before.AnswerAt + before.PollAfter
			switch {
			case before.State == "called":
				want = before.AnswerAt
			case before.PollAfter == 0:
				want = before.AnswerAt + defaultPollAfter
			}
			if p.DueAt != want || p.SentAt != want {
				t.Errorf("visitor %d poll %d: due %v, sent %v, want %v",
					v.ID, i, p.DueAt, p.SentAt, want)
			}
		}
		last := v.Polls[len(v.Polls)-1]
		if v.Waited() && (last.Ask != AskPage || v.AdmittedAt != last.AnswerAt) {
			t.Errorf("visitor %d was let in by %+v", v.ID, last)
		}
	}
}

func TestSharedDocumentEveryOtherTimeWhenFar(t *testing.T) {
	far := func() *fakeRoom {
		f := newFakeRoom(0, 2*time.Minute)
		f.served = true
		return f
	}
	r, f := rehearse(t, far, Config{N: 4, Arrive: time.Second})
	if f.asked[AskServed] == 0 || r.Summary().Outcomes[OutcomeLeft] != 4 {
		t.Fatalf("asked %v, outcomes %v", f.asked, r.Summary().Outcomes)
	}
	for _, v := range r.Visitors {
		for i := 1; i < len(v.Polls); i++ {
			before, p := v.Polls[i-1], v.Polls[i]
			want := before.Ask != AskServed && before.PollAfter >= sharedFrom
			if (p.Ask == AskServed) != want {
				t.Errorf("visitor %d: a poll after %v was followed by %s",
					v.ID, before.PollAfter, p.Ask)
			}
		}
	}
}

func TestStaysAsLongAsPlanned(t *testing.T) {
	r, _ := rehearse(t, func() *fakeRoom { return newFakeRoom(1000, time.Second) },
		Config{N: 100, SessionMin: 3 * time.Second, SessionMax: 4 * time.Second,
			ThinkMin: time.Second, ThinkMax: time.Second})
	for _, v := range r.Visitors {
		if d := v.LeftAt - v.AdmittedAt; d < 3*time.Second || d > 4*time.Second {
			t.Errorf("visitor %d stayed %v", v.ID, d)
		}
		if v.Requests != 3 && v.Requests != 2 {
			t.Errorf("visitor %d made %d requests", v.ID, v.Requests)
		}
	}
}

func TestGiveUpAndDuration(t *testing.T) {
	closed := func() *fakeRoom { return newFakeRoom(0, time.Hour) }
	r, _ := rehearse(t, closed, Config{N: 200, GiveUpShare: 0.25, GiveUpAfter: 20 * time.Second,
		Arrive: 20 * time.Second, Duration: time.Minute})
	s := r.Summary()
	if n := s.Outcomes[OutcomeGaveUp]; n < 30 || n > 70 || n+s.Outcomes[OutcomeWaiting] != 200 {
		t.Errorf("outcomes %v, want about 50 given up and the rest waiting", s.Outcomes)
	}
	if r.Took != time.Minute || len(s.Errors) > 0 {
		t.Errorf("took %v, errors %v", r.Took, s.Errors)
	}
	r, _ = rehearse(t, closed, Config{N: 200, Arrive: time.Minute, Duration: 30 * time.Second})
	if n := r.Summary().Outcomes[OutcomeAbsent]; n < 70 || n > 130 {
		t.Errorf("%d had not come after half of the time", n)
	}
}

// Faults of a room that the crowd's judgement must notice.
func TestFaultsAreNoticed(t *testing.T) {
	cfg := Config{N: 110, Arrive: 5 * time.Second, Duration: 90 * time.Second}
	tests := []struct {
		name  string
		spoil func(*fakeRoom)
		bad   func(Summary) bool
	}{
		{"reversed order", func(f *fakeRoom) {
			f.callAt = func(n uint64) time.Duration {
				return time.Duration(150-n) * time.Second / 2
			}
		}, func(s Summary) bool { return s.Order.Overtaken > 60 }},
		{"one ticket forgotten", func(f *fakeRoom) {
			f.callAt = func(n uint64) time.Duration {
				if n == 60 {
					return time.Hour
				}
				return time.Duration(n) * 500 * time.Millisecond
			}
		}, func(s Summary) bool { return s.Order.Overtaken == 1 }},
		{"newcomers walk past", func(f *fakeRoom) { f.lateArr = true },
			func(s Summary) bool { return s.Order.Overtaken > 5 }},
		{"estimate too late", func(f *fakeRoom) { f.lie = 20 * time.Second },
			func(s Summary) bool { return s.Accuracy.Share() < 0.1 && s.Accuracy.Early > 50 }},
		{"estimate too early", func(f *fakeRoom) { f.lie = -20 * time.Second },
			func(s Summary) bool { return s.Accuracy.Share() < 0.5 && s.Accuracy.Late > 50 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := rehearse(t, func() *fakeRoom {
				f := newFakeRoom(0, 500*time.Millisecond)
				tt.spoil(f)
				return f
			}, cfg)
			if s := r.Summary(); !tt.bad(s) {
				t.Errorf("not noticed: %+v", s)
			}
		})
	}
}

func TestSameSeedSameVisitors(t *testing.T) {
	cfg := Config{N: 50, Seed: 3, LeavePath: "leave"}
	cfg.setDefaults()
	opt := cmp.AllowUnexported(plan{})
	if d := cmp.Diff(plansOf(&cfg), plansOf(&cfg), opt); d != "" {
		t.Error(d)
	}
	other := cfg
	other.Seed = 4
	if cmp.Equal(plansOf(&cfg), plansOf(&other), opt) {
		t.Error("another seed gives the same visitors")
	}
}

func TestShapes(t *testing.T) {
	for shape, want := range map[Shape][2]int{ShapeUniform: {60, 140}, ShapeBurst: {850, 950}} {
		cfg := Config{N: 1000, Shape: shape, Arrive: 10 * time.Second}
		cfg.setDefaults()
		early := 0
		for _, p := range plansOf(&cfg) {
			if p.arrive < time.Second {
				early++
			}
		}
		if early < want[0] || early > want[1] {
			t.Errorf("%s: %d of 1,000 in the first tenth", shape, early)
		}
	}
}

// Over real sockets: cookies are a visitor's own although connections are not.
func TestOverLoopback(t *testing.T) {
	f := newFakeRoom(20, 10*time.Millisecond)
	f.opened = time.Now().Add(300 * time.Millisecond)
	srv := httptest.NewServer(f)
	defer srv.Close()
	var events atomic.Int64
	r, err := Run(t.Context(), Config{URL: srv.URL, N: 60, Arrive: 200 * time.Millisecond,
		SessionMin: time.Millisecond, SessionMax: 20 * time.Millisecond, MaxConns: 4,
		LeavePath: "/leave"}, func(Event) { events.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary()
	if s.Outcomes[OutcomeLeft] != 60 || !s.OK() || s.Waited == 0 || f.stale != 0 {
		t.Errorf("stale %d, %+v", f.stale, s)
	}
	if events.Load() < 60*4 {
		t.Errorf("%d events", events.Load())
	}
}

func TestErrorsAreCountedByKind(t *testing.T) {
	srv := httptest.NewServer(nil)
	url := srv.URL
	srv.Close()
	r, err := Run(t.Context(), Config{URL: url, N: 3, Arrive: time.Millisecond,
		Duration: 100 * time.Millisecond}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary()
	if s.Errors["connection refused"] != 3 || s.OK() {
		t.Errorf("errors %v", s.Errors)
	}
	if v := r.Visitors[0]; v.OnTime() || v.Outcome != OutcomeWaiting {
		t.Errorf("visitor %+v", v)
	}
}

// A page that is not ours carries no answer: Retry-After says when to poll.
func TestAnothersPage(t *testing.T) {
	r, f := rehearse(t, func() *fakeRoom {
		f := newFakeRoom(0, 100*time.Second)
		f.plain = true
		return f
	}, Config{N: 3})
	if s := r.Summary(); s.Outcomes[OutcomeLeft] != 3 || !s.OK() || f.asked[AskPoll] < 10 {
		t.Errorf("asked %v, %+v", f.asked, s)
	}
	if p := r.Visitors[0].Polls[0]; p.Number != 0 || p.PollAfter < 10*time.Second {
		t.Errorf("first answer %+v", p)
	}
}

// A room that is taken away lets everyone in, as the page would go in.
func TestRoomTakenAway(t *testing.T) {
	for _, mode := range []Mode{ModePage, ModeJSON} {
		r, _ := rehearse(t, func() *fakeRoom {
			f := newFakeRoom(0, time.Hour)
			f.gone = 40 * time.Second
			return f
		}, Config{N: 20, Mode: mode})
		if s := r.Summary(); s.Outcomes[OutcomeLeft] != 20 || !s.OK() {
			t.Errorf("%s: %+v", mode, s)
		}
	}
}

func TestForeignTargetsAreRefused(t *testing.T) {
	tests := []struct {
		url  string
		want bool
	}{
		{"http://192.0.2.1/", true},
		{"http://[2001:db8::1]:8080/", true},
		{"http://0.0.0.0:8080/", true},
		{"http://127.0.0.1:1/", false},
		{"http://[::1]:1/", false},
		{"http://[::ffff:127.0.0.1]:1/", false},
		{"http://localhost:1/", false},
	}
	for _, tt := range tests {
		_, err := parseTarget(t.Context(), tt.url, false)
		if errors.Is(err, ErrForeign) != tt.want || err != nil && !tt.want {
			t.Errorf("%s: %v", tt.url, err)
		}
		if _, err := parseTarget(t.Context(), tt.url, true); err != nil {
			t.Errorf("%s, allowed: %v", tt.url, err)
		}
	}
	if err := loopbackOnly("tcp", "192.0.2.1:80", nil); !errors.Is(err, ErrForeign) {
		t.Errorf("a name that moved after the look-up: %v", err)
	}
	v := visitor{crowd: &crowd{}}
	v.crowd.page, _ = parseTarget(t.Context(), "http://127.0.0.1:1/", false)
	if u := v.sameHost("http://192.0.2.1/served"); u != nil {
		t.Errorf("the server led the crowd to %v", u)
	}
}

func TestCommand(t *testing.T) {
	f := newFakeRoom(0, time.Millisecond)
	srv := httptest.NewServer(f)
	defer srv.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	codes, none := filepath.Join(t.TempDir(), "codes.csv"), filepath.Join(t.TempDir(), "none.csv")
	for file, text := range map[string]string{codes: "code,batch\n12345,1\n", none: "name,batch\n12345,1\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		ctx    context.Context
		args   []string
		code   int
		out    string
		errOut string
	}{
		{"flags after the URL", t.Context(), []string{srv.URL, "-n", "5", "-arrive", "10ms",
			"-stay", "1ms..2ms", "-seed", "9"}, 0, "crowd of 5 for", ""},
		{"flags before the URL", t.Context(), []string{"-n", "2", "-arrive", "10ms",
			"-stay", "1ms", srv.URL}, 0, "2 left", ""},
		{"interrupted", done, []string{"http://127.0.0.1:1/"}, 0, "100 absent", ""},
		{"help", t.Context(), []string{"-h"}, 0, "", "usage: headgate crowd"},
		{"no URL", t.Context(), nil, 2, "", "give one URL, not 0"},
		{"unknown flag", t.Context(), []string{srv.URL, "-x"}, 2, "", "hint: "},
		{"all faults at once", t.Context(), []string{srv.URL, "-n", "0", "-shape", "flat",
			"-stay", "3s..1s"}, 2, "", `shape: "flat"`},
		{"bad span", t.Context(), []string{srv.URL, "-think", "long"}, 2, "", "two durations"},
		{"invitations that the room does not know", t.Context(), []string{"-n", "2", "-arrive", "10ms",
			"-stay", "1ms", other.URL, "-codes", codes}, 1, "2 × invitation refused", ""},
		{"no invitations", t.Context(), []string{srv.URL, "-codes", none}, 2, "", "no column code"},
		{"not a URL", t.Context(), []string{"shop"}, 2, "", "the form http://HOST:PORT/PATH"},
		{"foreign", t.Context(), []string{"http://192.0.2.1/"}, 2, "", "--yes-this-is-my-site"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			code := Command(tt.ctx, tt.args, &out, &errOut)
			if code != tt.code || !strings.Contains(out.String(), tt.out) ||
				!strings.Contains(errOut.String(), tt.errOut) {
				t.Errorf("exit %d\n%s%s", code, &out, &errOut)
			}
		})
	}
}

// TestCommandSaysThatTheOriginIsGone. In a bubble the time of the run stands still while a connection
// is tried.
func TestCommandSaysThatTheOriginIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, errOut bytes.Buffer
		code := Command(t.Context(), []string{"http://127.0.0.1:1/", "-n", "1", "-arrive", "1ms",
			"-duration", "50ms"}, &out, &errOut)
		if code != 1 || !strings.Contains(out.String(), "1 × connection refused") {
			t.Errorf("exit %d\n%s%s", code, &out, &errOut)
		}
	})
}

func TestProgressLine(t *testing.T) {
	p := &progress{n: 10}
	var wg sync.WaitGroup
	for _, w := range []What{EventArrived, EventArrived, EventArrived, EventArrived,
		EventAdmitted, EventAdmitted, EventLeft, EventGaveUp, EventError} {
		wg.Go(func() { p.observe(Event{What: w}) })
	}
	wg.Wait()
	want := "  12s  arriving 6  waiting 1  inside 1  done 2  errors 1"
	if got := p.line(12*time.Second, false); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := p.line(0, true); !strings.Contains(got, "\x1b[31m") {
		t.Errorf("no color in %q", got)
	}
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		p.run(ctx, &out, func(string) string { return "" })
	})
	if n := strings.Count(out.String(), "\n"); n != 3 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("not a terminal, 35 s: %q", &out)
	}
}
