package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/yardstick"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
)

// start runs a real server in front of origin and returns its two addresses.
func start(t *testing.T, origin, rooms string) (visitors, operators string, stop func() error) {
	t.Helper()
	text := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + t.TempDir() + "\nrooms:\n" +
		strings.ReplaceAll(rooms, "ORIGIN", origin)
	cfg, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() error { cancel(); err := <-done; done <- err; return err }
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	visitors, operators = "http://"+s.Addr().String(), "http://"+s.AdminAddr().String()
	eventually(t, "ready", func() bool { return get(t, operators+"/readyz", "").StatusCode == 200 })
	return visitors, operators, stop
}

const oneRoom = "  - {name: shop, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100, " +
	"session_duration: 2s}\n"

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	yardstick.Await(t, what, ok)
}

type reply struct {
	*http.Response
	body, cookie string
}

func get(t *testing.T, url, cookie string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := reply{Response: res, body: string(b), cookie: cookie}
	for _, c := range res.Cookies() {
		out.cookie = c.Name + "=" + c.Value
	}
	loads(t, r, out.body, out.cookie)
	return out
}

// loads gets what a browser loads with a waiting page: its picture, by which the cookie comes back.
func loads(t *testing.T, page *http.Request, body, cookie string) {
	t.Helper()
	_, src, ok := strings.Cut(body, `<img src="`)
	if path, _, _ := strings.Cut(src, `"`); ok && strings.HasSuffix(path, "here.gif") {
		part := page.Clone(t.Context())
		part.URL.Path, part.URL.RawQuery = path, ""
		part.Header.Set("Accept", "image/*")
		part.Header.Set("Cookie", cookie)
		res, err := http.DefaultTransport.RoundTrip(part)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
}

func status(t *testing.T, operators string) headgate.Status {
	t.Helper()
	var m struct{ Rooms []headgate.Status }
	if err := json.Unmarshal([]byte(get(t, operators+"/v1/rooms", "").body), &m); err != nil {
		t.Fatal(err)
	}
	return m.Rooms[0]
}

func TestServerHoldsTheSecondVisitorAndTellsOperators(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "origin ", r.URL, " ", r.Header.Get("Cookie"))
	}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, oneRoom)
	a := get(t, visitors+"/x?y=z", "")
	if a.body != "origin /x?y=z " || a.cookie == "" {
		t.Fatalf("%d %q", a.StatusCode, a.body)
	}
	if again := get(t, visitors+"/", a.cookie); !strings.HasPrefix(again.body, "origin / ") ||
		strings.Contains(again.body, "__cf") {
		t.Errorf("%q: the origin must answer, and not see our cookie", again.body)
	}
	b := get(t, visitors+"/", "")
	if b.StatusCode != 503 || b.Header.Get(headgate.StateHeader) != "waiting" ||
		!strings.Contains(b.body, "<!doctype html>") {
		t.Fatalf("%d %q", b.StatusCode, b.body)
	}
	s := status(t, operators)
	if s.Status != "queueing" || s.ActiveUsers != 1 || s.WaitingUsers != 1 {
		t.Errorf("%+v", s)
	}
	metrics := get(t, operators+"/metrics", "").body
	for _, want := range []string{
		`headgate_active_users{room="shop"} 1`, `headgate_waiting_users{room="shop"} 1`,
		`headgate_admitted_total{room="shop"} 1`, "headgate_call_empty_seconds_count",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
	if get(t, operators+"/livez", "").StatusCode != 200 {
		t.Error("not live")
	}
}

func TestServerRefusesHugeHeaders(t *testing.T) {
	origin := httptest.NewServer(http.NotFoundHandler())
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom)
	for name, head := range map[string]string{
		"cookie": "Cookie: __cfwaitingroom_shop=" + strings.Repeat("A", 1<<20),
		"header": "X-Big: " + strings.Repeat("A", 1<<20),
	} {
		c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", head)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s of a megabyte: %v %v", name, res, err)
		}
		c.Close()
	}
}

func TestServerSpeaksHTTP2InCleartext(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "origin")
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, oneRoom)
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get(visitors)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != 200 {
		t.Errorf("%s %d", res.Proto, res.StatusCode)
	}
}

func TestServerDrains(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- true
		<-end
		fmt.Fprint(w, "origin")
	}))
	defer origin.Close()
	visitors, operators, stop := start(t, origin.URL, oneRoom)
	answer := make(chan reply)
	go func() { answer <- get(t, visitors+"/", "") }()
	<-begun
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	eventually(t, "not ready", func() bool { return get(t, operators+"/readyz", "").StatusCode == 503 })
	close(end)
	if a := <-answer; a.body != "origin" {
		t.Errorf("a request in flight was cut: %q", a.body)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServerFindsTheMostSpecificRoom(t *testing.T) {
	origin := httptest.NewServer(http.NotFoundHandler())
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, `
  - {name: all, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}
  - {name: sale, path: /sale, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}
  - {name: other, host: other.example, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}
`)
	for path, want := range map[string]string{
		"/": "_all", "/sale": "_sale", "/sale/1": "_sale", "/sales": "_all",
		"//sale": "_sale", "/x/../sale": "_sale", "/sale/../": "_all", "/./sale": "_sale", "/SALE/x": "_sale",
	} {
		res := get(t, visitors+path, "")
		if res.StatusCode == http.StatusPermanentRedirect { // rooms differ by how it is read
			res = get(t, visitors+res.Header.Get("Location"), "")
		}
		if got := res.cookie; !strings.HasPrefix(got, "__cfwaitingroom"+want+"=") {
			t.Errorf("%s: cookie %q, want of room%s", path, got, want)
		}
	}
}

func TestServerSaysWhichAddressIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg, err := config.Parse("t", []byte("listen: "+l.Addr().String()+"\nadmin_listen: 127.0.0.1:0\n"+
		"data: "+t.TempDir()+"\n"+
		"rooms: [{name: a, origin: 'http://127.0.0.1:1', total_active_users: 1, new_users_per_minute: 1}]"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	e, ok := err.(*AddressError)
	if !ok || !strings.Contains(e.Error(), l.Addr().String()) || !strings.Contains(e.Hint(), "--listen") {
		t.Errorf("%v", err)
	}
}

// Each reason has a hint of its own: who may not have port 80 looks for no other program.
func TestAddressErrorsSayWhatToDo(t *testing.T) {
	bind := func(why syscall.Errno) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", why)}
	}
	_, elsewhere := new(Machine).listen("192.0.2.1:0", "tls.listen") // an address of documents: nobody has it
	for _, c := range []struct {
		err  error
		want string
	}{
		{&AddressError{"listen", ":80", bind(syscall.EACCES)}, "see As a service in docs.*, or set --listen "},
		{&AddressError{"admin_listen", ":8081", bind(syscall.EADDRINUSE)}, "another program .* set --admin-listen "},
		{elsewhere, "this machine does not have that address: set tls.listen "},
		{&AddressError{"listen", "nowhere:80", &net.DNSError{Err: "no such host"}},
			"^set --listen to an address of this machine"},
	} {
		e, ok := errors.AsType[*AddressError](c.err)
		if !ok || !regexp.MustCompile(c.want).MatchString(e.Hint()) {
			t.Errorf("%v: %q does not match %q", c.err, e.Hint(), c.want)
		}
	}
}
