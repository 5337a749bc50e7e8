//go:build real

package doctor

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/loopback"
)

// abroad is the configuration of n1 of a data center that knows another one.
func (c *town) abroad(there *town, urls ...string) *config.Config {
	c.t.Helper()
	cfg := c.node("n1")
	ca, err := os.ReadFile(filepath.Join(there.dir, "ca.pem"))
	if err != nil {
		c.t.Fatal(err)
	}
	cfg.Cluster.Home = "lhr"
	cfg.Cluster.Datacenters = map[string]config.Datacenter{there.plan.Datacenter: {URLs: urls, CA: ca}}
	return cfg
}

func TestDatacentersAreKnockedAt(t *testing.T) {
	t.Parallel()
	sjc, lhr := newTown(t, time.Now(), "n1"), newTown(t, time.Now(), "n1")
	lhr.plan.Datacenter = "lhr"
	sjc.plan.Peers["n1"] = loopback.Address(loopback.Port(t, 3))
	lhr.init(time.Now())
	sjc.init(time.Now())
	here, err := net.Listen("tcp", "127.0.0.1:0") // says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	ofSJC := sjc.abroad(lhr, "127.0.0.1:1")
	leaf, none := ofSJC.Cluster.Leaf(), loopback.Address(loopback.Port(t, 2))
	ofLHR := lhr.abroad(sjc, leaf, none)

	r := lhr.with(Config{Config: ofLHR})
	r.wants(t, "data centers", Fault, "sjc at "+leaf+": connection refused")
	r = sjc.with(Config{Config: ofSJC})
	r.wants(t, "ports", OK, leaf+" is free")
	r.wants(t, "data centers", Skipped, "lhr would connect to us at "+leaf)

	cl := ofSJC.Cluster
	e, err := embedded.Open(t.Context(), embedded.Config{Name: "n1", Dir: filepath.Join(sjc.dir, "engine"),
		Cluster: &embedded.Cluster{Name: "sjc", Listen: cl.Listen, Leaf: leaf, TLS: sjc.tls("n1"),
			Others: []embedded.Datacenter{{Name: "lhr", Servers: cl.Datacenters["lhr"].URLs,
				CA: cl.Datacenters["lhr"].CA}}}})
	if err != nil {
		t.Fatal(err)
	}
	sjc.engines["n1"] = e
	r = lhr.with(Config{Config: ofLHR})
	r.wants(t, "data centers", OK, "sjc at "+leaf+", ")
	r.wants(t, "data centers", Warning, "sjc at "+none+": connection refused")
	r = sjc.with(Config{Config: ofSJC})
	r.wants(t, "ports", Warning, leaf+" answers as n1, but no headgate works in the data folder")

	// The port of clients there, another CA there, and a program that says nothing.
	r = lhr.with(Config{Config: lhr.abroad(sjc, sjc.plan.Peers["n1"])})
	r.wants(t, "data centers", Fault, sjc.plan.Peers["n1"]+": it refuses our certificate\ncopy")
	wrong := lhr.abroad(sjc, leaf)
	wrong.Cluster.Datacenters["sjc"] = config.Datacenter{URLs: []string{leaf}, CA: wrong.Cluster.TLS.CA}
	r = lhr.with(Config{Config: wrong})
	r.wants(t, "data centers", Fault, leaf+": wrong CA\ncopy the ca.pem of sjc anew")
	r = lhr.with(Config{Config: lhr.abroad(sjc, here.Addr().String())})
	r.wants(t, "data centers", Fault, here.Addr().String()+": timeout")

	worker := lhr.node("worker")
	worker.Cluster.Datacenters = ofLHR.Cluster.Datacenters
	lhr.with(Config{Config: worker}).wants(t, "data centers", OK, "a worker connects to none")
}
