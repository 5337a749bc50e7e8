//go:build alerts

package alerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
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

// patience is how long anything may take on a busy machine. Chosen.
const patience = 60 * time.Second

// eventually waits for a condition, and says what it was that did not come.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for ; !ok(); <-tick.C {
		if time.Since(began) > patience {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%s after %.1f s", what, took.Seconds())
	}
}

// A process is one program that runs until the test ends, or it is killed.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  string
	end  func()
}

// start starts a program with its output in a file.
func start(t *testing.T, name, dir, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, log: filepath.Join(dir, name+".log")}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v (make setup-prometheus installs what is missing)", program, err)
	}
	p.end = sync.OnceFunc(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		stop := time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() })
		p.cmd.Wait()
		stop.Stop()
	})
	t.Cleanup(func() {
		p.end()
		if b, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("%s:\n%s", name, b[max(0, len(b)-4000):])
		}
	})
	return p
}

// kill ends the process as a loss of power does.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.end()
}

// A gate is a headgate process.
type gate struct {
	*process
	site, listen, admin, dir string
}

func (g *gate) ready() bool {
	res, err := http.Get("http://" + g.admin + "/readyz")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// A world is two data centers: one of a store node and a worker, one of a store node.
type world struct {
	t           *testing.T
	bin, dir    string
	origin      *origin
	store, work *gate // of sjc, the home
	far         *gate // of lhr
}

// common is what all processes have in their files: a room of six with a lane, a limit that
// its calls meet, and a queue whose target is nobody.
const common = `
limits:
  - {name: api, algorithm: sliding_log, amount: 5, window: 1h, key: ["header:x-client"]}
queues:
  - {name: mail, target: {url: "http://NOBODY/"}, max_attempts: 1}
rooms:
  - name: shop
    origin: "http://ORIGIN"
    total_active_users: 6
    new_users_per_minute: 600
    session_duration: 30m
    exclude: {paths: ["/api/*"]}
    limits: [api]
    rules:
      - {action: lane, lane: members, share: 30, expression: 'http.request.cookies["member"][0] == "1"'}
`

// build builds headgate and starts the processes.
func build(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.bin = filepath.Join(w.dir, "headgate")
	cmd := exec.Command("go", "build", "-race=false", "-o", w.bin,
		"github.com/headgate/headgate/cmd/headgate")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.origin = &origin{t: t, addr: loopback.Free(w.t)}
	w.origin.start()
	t.Cleanup(w.origin.stop)
	ports := map[string]int{"sjc": loopback.Port(w.t, 3), "lhr": loopback.Port(w.t, 3)}
	for site, port := range ports {
		w.run("cluster", "init", "--store", "n1="+loopback.Address(port), "--datacenter", site, "--dir",
			filepath.Join(w.dir, site))
	}
	w.store = w.gate("sjc-n1", "sjc", "n1.join", ports, "")
	w.work = w.gate("sjc-w1", "sjc", "worker.join", ports, "")
	w.certificate()
	tls := fmt.Sprintf("tls: {listen: %q, certificate: %s/cert.pem, key: %s/key.pem, redirect: false}\n",
		loopback.Free(w.t), w.dir, w.dir)
	w.far = w.gate("lhr-n1", "lhr", "n1.join", ports, tls)
	for _, g := range w.gates() {
		eventually(t, g.name+" is ready", g.ready)
	}
	return w
}

func (w *world) gates() []*gate { return []*gate{w.store, w.work, w.far} }

// run runs a command of headgate and returns what it writes.
func (w *world) run(args ...string) string {
	w.t.Helper()
	out, err := exec.Command(w.bin, args...).Output()
	if err != nil {
		w.t.Fatalf("headgate %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// gate starts one process.
func (w *world) gate(name, site, join string, ports map[string]int, more string) *gate {
	w.t.Helper()
	other := map[string]string{"sjc": "lhr", "lhr": "sjc"}[site]
	first := loopback.Port(w.t, 2)
	g := &gate{site: site, listen: loopback.Address(first), admin: loopback.Address(first + 1),
		dir: filepath.Join(w.dir, name)}
	text := fmt.Sprintf("listen: %q\nadmin_listen: %q\ndata: %s\ndrain_delay: 0s\ncluster:\n"+
		"  join: %s\n  home: sjc\n  datacenters:\n    %s: {url: %q, ca: %s}\n", g.listen, g.admin, g.dir,
		filepath.Join(w.dir, site, join), other, loopback.Address(ports[other]+2),
		filepath.Join(w.dir, other, "ca.pem"))
	set := strings.NewReplacer("ORIGIN", w.origin.addr, "NOBODY", loopback.Free(w.t))
	text += more + set.Replace(common)
	file := filepath.Join(w.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	g.process = start(w.t, name, w.dir, w.bin, "run", "--config", file)
	return g
}

// certificate makes a certificate for visitors that ends in three days.
func (w *world) certificate() {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "shop.example"},
		DNSNames: []string{"shop.example"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(72 * time.Hour)}
	cert, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		w.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert},
		"key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(w.dir, name), pem.EncodeToMemory(b), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// An origin answers at one address, and can be gone for a while.
type origin struct {
	t      *testing.T
	addr   string
	server *http.Server
	done   chan error
}

func (o *origin) start() {
	o.t.Helper()
	var ln net.Listener
	eventually(o.t, "the origin has its port", func() (ok bool) {
		var err error
		ln, err = net.Listen("tcp", o.addr)
		return err == nil
	})
	o.done = make(chan error, 1)
	o.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "origin")
	})}
	go func(s *http.Server) { o.done <- s.Serve(ln) }(o.server)
}

func (o *origin) stop() {
	if o.server != nil {
		o.server.Close()
		<-o.done
		o.server = nil
	}
}
