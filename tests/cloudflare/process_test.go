package cloudflare

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cloudflare/cloudflare-go/v6/option"
	"github.com/cloudflare/cloudflare-go/v6/waiting_rooms"

	"github.com/headgate/headgate/internal/loopback"
)

// A gate is a headgate process with a room in its file, before an origin that says its name.
type gate struct {
	t               *testing.T
	bin, dir        string
	visitors, admin string
	token           string
	cmd             *exec.Cmd
}

func build(t *testing.T) *gate {
	t.Helper()
	g := &gate{t: t, dir: t.TempDir()}
	g.bin = filepath.Join(g.dir, "headgate")
	cmd := exec.Command("go", "build", "-o", g.bin, "./cmd/headgate")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("origin of " + r.Host))
	}))
	t.Cleanup(origin.Close)
	g.visitors, g.admin = loopback.Free(t), loopback.Free(t)
	g.write("headgate.yaml", "listen: "+g.visitors+"\nadmin_listen: "+g.admin+"\ndata: "+g.dir+"/data\n"+
		"zones:\n  - {name: example.com, id: 023e105f4ecef8ad9ca31a8372d0c353, origin: '"+origin.URL+"'}\n"+
		"rooms:\n  - {name: main, host: www.example.com, origin: '"+origin.URL+"', total_active_users: 10, "+
		"new_users_per_minute: 10}\n")
	g.token = g.run("token", "create", "--scope", "write:zone/example.com", "--data", g.dir+"/data")
	g.start()
	t.Cleanup(g.stop)
	return g
}

func (g *gate) write(name, text string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// run runs a command and returns its first line.
func (g *gate) run(args ...string) string {
	g.t.Helper()
	out, err := exec.Command(g.bin, args...).Output()
	if err != nil {
		g.t.Fatalf("headgate %v: %v", args, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

func (g *gate) start() {
	g.t.Helper()
	g.cmd = exec.Command(g.bin, "run", "--config", filepath.Join(g.dir, "headgate.yaml"))
	log, err := os.OpenFile(filepath.Join(g.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	defer log.Close()
	g.cmd.Stderr = log
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	eventually(g.t, "ready", func() bool {
		res, err := http.Get("http://" + g.admin + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// kill ends the process as a loss of power does.
func (g *gate) kill() {
	g.cmd.Process.Signal(syscall.SIGKILL)
	g.cmd.Wait()
}

func (g *gate) stop() {
	g.cmd.Process.Signal(syscall.SIGTERM)
	g.cmd.Wait()
	if g.t.Failed() {
		b, _ := os.ReadFile(filepath.Join(g.dir, "log"))
		g.t.Logf("log:\n%s", b)
	}
}

// client is the unmodified client, with its retries.
func (g *gate) client(token string) *waiting_rooms.WaitingRoomService {
	return waiting_rooms.NewWaitingRoomService(option.WithBaseURL("http://"+g.admin+"/client/v4/"),
		option.WithAPIToken(token))
}

// zones are the ids of the zones that a token sees.
func (g *gate) zones(token, query string) (ids []string) {
	g.t.Helper()
	r, err := http.NewRequest("GET", "http://"+g.admin+"/client/v4/zones"+query, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct {
		Result []struct{ ID string }
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		g.t.Fatal(err)
	}
	for _, z := range got.Result {
		ids = append(ids, z.ID)
	}
	return ids
}

// v are values by the names of fields.
type v map[string]any

// with makes parameters of the client. Its own way to do so is in the root of its module, which takes
// a gigabyte and minutes to compile, for it has all that Cloudflare sells.
func with[P any](fields v) (p P) {
	all := reflect.ValueOf(&p).Elem()
	for name, x := range fields {
		f, value := all.FieldByName(name), reflect.ValueOf(x)
		if f.Kind() == reflect.Struct && f.FieldByName("Present").IsValid() {
			f.FieldByName("Present").SetBool(true)
			f = f.FieldByName("Value")
		}
		f.Set(value.Convert(f.Type()))
	}
	return p
}

// A visitor keeps cookies as a browser does.
type visitor struct {
	g   *gate
	jar *cookiejar.Jar
}

func (g *gate) visitor() *visitor {
	jar, err := cookiejar.New(nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return &visitor{g, jar}
}

func (v *visitor) cookies(host string) int {
	return len(v.jar.Cookies(&url.URL{Scheme: "http", Host: host, Path: "/"}))
}

func (v *visitor) get(host, path string) *http.Response {
	v.g.t.Helper()
	u := &url.URL{Scheme: "http", Host: host, Path: path}
	res := v.g.get(host, path, v.jar.Cookies(u)...)
	v.jar.SetCookies(u, res.Cookies())
	return res
}

// get asks as a visitor.
func (g *gate) get(host, path string, cookies ...*http.Cookie) *http.Response {
	g.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), "GET", "http://"+g.visitors+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Host = host
	for _, c := range cookies {
		r.AddCookie(c)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	res.Body.Close()
	return res
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not %s within 20 s", what)
		}
	}
}
