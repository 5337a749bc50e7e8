//go:build bench

package peers

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/tests/yardstick"
)

// A program is the binary with a room, in a folder of its own.
type program struct {
	cmd                     *exec.Cmd
	visitors, secure, admin string
	authority               *x509.CertPool
}

// quiet is when the process has given back what it does not need (package memory): it looks each 20 s, and
// finds a quiet 20 s behind it.
const quiet = 45 * time.Second

// TestIdleConnections measures what a connection costs that has carried a request through the room to the
// origin, and then waits for the next: resident memory of the process for each, all in, a minute later.
func TestIdleConnections(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 1024))
	}))
	defer origin.Close()
	bin := buildBinary(t)
	for _, x := range []struct {
		what   string
		n      int
		budget float64
		dial   func(*program) (net.Conn, error)
	}{
		{"plain", 15_000, 20, func(p *program) (net.Conn, error) { return net.Dial("tcp", p.visitors) }},
		{"with TLS", 4000, 30, func(p *program) (net.Conn, error) {
			return tls.Dial("tcp", p.secure, &tls.Config{RootCAs: p.authority, ServerName: "example.com"})
		}},
	} {
		p := startProgram(t, bin, origin.URL)
		pass := p.pass(t)
		p.hold(t, 100, pass, x.dial)() // what the first connections bring along
		before := p.memory(t, "VmRSS")
		leave := p.hold(t, x.n, pass, x.dial)
		at := p.memory(t, "VmRSS")
		<-time.After(quiet)
		t.Logf("%s: %.1f KiB each at once, %.0f MB at most", x.what, (at-before)/float64(x.n), p.memory(t, "VmHWM")/1024)
		budget(t, "idle connection "+x.what+", KiB", (p.memory(t, "VmRSS")-before)/float64(x.n), x.budget)
		leave()
		p.stop()
	}
}

// startProgram starts the binary before origin. Everybody is let in.
func startProgram(t *testing.T, bin, origin string) *program {
	t.Helper()
	dir := t.TempDir()
	pki := httptest.NewTLSServer(http.NotFoundHandler())
	pki.Close()
	pair := pki.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{visitors: loopback.Free(t), secure: loopback.Free(t), admin: loopback.Free(t),
		authority: x509.NewCertPool()}
	p.authority.AddCert(pki.Certificate())
	for name, text := range map[string][]byte{
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"headgate.yaml": fmt.Appendf(nil, "listen: %s\nadmin_listen: %s\ndata: data\n"+
			"tls: {listen: %s, certificate: cert.pem, key: key.pem, redirect: false}\nrooms:\n  - {name: shop, origin: %q, "+
			"total_active_users: 1000, new_users_per_minute: 1000}\n", p.visitors, p.admin, p.secure, origin),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.cmd = exec.CommandContext(t.Context(), bin, "run", "--config", "headgate.yaml")
	p.cmd.Dir, p.cmd.Stderr = dir, os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	yardstick.Await(t, "the process is ready", func() bool {
		res, err := http.Get("http://" + p.admin + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return p
}

func (p *program) stop() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// pass returns the cookie of a visitor inside.
func (p *program) pass(t *testing.T) string {
	t.Helper()
	c, err := (&whole{p.visitors}).cookie("/")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hold opens n connections, and makes a request on each. leave closes them.
func (p *program) hold(
	t *testing.T, n int, pass string, dial func(*program) (net.Conn, error),
) (leave func()) {
	t.Helper()
	all := make([]net.Conn, n)
	in := bufio.NewReader(nil)
	for i := range all {
		c, err := dial(p)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		all[i] = c
		if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"+
			"Accept: text/html\r\nAccept-Encoding: gzip\r\nCookie: %s\r\n\r\n", pass); err != nil {
			t.Fatal(err)
		}
		in.Reset(c)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil || n != 1024 || res.StatusCode != http.StatusOK {
			t.Fatalf("connection %d: %s, %d bytes, %v", i, res.Status, n, err)
		}
	}
	return func() {
		for _, c := range all {
			c.Close()
		}
	}
}

// memory returns a figure of the process's memory in KiB: VmRSS is now, VmHWM the most so far.
func (p *program) memory(t *testing.T, what string) (kib float64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, what+":"); ok {
			fmt.Sscan(rest, &kib)
		}
	}
	return kib
}

// buildBinary builds the binary as make build does, but for -trimpath.
func buildBinary(t *testing.T) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	bin := filepath.Join(t.TempDir(), "headgate")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-ldflags=-s", "-o", bin, "../../cmd/headgate")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}
