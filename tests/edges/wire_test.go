package edges

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/tests/yardstick"
)

// open starts a server with a room for shop.example. Its origin does not exist: no question may
// reach it.
func open(t *testing.T, trusted, room string) *server.Server {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: "+t.TempDir()+
		"\ndecide: {listen: 127.0.0.1:0}\nenvoy: {listen: 127.0.0.1:0, decide: true}\ntrusted_proxies: ["+trusted+"]\n"+
		"rooms:\n  - {name: shop, host: shop.example, origin: http://127.0.0.1:1, "+room+"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s, err := server.Open(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	yardstick.Await(t, "ready", func() bool {
		res, err := http.Get("http://" + s.AdminAddr().String() + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return s
}

// asks sends a question, with headers in pairs of lines.
func asks(t *testing.T, s *server.Server, wire, host string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest("GET", "http://"+s.DecideAddr().String()+wire, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Accept", "text/html")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

// question returns the wire, the host and the headers of a question about a request.
func question(wire, method, uri, cookie string) (path, host string, headers []string) {
	switch path, host = wire, "127.0.0.1"; wire {
	case "/forward":
		headers = []string{"X-Forwarded-Method: " + method, "X-Forwarded-Uri: " + uri,
			"X-Forwarded-Host: shop.example", "X-Forwarded-Proto: http"}
	case "/original":
		host = "shop.example"
		headers = []string{"X-Original-Method: " + method, "X-Original-URI: " + uri, "X-Forwarded-Proto: http"}
	case "/original?ingress":
		headers = []string{"X-Original-Method: " + method, "X-Original-URL: http://shop.example" + uri}
	case "/envoy":
		path, host = wire+uri, "shop.example"
		headers = []string{"X-Forwarded-Proto: http"}
	}
	if cookie != "" {
		headers = append(headers, "Cookie: "+cookie)
	}
	return path, host, headers
}

const small = "total_active_users: 1, new_users_per_minute: 10, session_duration: 1h, queueing_status_code: 200"

// TestWires: on each wire the first visitor gets in and stays in, and the second gets an answer
// that no proxy takes for leave to pass, also where a waiting page has status 200. Envoy takes only 200
// for leave, and relays no 5xx.
func TestWires(t *testing.T) {
	for _, wire := range []string{"/forward", "/original", "/original?ingress", "/envoy"} {
		t.Run(wire, func(t *testing.T) {
			s := open(t, "127.0.0.1", small)
			leave, waits := http.StatusNoContent, http.StatusServiceUnavailable
			if wire == "/envoy" {
				leave, waits = http.StatusOK, http.StatusTooManyRequests
			}
			path, host, headers := question(wire, "GET", "/a/b?c=1", "")
			res, body := asks(t, s, path, host, headers...)
			if res.StatusCode != leave || body != "" || len(res.Cookies()) != 1 ||
				res.Header.Get("Headgate-Admitted") != "session" || res.Header["Headgate-Pass"] == nil != (wire == "/envoy") {
				t.Fatalf("newcomer: %d %q %v", res.StatusCode, body, res.Header)
			}
			pass := res.Cookies()[0]
			path, host, headers = question(wire, "GET", "/a", pass.Name+"="+pass.Value)
			if res, _ = asks(t, s, path, host, headers...); res.StatusCode != leave {
				t.Errorf("with a pass: %d", res.StatusCode)
			}
			path, host, headers = question(wire, "GET", "/a", "")
			res, body = asks(t, s, path, host, headers...)
			relayed := res.StatusCode == waits && strings.Contains(body, "<html") &&
				len(res.Cookies()) == 1
			checked := res.StatusCode == http.StatusUnauthorized && body == "" && len(res.Cookies()) == 0
			if strings.HasPrefix(wire, "/original") != checked || checked == relayed {
				t.Errorf("second visitor: %d %.60q %v", res.StatusCode, body, res.Header)
			}
			for _, uri := range []string{"/.headgate/served", "/.headgate/here.gif"} {
				path, host, headers = question(wire, "GET", uri, "")
				if res, _ = asks(t, s, path, host, headers...); res.StatusCode < 300 {
					t.Errorf("%s: %d", uri, res.StatusCode)
				}
			}
			path, host, headers = question(wire, "GET", "/", "")
			if res, _ = asks(t, s, path, host, append(headers, "Headgate-Poll: 1")...); res.StatusCode < 300 {
				t.Errorf("a poll: %d", res.StatusCode)
			}
			path, host, headers = question(wire, "GET", "/robots.txt", "")
			res, _ = asks(t, s, path, host, headers...)
			if res.StatusCode != leave || res.Header.Get("Headgate-Admitted") != "uncounted" {
				t.Errorf("an excluded path: %d %v", res.StatusCode, res.Header)
			}
			if res, _ = asks(t, s, path, host, append(headers, "Upgrade: websocket")...); res.StatusCode < 300 {
				t.Errorf("an upgrade of an excluded path: %d", res.StatusCode)
			}
		})
	}
}

// TestQuestionsAboutPreflights: the proxy would forward cookies and a body, and return the answer.
func TestQuestionsAboutPreflights(t *testing.T) {
	s := open(t, "127.0.0.1", strings.Replace(small, "users: 1", "users: 9", 1))
	for _, wire := range []string{"/forward", "/original", "/original?ingress"} {
		path, host, headers := question(wire, "OPTIONS", "/a", "session=1")
		headers = append(headers, "Origin: https://a.example", "Access-Control-Request-Method: POST")
		if res, _ := asks(t, s, path, host, headers...); res.StatusCode < 400 {
			t.Errorf("%s: a preflight: %d", wire, res.StatusCode)
		}
		path, host, headers = question(wire, "HEAD", "/a", "session=1")
		if res, _ := asks(t, s, path, host, headers...); res.StatusCode < 400 {
			t.Errorf("%s: HEAD with a cookie: %d", wire, res.StatusCode)
		}
		path, host, headers = question(wire, "HEAD", "/a", "")
		if res, _ := asks(t, s, path, host, headers...); res.StatusCode != http.StatusNoContent {
			t.Errorf("%s: HEAD: %d", wire, res.StatusCode)
		}
	}
}

// TestAskedInALineWithoutAPlace: a proxy that relays no answers makes nobody join the line, and its
// questions are not counted as newcomers of a network.
func TestAskedInALineWithoutAPlace(t *testing.T) {
	s := open(t, "127.0.0.1", small+", join_limit: {amount: 3}")
	path, host, headers := question("/original", "GET", "/", "")
	asks(t, s, path, host, headers...)
	headers = append(headers, "X-Forwarded-For: 192.0.2.7")
	for range 20 {
		if res, _ := asks(t, s, path, host, headers...); res.StatusCode != http.StatusUnauthorized {
			t.Fatal(res.Status)
		}
	}
	res, err := http.Get("http://" + s.AdminAddr().String() + "/v1/rooms")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), `"joined":0`) {
		t.Errorf("%s", body)
	}
	for i := range 4 {
		r, err := http.NewRequest("GET", "http://"+s.Addr().String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "shop.example"
		r.Header.Set("Accept", "application/json")
		r.Header.Set("X-Forwarded-For", "192.0.2.7")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Headgate struct{ Number uint64 } }
		err = json.NewDecoder(res.Body).Decode(&got)
		res.Body.Close()
		n := got.Headgate.Number
		if aside := n >= 1<<40; err != nil || n == 0 || aside != (i == 3) {
			t.Errorf("newcomer %d: ticket %d, %v", i+1, n, err)
		}
	}
}

// TestQuestionsOfStrangers: who is no trusted proxy learns nothing, and a question that is not
// clear is refused.
func TestQuestionsOfStrangers(t *testing.T) {
	s := open(t, "10.0.0.0/8", small)
	path, host, headers := question("/forward", "GET", "/robots.txt", "")
	if res, _ := asks(t, s, path, host, headers...); res.StatusCode != http.StatusForbidden {
		t.Errorf("a peer that is not trusted: %d", res.StatusCode)
	}
	if res, _ := asks(t, s, "/forward/revoke", host, headers...); res.StatusCode != http.StatusForbidden {
		t.Errorf("a command of a peer that is not trusted: %d", res.StatusCode)
	}
	s = open(t, "127.0.0.1", small)
	for _, missing := range headers {
		var others []string
		for _, h := range headers {
			if h != missing {
				others = append(others, h)
			}
		}
		if res, _ := asks(t, s, path, host, others...); res.StatusCode != http.StatusBadRequest {
			t.Errorf("without %s: %d", missing, res.StatusCode)
		}
		res, _ := asks(t, s, path, host, append(others, missing, missing)...)
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("twice %s: %d", missing, res.StatusCode)
		}
	}
	for _, uri := range []string{"robots.txt", "*", "http://shop.example/robots.txt", "/%", "/robots.txt /", ""} {
		_, _, headers := question("/forward", "GET", uri, "")
		if res, _ := asks(t, s, path, host, headers...); res.StatusCode < 400 {
			t.Errorf("target %q: %d", uri, res.StatusCode)
		}
	}
	// The headers of another wire decide nothing.
	_, _, headers = question("/forward", "GET", "/", "")
	asks(t, s, path, host, headers...)
	for _, h := range []string{"X-Original-URI: /robots.txt", "X-Original-URL: http://shop.example/robots.txt",
		"X-Rewrite-URL: /robots.txt", "X-Original-Method: OPTIONS"} {
		if res, _ := asks(t, s, path, host, append(headers, h)...); res.StatusCode < 300 {
			t.Errorf("%s: %d", h, res.StatusCode)
		}
	}
}

// TestEnvoyAsksByGRPC: Check admits, relays the page, and relays polls as they are.
func TestEnvoyAsksByGRPC(t *testing.T) {
	s := open(t, "127.0.0.1", small)
	c, err := grpc.NewClient(s.EnvoyAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	check := func(path string, headers map[string]string) *auth.CheckResponse {
		t.Helper()
		client := auth.NewAuthorizationClient(c)
		a, err := client.Check(t.Context(), &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{
				SocketAddress: &core.SocketAddress{Address: "192.0.2.7",
					PortSpecifier: &core.SocketAddress_PortValue{PortValue: 4711}}}}},
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
				Method: "GET", Path: path, Host: "shop.example", Scheme: "https", Headers: headers}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	page := map[string]string{"accept": "text/html", "accept-encoding": "gzip"}
	ok := check("/a", page).GetOkResponse()
	added := fmt.Sprint(ok.GetResponseHeadersToAdd())
	if ok == nil || !strings.Contains(added, "__Host-") || !strings.Contains(added, "no-store") {
		t.Fatalf("newcomer: %v", ok)
	}
	no := check("/a", page).GetDeniedResponse()
	if no.GetStatus().GetCode() != 200 || !strings.Contains(no.GetBody(), "<html") {
		t.Errorf("second visitor: %v %.60q", no.GetStatus(), no.GetBody())
	}
	no = check("/a", map[string]string{"accept": "application/json", "headgate-poll": "1"}).GetDeniedResponse()
	if no.GetStatus().GetCode() != 200 || !strings.HasPrefix(no.GetBody(), "{") {
		t.Errorf("a poll: %v %.60q", no.GetStatus(), no.GetBody())
	}
	if ok = check("/robots.txt", page).GetOkResponse(); ok == nil {
		t.Error("an excluded path is denied")
	}
	no = check("/robots.txt", map[string]string{"upgrade": "websocket"}).GetDeniedResponse()
	if no.GetStatus().GetCode() != http.StatusForbidden {
		t.Errorf("an upgrade of an excluded path: %v", no)
	}
	if no = check("/a/..%2frobots.txt", page).GetDeniedResponse(); no.GetStatus().GetCode() != http.StatusPermanentRedirect {
		t.Errorf("a path with two readings: %v", no)
	}
	for _, path := range []string{"", "/%zz", "robots.txt", "http://shop.example/robots.txt"} {
		a, err := auth.NewAuthorizationClient(c).Check(t.Context(), &auth.CheckRequest{
			Attributes: &auth.AttributeContext{Request: &auth.AttributeContext_Request{
				Http: &auth.AttributeContext_HttpRequest{Method: "GET", Path: path, Host: "shop.example"}}},
		})
		if err != nil || a.GetDeniedResponse().GetStatus().GetCode() != http.StatusBadRequest {
			t.Errorf("target %q: %v, %v", path, a, err)
		}
	}
	// Bytes that are no HTTP/2 at all end the connection.
	raw, err := net.Dial("tcp", s.EnvoyAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	fmt.Fprint(raw, "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if _, err := io.Copy(io.Discard, raw); err != nil {
		t.Logf("closed: %v", err)
	}
}
