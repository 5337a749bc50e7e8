//go:build acme

package acme

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// shop is the domain. The mock DNS sends every name to 127.0.0.1.
const shop = "shop.headgate.test"

// A process writes down what it prints.
type process struct {
	cmd  *exec.Cmd
	done chan error

	mu  sync.Mutex
	log strings.Builder
}

func run(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), done: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
		}
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(name), p.text())
		}
	})
	return p
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer killer.Stop()
	err := <-p.done
	p.done <- err
}

func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); ; <-tick.C {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not %s within %v", what, within)
		}
	}
}

// A world is an issuer, its DNS, an origin, and the addresses of a headgate.
type world struct {
	dir, headgate, pebble, dns  string
	http, https, admin, ca, ops int
	validity                    time.Duration
	origin                      string
	roots                       *x509.CertPool
	issuer                      *process
}

// build compiles the programs; the cache makes this quick the second time.
func build(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-o", dir + "/"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %v: %v\n%s", args, err, out)
	}
}

func newWorld(t *testing.T, validity time.Duration) *world {
	t.Helper()
	dir := t.TempDir()
	const pebble = "github.com/letsencrypt/pebble/v2/cmd/"
	build(t, dir, "../../cmd/headgate")
	build(t, dir, "-modfile=../../tools.mod", pebble+"pebble", pebble+"pebble-challtestsrv")
	ports := loopback.Port(t, 5)
	w := &world{dir: dir, headgate: dir + "/headgate", pebble: dir + "/pebble", validity: validity,
		http: ports, https: ports + 1, admin: ports + 2, ca: ports + 3, ops: ports + 4}
	w.dns = loopback.Free(t)
	run(t, nil, dir+"/pebble-challtestsrv", "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "",
		"-dnsserver", w.dns, "-doh", "", "-http01", "", "-https01", "", "-tlsalpn01", "",
		"-management", loopback.Free(t))
	origin := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, "origin ", r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(origin.Close)
	w.origin = origin.URL
	w.serverCert(t)
	return w
}

// serverCert is the certificate of the issuer's own API: what root names.
func (w *world) serverCert(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{{127, 0, 0, 1}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	w.file(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	w.file(t, "ca.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

func (w *world) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue starts Pebble, which asks at these ports for proofs. It refuses 5 % of
// good nonces, so that clients learn to try again.
func (w *world) issue(t *testing.T, httpPort, tlsPort int) {
	t.Helper()
	conf, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress":           fmt.Sprintf("127.0.0.1:%d", w.ca),
		"managementListenAddress": fmt.Sprintf("127.0.0.1:%d", w.ops),
		"certificate":             w.dir + "/ca.pem", "privateKey": w.dir + "/ca.key",
		"httpPort": httpPort, "tlsPort": tlsPort, "keyAlgorithm": "ecdsa",
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles": map[string]any{"default": map[string]any{
			"description": "the only one", "validityPeriod": int(w.validity.Seconds())}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.issuer = run(t, []string{"PEBBLE_VA_NOSLEEP=1"}, w.pebble, "-strict",
		"-config", w.file(t, "pebble.json", string(conf)), "-dnsserver", w.dns)
	api := &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer api.CloseIdleConnections()
	w.roots = x509.NewCertPool()
	eventually(t, "an issuer", 10*time.Second, func() bool {
		res, err := api.Get(fmt.Sprintf("https://127.0.0.1:%d/roots/0", w.ops))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return err == nil && w.roots.AppendCertsFromPEM(b)
	})
}

// start runs headgate and waits until it serves.
func (w *world) start(t *testing.T) *process {
	t.Helper()
	conf := w.file(t, "headgate.yaml", fmt.Sprintf(`listen: 127.0.0.1:%d
admin_listen: 127.0.0.1:%d
data: %s/data
tls:
  listen: 127.0.0.1:%d
  acme: {domains: [%s], email: admin@headgate.test, directory: "https://127.0.0.1:%d/dir", root: %s/ca.pem}
rooms:
  - {name: shop, host: %s, origin: "%s", total_active_users: 1000, new_users_per_minute: 1000}
`, w.http, w.admin, w.dir, w.https, shop, w.ca, w.dir, shop, w.origin))
	p := run(t, nil, w.headgate, "run", "--config", conf)
	eventually(t, "ready", 10*time.Second, func() bool {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", w.admin))
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
	return p
}

// visit asks by https as a browser would, on a connection of its own.
func (w *world) visit(t *testing.T) (*x509.Certificate, error) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.roots}, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", w.https))
		},
	}}
	res, err := client.Get("https://" + shop + "/")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && (string(b) != "origin https" || res.ProtoMajor != 2) {
		err = fmt.Errorf("%d %q by %s", res.StatusCode, b, res.Proto)
	}
	if cookies := res.Cookies(); err == nil && (len(cookies) != 1 || !cookies[0].Secure) {
		err = fmt.Errorf("cookies %v: want one, Secure", cookies)
	}
	if err != nil {
		return nil, err
	}
	return res.TLS.PeerCertificates[0], nil
}

// certificate visits until there is one.
func (w *world) certificate(t *testing.T, within time.Duration) (cert *x509.Certificate) {
	t.Helper()
	eventually(t, "served by https", within, func() bool {
		var err error
		cert, err = w.visit(t)
		return err == nil
	})
	return cert
}

// orders counts what the issuer was asked for, whether it was issued or not.
func (w *world) orders() int {
	return strings.Count(w.issuer.text(), " orders in the db")
}

func TestByHTTP01OnceAndNotAgainAfterARestart(t *testing.T) {
	w := newWorld(t, 90*24*time.Hour)
	w.issue(t, w.http, 1) // tls-alpn-01 cannot work
	p := w.start(t)
	first := w.certificate(t, 30*time.Second)
	if first.DNSNames[0] != shop {
		t.Errorf("the certificate is for %v", first.DNSNames)
	}
	if n := w.orders(); n != 1 {
		t.Fatalf("%d orders for one certificate", n)
	}
	p.stop()
	before := w.orders()
	w.start(t)
	again, err := w.visit(t) // at once: there is nothing to wait for
	if err != nil || !again.Equal(first) {
		t.Fatalf("after the restart: %v", err)
	}
	eventually(t, "redirected", 5*time.Second, func() bool {
		r, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/x", w.http), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = shop
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == 308 && res.Header.Get("Location") == "https://"+shop+"/x"
	})
	quiet := time.Now().Add(3 * time.Second) // an order comes within milliseconds of the start
	eventually(t, "quiet", 10*time.Second, func() bool { return time.Now().After(quiet) })
	if after := w.orders(); after != before {
		t.Errorf("%d orders before the restart, %d after", before, after)
	}
}

func TestByTLSALPN01WhenHTTPIsClosed(t *testing.T) {
	w := newWorld(t, 90*24*time.Hour)
	w.issue(t, 1, w.https)
	p := w.start(t)
	w.certificate(t, 30*time.Second)
	if log := p.text(); strings.Contains(log, "level=ERROR") {
		t.Errorf("one way is enough:\n%s", log)
	}
}

// An issuer that is down: by http all is well, the log says what is wrong, and
// https comes by itself once the issuer is there.
func TestAnIssuerThatComesLater(t *testing.T) {
	w := newWorld(t, 90*24*time.Hour)
	p := w.start(t)
	eventually(t, "loud", 10*time.Second, func() bool {
		return strings.Contains(p.text(), "no certificate from the issuer")
	})
	r, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/", w.http), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = shop
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("by http: %d", res.StatusCode)
	}
	w.issue(t, w.http, w.https)
	w.certificate(t, 30*time.Second) // the next attempt comes after 10 s
}

// A disk that takes nothing: to order again and again would use up what an
// issuer grants in a week.
func TestACertificateThatCannotBeKeptIsServedAndOrderedOnce(t *testing.T) {
	w := newWorld(t, 90*24*time.Hour)
	w.issue(t, w.http, w.https)
	p := w.start(t)
	w.certificate(t, 30*time.Second)
	p.stop()
	folders, err := filepath.Glob(w.dir + "/data/certs/*/" + shop + ".pem")
	if err != nil || len(folders) != 1 {
		t.Fatalf("%v, %v", folders, err)
	}
	if err := errors.Join(os.Remove(folders[0]), os.Mkdir(folders[0], 0o700)); err != nil {
		t.Fatal(err)
	}
	before := w.orders()
	p = w.start(t)
	w.certificate(t, 30*time.Second)
	quiet := time.Now().Add(12 * time.Second) // the second attempt would come after 10 s
	eventually(t, "quiet", 20*time.Second, func() bool { return time.Now().After(quiet) })
	if n := w.orders() - before; n != 1 || !strings.Contains(p.text(), "served but not kept") {
		t.Errorf("%d orders, want 1:\n%s", n, p.text())
	}
}

// A certificate of 24 s is renewed after 16 to 17; who comes every 50 ms never
// meets an error, before, while and after.
func TestRenewalUnderVisitors(t *testing.T) {
	w := newWorld(t, 24*time.Second)
	w.issue(t, w.http, w.https)
	w.start(t)
	first := w.certificate(t, 30*time.Second)
	visits := 0
	eventually(t, "renewed twice", time.Minute, func() bool {
		cert, err := w.visit(t)
		if err != nil {
			t.Fatalf("visit %d: %v", visits, err)
		}
		visits++
		return cert.NotAfter.Sub(first.NotAfter) > 30*time.Second
	})
	if visits < 100 {
		t.Errorf("only %d visits", visits)
	}
}
