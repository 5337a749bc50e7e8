//go:build edges

package edges

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/internal/loopback"
)

// cost is how many times the CPU of nginx and headgate for a request of a visitor inside may be
// that of nginx and a handler of net/http that answers 204 at once. Measured: 1.0 to 1.1; half as much
// more is a fault.
const cost = 1.7

// settles is how many requests, a second apart, give a browser the whole pass. After that it gets no
// cookie for 30 s.
const settles = 4

// TestCost: a request of a visitor inside, through nginx and auth_request, once with headgate and
// once with the smallest handler, in turns. It prints both.
func TestCost(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ok")
	}))
	defer origin.Close()
	o := strings.TrimPrefix(origin.URL, "http://")
	nginx := &kinds[0]
	w := nginx.open(t, o, "total_active_users: 100, new_users_per_minute: 100, session_duration: 1h")
	inside := browser{w: w}
	for range settles {
		inside.ask(t, "GET", "/")
		<-time.After(time.Second)
	}
	cookie := inside.jar.String()

	plain := &world{addr: loopback.Free(t)}
	bare := loopback.Free(t)
	handler := exec.Command(os.Args[0])
	handler.Env = append(os.Environ(), "LEAST_HANDLER="+bare)
	if err := handler.Start(); err != nil {
		t.Fatal(err)
	}
	defer handler.Process.Kill()
	nginx.start(t, plain.addr, places{bare, bare, bare, o, nil})

	through := func(addr string, pid int) func() float64 {
		return func() float64 { return perRequest(t, addr, cookie, pid, masterOf(t, addr)) }
	}
	with, without, times := pairs(through(w.addr, w.headgate.PID), through(plain.addr, handler.Process.Pid))
	t.Logf("CPU of nginx and the decider for a request: %.1f µs with headgate, %.1f µs with a handler that "+
		"answers 204: %.2f times, the median of pairs %.2f", with, without, with/without, times)
	if with > cost*without {
		t.Errorf("%.2f times, at most %.1f", with/without, cost)
	}
}

// TestQuestionCost: a question about a request of a visitor inside, without a proxy, beside the
// smallest handlers of net/http and of grpc-go. It prints the CPU time of both for each.
func TestQuestionCost(t *testing.T) {
	for _, x := range questions(t) {
		with, without, times := pairs(func() float64 { return cpuOf(t, x.with, x.headgate) },
			func() float64 { return cpuOf(t, x.without, x.handler) })
		t.Logf("CPU of a question by %s: %.1f µs at headgate, %.1f µs at the smallest handler: %.2f times, "+
			"the median of pairs %.2f", x.name, with, without, with/without, times)
		if with > x.most*without {
			t.Errorf("%s: %.2f times, at most %.1f", x.name, with/without, x.most)
		}
	}
}

// A comparison is a way to ask, at headgate and at the smallest handler.
type comparison struct {
	name              string
	with, without     func() error
	most              float64 // times the CPU
	headgate, handler int     // the processes

	headers   map[string]string
	at, other string // where to ask: at headgate and at the smallest handler
}

// questions starts headgate and the smallest handlers.
func questions(t *testing.T) []comparison {
	t.Helper()
	nginx := &kinds[0]
	w := nginx.open(t, "127.0.0.1:9", "total_active_users: 100, new_users_per_minute: 100, session_duration: 1h")
	bare, bareGRPC := loopback.Free(t), loopback.Free(t)
	handler := exec.Command(os.Args[0])
	handler.Env = append(os.Environ(), "LEAST_HANDLER="+bare, "LEAST_GRPC="+bareGRPC)
	if err := handler.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { handler.Process.Kill() })
	c := &connector{t, w.decide, &http.Client{Transport: &http.Transport{}}}
	var k kept
	for range settles {
		c.enters(&k)
		<-time.After(time.Second)
	}
	h := map[string]string{"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "http", "X-Original-Method": "GET",
		"X-Original-URI": "/", "Cookie": k.cookie, "User-Agent": "Mozilla/5.0 (X11; Linux x86_64)",
		"Accept": "text/html", "Accept-Encoding": "gzip"}
	byHTTP := func(addr string) func() error {
		tr := &http.Transport{}
		t.Cleanup(tr.CloseIdleConnections)
		return func() error {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/original", nil)
			if err != nil {
				return err
			}
			r.Host = "shop.example"
			for name, value := range h {
				r.Header.Set(name, value)
			}
			res, err := tr.RoundTrip(r)
			if err != nil {
				return err
			}
			res.Body.Close()
			if res.StatusCode != http.StatusNoContent {
				return errors.New(res.Status)
			}
			return nil
		}
	}
	grpcAt := func(addr string) func() error {
		ask, end, err := byGRPC(addr, h)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(end)
		return ask
	}
	return []comparison{
		{"HTTP", byHTTP(w.decide), byHTTP(bare), mostHTTP, w.headgate.PID, handler.Process.Pid, h, w.decide, bare},
		{"gRPC", grpcAt(w.envoy), grpcAt(bareGRPC), mostGRPC, w.headgate.PID, handler.Process.Pid, h, w.envoy, bareGRPC},
	}
}

// byGRPC returns a function that asks as Envoy does, over a connection of its own, about a request with
// these headers, and one that ends the connection.
func byGRPC(addr string, h map[string]string) (ask func() error, end func(), err error) {
	headers := map[string]string{":authority": "shop.example", ":path": "/", ":method": "GET"}
	for name, value := range h {
		headers[strings.ToLower(name)] = value
	}
	check := &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: peerAt("203.0.113.7"),
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Method: "GET", Host: "shop.example", Path: "/", Scheme: "http", Headers: headers}}}}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	client := auth.NewAuthorizationClient(conn)
	return func() error {
		a, err := client.Check(context.Background(), check)
		if err == nil && a.GetStatus().GetCode() != 0 {
			err = errors.New("denied")
		}
		return err
	}, func() { conn.Close() }, nil
}

// How many times the CPU of the smallest handler a question may cost. Measured: 0.90 to 1.08, and 0.53
// to 0.65; half as much more is a fault.
const (
	mostHTTP = 1.7
	mostGRPC = 1.0
)

// pairs measures both in turns. It returns the least of each, because what other processes take from the
// caches only adds to it, and the median of how many times the second the first is.
func pairs(with, without func() float64) (a, b, times float64) {
	var ratios []float64
	a, b = math.Inf(1), math.Inf(1)
	for range 11 {
		x, y := with(), without()
		a, b, ratios = min(a, x), min(b, y), append(ratios, x/y)
	}
	slices.Sort(ratios)
	return a, b, ratios[len(ratios)/2]
}

// cpuOf calls ask from 16 goroutines and returns the CPU time of processes for each, in microseconds.
func cpuOf(t *testing.T, ask func() error, pids ...int) float64 {
	t.Helper()
	const each, clients = 500, 16
	before := cpuTime(t, pids...)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				if err := ask(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return (cpuTime(t, pids...) - before).Seconds() * 1e6 / (each * clients)
}

// peerAt returns the peer of a connection from an address.
func peerAt(addr string) *auth.AttributeContext_Peer {
	return &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{
		SocketAddress: &core.SocketAddress{Address: addr}}}}
}

// allows is the smallest server of ext_authz.
type allows struct {
	auth.UnimplementedAuthorizationServer
}

func (allows) Check(context.Context, *auth.CheckRequest) (*auth.CheckResponse, error) {
	return &auth.CheckResponse{}, nil
}

// serveLeast is the handler of these tests, in a process of its own.
func serveLeast(addr string) int {
	if other := os.Getenv("LEAST_GRPC"); other != "" {
		l, err := net.Listen("tcp", other)
		if err != nil {
			log.Print(err)
			return 1
		}
		s := grpc.NewServer()
		auth.RegisterAuthorizationServer(s, allows{})
		go func() { log.Print(s.Serve(l)) }()
	}
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	if to := os.Getenv("LEAST_PROXY"); to != "" {
		handler = leastProxy(to)
	}
	l, err := net.Listen("tcp", addr)
	if err == nil {
		err = http.Serve(l, handler)
	}
	log.Print(err)
	return 1
}

// leastProxy is net/http's own proxy, with a transport as headgate's for what it does not send itself.
func leastProxy(to string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: to})
			p.SetXForwarded()
			p.Out.Host = p.In.Host
		},
		Transport: &http.Transport{
			MaxIdleConns: 512, MaxIdleConnsPerHost: 512, IdleConnTimeout: time.Minute,
			DisableCompression: true,
		},
		BufferPool: make(bufferPool, 64),
	}
}

// A bufferPool keeps the buffers of a ReverseProxy, which makes a new one for each answer without it.
type bufferPool chan []byte

// Get implements httputil.BufferPool.
func (p bufferPool) Get() []byte {
	select {
	case b := <-p:
		return b
	default:
		return make([]byte, 32<<10)
	}
}

// Put implements httputil.BufferPool.
func (p bufferPool) Put(b []byte) {
	select {
	case p <- b:
	default:
	}
}

// perRequest sends requests over 16 connections and returns the CPU time of the processes for each,
// in microseconds.
func perRequest(t *testing.T, addr, cookie string, pids ...int) float64 {
	t.Helper()
	const each, clients = 500, 16
	before := cpuTime(t, pids...)
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			tr := &http.Transport{}
			defer tr.CloseIdleConnections()
			for range each {
				r, err := http.NewRequest("GET", "http://"+addr+"/", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Host = "shop.example"
				r.Header.Set("Cookie", cookie)
				res, err := tr.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					t.Errorf("status %d", res.StatusCode)
					return
				}
			}
		})
	}
	wg.Wait()
	return (cpuTime(t, pids...) - before).Seconds() * 1e6 / (each * clients)
}

// cpuTime returns the CPU time of processes and their children. The files of the scheduler say it in
// nanoseconds: a tick of proc(5) is 7 % of what is measured here.
func cpuTime(t *testing.T, pids ...int) (all time.Duration) {
	t.Helper()
	for _, pid := range pids {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		for _, p := range append(strings.Fields(string(children)), strconv.Itoa(pid)) {
			threads, err := filepath.Glob("/proc/" + p + "/task/*/schedstat")
			if err != nil || len(threads) == 0 {
				t.Fatal("no thread of ", p, err)
			}
			for _, file := range threads {
				var ns int64
				text, err := os.ReadFile(file)
				if err == nil {
					_, err = fmt.Sscan(string(text), &ns)
				}
				if err != nil {
					t.Fatal(err)
				}
				all += time.Duration(ns)
			}
		}
	}
	return all
}

// masterOf returns the nginx that listens at addr, by its file of the process id.
func masterOf(t *testing.T, addr string) int {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "nginx.conf"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "listen "+addr+";") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(file), "pid"))
		pid, err2 := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil && err2 == nil {
			return pid
		}
	}
	t.Fatalf("no nginx at %s", addr)
	return 0
}
