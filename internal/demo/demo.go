// Package demo shows headgate at work and lets its user try to break it. It runs a shop, a room in
// front of it, a crowd that does not end, and a live picture in the terminal. The room is a
// separate process that can be killed for real. With headgate demo --cluster it is three processes
// that are one room, behind a plain balancer. With headgate demo --datacenters it is three data
// centers that are one room. Their connections are as slow as those from San Jose to London and
// Delhi, and can be cut.
//
// Every figure of the verdict comes from the shop or from the answers that visitors received, never
// from the room itself. Nothing is left behind: no process, no file, and the terminal is restored.
//
// Run owns every goroutine and waits for them. The demo listens on one address for browsers;
// everything else uses loopback ports that it picks.
//
// The demo uses about 50 MB and a few per cent of a core, and three times that as a cluster or as
// data centers: 120 visitors, a few hundred small requests a second at most, a picture five times a
// second.
//
// The demo is not a benchmark: crowd, shop and room share the machine. Use headgate crowd to
// measure.
//
// # The files
//
// From the top down: run makes a play and shows it. alone, cluster and worldwide are the three plays,
// each with its picture (scene, clusterpicture, worldpicture on a canvas); stage is what they share;
// summary judges the run. node starts and kills a process; room is several of them, world several data
// centers (city) with delayed connections (wire) between them. shop is the origin, with what it saw
// (stays); flock is the crowd, with what it saw (judge); front is for people with a browser, and
// terminal for the person who watches.
package demo

import (
	"context"
	"io"
	"time"
)

// Limits are the limits of the room.
type Limits struct {
	AtOnce    int
	PerMinute int
	Session   time.Duration
}

// A Config holds the options of the demo.
type Config struct {
	Program  string        // the headgate binary to run
	Temp     string        // parent of the run's folder; "": the system's
	Listen   string        // for browsers
	Another  bool          // use a free port if Listen is taken
	Visitors int           // simulated visitors at any time
	Limits   Limits        // of the room
	Cluster  bool          // three processes are the room
	World    bool          // three data centers are the room
	For      time.Duration // 0: until stopped
	Kills    int           // kills of the host by the demo, evenly over For, or one each 10 s
	Plain    bool          // a line a second instead of a picture
	Color    bool
	In       io.Reader
	Out      io.Writer
}

// DefaultLimits returns limits that are small enough to watch.
func DefaultLimits() Limits { return Limits{AtOnce: 20, PerMinute: 180, Session: 20 * time.Second} }

// WorldLimits returns the limits of the demo of several data centers. Chosen: few enough slots to
// draw them, and the crowd's sessions use no more than two thirds of the limit of new users.
func WorldLimits() Limits { return Limits{AtOnce: 60, PerMinute: 900, Session: 15 * time.Second} }

// WorldFor is the default duration of the demo of several data centers.
const WorldFor = 90 * time.Second

// rest waits for d and reports whether ctx is still active.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
