package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// A city is one data center: a separate cluster with a store node and a worker.
type city struct {
	name  string // of the data center
	title string
	dir   string // of its join files
	store int    // first port of the store node; port + 2 is for other data centers
	nodes []*node
}

// places returns the data centers. The first is the home, where the limit is counted. Chosen:
// Criteo's are in Europe, North America and Asia.
func places() []*city {
	return []*city{
		{name: "par", title: "Paris"}, {name: "ams", title: "Amsterdam"}, {name: "nyc", title: "New York"},
		{name: "sjc", title: "San Jose"}, {name: "hkg", title: "Hong Kong"}, {name: "nrt", title: "Tokyo"},
	}
}

// A world is all data centers. It is used by one goroutine.
type world struct {
	cities []*city
}

// newWorld creates each data center as headgate cluster init does, and writes a configuration for
// each node. It starts nothing.
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

// clusterOf returns the cluster configuration of a node. It lists all data centers; each node skips
// its own.
func (w *world) clusterOf(join string) map[string]any {
	all := map[string]any{}
	for _, c := range w.cities {
		all[c.name] = map[string]any{"url": loopback(c.store + 2), "ca": filepath.Join(c.dir, "ca.pem")}
	}
	return map[string]any{"join": join, "datacenters": all, "home": w.cities[0].name}
}

// nodes returns the nodes of all cities.
func (w *world) nodes() (all []*node) {
	for _, c := range w.cities {
		all = append(all, c.nodes...)
	}
	return all
}

// startWithin is how long the first start may take. Chosen: enough for a busy machine.
const startWithin = time.Minute

// start starts all nodes and waits until each is ready for calls.
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

// close kills all nodes, because their folders are removed anyway.
func (w *world) close() error {
	var errs []error
	for _, n := range w.nodes() {
		errs = append(errs, n.kill())
	}
	return errors.Join(errs...)
}
