//go:build kills || soak

package baddays

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"github.com/headgate/headgate/internal/loopback"
)

const binaryEnv = "HEADGATE_TEST_BINARY"

// TestMain builds headgate once, as a user would. A test that runs itself again
// in a namespace finds the binary in the environment.
func TestMain(m *testing.M) {
	if os.Getenv(binaryEnv) != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "baddays-")
	if err == nil {
		bin := filepath.Join(dir, "headgate")
		build := exec.Command("go", "build", "-o", bin, "github.com/headgate/headgate/cmd/headgate")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		err = errors.Join(build.Run(), os.Setenv(binaryEnv, bin))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build headgate:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A site is a headgate, its folder and the origin behind it.
type site struct {
	t      *testing.T
	dir    string // where it runs
	data   string
	public string
	admin  string
	config string
	log    string
	cmd    *exec.Cmd
	ended  chan error
}

// twoInside are rooms of two at once: shop at /, and tea below /tea.
const twoInside = `
listen: %s
admin_listen: %s
data: %s
rooms:
  - {name: shop, origin: %q, total_active_users: 2, new_users_per_minute: 600, session_duration: 60s}
  - {name: tea, path: /tea, origin: %q, total_active_users: 2, new_users_per_minute: 600, session_duration: 60s}
`

// newSite makes the configuration and starts nothing. The data folder is
// dir/disk/data, so that a test can mount something at dir/disk.
func newSite(t *testing.T) *site {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "inside")
	}))
	t.Cleanup(origin.Close)
	s := &site{t: t, dir: t.TempDir(), public: loopback.Free(t), admin: loopback.Free(t)}
	s.log, s.config = filepath.Join(s.dir, "log"), filepath.Join(s.dir, "headgate.yaml")
	s.data = filepath.Join(s.dir, "disk", "data")
	s.must(os.Mkdir(filepath.Join(s.dir, "disk"), 0o700))
	text := fmt.Sprintf(twoInside, s.public, s.admin, s.data, origin.URL, origin.URL)
	s.must(os.WriteFile(s.config, []byte(text), 0o600))
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
		if t.Failed() {
			t.Logf("log of headgate:\n%s", end(s.said()))
		}
	})
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// command is headgate with arguments, in the site's folder.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Getenv(binaryEnv), args...)
	cmd.Dir = s.dir
	return cmd
}

// runs runs headgate to its end and returns what it said and its exit code.
func (s *site) runs(args ...string) (out string, code int) {
	s.t.Helper()
	ctx, stop := context.WithTimeout(s.t.Context(), 90*time.Second)
	defer stop()
	cmd := s.command(args...)
	timed := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	timed.Dir = cmd.Dir
	b, err := timed.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(b), exit.ExitCode()
	}
	s.must(err)
	return string(b), 0
}

// wants runs headgate and wants an exit code and words in what it says.
func (s *site) wants(code int, words []string, args ...string) string {
	s.t.Helper()
	out, got := s.runs(args...)
	if got != code {
		s.t.Errorf("headgate %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, end(out))
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			s.t.Errorf("headgate %s does not say %q:\n%s", strings.Join(args, " "), w, end(out))
		}
	}
	return out
}

// end is the end of a long text.
func end(s string) string { return s[max(0, len(s)-6<<10):] }

// doctor runs headgate doctor on the folder.
func (s *site) doctor(code int, words ...string) string {
	s.t.Helper()
	return s.wants(code, words, "doctor", "--config", s.config)
}

// start starts headgate and returns when it is ready. What was logged before is
// forgotten.
func (s *site) start() {
	s.t.Helper()
	log, err := os.Create(s.log)
	s.must(err)
	defer log.Close()
	s.cmd = s.command("run", "--config", s.config)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.must(s.cmd.Start())
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.cmd.Wait() }()
	s.until(70*time.Second, "headgate is ready", func() bool {
		select {
		case err := <-s.ended:
			s.cmd = nil
			s.t.Fatalf("headgate ended: %v", err)
		default:
		}
		res, err := http.Get("http://" + s.admin + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// stop ends headgate in order.
func (s *site) stop() {
	s.t.Helper()
	s.must(s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Errorf("headgate: %v", err)
		}
	case <-time.After(40 * time.Second):
		s.t.Fatal("headgate did not stop within 40 s")
	}
	s.cmd = nil
}

// kill ends headgate by SIGKILL.
func (s *site) kill() {
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	<-s.ended
	s.cmd = nil
}

// said is the log of the process that was started last.
func (s *site) said() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// errors are the lines of the log that ask for a person.
func (s *site) errors() (lines []string) {
	for line := range strings.Lines(s.said()) {
		if strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// until waits for something to become true.
func (s *site) until(within time.Duration, what string, so func() bool) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); !so(); <-tick.C {
		if time.Now().After(end) {
			s.t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// rest lets time pass with visitors who do what they do.
func (s *site) rest(d time.Duration, each func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		each()
	}
}

// A record is what a room says of its record.
type record struct {
	Refused float64 `json:"refused_seconds"`
	Quiet   float64 `json:"quiet_seconds"`
	Damaged string  `json:"damaged"`
}

func (s *site) record(room string) record {
	s.t.Helper()
	res, err := http.Get("http://" + s.admin + "/v1/rooms/" + room)
	s.must(err)
	defer res.Body.Close()
	var st struct {
		Record record `json:"record"`
	}
	s.must(json.NewDecoder(res.Body).Decode(&st))
	return st.Record
}

// A visitor has a cookie.
type visitor struct {
	s      *site
	path   string
	name   string
	cookie string
	ticket string
}

// An answer is what a visitor reads.
type answer struct {
	Status     int
	RetryAfter string
	State      string `json:"state"`
	Position   int64  `json:"position"`
	Ticket     string `json:"ticket"`
}

func (v *visitor) get(header ...string) answer {
	v.s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+v.s.public+v.path, nil)
	v.s.must(err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if v.cookie != "" {
		r.Header.Set("Cookie", v.cookie)
	}
	c := http.Client{Timeout: 10 * time.Second}
	res, err := c.Do(r)
	if err != nil {
		v.s.t.Fatalf("%s: %v", v.name, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	v.s.must(err)
	for _, c := range res.Cookies() {
		if v.cookie = c.Name + "=" + c.Value; c.MaxAge < 0 {
			v.cookie = ""
		}
	}
	a := answer{Status: res.StatusCode, State: res.Header.Get("Headgate-State"),
		RetryAfter: res.Header.Get("Retry-After")}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		var doc struct {
			Headgate *answer `json:"headgate"`
		}
		doc.Headgate = &a
		v.s.must(json.Unmarshal(b, &doc))
	}
	if res.StatusCode == http.StatusOK && string(b) == "inside" {
		a.State = "inside"
	}
	return a
}

// enter loads the page.
func (v *visitor) enter() answer {
	v.s.t.Helper()
	return v.get("Accept", "text/html", "Sec-Fetch-Mode", "navigate")
}

// poll asks where the visitor stands.
func (v *visitor) poll() answer {
	v.s.t.Helper()
	return v.get("Accept", "application/json", "Headgate-Poll", "1")
}

// A crowd is two visitors inside and three who wait.
type crowd struct {
	in, line []*visitor
}

func (s *site) crowd(path string) *crowd {
	s.t.Helper()
	c := &crowd{}
	for i := range 5 {
		v := &visitor{s: s, path: path, name: path + " visitor " + strconv.Itoa(i)}
		a := v.enter()
		switch {
		case i < 2 && a.State == "inside":
			c.in = append(c.in, v)
		case i >= 2 && a.State == "waiting":
			v.ticket = v.poll().Ticket
			c.line = append(c.line, v)
		default:
			s.t.Fatalf("%s: %+v", v.name, a)
		}
	}
	s.rest(2*time.Second, c.check) // what was seen is reported and written
	return c
}

// check holds that who was inside is inside and who waits has the same place.
func (c *crowd) check() { c.s().t.Helper(); c.look(true) }

// kept is check while the record is not written: the place is kept and not told.
func (c *crowd) kept() { c.s().t.Helper(); c.look(false) }

func (c *crowd) s() *site { return c.line[0].s }

func (c *crowd) look(places bool) {
	t := c.s().t
	t.Helper()
	for _, v := range c.in {
		if a := v.enter(); a.State != "inside" {
			t.Fatalf("%s was inside and gets %+v", v.name, a)
		}
	}
	for i, v := range c.line {
		a := v.poll()
		same := a.Position == int64(i+1) || !places && a.Position == 0
		if a.Status != http.StatusOK || a.State != "waiting" || a.Ticket != v.ticket || !same {
			t.Fatalf("%s has ticket %s, place %d, and gets %+v", v.name, v.ticket, i+1, a)
		}
	}
}

// held holds that somebody new waits, and is told so in a way that a browser and a
// proxy understand.
func (s *site) held(path string) {
	s.t.Helper()
	v := &visitor{s: s, path: path, name: "a newcomer"}
	a := v.enter()
	if a.State == "inside" || a.Status != http.StatusServiceUnavailable || a.RetryAfter == "" {
		s.t.Errorf("a newcomer at %s gets %+v", path, a)
	}
}
