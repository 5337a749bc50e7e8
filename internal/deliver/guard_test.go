package deliver

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/headgate/headgate/queue"
)

// A names is a DNS server that answers each name with its present addresses.
type names struct {
	addrs atomic.Pointer[[]netip.Addr]
	asked atomic.Int64
}

func (n *names) set(addrs ...string) {
	var all []netip.Addr
	for _, a := range addrs {
		all = append(all, netip.MustParseAddr(a))
	}
	n.addrs.Store(&all)
}

// serveNames starts a DNS server and returns a resolver that uses it.
func serveNames(t *testing.T) (*names, *net.Resolver) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	n, done := &names{}, make(chan struct{})
	n.set()
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			size, peer, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if answer := n.answer(b[:size]); answer != nil {
				conn.WriteToUDPAddrPort(answer, peer)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	server := conn.LocalAddr().String()
	return n, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server)
	}}
}

func (n *names) answer(ask []byte) []byte {
	n.asked.Add(1)
	var m dnsmessage.Message
	if m.Unpack(ask) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	for _, a := range *n.addrs.Load() {
		h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h,
				Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h,
				Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, _ := m.Pack()
	return b
}

// The DNS server of a target's name may return any address, and a different one next time. No
// address of this machine, its link or its cloud is connected to.
func TestNameThatResolvesToThisMachineIsRefused(t *testing.T) {
	var reached atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	n, resolver := serveNames(t)
	h := open(t, Target{URL: "http://hooks.example:" + port + "/latest/meta-data", Resolver: resolver})
	o := h.Deliver(t.Context(), order())
	if o.Err == nil || !strings.Contains(o.Err.Error(), "is not found") {
		t.Fatalf("a name without an address: %v", o.Err)
	}
	for _, addrs := range [][]string{{"127.0.0.1"}, {"127.1.2.3"}, {"0.0.0.0"}, {"::1"}, {"::"},
		{"::ffff:127.0.0.1"}, {"169.254.169.254"}, {"fe80::1"}, {"fd00:ec2::254"},
		{"169.254.169.254", "127.0.0.1"}, {"64:ff9b::7f00:1", "127.0.0.1"}} {
		n.set(addrs...)
		o := h.Deliver(t.Context(), order())
		if o.Err == nil || !o.Retry || !strings.Contains(o.Err.Error(), "resolves to ") {
			t.Errorf("%v: %v", addrs, o.Err)
		}
	}
	if got := reached.Load(); got != 0 {
		t.Errorf("this machine was asked %d times", got)
	}
	if n.asked.Load() == 0 {
		t.Error("no name was asked for: the test shows nothing")
	}
}

// An address in the URL itself is the operator's choice.
func TestAddressThatTheURLNamesIsCalled(t *testing.T) {
	var reached atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	n, resolver := serveNames(t)
	n.set("127.0.0.1")
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST", "hooks.localhost",
		"[::ffff:127.0.0.1]"} {
		h := open(t, Target{URL: "http://" + host + ":" + port, Resolver: resolver})
		if o := h.Deliver(t.Context(), order()); o.Err != nil {
			t.Errorf("%s: %v", host, o.Err)
		}
	}
	if got := reached.Load(); got != 5 {
		t.Errorf("reached %d times", got)
	}
}

func TestIsLocal(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "127.255.255.254": true, "0.0.0.0": true, "0.1.2.3": true, "::1": true, "::": true,
		"169.254.169.254": true, "169.254.170.2": true, "fe80::1%lo": true, "febf::1": true,
		"224.0.0.1": true, "ff02::1": true, "255.255.255.255": true,
		"::ffff:169.254.169.254": true, "::127.0.0.1": true, "64:ff9b::a9fe:a9fe": true,
		"2002:7f00:1::": true, "2002:a9fe:a9fe::1": true,
		"fd00:ec2::254": true, "100.100.100.200": true, "192.0.0.192": true, "168.63.129.16": true,

		"10.0.0.1": false, "172.17.0.2": false, "192.168.1.1": false, "100.64.0.1": false, "fd12::1": false,
		"203.0.113.7": false, "2001:db8::1": false, "64:ff9b::cb00:7107": false, "2002:cb00:7107::": false,
		"126.255.255.255": false, "128.0.0.1": false, "170.254.0.1": false,
	} {
		if got := isLocal(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

// A redirect of the target is not followed, wherever it leads.
func TestRedirectIsNotFollowed(t *testing.T) {
	var reached atomic.Int64
	inner := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", inner.URL+"/latest/meta-data")
			w.Header().Set("Refresh", "0; url="+inner.URL)
			w.WriteHeader(code)
		})
		o := open(t, Target{URL: s.URL}).Deliver(t.Context(), order())
		if o.Err == nil || !strings.Contains(o.Err.Error(), "no redirect is followed") {
			t.Errorf("%d: %v", code, o.Err)
		}
	}
	if got := reached.Load(); got != 0 {
		t.Errorf("the redirect was followed %d times", got)
	}
}

// Servers that pass headers to CGI programs treat X.Fixed and X!Fixed as X-Fixed. A job must not
// use such a spelling to set what the operator has fixed, or what signs a delivery.
func TestJobCannotAliasAHeader(t *testing.T) {
	var got http.Header
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	h := open(t, Target{URL: s.URL, Headers: map[string]string{"X-Fixed": "the operator's"}})
	j := order()
	j.Headers = map[string]string{"X.Fixed": "the job's", "X-Other": "the job's"}
	if o := h.Deliver(t.Context(), j); o.Err != nil {
		t.Fatal(o.Err)
	}
	for name, values := range got {
		if queue.HeaderName(name) == "X-Fixed" && values[0] != "the operator's" {
			t.Errorf("the target got %s: %s", name, values)
		}
	}
	if got.Get("X-Other") != "the job's" || got.Get("X-Fixed") != "the operator's" {
		t.Errorf("the target got %v", got)
	}
	for _, name := range []string{"Webhook.Signature", "webhook!id", "Headgate~Attempt", "Idempotency.Key",
		"Content.Length", "Transfer'Encoding", "Ho.st\r\nX", "X\nY"} {
		j.Headers = map[string]string{name: "1"}
		if o := h.Deliver(t.Context(), j); o.Err == nil || o.Retry {
			t.Errorf("%q is sent", name)
		}
	}
	for _, value := range []string{"1\r\nX-Injected: 1", "1\nX", "1\x00", "1\r"} {
		j.Headers = map[string]string{"X-Value": value}
		if o := h.Deliver(t.Context(), j); o.Err == nil || o.Retry {
			t.Errorf("%q is sent", value)
		}
	}
}
