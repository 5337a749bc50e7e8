package demo

import (
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/loopback"
)

// A world is three data centers that are one room. Each is a process with a store of its own. They
// are joined by wires as slow as the distances between them.
type world struct {
	*room
	cities []*city
	wires  []*wire
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

const (
	linkPort  = 2    // the offset from the first port of a store node to the one for other data centers
	storeNode = "n1" // the one store node of each data center
)

// world creates each data center as headgate cluster init does, and a configuration for each. The
// wires are open, and nothing is started.
func (g *ground) world() (w *world, err error) {
	w = &world{room: &room{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	links := map[string]string{}
	for _, at := range places() {
		port, err := loopback.Ports(linkPort + 1)
		if err != nil {
			return nil, err
		}
		links[at.name] = loopback.Address(port + linkPort)
		plan := join.Plan{Datacenter: at.name, Store: []string{storeNode},
			Peers: map[string]string{storeNode: loopback.Address(port)}}
		if _, err := join.Init(g.joins(at.name), plan, time.Now()); err != nil {
			return nil, err
		}
	}
	// A wire between each two data centers. The one whose name sorts first dials.
	for _, ends := range slices.SortedFunc(maps.Keys(distances()), byName) {
		one, err := openWire(ends, links[ends[1]], distances()[ends])
		if err != nil {
			return nil, err
		}
		w.wires = append(w.wires, one)
	}
	for _, at := range places() {
		n, err := w.add(g, at.name, at.title, w.clusterOf(g, at.name))
		if err != nil {
			return nil, err
		}
		w.cities = append(w.cities, newCity(at, n))
	}
	return w, nil
}

func byName(a, b [2]string) int { return slices.Compare(a[:], b[:]) }

func (g *ground) joins(name string) string { return filepath.Join(g.folder, "join-"+name) }

// clusterOf returns the cluster configuration of a data center. It reaches the others through
// wires.
func (w *world) clusterOf(g *ground, name string) map[string]any {
	others := map[string]any{}
	for _, wire := range w.wires {
		if wire.joins(name) {
			other := wire.other(name)
			others[other] = map[string]any{"url": wire.ln.Addr().String(),
				"ca": filepath.Join(g.joins(other), "ca.pem")}
		}
	}
	return map[string]any{"join": filepath.Join(g.joins(name), storeNode+".join"),
		"datacenters": others, "home": places()[0].name}
}

// close kills all data centers and closes the wires.
func (w *world) close() error {
	errs := []error{w.room.close()}
	for _, one := range w.wires {
		errs = append(errs, one.close())
	}
	return errors.Join(errs...)
}

// RoundTrip sends a browser to the first city.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) { return w.cities[0].RoundTrip(r) }

// of returns the city of a data center, or nil if there is none.
func (w *world) of(name string) *city {
	if i := slices.IndexFunc(w.cities, func(c *city) bool { return c.place.name == name }); i >= 0 {
		return w.cities[i]
	}
	return nil
}

// setOff cuts a city off from all others, or joins it with those that are not cut off themselves.
func (w *world) setOff(c *city, off bool, now time.Time) {
	c.setOff(off, now)
	for _, one := range w.wires {
		one.setCut(w.of(one.ends[0]).isOff() || w.of(one.ends[1]).isOff())
	}
}
