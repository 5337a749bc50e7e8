package demo

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
)

// A world is three data centres that are one room: each a process with a store of its
// own, joined over wires that are as slow as the distances between them.
type world struct {
	cities []*city
	wires  []*wire
	failed chan error // a process that ended by itself
}

// A place is where a data centre is.
type place struct {
	name  string // of the data centre
	title string
	x, y  int     // on the map
	noon  float64 // when it is busiest, as a share of a day
}

// places are the data centres of the demo from west to east; the first is the home of
// Anywhere. The day begins in Delhi, as the sun goes.
func places() []place {
	return []place{
		{name: "sjc", title: "San Jose", x: 10, y: 5, noon: 5. / 6},
		{name: "lhr", title: "London", x: 37, y: 3, noon: 3. / 6},
		{name: "del", title: "Delhi", x: 56, y: 6, noon: 1. / 6},
	}
}

// distances are the delays one way. Chosen: about half of the usual round trips over the
// internet between these cities.
func distances() map[[2]string]time.Duration {
	return map[[2]string]time.Duration{
		{"lhr", "sjc"}: 70 * time.Millisecond,
		{"del", "lhr"}: 60 * time.Millisecond,
		{"del", "sjc"}: 110 * time.Millisecond,
	}
}

// linkPort is by how much the port at which a store node waits for other data centres
// comes after its first.
const linkPort = 2

// newWorld makes the data centres as headgate cluster init does, each by itself, and a
// configuration for each. The wires are open, and nothing is started.
func newWorld(program, folder, origin string, l Limits) (w *world, err error) {
	w = &world{failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	peers, links := map[string]string{}, map[string]string{}
	for _, at := range places() {
		port, err := loopback.Ports(linkPort + 1)
		if err != nil {
			return nil, err
		}
		addr := loopback.Address(port)
		peers[at.name], links[at.name] = addr, loopback.Address(port+linkPort)
		plan := join.Plan{Datacenter: at.name, Peers: map[string]string{storeNode: addr},
			Store: []string{storeNode}}
		if _, err := join.Init(joinsOf(folder, at.name), plan, time.Now()); err != nil {
			return nil, err
		}
	}
	if err := w.openWires(links); err != nil {
		return nil, err
	}
	for _, at := range places() {
		g := &gate{name: at.title, program: program, folder: filepath.Join(folder, at.name), failed: w.failed}
		if err := os.Mkdir(g.folder, 0o700); err != nil {
			return nil, err
		}
		more := map[string]any{"cluster": w.clusterOf(at.name, folder)}
		if err := g.settle(origin, l, more); err != nil {
			return nil, err
		}
		w.cities = append(w.cities, newCity(at, g))
	}
	return w, nil
}

// storeNode is the name of the one store node of each data centre.
const storeNode = "n1"

func joinsOf(folder, name string) string { return filepath.Join(folder, "join-"+name) }

// openWires opens a wire for each two data centres. Of two, the one whose name sorts
// first dials.
func (w *world) openWires(links map[string]string) error {
	all := distances()
	byName := func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }
	for _, ends := range slices.SortedFunc(maps.Keys(all), byName) {
		one, err := openWire(ends, links[ends[1]], all[ends])
		if err != nil {
			return err
		}
		w.wires = append(w.wires, one)
	}
	return nil
}

// clusterOf is what a data centre is told of itself and the others: they are at the ends
// of wires.
func (w *world) clusterOf(name, folder string) map[string]any {
	others := map[string]any{}
	for _, wire := range w.wires {
		if wire.joins(name) {
			other := wire.other(name)
			others[other] = map[string]any{"url": wire.ln.Addr().String(),
				"ca": filepath.Join(joinsOf(folder, other), "ca.pem")}
		}
	}
	return map[string]any{"join": filepath.Join(joinsOf(folder, name), storeNode+".join"),
		"datacenters": others, "home": places()[0].name}
}

// launch starts all data centres and does not wait for them.
func (w *world) launch() error {
	for _, c := range w.cities {
		if err := c.node.launch(); err != nil {
			return err
		}
	}
	return nil
}

// close kills all data centres, for their folders go too, and takes the wires down.
func (w *world) close() error {
	var errs []error
	for _, c := range w.cities {
		errs = append(errs, c.node.kill())
		c.node.transport.CloseIdleConnections()
		c.node.admin.CloseIdleConnections()
	}
	for _, one := range w.wires {
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}

// of finds a city by the name of its data centre, nil if there is none.
func (w *world) of(name string) *city {
	for _, c := range w.cities {
		if c.name == name {
			return c
		}
	}
	return nil
}

// cutAll cuts the wires of all cities that are cut off, and mends all others.
func (w *world) cutAll() {
	for _, one := range w.wires {
		one.setCut(w.of(one.ends[0]).isOff() || w.of(one.ends[1]).isOff())
	}
}

// A via sends requests to the data centre of a city, and tells the shop which it was.
type via struct{ node *node }

// RoundTrip sends the request under the name of the data centre.
func (v via) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	if out.Host == "" {
		out.Host = r.URL.Host
	}
	out.URL.Host = v.node.gate.visitors
	out.Header[nodeHeader] = []string{v.node.name}
	return v.node.transport.RoundTrip(out)
}
