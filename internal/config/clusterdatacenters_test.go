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

// worldDir is clusterDir with the CAs of lhr and del added, created at the given time.
func worldDir(t *testing.T, made time.Time) string {
	t.Helper()
	dir := clusterDir(t, time.Now())
	for _, name := range []string{"lhr", "del"} {
		there := filepath.Join(t.TempDir(), name)
		plan := join.Plan{Datacenter: name, Store: []string{"n1"},
			Peers: map[string]string{"n1": "10.1.0.1:7422"}}
		if _, err := join.Init(there, plan, made); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(there, "ca.pem"), filepath.Join(dir, name+"-ca.pem")); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// threeCenters is one text for all data centers, without the braces.
const threeCenters = `datacenters: {lhr: {url: "10.1.0.1:7424, lhr-2.example.com:7424", ca: lhr-ca.pem}, ` +
	`sjc: {url: "10.0.0.1:7424", ca: none.pem}, del: {url: "10.2.0.1:7424", ca: del-ca.pem}}`

// TestWhichPeopleDatacentersKnow: people who all sign in, and no invitations.
func TestWhichPeopleDatacentersKnow(t *testing.T) {
	dir := worldDir(t, time.Now())
	for identity, want := range map[string]string{
		"{header: x-member, required: true, sign_in: /login}": "",
		"{header: x-member}": "knows people only if all have to sign in",
		"{codes: {secret_file: codes.key}, required: true}": "cannot know invitations",
	} {
		file := filepath.Join(dir, "people.yaml")
		text := "cluster: {join: n1.join, home: sjc, " + threeCenters + "}\ntrusted_proxies: [10.0.0.0/8]\n" +
			"rooms: [{name: people, path: /people, origin: \"http://127.0.0.1:3000\", total_active_users: 200, " +
			"new_users_per_minute: 200, identity: " + identity + "}]\n"
		err := os.WriteFile(file, []byte(text), 0o600)
		if err == nil {
			_, err = Load(file)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", identity, err, want)
		}
	}
}

func TestOneTextServesAllDatacenters(t *testing.T) {
	dir := worldDir(t, time.Now())
	byFile, err := inDir(t, dir, "cluster: {join: n1.join, home: sjc, "+threeCenters+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	hand, err := inDir(t, dir, strings.Replace(byHand, ":7422", "10.0.0.1:7422", 1)+
		"  tls: {ca: ca.pem, cert: n1.pem, key: n1.key}\n  home: sjc\n  "+threeCenters+"\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(byFile.Cluster, hand.Cluster); diff != "" {
		t.Errorf("-file +hand:\n%s", diff)
	}
	c := byFile.Cluster
	got := map[string][]string{}
	for name, dc := range c.Datacenters {
		got[name] = dc.URLs
		if f := join.CheckCA(dc.CA, name, time.Now()); f != nil {
			t.Errorf("%s: the CA is not its own: %v", name, f)
		}
	}
	want := map[string][]string{"lhr": {"10.1.0.1:7424", "lhr-2.example.com:7424"}, "del": {"10.2.0.1:7424"}}
	if diff := cmp.Diff(want, got); diff != "" || c.Home != "sjc" || c.Leaf() != "10.0.0.1:7424" {
		t.Errorf("home %q, leaf %q, -want +got:\n%s", c.Home, c.Leaf(), diff)
	}

	// A worker knows the names. It needs no CA and listens for no other data center.
	text := strings.ReplaceAll(threeCenters, "-ca.pem", "-none.pem")
	worker, err := inDir(t, dir, "cluster: {join: worker.join, home: lhr, "+text+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	c = worker.Cluster
	if len(c.Datacenters) != 2 || c.Home != "lhr" || c.Leaf() != "" || len(c.Datacenters["lhr"].CA) > 0 {
		t.Errorf("a worker: %+v", c)
	}

	// Without other data centers the configuration has none of this.
	for _, text := range []string{"", `, home: sjc, datacenters: {sjc: {url: "10.0.0.1:7424", ca: none.pem}}`} {
		alone, err := inDir(t, dir, "cluster: {join: n1.join"+text+"}\n")
		if err != nil {
			t.Fatal(err)
		}
		if c = alone.Cluster; c.Datacenters != nil || c.Home != "" || c.Leaf() != "" {
			t.Errorf("alone%s: %+v", text, c)
		}
	}
}

func TestFaultsOfDatacenters(t *testing.T) {
	dir, old := worldDir(t, time.Now()), worldDir(t, time.Now().AddDate(-10, 0, -1))
	n1, err := os.ReadFile(filepath.Join(dir, "n1.pem"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"empty.pem": "", "leaf.pem": string(n1),
		"torn.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	one := func(ca string) string {
		return `cluster: {join: n1.join, home: sjc, datacenters: {lhr: {url: "10.1.0.1:7424", ca: ` + ca + "}}}\n"
	}
	const ca = "cluster.datacenters.lhr.ca: DIR/"
	close2 := strings.Replace(byHand, "n2: 10.0.0.2:7422", "n2: 10.0.0.1:7424", 1)
	last := strings.ReplaceAll(byHand, "7422", "65534")
	const rest = "  tls: {ca: ca.pem, cert: n1.pem, key: n1.key}\n  home: sjc\n  " + threeCenters + "\n"
	tests := []struct{ dir, text, want, hint string }{
		{dir, "cluster: {join: n1.join, " + threeCenters + "}\n",
			"cluster.home: is missing beside datacenters", "add home: sjc"},
		{dir, "cluster: {join: n1.join, home: fra, " + threeCenters + "}\n",
			`cluster.home: "fra" is not a data center of this configuration`, "write one of del, lhr, sjc"},
		{dir, "cluster: {join: worker.join, home: lhrr, " + threeCenters + "}\n",
			`cluster.home: "lhrr" is not`, "did you mean lhr?"},
		{dir, "cluster: {join: n1.join, home: sjc}\n",
			"cluster.home: stands without datacenters", "under datacenters"},
		{dir, one("none.pem"), ca + "none.pem: there is no such file", "folder of the configuration"},
		{dir, one("empty.pem"), ca + "empty.pem: holds no certificate", "copy the ca.pem"},
		{dir, one("torn.pem"), ca + "torn.pem: holds no certificate that can be read", "copy the ca.pem"},
		{dir, one("n1.key"), ca + "n1.key: holds more than certificates", "copy the ca.pem"},
		{dir, one("leaf.pem"), ca + `leaf.pem: holds the certificate of "n1", which is no CA`, "copy the ca.pem"},
		{dir, one("del-ca.pem"), ca + `del-ca.pem: is not the CA of the data center lhr, but of "headgate del"`,
			"has made for lhr"},
		{dir, one("ca.pem"), ca + `ca.pem: is not the CA of the data center lhr, but of "headgate sjc"`, "for lhr"},
		{old, one("lhr-ca.pem"), ca + "lhr-ca.pem: expired at ", "make a new cluster there"},
		{dir, close2 + rest, "cluster.peers: n1 and n2 share a port: beside datacenters", "7422, 7425 and 7428"},
		{dir, last + rest, "cluster.listen: :65534 has one port after it", "up to 65533"},
		{dir, "admin_listen: 10.0.0.1:7424\n" + one("lhr-ca.pem"),
			"10.0.0.1:7424 and admin_listen 10.0.0.1:7424 are the same place", "three ports of its own"},
	}
	for _, tt := range tests {
		_, err := inDir(t, tt.dir, tt.text)
		faults := Faults(err)
		if len(faults) != 1 {
			t.Errorf("%s: got %d faults: %v", tt.want, len(faults), err)
			continue
		}
		f := faults[0]
		want := strings.ReplaceAll(tt.want, "DIR", tt.dir)
		if !strings.Contains(f.Error(), want) || !strings.Contains(f.Hint, tt.hint) || f.Line == 0 {
			t.Errorf("got %v, hint %s; want %s", f, f.Hint, want)
		}
	}
	// Without other data centers none of this is required.
	for _, text := range []string{close2, "admin_listen: 10.0.0.1:7424\n" + byHand} {
		if _, err := inDir(t, dir, text+"  tls: {ca: ca.pem, cert: n1.pem, key: n1.key}\n"); err != nil {
			t.Errorf("without datacenters: %v", err)
		}
	}
}

func TestDatacentersAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("cluster:\n  join: n1.join\n  home: d0\n  datacenters:\n")
	for i := range maxDatacenters + 1 {
		fmt.Fprintf(&b, "    d%d: {url: \"10.1.0.1:%d\", ca: d.pem}\n", i, 1000+i)
	}
	_, err := Parse("f", []byte(b.String()+room))
	if err == nil || !strings.Contains(err.Error(), "not a group of 1 to 32 data centers") {
		t.Errorf("got %.200v", err)
	}
}

// Data centers have stores of their own: a key that one has revoked would count in another.
func TestHoldersNeedOneDatacenter(t *testing.T) {
	_, err := inDir(t, worldDir(t, time.Now()), "cluster: {join: n1.join, home: sjc, "+threeCenters+"}\n"+
		"limits:\n  - {name: api, algorithm: sliding_log, amount: 9, window: 60s, key: [holder]}\n"+
		"plans: {holders: {}, amounts: {pro: {api: 99}}}\n")
	if err == nil || !strings.Contains(err.Error(), "several data centers cannot share holders yet") {
		t.Error(err)
	}
}
