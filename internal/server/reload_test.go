package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/yardstick"
)

// A process is a real server with a file that the test writes.
type process struct {
	t                   *testing.T
	dir, file           string
	origin              string // replaces ORIGIN
	head                string // text above the rooms
	s                   *Server
	visitors, operators string
	log                 *syncBuffer
	stop                func()
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// named starts an origin that answers with its name.
func named(t *testing.T, name string) string {
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, name+" for "+r.Header.Get("X-Forwarded-For"))
	}))
	t.Cleanup(o.Close)
	return o.URL
}

func run(t *testing.T, file string) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), origin: named(t, "first")}
	p.file = filepath.Join(p.dir, "headgate.yaml")
	p.write(file)
	p.start()
	t.Cleanup(func() { p.stop() })
	return p
}

// write writes the file, with the addresses and the data folder before the given text.
func (p *process) write(rooms string) {
	p.t.Helper()
	head := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + p.dir + "/data\n"
	if strings.Contains(rooms, "listen:") {
		head = ""
	}
	text := head + p.head + strings.ReplaceAll(rooms, "ORIGIN", p.origin)
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// start opens and runs the server; a second call is a restart.
func (p *process) start() {
	p.t.Helper()
	p.begin()
	p.await()
}

// begin starts the process and does not wait until it is ready: await does.
func (p *process) begin() {
	p.t.Helper()
	cfg, err := config.Load(p.file)
	if err != nil {
		p.t.Fatal(err)
	}
	p.log = &syncBuffer{}
	ctx, cancel := context.WithCancel(context.Background())
	if p.s, err = Open(ctx, cfg, slog.New(slog.NewTextHandler(p.log, nil))); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.s.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
	p.visitors, p.operators = "http://"+p.s.Addr().String(), "http://"+p.s.AdminAddr().String()
}

func (p *process) await() {
	p.t.Helper()
	eventually(p.t, "ready", func() bool {
		return get(p.t, p.operators+"/readyz", "").StatusCode == 200
	})
}

func (p *process) reload() (got api.ReloadResult) {
	p.t.Helper()
	p.written(func() (err error) {
		got, err = p.s.Reload(p.t.Context())
		return err
	})
	return got
}

func (p *process) change(room string, pairs map[string]string) {
	p.t.Helper()
	p.written(func() error {
		_, err := p.s.Change(p.t.Context(), room, pairs, "a test")
		return err
	})
}

// written makes a change. A disk that is busy with other tests is no fault of it: it is tried again.
func (p *process) written(change func() error) {
	p.t.Helper()
	yardstick.Await(p.t, "a change", func() bool {
		err := change()
		if err != nil && !errors.Is(err, counter.ErrSlow) {
			p.t.Fatal(err)
		}
		return err == nil
	})
}

func (p *process) status(room string) status.Room {
	p.t.Helper()
	var st status.Room
	body := get(p.t, p.operators+"/v1/rooms/"+room, "").body
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		p.t.Fatalf("%s: %v", body, err)
	}
	st.Record, st.Totals, st.Lent = status.Record{}, status.Totals{}, nil // these change without the test
	return st
}

func (p *process) live(room string) *api.Live {
	p.t.Helper()
	for _, r := range p.s.About().Rooms {
		if r.Name == room {
			return r.Live
		}
	}
	return nil
}

const limits = "total_active_users: 1, new_users_per_minute: 100"

const shop = "rooms:\n  - {name: shop, origin: ORIGIN, " + limits + "}\n"

func TestReloadTakesAGoodFile(t *testing.T) {
	p := run(t, shop)
	a := get(t, p.visitors+"/", "")
	b := get(t, p.visitors+"/", "")
	if a.StatusCode != 200 || b.StatusCode != 503 {
		t.Fatalf("%d %d", a.StatusCode, b.StatusCode)
	}
	p.write("rooms:\n  - {name: shop, title: The shop, origin: ORIGIN, message: Soon, " +
		"total_active_users: 2, new_users_per_minute: 100}\n" +
		"  - {name: tea, path: /tea, origin: ORIGIN, " + limits + "}\n")
	got := p.reload()
	if !slices.Equal(got.Rooms.Added, []string{"tea"}) ||
		!slices.Equal(got.Rooms.Changed, []string{"shop"}) ||
		len(got.Rooms.Removed)+len(got.Dropped)+len(got.NeedsRestart) != 0 {
		t.Errorf("%+v", got)
	}
	if again := get(t, p.visitors+"/", a.cookie); again.StatusCode != 200 {
		t.Errorf("who was inside is not: %d", again.StatusCode)
	}
	eventually(t, "let in by the higher limit", func() bool {
		return get(t, p.visitors+"/", b.cookie).StatusCode == 200
	})
	c := get(t, p.visitors+"/", "")
	if c.StatusCode != 503 || !strings.Contains(c.body, "Soon") || !strings.Contains(c.body, "The shop") {
		t.Errorf("%d %s", c.StatusCode, c.body)
	}
	if tea := get(t, p.visitors+"/tea", ""); tea.StatusCode != 200 ||
		!strings.HasPrefix(tea.cookie, "__cfwaitingroom_tea=") {
		t.Errorf("the new room: %d %s", tea.StatusCode, tea.cookie)
	}
	if same := p.reload(); len(same.Rooms.Added)+len(same.Rooms.Changed)+len(same.Rooms.Removed) != 0 {
		t.Errorf("nothing is different: %+v", same)
	}
	p.write("trusted_proxies: [127.0.0.1]\nlists: [{name: staff, addresses: [192.0.2.1]}]\n" + shop)
	if got := p.reload(); !slices.Equal(got.Settings, []string{"trusted_proxies", "lists"}) {
		t.Errorf("what else is different: %+v", got)
	}
	if got := p.reload(); len(got.Settings) != 0 {
		t.Errorf("nothing is different: %+v", got)
	}
}

func TestReloadOfABrokenFileChangesNothing(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"message": "Live"})
	before, set := p.status("shop"), p.s.set.Load()
	for _, broken := range []string{
		"rooms: []\n", "rooms:\n  - {name: shop\n", "\x00", "",
		strings.Replace(shop, "shop", "tea", 1) + "  - {name: shop, origin: nowhere}\n",
	} {
		p.write(broken)
		_, err := p.s.Reload(t.Context())
		if len(config.Faults(err)) == 0 || !strings.Contains(err.Error(), "headgate.yaml") {
			t.Errorf("%q: got %v, want faults of the file", broken, err)
		}
		if after := p.status("shop"); !reflect.DeepEqual(after, before) || p.s.set.Load() != set {
			t.Errorf("%q changed %+v to %+v", broken, before, after)
		}
	}
	if p.live("shop") == nil {
		t.Error("the live change is gone")
	}
	if err := os.Remove(p.file); err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.Reload(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	about := p.s.About()
	if about.LastReload.Successful || !strings.Contains(about.LastReload.Error, "no such file") {
		t.Errorf("%+v", about.LastReload)
	}
	metrics := get(t, p.operators+"/metrics", "").body
	if !strings.Contains(metrics, "headgate_config_last_reload_successful 0") {
		t.Error("the metric says that it went well")
	}
	p.write(shop)
	p.reload()
	if metrics = get(t, p.operators+"/metrics", "").body; !strings.Contains(metrics,
		"headgate_config_last_reload_successful 1") {
		t.Error("the metric says that it went wrong")
	}
}

func TestReloadRemovesAndRenames(t *testing.T) {
	p := run(t, shop+"  - {name: tea, path: /tea, origin: ORIGIN, "+limits+"}\n")
	a := get(t, p.visitors+"/tea", "")
	runs := p.s.set.Load().find("tea").runs
	p.write(strings.Replace(shop, "name: shop", "name: store", 1))
	got := p.reload()
	if !slices.Equal(got.Rooms.Removed, []string{"shop", "tea"}) ||
		!slices.Equal(got.Rooms.Added, []string{"store"}) {
		t.Errorf("%+v", got)
	}
	select {
	case <-runs.done:
	default:
		t.Error("the removed room still runs")
	}
	if r := get(t, p.visitors+"/tea", a.cookie); !strings.Contains(r.cookie, "_store=") {
		t.Errorf("%d %s: want the renamed room below /", r.StatusCode, r.cookie)
	}
	if get(t, p.operators+"/v1/rooms/tea", "").StatusCode != 404 ||
		strings.Contains(get(t, p.operators+"/metrics", "").body, `room="tea"`) {
		t.Error("operators still see the removed room")
	}
	// And back: the room continues where it stopped.
	p.write(shop + "  - {name: tea, path: /tea, origin: ORIGIN, " + limits + "}\n")
	p.reload()
	if r := get(t, p.visitors+"/tea", a.cookie); r.StatusCode != 200 {
		t.Errorf("who was inside is not: %d", r.StatusCode)
	}
}

func TestReloadChangesTheOriginAndTheProxies(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		<-end
		io.WriteString(w, "old origin")
	}))
	defer slow.Close()
	p := run(t, shop)
	p.origin = slow.URL
	p.write(strings.Replace(shop, "users: 1,", "users: 9,", 1))
	p.reload()
	answer := make(chan reply)
	go func() { answer <- get(t, p.visitors+"/", "") }()
	<-begun
	p.origin = named(t, "second")
	p.write(strings.Replace(shop, "users: 1,", "users: 9,", 1))
	p.reload()
	if b := get(t, p.visitors+"/", ""); !strings.HasPrefix(b.body, "second for ") {
		t.Errorf("%s", b.body)
	}
	p.write("trusted_proxies: [127.0.0.0/8]\n" + strings.Replace(shop, "users: 1,", "users: 9,", 1))
	p.reload()
	r, err := http.NewRequestWithContext(t.Context(), "GET", p.visitors, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", "192.0.2.9")
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || !strings.HasPrefix(string(body), "second for 192.0.2.9") {
		t.Errorf("%s %v", body, err)
	}
	close(end)
	if a := <-answer; a.body != "old origin" {
		t.Errorf("a request to the old origin was cut: %q", a.body)
	}
}

// After a reload the room uses the new list of trusted proxies.
func TestReloadChangesWhomTheRoomTakesAVisitorFor(t *testing.T) {
	p := run(t, "rooms:\n  - {name: shop, origin: ORIGIN, queue_all: true, exclude: {cidrs: "+
		"[192.0.2.0/24]}, "+limits+"}\n")
	visit := func() int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", p.visitors, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", "192.0.2.9")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if got := visit(); got != 503 {
		t.Errorf("a stranger's header was believed: %d", got)
	}
	b, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	b = append([]byte("trusted_proxies: [127.0.0.1]\n"), b...)
	if err := os.WriteFile(p.file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	p.reload()
	if got := visit(); got != 200 {
		t.Errorf("a trusted proxy's header was not: %d", got)
	}
}

// A new proxy to the origin starts without the state of the old one.
func TestReloadLeavesAnOriginThatIsDown(t *testing.T) {
	p := run(t, shop)
	p.origin = "http://127.0.0.1:1"
	p.write(shop)
	p.reload()
	get(t, p.visitors+"/", "")
	eventually(t, "down", func() bool { return !p.status("shop").OriginUp })
	p.origin = named(t, "second")
	p.write(shop)
	p.reload()
	if !p.status("shop").OriginUp {
		t.Error("the new origin is taken for the old one")
	}
}

func TestReloadTellsWhatNeedsARestart(t *testing.T) {
	p := run(t, shop)
	p.write("listen: 127.0.0.1:1\nadmin_listen: 127.0.0.1:2\ndata: /nowhere\n" +
		strings.Replace(shop, "name: shop", "name: shop, message: Hello", 1))
	for range 2 { // it is reported each time
		got := p.reload()
		if !slices.Equal(got.NeedsRestart, []string{"listen", "admin_listen", "data"}) {
			t.Errorf("%+v", got)
		}
	}
	get(t, p.visitors+"/", "")
	if b := get(t, p.visitors+"/", ""); !strings.Contains(b.body, "Hello") {
		t.Error("what needs no restart is not in force")
	}
}

func TestReloadOfARunFromFlags(t *testing.T) {
	p := run(t, shop)
	p.s.set.Load().cfg.File = ""
	if _, err := p.s.Reload(t.Context()); !errors.Is(err, config.ErrNoFile) {
		t.Errorf("got %v", err)
	}
	if !p.s.About().LastReload.Successful {
		t.Error("a room from flags has nothing to read: that is no failed reload")
	}
}

func TestReloadOnASignal(t *testing.T) {
	p := run(t, shop)
	ctx, cancel := context.WithCancel(t.Context())
	hup := make(chan os.Signal, 1)
	var wg sync.WaitGroup
	wg.Go(func() { p.s.ReloadOn(ctx, hup) })
	p.write(strings.Replace(shop, "users: 1,", "users: 7,", 1))
	hup <- syscall.SIGHUP
	eventually(t, "reloaded", func() bool { return p.status("shop").TotalActiveUsers == 7 })
	p.write("rooms: []\n")
	hup <- syscall.SIGHUP
	eventually(t, "in the log", func() bool {
		return strings.Contains(p.log.String(), "level=ERROR") &&
			strings.Contains(p.log.String(), "has no room")
	})
	cancel()
	wg.Wait()
}

// During reloads and changes each request sees one complete set of rooms.
func TestReloadWhileVisitorsCome(t *testing.T) {
	p := run(t, shop)
	stop := make(chan bool)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if r := get(t, p.visitors+"/", ""); r.StatusCode != 200 && r.StatusCode != 503 {
					t.Errorf("%d %s", r.StatusCode, r.body)
				}
			}
		})
	}
	for n := range 20 {
		p.write(fmt.Sprintf("rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: %d, "+
			"new_users_per_minute: 100}\n  - {name: n%d, path: /n, origin: ORIGIN, %s}\n",
			n+1, n%3, limits))
		p.reload()
		p.change("shop", map[string]string{"message": fmt.Sprint(n)})
	}
	close(stop)
	wg.Wait()
	if n := p.status("shop").TotalActiveUsers; n != 20 {
		t.Errorf("the limit is %d", n)
	}
}

func TestChangesAreRefusedWhileDraining(t *testing.T) {
	p := run(t, shop)
	p.stop()
	if _, err := p.s.Reload(context.Background()); !errors.Is(err, api.ErrBusy) {
		t.Errorf("reload: %v", err)
	}
	_, err := p.s.Change(context.Background(), "shop", map[string]string{"shadow": "true"}, "")
	if !errors.Is(err, api.ErrBusy) {
		t.Errorf("change: %v", err)
	}
}

// A stop drains at once, even while a change waits for its store.
func TestAStopWaitsForNoChangeBeforeItDrains(t *testing.T) {
	t.Parallel()
	p := run(t, anyHost)
	p.s.turn.Lock()
	unlock := sync.OnceFunc(p.s.turn.Unlock)
	defer unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.stop()
	}()
	eventually(t, "draining", func() bool { return strings.Contains(p.log.String(), "draining") })
	unlock()
	<-ended
}
