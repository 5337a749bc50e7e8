package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/config"
)

// secureSite is a real server with TLS, its files and a client that trusts it.
type secureSite struct {
	*Server
	dir    string
	config string // the file
	client *http.Client
	roots  *x509.CertPool // trusted by the client
}

// newCert writes fullchain.pem and privkey.pem for a name and 127.0.0.1.
func newCert(t *testing.T, dir, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name},
		IPAddresses: []net.IP{{127, 0, 0, 1}}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, b := range map[string][]byte{"fullchain.pem": chain,
		"privkey.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return chain
}

// startTLS runs a server with these lines below tls:, where DIR is its folder.
func startTLS(t *testing.T, origin, lines string) *secureSite {
	t.Helper()
	site := &secureSite{dir: t.TempDir()}
	site.config = filepath.Join(site.dir, "headgate.yaml")
	chain := newCert(t, site.dir, "shop.example")
	site.write(t, origin, lines)
	cfg, err := config.Load(site.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if site.Server, err = Open(ctx, cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- site.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	site.roots = x509.NewCertPool()
	site.roots.AppendCertsFromPEM(chain)
	site.client = &http.Client{
		Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: site.roots}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
	t.Cleanup(site.client.CloseIdleConnections)
	eventually(t, "ready", func() bool {
		return get(t, "http://"+site.AdminAddr().String()+"/readyz", "").StatusCode == 200
	})
	return site
}

func (site *secureSite) write(t *testing.T, origin, lines string) {
	t.Helper()
	text := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: DIR/data\n" +
		"trusted_proxies: [192.0.2.0/24]\ntls:\n  listen: 127.0.0.1:0\n" + lines +
		"rooms:\n" + strings.ReplaceAll(oneRoom, "ORIGIN", origin)
	text = strings.ReplaceAll(text, "DIR", site.dir)
	if err := os.WriteFile(site.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const files = "  certificate: DIR/fullchain.pem\n  key: DIR/privkey.pem\n"

func (site *secureSite) get(t *testing.T, url string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return fetch(t, site.client.Do, r)
}

// serves returns the name in the certificate of a handshake.
func (site *secureSite) serves(t *testing.T, name string) (string, error) {
	t.Helper()
	c, err := tls.Dial("tcp", site.TLSAddr().String(),
		&tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].DNSNames[0], nil
}

func echo(t *testing.T) string {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "origin ", r.Header.Get("X-Forwarded-Proto"), " ", r.URL, r.Header["Cookie"])
	}))
	t.Cleanup(origin.Close)
	return origin.URL
}

func TestVisitorsComeByHTTPSAndHTTP2(t *testing.T) {
	site := startTLS(t, echo(t), files+"  hsts: 180d\n")
	secure := "https://" + site.TLSAddr().String()
	in := site.get(t, secure+"/a?b=c")
	if in.body != "origin https /a?b=c []" || in.ProtoMajor != 2 || in.TLS.Version != tls.VersionTLS13 {
		t.Errorf("%q by %s, TLS %x", in.body, in.Proto, in.TLS.Version)
	}
	if got := in.Header.Get("Strict-Transport-Security"); got != "max-age=15552000" {
		t.Errorf("HSTS %q", got)
	}
	if c := in.Cookies(); len(c) != 1 || !c[0].Secure || !c[0].HttpOnly {
		t.Errorf("%v: want one cookie, Secure", c)
	}
	if wait := site.get(t, secure+"/"); wait.StatusCode != 503 || wait.ProtoMajor != 2 {
		t.Errorf("the second visitor got %d by %s", wait.StatusCode, wait.Proto)
	}
	name, err := site.serves(t, "other.example") // one certificate for all names
	if err != nil || name != "shop.example" {
		t.Errorf("%q, %v", name, err)
	}
	metrics := get(t, "http://"+site.AdminAddr().String()+"/metrics", "").body
	for _, want := range []string{"headgate_tls_reload_successful 1\n",
		`headgate_tls_certificate_expires_timestamp_seconds{name="shop.example"} 1.`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
}

// Over HTTPS the cookie has another name, which must not reach the origin either.
func TestTheHostCookieLetsInAndStopsAtHeadgate(t *testing.T) {
	site := startTLS(t, echo(t), files)
	secure := "https://" + site.TLSAddr().String() + "/"
	c := site.get(t, secure).Cookies()[0]
	if !strings.HasPrefix(c.Name, "__Host-") || c.Path != "/" || c.Domain != "" || !c.Secure {
		t.Errorf("%v: browsers would refuse it, or the name is the one for http", c)
	}
	again := site.get(t, secure, "Cookie", "a=b; "+c.Name+"="+c.Value+"; c=d")
	if again.body != "origin https / [a=b; c=d]" {
		t.Errorf("%q: who is inside goes on, and the origin must not see our cookie", again.body)
	}
}

func TestOldTLSAndPlainHTTPAreRefusedAtTheHTTPSPort(t *testing.T) {
	site := startTLS(t, echo(t), files)
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		c, err := tls.Dial("tcp", site.TLSAddr().String(), &tls.Config{InsecureSkipVerify: true,
			MinVersion: version, MaxVersion: version})
		if err == nil {
			c.Close()
			t.Errorf("TLS %x was accepted", version)
		}
	}
	c, err := tls.Dial("tcp", site.TLSAddr().String(), &tls.Config{InsecureSkipVerify: true,
		MaxVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatalf("TLS 1.2: %v", err)
	}
	c.Close()
	if r := site.get(t, "http://"+site.TLSAddr().String()+"/"); r.StatusCode != 400 {
		t.Errorf("plain http got %d at the https port", r.StatusCode)
	}
}

func TestHTTPGoesToHTTPSExceptForProofs(t *testing.T) {
	site := startTLS(t, echo(t), files)
	plain := site.Addr().String()
	_, tlsPort, _ := net.SplitHostPort(site.TLSAddr().String())
	ask := func(host, path string, header ...string) reply {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+plain+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		res, err := site.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		return reply{Response: res, body: string(b)}
	}
	for _, c := range []struct{ host, path, want string }{
		{"127.0.0.1:8080", "/a?b", "https://127.0.0.1:" + tlsPort + "/a?b"},
		{"shop.example", "/", "https://shop.example/"},
		{"unknown.example:1", "//x", "https://unknown.example:" + tlsPort + "//x"},
	} {
		r := ask(c.host, c.path)
		if r.StatusCode != 308 || r.Header.Get("Location") != c.want || len(r.Cookies()) > 0 {
			t.Errorf("%s%s: %d %q %v, want 308 %s", c.host, c.path, r.StatusCode,
				r.Header.Get("Location"), r.Cookies(), c.want)
		}
	}
	if r := ask("shop.example", "/.well-known/acme-challenge/x"); !strings.HasPrefix(r.body, "origin ") {
		t.Errorf("%d %q: the origin proves its domains itself", r.StatusCode, r.body)
	}
	// Only a trusted proxy may claim that the visitor used HTTPS, and 127.0.0.1 is not one.
	if r := ask("shop.example", "/", "X-Forwarded-Proto", "https"); r.StatusCode != 308 {
		t.Errorf("%d: anybody can stay on http", r.StatusCode)
	}
	site.write(t, echo(t), files+"  redirect: false\n")
	if _, err := site.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := ask("shop.example", "/"); r.StatusCode == 308 {
		t.Error("still redirected after the reload")
	}
}

// Behind a proxy that terminates TLS, a redirect would loop.
func TestATrustedProxyThatEndedHTTPSIsNotRedirected(t *testing.T) {
	site := startTLS(t, echo(t), files)
	for peer, want := range map[string]int{"192.0.2.7:1": 200, "198.51.100.7:1": 308} {
		r := httptest.NewRequest("GET", "http://shop.example/", nil)
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-Proto", "https")
		w := httptest.NewRecorder()
		site.plainHTTP(http.HandlerFunc(site.route)).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: %d, want %d", peer, w.Code, want)
		}
	}
}

func TestAReloadTakesUpTheNewCertificateOrNothing(t *testing.T) {
	origin := echo(t)
	site := startTLS(t, origin, files)
	site.roots.AppendCertsFromPEM(newCert(t, site.dir, "new.example"))
	if _, err := site.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if name, err := site.serves(t, "x"); err != nil || name != "new.example" {
		t.Errorf("%q, %v: want new.example", name, err)
	}
	other := t.TempDir()
	newCert(t, other, "other.example")
	// The key belongs to another certificate; the room in the same file must not change either.
	site.write(t, origin+"/changed", "  certificate: "+other+"/fullchain.pem\n  key: DIR/privkey.pem\n")
	if _, err := site.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "does not match") {
		t.Errorf("%v, want that the key does not match", err)
	}
	if body := site.get(t, "https://"+site.TLSAddr().String()+"/x"); body.body != "origin https /x []" {
		t.Errorf("%q: half of the reload is in force", body.body)
	}
	if name, _ := site.serves(t, "x"); name != "new.example" {
		t.Errorf("%q: want new.example still", name)
	}
	site.write(t, origin, "  acme: {domains: [shop.example]}\n")
	got, err := site.Reload(t.Context())
	if err != nil || !slices.Contains(got.NeedsRestart, "tls.acme") {
		t.Errorf("%v, %v: want tls.acme", got.NeedsRestart, err)
	}
}

// The issuer is a closed port: nothing else may be affected.
func TestWithoutTheIssuerVisitorsComeByHTTP(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	origin := echo(t)
	site := startTLS(t, origin, "  acme: {domains: [shop.example], directory: 'https://"+
		closed.Addr().String()+"/dir'}\n")
	closed.Close()
	plain := "http://" + site.Addr().String()
	r, err := http.NewRequestWithContext(t.Context(), "GET", plain+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "shop.example"
	res, err := site.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("%d: a redirect to where no certificate is", res.StatusCode)
	}
	for _, name := range []string{"shop.example", "unknown.example"} {
		if _, err := site.serves(t, name); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: %v, want the alert unrecognized_name", name, err)
		}
	}
	eventually(t, "told", func() bool {
		m := get(t, "http://"+site.AdminAddr().String()+"/metrics", "").body
		return strings.Contains(m, "headgate_tls_reload_successful 0\n") &&
			strings.Contains(m, `headgate_tls_certificate_expires_timestamp_seconds{name="shop.example"} 0`)
	})
	info, err := os.Stat(filepath.Join(site.dir, "data", "certs"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v: want a folder of mode 0700", info, err)
	}
}

func TestWebSocketByHTTPS(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(rw, "echo ", line)
		rw.Flush()
	}))
	defer origin.Close()
	site := startTLS(t, origin.URL, files)
	c, err := tls.Dial("tcp", site.TLSAddr().String(), &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	in := bufio.NewReader(c)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v %v", res, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := in.ReadString('\n'); line != "echo hello\n" {
		t.Errorf("%q, %v", line, err)
	}
}

// drip sends a byte each second, until the server has closed the connection.
func drip(c net.Conn, b []byte) {
	for at := 0; ; at = (at + 1) % len(b) {
		time.Sleep(time.Second)
		if _, err := c.Write(b[at : at+1]); err != nil {
			return
		}
	}
}

// idle runs a server with TLS in a bubble, whose clients must lose their connections in time.
func idle(t *testing.T, dir string, many int, most time.Duration, send func(net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		kept, err := certs.OpenFiles(filepath.Join(dir, "fullchain.pem"),
			filepath.Join(dir, "privkey.pem"), log)
		if err != nil {
			t.Fatal(err)
		}
		l := &pipes{conns: make(chan net.Conn), gone: make(chan struct{})}
		s := &Server{log: log, https: &https{listener: l, keeper: kept}}
		h := s.secureServer(http.NotFoundHandler())
		ctx, cancel := context.WithCancel(t.Context())
		var wg, clients sync.WaitGroup
		s.startTLS(ctx, h, &wg, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		begin := time.Now()
		for range many {
			here, there := net.Pipe()
			l.conns <- there
			clients.Go(func() {
				here.SetDeadline(begin.Add(2 * most))
				send(here)
				io.Copy(io.Discard, here)
				if d := time.Since(begin); d > most+2*time.Second {
					t.Errorf("held for %v", d)
				}
			})
		}
		clients.Wait()
		cancel()
		h.Close()
		wg.Wait()
	})
}

// In a bubble: clients that never come to a request, however slow they are, lose their connection.
func TestIdleHandshakesEndByThemselves(t *testing.T) {
	dir := t.TempDir()
	newCert(t, dir, "shop.example")
	hello := []byte{22, 3, 1, 2, 0, 1}
	// over returns what a client does after a handshake.
	over := func(proto string, then func(c net.Conn, f *http2.Framer)) func(net.Conn) {
		return func(c net.Conn) {
			secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}})
			if err := secure.Handshake(); err != nil {
				t.Error(err)
			}
			var all sync.WaitGroup
			all.Go(func() { then(secure, http2.NewFramer(secure, nil)) })
			io.Copy(io.Discard, secure)
			c.Close()
			all.Wait()
		}
	}
	begun := func(then func(c net.Conn, f *http2.Framer)) func(net.Conn) {
		return over("h2", func(c net.Conn, f *http2.Framer) {
			io.WriteString(c, http2.ClientPreface)
			f.WriteSettings()
			then(c, f)
		})
	}
	nothing := func(net.Conn, *http2.Framer) {}
	for name, x := range map[string]struct {
		many int
		send func(c net.Conn)
		most time.Duration
	}{
		"no handshake": {1000, func(net.Conn) {}, headerTimeout},
		"half a hello": {1000, func(c net.Conn) { c.Write(hello) }, headerTimeout},
		"a slow hello": {9, func(c net.Conn) { drip(c, append(hello, make([]byte, 500)...)) }, headerTimeout},
		"no preface":   {9, over("h2", nothing), headerTimeout},
		"no header":    {9, over("http/1.1", nothing), headerTimeout},
		"a slow preface": {9, over("h2", func(c net.Conn, _ *http2.Framer) {
			drip(c, []byte(http2.ClientPreface))
		}), headerTimeout},
		"a slow header": {9, over("http/1.1", func(c net.Conn, _ *http2.Framer) {
			drip(c, []byte("GET / HTTP/1.1\r\nX: y\r\n"))
		}), headerTimeout},
		"no settings": {9, over("h2", func(c net.Conn, _ *http2.Framer) {
			io.WriteString(c, http2.ClientPreface)
		}), headerTimeout},
		"no stream": {9, begun(nothing), idleTimeout},
		"pings": {9, begun(func(_ net.Conn, f *http2.Framer) {
			for f.WritePing(false, [8]byte{}) == nil {
				time.Sleep(time.Second)
			}
		}), idleTimeout},
		"half a frame": {9, begun(func(c net.Conn, _ *http2.Framer) { c.Write([]byte{0, 1}) }), idleTimeout},
		"slow headers": {9, begun(func(c net.Conn, _ *http2.Framer) {
			c.Write([]byte{0, 0x40, 0, 1, 0, 0, 0, 0, 1}) // of 16 KB, and not the last frame
			drip(c, []byte{0x82})
		}), idleTimeout},
		"slow CONTINUATION": {9, begun(func(_ net.Conn, f *http2.Framer) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			for f.WriteContinuation(1, false, nil) == nil {
				time.Sleep(time.Second)
			}
		}), idleTimeout},
	} {
		t.Run(name, func(t *testing.T) { idle(t, dir, x.many, x.most, x.send) })
	}
}

// A connection counts for its address before its handshake has ended, or has begun.
func TestHalfOpenHandshakesAreCounted(t *testing.T) {
	site := startTLS(t, echo(t), files+"  redirect: false\nmax_connections_per_address: 3\n")
	var half []net.Conn
	for i := range 3 {
		c, err := net.Dial("tcp", site.TLSAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte{22, 3, 1, 2, 0, 1}[:3*i])
		half = append(half, c)
	}
	served := func() bool {
		c, err := net.Dial("tcp", site.Addr().String())
		if err != nil {
			return false
		}
		defer c.Close()
		io.WriteString(c, "GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		return err == nil && res.StatusCode == 200
	}
	eventually(t, "refused by http", func() bool { return !served() })
	if _, err := site.serves(t, "x"); err == nil {
		t.Error("a fourth handshake is served")
	}
	half[0].Close()
	eventually(t, "let in when one has gone", served)
}

// The room is that of the Host of the request, whatever host the handshake named.
func TestAnotherHostThanThatOfTheHandshake(t *testing.T) {
	origin := echo(t)
	site := startTLS(t, origin, files)
	text, err := os.ReadFile(site.config)
	if err != nil {
		t.Fatal(err)
	}
	open := "rooms:\n  - {name: open, host: open.example, origin: " + origin + ", total_active_users: 1, " +
		"new_users_per_minute: 1, suspended: true}\n"
	text = []byte(strings.Replace(string(text), "rooms:\n", open, 1))
	if err := os.WriteFile(site.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := site.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := "https://" + site.TLSAddr().String() + "/"
	if r := site.get(t, url); r.StatusCode != 200 {
		t.Fatal(r.Status)
	}
	for _, x := range []struct {
		named, host string
		want        int
	}{
		{"open.example", "open.example", 200},
		{"open.example", "shop.example", 503},
		{"shop.example", "open.example", 200},
		{"shop.example", "OPEN.example.:443", 200},
		{"", "shop.example", 503},
	} {
		for _, h2 := range []bool{true, false} {
			tr := &http.Transport{ForceAttemptHTTP2: h2,
				TLSClientConfig: &tls.Config{ServerName: x.named, InsecureSkipVerify: true}}
			r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = x.host
			if got := fetch(t, tr.RoundTrip, r); got.StatusCode != x.want || got.ProtoAtLeast(2, 0) != h2 {
				t.Errorf("%q, then %s by %s: %d, want %d", x.named, x.host, got.Proto, got.StatusCode, x.want)
			}
			tr.CloseIdleConnections()
		}
	}
}

// A client that agrees on one protocol and then speaks another one gets nothing from the origin.
func TestProtocolsAreNotMixedUp(t *testing.T) {
	var asked atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer origin.Close()
	site := startTLS(t, origin.URL, files)
	const (
		h1 = "GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n"
		h2 = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + // SETTINGS, then GET /robots.txt
			"\x00\x00\x12\x01\x05\x00\x00\x00\x01\x82\x87\x41\x01x\x04\x0b/robots.txt"
	)
	for name, x := range map[string]struct {
		protos  []string
		send    string
		refused bool // the handshake fails
		want    string
	}{
		"HTTP/1.1 after h2":   {protos: []string{"h2"}, send: h1},
		"h2 after HTTP/1.1":   {protos: []string{"http/1.1"}, send: h2, want: "400"},
		"h2 after nothing":    {send: h2, want: "400"},
		"one that is unknown": {protos: []string{"h3"}, refused: true},
		"that of an issuer":   {protos: []string{"acme-tls/1"}, refused: true},
	} {
		c, err := tls.Dial("tcp", site.TLSAddr().String(),
			&tls.Config{InsecureSkipVerify: true, NextProtos: x.protos})
		if x.refused != (err != nil) {
			t.Errorf("%s: the handshake: %v", name, err)
		}
		if err != nil {
			continue
		}
		io.WriteString(c, x.send)
		c.SetReadDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection is still open", name)
		}
		status, _, _ := strings.Cut(strings.TrimPrefix(string(got), "HTTP/1.1 "), " ")
		if x.want != "" && status != x.want || x.want == "" && strings.Contains(string(got), "HTTP/1") {
			t.Errorf("%s: %.99q", name, got)
		}
		c.Close()
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the origin was asked %d times", n)
	}
}

// pipes is a listener without a network, for a bubble.
type pipes struct {
	conns chan net.Conn
	gone  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.gone:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.gone) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// TestAWebSocketOverTLSHasItsVisitorsCookie: Traefik sends X-Forwarded-Proto: wss. Over http the cookie
// has another name.
func TestAWebSocketOverTLSHasItsVisitorsCookie(t *testing.T) {
	isSecure := secure([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, "auto")
	for proto, want := range map[string]bool{"https": true, "wss": true, "WSS": true, "http": false, "ws": false, "": false} {
		r := httptest.NewRequest("GET", "http://shop.example/chat", nil)
		r.Header.Set("X-Forwarded-Proto", proto)
		for peer, trusted := range map[string]bool{"192.0.2.1:1": true, "198.51.100.1:1": false} {
			if r.RemoteAddr = peer; isSecure(r) != (want && trusted) {
				t.Errorf("%s of %s: %v", proto, peer, !want)
			}
		}
	}
}
