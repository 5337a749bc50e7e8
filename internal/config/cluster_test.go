package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/join"
)

func sjc() join.Plan {
	return join.Plan{Datacenter: "sjc", Store: []string{"n1", "n2", "n3"}, Peers: map[string]string{
		"n1": "10.0.0.1:7422", "n2": "10.0.0.2:7422", "n3": "[2001:db8::3]:7422"}}
}

// clusterDir returns a folder with the join files of a cluster created at the given time, and with
// the parts of n1 and worker as separate files.
func clusterDir(t *testing.T, made time.Time) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := join.Init(dir, sjc(), made); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n1", "worker"} {
		f, err := join.Read(filepath.Join(dir, name+".join"))
		if err != nil {
			t.Fatal(err)
		}
		for ext, text := range map[string]string{".pem": f.Cert, ".key": f.Key} {
			if err := os.WriteFile(filepath.Join(dir, name+ext), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// inDir loads a file with a valid room after the given text.
func inDir(t *testing.T, dir, before string) (*Config, error) {
	t.Helper()
	file := filepath.Join(dir, "headgate.yaml")
	if err := os.WriteFile(file, []byte(before+room), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

// byHand holds the keys of n1, without tls.
const byHand = "cluster:\n  datacenter: sjc\n  node: n1\n  listen: :7422\n  store: [n1, n2, n3]\n" +
	"  peers: {n1: 10.0.0.1:7422, n2: 10.0.0.2:7422, n3: \"[2001:db8::3]:7422\"}\n"

func TestClusterByJoinFileAndByHandAreTheSame(t *testing.T) {
	dir := clusterDir(t, time.Now())
	byFile, err := inDir(t, dir, "cluster: {join: n1.join, listen: \":7422\"}\n")
	if err != nil {
		t.Fatal(err)
	}
	hand, err := inDir(t, dir, byHand+"  tls: {ca: ca.pem, cert: n1.pem, key: "+dir+"/n1.key}\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byFile.Cluster, hand.Cluster); diff != "" {
		t.Errorf("-file +hand:\n%s", diff)
	}
	c := hand.Cluster
	if len(byFile.Warnings)+len(hand.Warnings) > 0 || !c.IsStore() || c.Datacenter != "sjc" {
		t.Errorf("got %+v, warnings %v %v", c, byFile.Warnings, hand.Warnings)
	}
	got := fmt.Sprintf("%v %s %s %v", c.Servers(), c.Routes(), c.RouteTo("n1"), c.Others())
	const want = "[10.0.0.1:7422 10.0.0.2:7422 [2001:db8::3]:7422] :7423 10.0.0.1:7423 " +
		"[10.0.0.2:7423 [2001:db8::3]:7423]"
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	tls, err := c.TLSConfig()
	if err != nil || tls.ServerName != "store.sjc.headgate" {
		t.Errorf("got %v %v", tls, err)
	}
	s := fmt.Sprintf("%v %+v %s", c, c, c.TLS)
	if strings.Contains(s, "KEY") || strings.Contains(s, "45 45") {
		t.Errorf("the key is printed: %s", s)
	}
}

func TestClusterOfAWorker(t *testing.T) {
	dir := clusterDir(t, time.Now())
	cfg, err := inDir(t, dir, "cluster: {join: worker.join}\n")
	if err != nil {
		t.Fatal(err)
	}
	c := cfg.Cluster
	if c.IsStore() || c.Node != "" || c.Listen != "" || c.Routes() != "" || len(c.Servers()) != 3 {
		t.Errorf("got %+v", c)
	}
	cfg, err = inDir(t, dir, "cluster: {join: worker.join, listen: \":7422\"}\n")
	if err != nil || len(cfg.Warnings) != 1 ||
		!strings.HasSuffix(cfg.Warnings[0].Error(), "cluster.listen: has no effect on a worker") {
		t.Errorf("got %v %v", cfg, err)
	}
	cfg, err = inDir(t, dir, "cluster:\n  peers: {n1: 10.0.0.1:7422}\n  store: [n1]\n"+
		"  tls: {ca: ca.pem, cert: worker.pem, key: worker.key}\n  datacenter: sjc\n")
	if err != nil || cfg.Cluster.IsStore() {
		t.Errorf("by hand: got %v %v", cfg, err)
	}
	cfg, err = inDir(t, dir, "")
	if err != nil || cfg.Cluster != nil {
		t.Errorf("without: got %v %v", cfg, err)
	}
}

func TestClusterFilesAreHeldAgainstEachOther(t *testing.T) {
	now := time.Now()
	dir, other, old := clusterDir(t, now), clusterDir(t, now), clusterDir(t, now.AddDate(-2, 0, -1))
	if err := os.Chmod(filepath.Join(other, "n1.join"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(other, "n1.key"), 0o604); err != nil {
		t.Fatal(err)
	}
	const ofN1 = "  tls: {ca: ca.pem, cert: n1.pem, key: n1.key}\n"
	tests := []struct{ dir, text, want, hint string }{
		{other, "cluster: {join: n1.join}\n", "cluster.join: DIR/n1.join: may be read by others (mode 640)",
			"chmod 600 DIR/n1.join"},
		{other, byHand + ofN1,
			"cluster.tls.key: DIR/n1.key: may be read by others (mode 604)", "chmod 600 DIR/n1.key"},
		{old, "cluster: {join: n1.join}\n", "cluster.join: DIR/n1.join: cert: expired at ",
			"make another with headgate cluster node n1"},
		{dir, "cluster: {join: ca.key}\n", "cluster.join: DIR/ca.key: is not a join file", "name a file that"},
		{dir, byHand + "  tls: {ca: " + other + "/ca.pem, cert: n1.pem, key: n1.key}\n",
			"cluster.tls.cert: DIR/n1.pem: is not signed by the CA of the cluster", "of one cluster"},
		{dir, byHand + "  tls: {ca: ca.pem, cert: n1.pem, key: worker.key}\n",
			"cluster.tls.key: DIR/worker.key: private key does not match", "make another"},
		{dir, byHand + "  tls: {ca: ca.pem, cert: worker.pem, key: worker.key}\n",
			`cluster.tls.cert: DIR/worker.pem: is of the node "worker", not of n1`, "certificate of n1"},
		{dir, strings.Replace(byHand, "[n1, n2, n3]", "[n2]", 1) + ofN1,
			"is the certificate of a store node, and this is a worker", "worker.join"},
		{dir, strings.Replace(byHand, "[n1, n2, n3]", "[n1, n2]", 1) + ofN1,
			"cluster.store: has two nodes", "two are worse than one"},
		{dir, strings.Replace(byHand, "n3]", "n4]", 1) + ofN1,
			`cluster.store: "n4" has no address among peers`, "add n4: "},
		{dir, strings.Replace(byHand, "  listen: :7422\n", "", 1) + ofN1,
			"cluster.listen: is missing on a store node", "add listen: 10.0.0.1:7422"},
		{dir, "listen: :7422\ncluster: {join: n1.join}\n",
			"cluster.join: 10.0.0.1:7422 and listen :7422 are the same place", "two ports of its own"},
		{dir, "admin_listen: 10.0.0.1:7423\ncluster: {join: n1.join}\n",
			"cluster.join: 10.0.0.1:7423 and admin_listen 10.0.0.1:7423 are the same place", "two ports"},
	}
	for _, tt := range tests {
		_, err := inDir(t, tt.dir, tt.text)
		faults := Faults(err)
		if len(faults) != 1 {
			t.Errorf("%s: got %d faults: %v", tt.want, len(faults), err)
			continue
		}
		f := faults[0]
		want, hint := strings.ReplaceAll(tt.want, "DIR", tt.dir), strings.ReplaceAll(tt.hint, "DIR", tt.dir)
		if !strings.Contains(f.Error(), want) || !strings.Contains(f.Hint, hint) || f.Line == 0 {
			t.Errorf("got %v, hint %s; want %s", f, f.Hint, want)
		}
	}
}

func TestACertificateThatEndsSoonIsWarnedOf(t *testing.T) {
	cfg, err := inDir(t, clusterDir(t, time.Now().AddDate(-2, 0, 20)), "cluster: {join: n1.join}\n")
	if err != nil || len(cfg.Warnings) != 1 ||
		!strings.Contains(cfg.Warnings[0].Error(), "cluster.join: the certificate ends at ") {
		t.Errorf("got %v %v", cfg, err)
	}
}

func TestPeersAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("cluster:\n  peers:\n")
	for i := range maxPeers + 1 {
		fmt.Fprintf(&b, "    n%d: 10.0.0.1:%d\n", i, 1000+2*i)
	}
	_, err := Parse("f", []byte(b.String()+room))
	if err == nil || !strings.Contains(err.Error(), "not a group of up to 100 nodes") {
		t.Errorf("got %.200v", err)
	}
}
