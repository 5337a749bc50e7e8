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
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// In a bubble: a thousand clients connect and send nothing, or half a hello.
func TestIdleHandshakesEndByThemselves(t *testing.T) {
	dir := t.TempDir()
	newCert(t, dir, "shop.example")
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
		var wg sync.WaitGroup
		s.startTLS(ctx, h, &wg, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		var clients sync.WaitGroup
		begin := time.Now()
		for i := range 1000 {
			here, there := net.Pipe()
			l.conns <- there
			clients.Go(func() {
				if i%2 == 1 {
					here.Write([]byte{22, 3, 1, 2, 0, 1})
				}
				here.SetReadDeadline(begin.Add(2 * headerTimeout))
				io.Copy(io.Discard, here)
				if d := time.Since(begin); d > headerTimeout+time.Second {
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
