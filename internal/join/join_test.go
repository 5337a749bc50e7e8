package join

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/smallfile"
)

func threeNodes() Plan {
	return Plan{Datacenter: "sjc", Store: []string{"n1", "n2", "n3"}, Peers: map[string]string{
		"n1": "10.0.0.1:7422", "n2": "10.0.0.2:7422", "n3": "10.0.0.3:7422"}}
}

// made is a fresh cluster in a folder of its own.
func made(t *testing.T, p Plan, now time.Time) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cluster")
	if _, err := Init(dir, p, now); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, dir, name string) *File {
	t.Helper()
	f, err := Read(filepath.Join(dir, name+".join"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestInitMakesAFileForEachNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cluster")
	names, err := Init(dir, threeNodes(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]fs.FileMode{}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		got[filepath.Base(name)] = info.Mode().Perm()
	}
	want := map[string]fs.FileMode{"ca.pem": 0o644, "ca.key": 0o600, "cluster.json": 0o644,
		"n1.join": 0o600, "n2.join": 0o600, "n3.join": 0o600, "worker.join": 0o600}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, name := range []string{"n1", "n2", "n3", "worker"} {
		f := read(t, dir, name)
		node, listen, store := name, threeNodes().Peers[name], true
		if name == "worker" {
			node, store = "", false
		}
		if f.Node != node || f.Listen != listen || f.IsStore() != store || f.Datacenter != "sjc" {
			t.Errorf("%s: got node %q, listen %q, store %v of %s", name, f.Node, f.Listen,
				f.IsStore(), f.Datacenter)
		}
		if diff := cmp.Diff(threeNodes(), f.Plan); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if faults := f.Faults(time.Now()); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults[0])
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "n1.join"))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil || keys["headgate_join"] != 1.0 || len(keys) != 9 {
		t.Errorf("the file has %d keys and version %v: %v", len(keys), keys["headgate_join"], err)
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "n2.join")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Init(dir, threeNodes(), time.Now())
	e, ok := errors.AsType[*hint.Error](err)
	if !ok || e.Error() != old+": is there already" || e.Hint() == "" {
		t.Errorf("got %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if b, _ := os.ReadFile(old); len(left) != 1 || string(b) != "old" {
		t.Errorf("left are %v, and n2.join is %q", left, b)
	}

	dir = made(t, threeNodes(), time.Now())
	before, err := os.ReadFile(filepath.Join(dir, "n1.join"))
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range []func() error{
		func() error { _, err := Init(dir, threeNodes(), time.Now()); return err },
		func() error { _, err := Node(dir, "n1", time.Now()); return err },
	} {
		if err := again(); !errors.Is(err, fs.ErrExist) {
			t.Errorf("got %v, want fs.ErrExist", err)
		}
	}
	if after, _ := os.ReadFile(filepath.Join(dir, "n1.join")); string(before) != string(after) {
		t.Error("n1.join was changed")
	}
}

func TestNodeMakesAnotherFile(t *testing.T) {
	dir := made(t, threeNodes(), time.Now())
	for name, store := range map[string]bool{"w7": false, "n2": true, "worker": false} {
		if err := os.Remove(filepath.Join(dir, name+".join")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		file, err := Node(dir, name, time.Now())
		if err != nil || file != filepath.Join(dir, name+".join") {
			t.Fatalf("%s: got %s %v", name, file, err)
		}
		f := read(t, dir, name)
		if faults := f.Faults(time.Now()); len(faults) > 0 || f.IsStore() != store ||
			f.Listen != threeNodes().Peers[name] {
			t.Errorf("%s: store %v, listen %q, faults %v", name, f.IsStore(), f.Listen, faults)
		}
	}
	if read(t, dir, "w7").Node != "w7" || read(t, dir, "worker").Node != "" {
		t.Error("the nodes have other names")
	}
	for _, name := range []string{"", "store", "N1", "a.b", "-a", "../x", strings.Repeat("a", 33)} {
		if file, err := Node(dir, name, time.Now()); err == nil {
			t.Errorf("%q: got %s", name, file)
		}
	}
}

func TestNodeNeedsTheCAOfInit(t *testing.T) {
	other := made(t, threeNodes(), time.Now())
	tests := []struct {
		name   string
		damage func(dir string) error
		want   string
	}{
		{"no plan", func(dir string) error { return os.Remove(filepath.Join(dir, planFile)) },
			"cluster.json: there is no such file"},
		{"no key", func(dir string) error { return os.Remove(filepath.Join(dir, keyFile)) },
			"ca.key: there is no such file"},
		{"open key", func(dir string) error { return os.Chmod(filepath.Join(dir, keyFile), 0o640) },
			"ca.key: may be read by others (mode 640)"},
		{"empty key", func(dir string) error { return os.Truncate(filepath.Join(dir, keyFile), 0) },
			"ca.key: holds no private key"},
		{"empty CA", func(dir string) error { return os.Truncate(filepath.Join(dir, caFile), 0) },
			"ca.pem: holds no certificate"},
		{"another CA", func(dir string) error {
			return os.Rename(filepath.Join(other, caFile), filepath.Join(dir, caFile))
		}, "ca.key: is not the key of ca.pem"},
		{"another plan", func(dir string) error {
			text := []byte(`{"headgate_cluster":1,"store":["n1"]}`)
			return os.WriteFile(filepath.Join(dir, planFile), text, 0o600)
		}, "cluster.json: datacenter: "},
	}
	for _, tt := range tests {
		dir := made(t, threeNodes(), time.Now())
		if err := tt.damage(dir); err != nil {
			t.Fatal(err)
		}
		_, err := Node(dir, "w7", time.Now())
		e, ok := errors.AsType[*hint.Error](err)
		if !ok || !strings.Contains(e.Error(), tt.want) || e.Hint() == "" {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	_, err := Node(made(t, threeNodes(), time.Now().AddDate(-11, 0, 0)), "w7", time.Now())
	if err == nil || !strings.Contains(err.Error(), "ca.pem: expired at ") {
		t.Errorf("old CA: got %v", err)
	}
}

func TestReadSaysWhyAFileIsNone(t *testing.T) {
	dir := t.TempDir()
	tests := []struct {
		name, text string
		mode       fs.FileMode
		want       string
	}{
		{"empty", "", 0o600, "is not a whole file of a cluster"},
		{"pem", "-----BEGIN PRIVATE KEY-----\nhunter2\n", 0o600, "is not a join file"},
		{"other", `{}`, 0o600, "is not a join file"},
		{"newer", `{"headgate_join":2}`, 0o600, "has the format 2, this headgate knows 1"},
		{"torn", `{"headgate_join":1,"key":"hunter2`, 0o600, "is not a whole file of a cluster"},
		{"twice", `{"headgate_join":1} {"key":"hunter2"}`, 0o600, "is not a whole file of a cluster"},
		{"unknown", `{"headgate_join":1,"hunter":2}`, 0o600, "is not a whole file of a cluster"},
		{"kind", `{"headgate_join":1,"key":["hunter2"]}`, 0o600, `has a value of the wrong kind under "key"`},
		{"open", `{"headgate_join":1}`, 0o640, "may be read by others (mode 640)"},
		{"large", strings.Repeat(" ", smallfile.MaxSize+1), 0o600, "is larger than 1 MB"},
	}
	for _, tt := range tests {
		file := filepath.Join(dir, tt.name)
		if err := os.WriteFile(file, []byte(tt.text), tt.mode); err != nil {
			t.Fatal(err)
		}
		_, err := Read(file)
		e, ok := errors.AsType[*hint.Error](err)
		if !ok || e.Error() != file+": "+tt.want || e.Hint() == "" || strings.Contains(e.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	if _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: got %v", err)
	}
	if _, err := Read(dir); err == nil || !strings.HasSuffix(err.Error(), "is not a plain file") {
		t.Errorf("folder: got %v", err)
	}
}

func TestFaultsOfAPlan(t *testing.T) {
	tests := []struct {
		name   string
		change func(p *Plan)
		want   string
	}{
		{"no name", func(p *Plan) { p.Datacenter = "" }, `datacenter: "" is 0 characters long`},
		{"long", func(p *Plan) { p.Datacenter = strings.Repeat("a", 33) }, "datacenter: "},
		{"capitals", func(p *Plan) { p.Datacenter = "SJC" }, `datacenter: "SJC" contains 'S'`},
		{"dot", func(p *Plan) { p.Datacenter = "a.b" }, `datacenter: "a.b" contains '.'`},
		{"dash", func(p *Plan) { p.Datacenter = "a-" }, `datacenter: "a-" begins or ends with -`},
		{"none", func(p *Plan) { p.Store = nil }, "store: names no store node"},
		{"two", func(p *Plan) { p.Store = p.Store[:2] }, "store: has two nodes"},
		{"four", func(p *Plan) { p.Store = append(p.Store, "n4") }, "store: has 4 nodes"},
		{"twice", func(p *Plan) { p.Store = []string{"n1", "n1", "n2"} }, `store: has "n1" twice`},
		{"stranger", func(p *Plan) { p.Store[0] = "n9" }, `store: "n9" has no address among peers`},
		{"reserved", func(p *Plan) { p.Peers["store"] = "10.0.0.9:1" }, `peers: "store" stands for all store nodes`},
		{"shared", func(p *Plan) { p.Peers["worker"] = "10.0.0.9:1" }, `peers: "worker" stands for all workers`},
		{"no port", func(p *Plan) { p.Peers["n1"] = "10.0.0.1" }, `peers: "10.0.0.1" is not an address`},
		{"last port", func(p *Plan) { p.Peers["n1"] = "10.0.0.1:65535" }, `peers: "65535" is not a port`},
		{"any port", func(p *Plan) { p.Peers["n1"] = "10.0.0.1:0" }, `peers: "0" is not a port`},
		{"any host", func(p *Plan) { p.Peers["n1"] = ":7422" }, `peers: ":7422" names no machine`},
		{"zeros", func(p *Plan) { p.Peers["n1"] = "0.0.0.0:7422" }, `peers: "0.0.0.0:7422" names no machine`},
		{"zone", func(p *Plan) { p.Peers["n1"] = "[fe80::1%eth0]:7422" }, "is not an address"},
		{"url", func(p *Plan) { p.Peers["n1"] = "nats://a:1" }, "is not an address"},
		{"same", func(p *Plan) { p.Peers["n1"] = p.Peers["n2"] }, "peers: n1 and n2 share a port"},
		{"next", func(p *Plan) { p.Peers["n1"] = "10.0.0.2:7423" }, "peers: n2 and n1 share a port"},
	}
	for _, tt := range tests {
		p := threeNodes()
		tt.change(&p)
		faults := p.Faults()
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), tt.want) || faults[0].Hint == "" {
			t.Errorf("%s: got %v, want %s", tt.name, faults, tt.want)
		}
	}
	for _, good := range []func(p *Plan){
		func(*Plan) {},
		func(p *Plan) { p.Store = []string{"n2"} },
		func(p *Plan) { p.Peers["n1"] = "[2001:db8::1]:65534" },
		func(p *Plan) { p.Peers["n1"] = "store_1.example.com:1" },
		func(p *Plan) { p.Peers["n1"] = "10.0.0.2:7424" },
	} {
		p := threeNodes()
		good(&p)
		if faults := p.Faults(); len(faults) > 0 {
			t.Errorf("%v: got %v", p, faults[0])
		}
	}
}

func TestFaultsOfAFile(t *testing.T) {
	now := time.Now()
	dir := made(t, threeNodes(), now)
	second := made(t, threeNodes(), now)
	if _, err := Node(dir, "w7", now); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		of     string
		change func(f *File)
		at     time.Time
		want   string
	}{
		{"bad name", "n1", func(f *File) { f.Node = "store" }, now, `node: "store" stands for all`},
		{"no listen", "n1", func(f *File) { f.Listen = "" }, now, "listen: is missing on a store node"},
		{"bad listen", "n1", func(f *File) { f.Listen = "7422" }, now, `listen: "7422" is not an address`},
		{"no CA", "n1", func(f *File) { f.CA = "" }, now, "ca: holds no certificate"},
		{"no cert", "n1", func(f *File) { f.Cert = "" }, now, "cert: holds no certificate"},
		{"no key", "n1", func(f *File) { f.Key = "" }, now, "key: holds no private key"},
		{"another key", "n1", func(f *File) { f.Key = read(t, dir, "n2").Key }, now,
			"key: private key does not match"},
		{"another CA", "n1", func(f *File) { f.CA = read(t, second, "n2").CA }, now,
			"cert: is not signed by the CA of the cluster"},
		{"over", "n1", func(*File) {}, now.AddDate(2, 0, 1), "cert: expired at "},
		{"early", "n1", func(*File) {}, now.Add(-2 * time.Hour), "cert: is not valid before "},
		{"other node", "n1", func(f *File) { f.Node = "n2" }, now, `cert: is of the node "n1", not of n2`},
		{"other center", "n1", func(f *File) { f.Datacenter = "del" }, now,
			"cert: is not of the data center del"},
		{"worker as store", "w7", func(f *File) {
			f.Peers["w7"], f.Listen, f.Store = "10.0.0.7:1", ":1", []string{"w7"}
		}, now, "cert: is the certificate of a worker, and w7 is a store node"},
		{"store as worker", "n1", func(f *File) { f.Store = []string{"n2"} }, now,
			"cert: is the certificate of a store node, and this is a worker"},
		{"store as any", "n1", func(f *File) { f.Node, f.Listen = "", "" }, now,
			"cert: is the certificate of a store node, and this is a worker"},
	}
	for _, tt := range tests {
		f := read(t, dir, tt.of)
		tt.change(f)
		faults := f.Faults(tt.at)
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), tt.want) || faults[0].Hint == "" {
			t.Errorf("%s: got %v, want %s", tt.name, faults, tt.want)
		}
	}
	if end, ok := read(t, dir, "n1").EndsSoon(now.AddDate(2, 0, -20)); !ok || end.Before(now) {
		t.Errorf("20 days before its end: got %v %v", end, ok)
	}
	if _, ok := read(t, dir, "n1").EndsSoon(now.AddDate(2, 0, -40)); ok {
		t.Error("40 days before its end: it ends soon")
	}
}

// meet lets one node connect to another and returns what each end says.
func meet(t *testing.T, client, server *tls.Config) (fromClient, fromServer error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			s := tls.Server(c, server)
			if err = s.Handshake(); err == nil {
				_, err = s.Write([]byte("x"))
			}
			c.Close()
		}
		said <- err
	}()
	c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := tls.Client(c, client)
	fromClient = s.Handshake()
	if fromClient == nil { // with TLS 1.3 the client's certificate is judged after its handshake
		_, fromClient = s.Read(make([]byte, 1))
	}
	c.Close()
	return fromClient, <-said
}

func TestWhoMayMeetWhom(t *testing.T) {
	now := time.Now()
	dir, other := made(t, threeNodes(), now), made(t, threeNodes(), now)
	of := func(dir, name string) *tls.Config {
		c, err := read(t, dir, name).TLS()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	without := of(dir, "worker")
	without.Certificates = nil
	tests := []struct {
		name           string
		client, server *tls.Config
		good           bool
	}{
		{"a worker and a store node", of(dir, "worker"), of(dir, "n1"), true},
		{"two store nodes", of(dir, "n2"), of(dir, "n1"), true},
		{"no certificate", without, of(dir, "n1"), false},
		{"a client of another CA", of(other, "n2"), of(dir, "n1"), false},
		{"a server of another CA", of(dir, "n2"), of(other, "n1"), false},
		{"a worker that poses as a store node", of(dir, "n2"), of(dir, "worker"), false},
	}
	for _, tt := range tests {
		fromClient, fromServer := meet(t, tt.client, tt.server)
		if (fromClient == nil) != tt.good || (fromServer == nil) != tt.good && tt.good {
			t.Errorf("%s: the client says %v, the server %v", tt.name, fromClient, fromServer)
		}
	}
	foreign := threeNodes()
	foreign.Datacenter = "del"
	p, _ := read(t, made(t, foreign, now), "n1").pair()
	err := ofDomain(tls.ConnectionState{PeerCertificates: []*x509.Certificate{p.cert.Leaf}}, ".sjc.headgate")
	if err == nil {
		t.Error("a certificate of another data center is taken")
	}
	if ofDomain(tls.ConnectionState{}, ".sjc.headgate") == nil {
		t.Error("no certificate is taken")
	}
}
