package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// A city is one data centre: a cluster by itself, with a store node and a worker.
type city struct {
	name  string // of the data centre
	title string
	dir   string // of its join files
	store int    // first port of the store node; the second after it is for data centres
	nodes []*node
}

// places are the data centres; the first is the home, where the limit is counted. Chosen:
// Criteo's lie in Europe, in North America and in Asia.
func places() []*city {
	return []*city{
		{name: "par", title: "Paris"}, {name: "ams", title: "Amsterdam"}, {name: "nyc", title: "New York"},
		{name: "sjc", title: "San Jose"}, {name: "hkg", title: "Hong Kong"}, {name: "nrt", title: "Tokyo"},
	}
}

// A world is all data centres. It is used by one goroutine.
type world struct {
	cities []*city
}

// newWorld makes each data centre as headgate cluster init does, by itself, and writes a
// configuration for each node. It starts nothing.
func newWorld(p plan, folder, origin string) (*world, error) {
	binary, err := filepath.Abs(p.binary)
	if err != nil {
		return nil, err
	}
	w, taken := &world{cities: places()}, map[int]bool{}
	for _, c := range w.cities {
		if c.store, err = free(taken, 3); err != nil {
			return nil, err
		}
		c.dir = filepath.Join(folder, "join-"+c.name)
		made, err := exec.Command(binary, "cluster", "init", "--datacenter", c.name,
			"--store", "n1="+loopback(c.store), "--dir", c.dir).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("make the cluster of %s: %w\n%s", c.title, err, made)
		}
	}
	for _, c := range w.cities {
		for _, role := range []string{"n1", "worker"} {
			first, err := free(taken, 2)
			if err != nil {
				return nil, err
			}
			n := &node{name: c.name + "/" + role, binary: binary, listen: loopback(first),
				admin: loopback(first + 1), folder: filepath.Join(folder, c.name+"-"+role)}
			cluster := w.clusterOf(filepath.Join(c.dir, role+".join"))
			if err := n.settle(origin, p.window, cluster); err != nil {
				return nil, err
			}
			c.nodes = append(c.nodes, n)
		}
	}
	return w, nil
}

// clusterOf is what a node is told of itself and of all data centres: each leaves out its own.
func (w *world) clusterOf(join string) map[string]any {
	all := map[string]any{}
	for _, c := range w.cities {
		all[c.name] = map[string]any{"url": loopback(c.store + 2), "ca": filepath.Join(c.dir, "ca.pem")}
	}
	return map[string]any{"join": join, "datacenters": all, "home": w.cities[0].name}
}

// nodes are those of all cities.
func (w *world) nodes() (all []*node) {
	for _, c := range w.cities {
		all = append(all, c.nodes...)
	}
	return all
}

// startWithin is how long the first start may take. Chosen: a machine that is busy.
const startWithin = time.Minute

// start starts all nodes and waits until each takes calls.
func (w *world) start(ctx context.Context) error {
	for _, n := range w.nodes() {
		if err := n.start(); err != nil {
			return err
		}
	}
	ctx, stop := context.WithTimeout(ctx, startWithin)
	defer stop()
	for _, n := range w.nodes() {
		if err := n.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close kills all nodes: their folders go too.
func (w *world) close() error {
	var errs []error
	for _, n := range w.nodes() {
		errs = append(errs, n.kill())
	}
	return errors.Join(errs...)
}
