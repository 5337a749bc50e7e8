package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/config"
)

// rules writes the file of rules: a number of calls per hour for each client.
func (p *process) rules(text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "api.yaml"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

const envoyRules = `domain: api
descriptors:
  - key: client
    rate_limit: {unit: hour, requests_per_unit: AMOUNT}
`

// Envoy is served without a room, a reload applies new rules, and usage is kept.
func TestServerAnswersEnvoy(t *testing.T) {
	p := &process{t: t, dir: t.TempDir()}
	p.file = filepath.Join(p.dir, "headgate.yaml")
	p.rules(strings.ReplaceAll(envoyRules, "AMOUNT", "3"))
	p.write("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + p.dir + "/data\n" +
		"envoy: {listen: 127.0.0.1:0, rules: [api.yaml], headers: true}\n")
	p.start()
	t.Cleanup(func() { p.stop() })
	conn, err := grpc.NewClient(p.s.envoy.listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() *pb.RateLimitResponse {
		t.Helper()
		res, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{
			Domain: "api", Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "client", Value: "bob"}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for i := range 4 {
		want := pb.RateLimitResponse_OK
		if i == 3 {
			want = pb.RateLimitResponse_OVER_LIMIT
		}
		if res := ask(); res.OverallCode != want || len(res.ResponseHeadersToAdd) < 3 {
			t.Errorf("call %d: %v", i, res)
		}
	}
	p.rules(strings.ReplaceAll(envoyRules, "AMOUNT", "5"))
	if _, err := p.s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := ask(); res.OverallCode != pb.RateLimitResponse_OK || res.Statuses[0].LimitRemaining != 1 {
		t.Errorf("after the limit was raised from 3 to 5: %v", res)
	}
	p.rules("domain: api\ndescriptors: [{key: client, rate_limit: {unit: fortnight, requests_per_unit: 1}}]\n")
	if _, err := p.s.Reload(t.Context()); len(config.Faults(err)) == 0 {
		t.Errorf("rules that make no sense: %v", err)
	}
	if res := ask(); res.Statuses[0].CurrentLimit.GetRequestsPerUnit() != 5 {
		t.Errorf("after a reload that failed: %v", res)
	}
	p.rules("domain: other\ndescriptors: [{key: client, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")
	got, err := p.s.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Limits) != "{[other/client] [api/client] []}" {
		t.Errorf("told of another domain: %+v", got.Limits)
	}
	if res := ask(); res.Statuses[0].CurrentLimit != nil {
		t.Errorf("a domain that is gone: %v", res)
	}
	if all := p.s.limits.Rules.Limits(); len(all) != 1 {
		t.Errorf("%d limits are left, want that of the new rules alone", len(all))
	}
}

// Faults of all files of rules are reported at once.
func TestFaultsOfAllFilesOfRules(t *testing.T) {
	dir := t.TempDir()
	bad, gone := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "gone.yaml")
	if err := os.WriteFile(bad, []byte("domain: a\ndescriptors:\n- {kee: k}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := readRules([]string{bad, gone, bad})
	var got []string
	for _, f := range config.Faults(err) {
		got = append(got, filepath.Base(f.File)+" "+f.Key)
	}
	want := "[bad.yaml descriptors[0].key bad.yaml descriptors[0].kee gone.yaml envoy.rules " +
		"bad.yaml descriptors[0].key bad.yaml descriptors[0].kee]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %v: %v", got, want, err)
	}
}

// One client that opens as many connections as it can leaves some for others.
func TestEnvoyIsAnsweredBesideManyConnections(t *testing.T) {
	p := &process{t: t, dir: t.TempDir()}
	p.file = filepath.Join(p.dir, "headgate.yaml")
	p.rules(strings.ReplaceAll(envoyRules, "AMOUNT", "3"))
	p.write("listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + p.dir + "/data\n" +
		"envoy: {listen: 127.0.0.1:0, rules: [api.yaml]}\n")
	p.start()
	t.Cleanup(func() { p.stop() })
	addr := p.s.envoy.listener.Addr().String()
	refused := 0
	for range 1001 { // one more than the maximum of an address
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f := http2.NewFramer(c, c)
		if _, err := f.ReadFrame(); err != nil { // the settings of the server
			t.Fatal(err)
		}
		if frame, err := f.ReadFrame(); err != nil {
			t.Fatal(err)
		} else if away, ok := frame.(*http2.GoAwayFrame); ok {
			if refused++; string(away.DebugData()) != "too many connections" {
				t.Errorf("refused by %v", away)
			}
			continue
		}
		io.WriteString(c, http2.ClientPreface) // stays open and sends nothing more
		f.WriteSettings()
	}
	if refused != 1 {
		t.Errorf("%d of 1001 connections are refused, want 1", refused)
	}
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return from.DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	res, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{
		Domain: "api", Descriptors: []*common.RateLimitDescriptor{{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "client", Value: "bob"}}}},
	})
	if err != nil || res.OverallCode != pb.RateLimitResponse_OK {
		t.Errorf("an honest Envoy is told %v, %v", res, err)
	}
}

// BenchmarkDecide measures a question about a request of a session, by both wires, with its connection
// and its client.
func BenchmarkDecide(b *testing.B) {
	s, _ := serve(b, "http://127.0.0.1:1", "  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9, "+
		"session_duration: 1h}\ntrusted_proxies: [127.0.0.0/8]\ndecide: {listen: \"127.0.0.1:0\"}\n"+
		"envoy: {listen: \"127.0.0.1:0\", decide: true}\n")
	c, err := net.Dial("tcp", s.DecideAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	answer := make([]byte, 4096)
	ask := func(cookie string) string {
		if _, err := io.WriteString(c, "GET /original HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 203.0.113.7\r\n"+
			"X-Forwarded-Proto: http\r\nX-Original-Method: GET\r\nX-Original-URI: /\r\nAccept: text/html\r\n"+
			"User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept-Encoding: gzip\r\nCookie: "+cookie+"\r\n\r\n"); err != nil {
			b.Fatal(err)
		}
		n, err := c.Read(answer)
		if err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 204") {
			b.Fatalf("%s %v", answer[:n], err)
		}
		return string(answer[:n])
	}
	var cookie string
	for range 4 { // a second apart, they give the whole pass
		if _, set, ok := strings.Cut(ask(cookie), "Set-Cookie: "); ok {
			cookie, _, _ = strings.Cut(set, ";")
		}
		<-time.After(time.Second)
	}
	b.Run("HTTP", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ask(cookie)
		}
	})
	headers := map[string]string{":authority": "shop.example", ":path": "/", ":method": "GET", "cookie": cookie,
		"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "http", "accept": "text/html", "accept-encoding": "gzip",
		"user-agent": "Mozilla/5.0 (X11; Linux x86_64)"}
	check := &auth.CheckRequest{Attributes: &auth.AttributeContext{Source: peerAt("203.0.113.7"),
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Method: "GET", Host: "shop.example", Path: "/", Scheme: "http", Headers: headers}}}}
	conn, err := grpc.NewClient(s.EnvoyAddr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	client := auth.NewAuthorizationClient(conn)
	b.Run("Envoy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if a, err := client.Check(b.Context(), check); err != nil || a.GetStatus().GetCode() != 0 {
				b.Fatal(a, err)
			}
		}
	})
}

// peerAt returns the peer of an Envoy.
func peerAt(addr string) *auth.AttributeContext_Peer {
	return &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{
		SocketAddress: &core.SocketAddress{Address: addr}}}}
}

// Envoy passes on what visitors send. What only a trusted proxy may send, and what only headgate says,
// must not reach the origin, in any spelling.
func TestEnvoyRemovesWhatAVisitorClaims(t *testing.T) {
	s, _ := serve(t, "http://127.0.0.1:1", planned+"  header: x-plan\ntrusted_proxies: [10.0.0.0/8]\n"+
		"envoy: {listen: \"127.0.0.1:0\", decide: true}\n")
	conn, err := grpc.NewClient(s.EnvoyAddr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	always := []string{"headgate-holder", "headgate-plan", "headgate-exceeded", "headgate_plan"}
	for from, c := range map[string]struct {
		limit           string
		removed, passed []string
	}{
		"203.0.113.7": {"10", []string{"x-plan", "x_plan", "x.plan", "cf-ipcountry", "cf_bot_score"},
			[]string{"accept"}},
		"10.0.0.7": {"30", nil, []string{"x-plan", "cf-ipcountry", "accept"}},
	} {
		headers := map[string]string{":authority": "shop.example", ":path": "/", ":method": "GET",
			"accept": "*/*", "x-client": "bob", "x-plan": "pro", "x_plan": "pro", "x.plan": "pro",
			"cf-ipcountry": "DE",
			"cf_bot_score": "99", "headgate-holder": "eve", "headgate-plan": "pro", "headgate_plan": "pro"}
		a, err := auth.NewAuthorizationClient(conn).Check(t.Context(), &auth.CheckRequest{
			Attributes: &auth.AttributeContext{
				Source: peerAt(from),
				Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
					Method: "GET", Host: "shop.example", Path: "/", Scheme: "http", Headers: headers}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ok := a.GetOkResponse()
		for _, h := range ok.GetResponseHeadersToAdd() {
			if h.GetHeader().GetKey() == "X-Ratelimit-Limit" && h.GetHeader().GetValue() != c.limit {
				t.Errorf("from %s: a limit of %s, want %s", from, h.GetHeader().GetValue(), c.limit)
			}
		}
		has := func(name string) bool {
			same := func(s string) bool { return strings.EqualFold(s, name) }
			return slices.ContainsFunc(ok.GetHeadersToRemove(), same)
		}
		for _, name := range slices.Concat(always, c.removed) {
			if !has(name) {
				t.Errorf("from %s: %s reaches the origin: %v", from, name, ok.GetHeadersToRemove())
			}
		}
		if i := slices.IndexFunc(c.passed, has); i >= 0 {
			t.Errorf("from %s: %s is removed", from, c.passed[i])
		}
	}
}
