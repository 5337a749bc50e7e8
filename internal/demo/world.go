package demo

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
)

// A world is three data centers that are one room. Each is a process with a store of its own. They
// are joined by wires as slow as the distances between them.
type world struct {
	cities []*city
	wires  []*wire
	failed chan error // a process that ended unexpectedly
}

// A place is the location of a data center.
type place struct {
	name  string // of the data center
	title string
	x, y  int     // on the map
	noon  float64 // its busiest time, as a share of a day
}

// places returns the data centers of the demo from west to east. The first one is the home of
// Anywhere. The day begins in Delhi, as the sun moves.
func places() []place {
	return []place{
		{name: "sjc", title: "San Jose", x: 10, y: 5, noon: 5. / 6},
		{name: "lhr", title: "London", x: 37, y: 3, noon: 3. / 6},
		{name: "del", title: "Delhi", x: 56, y: 6, noon: 1. / 6},
	}
}

// distances returns the one-way delays. Chosen: about half of the usual round trips over the
// internet between these cities.
func distances() map[[2]string]time.Duration {
	return map[[2]string]time.Duration{
		{"lhr", "sjc"}: 70 * time.Millisecond,
		{"del", "lhr"}: 60 * time.Millisecond,
		{"del", "sjc"}: 110 * time.Millisecond,
	}
}

// linkPort is the offset from the first port of a store node to the port for other data centers.
const linkPort = 2

// newWorld creates each data center as headgate cluster init does, and a configuration for each.
// The wires are open, and nothing is started.
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

// storeNode is the name of the one store node of each data center.
const storeNode = "n1"

func joinsOf(folder, name string) string { return filepath.Join(folder, "join-"+name) }

// openWires opens a wire between each two data centers. The one whose name sorts first dials.
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

// clusterOf returns the cluster configuration of a data center. It reaches the others through
// wires.
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

// launch starts all data centers and does not wait for them.
func (w *world) launch() error {
	for _, c := range w.cities {
		if err := c.node.launch(); err != nil {
			return err
		}
	}
	return nil
}

// close kills all data centers, because their folders are removed anyway, and closes the wires.
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

// of returns the city of a data center, or nil if there is none.
func (w *world) of(name string) *city {
	for _, c := range w.cities {
		if c.name == name {
			return c
		}
	}
	return nil
}

// cutAll cuts the wires of all cities that are cut off, and restores all others.
func (w *world) cutAll() {
	for _, one := range w.wires {
		one.setCut(w.of(one.ends[0]).isOff() || w.of(one.ends[1]).isOff())
	}
}
