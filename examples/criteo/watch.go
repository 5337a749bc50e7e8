package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A stage is the environment of a run.
type stage struct {
	world  *world
	origin *origin
	out    io.Writer
}

// These are the times of the kill and the restart of the counting node, in windows after the first
// call. Chosen: by then the limit is used up, and enough time remains to see the recovery.
const (
	killAfter  = 2
	startAfter = 1. / 4 // after the kill
)

// awayFor is how long after its start a node that was killed alone may make no decisions: the time
// of a start on a busy machine, chosen. After that, everything counts as used for one window.
const awayFor = 15 * time.Second

// watch runs the client, and prints the observations each second.
func watch(ctx context.Context, p plan, s stage) (*verdict, error) {
	c := &client{world: s.world, since: s.origin.began, http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, // chosen: more than are in flight at a node
	}}}
	defer c.http.CloseIdleConnections()
	began := time.Now()
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() { defer close(done); c.run(ctx, p) })
	failed := s.follow(ctx, p, picture{stage: s, client: c, began: began, done: done})
	wg.Wait()
	if failed != nil {
		return nil, failed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return judge(p, c.made(), s.origin.seen()), nil
}

// follow prints a line each second until the client is done, and kills and restarts the counting
// node at the planned times.
func (s stage) follow(ctx context.Context, p plan, pic picture) error {
	pic.head(p)
	victim := s.world.cities[0].nodes[0]
	killAt := pic.began.Add(killAfter * p.window)
	startAt := killAt.Add(time.Duration(startAfter * float64(p.window)))
	killed, started := !p.kill, !p.kill
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pic.done:
			return nil
		case now := <-tick.C:
			pic.line(p, now)
			switch {
			case !killed && now.After(killAt):
				killed = true
				if err := victim.kill(); err != nil {
					return err
				}
				fmt.Fprintf(s.out, "        %s, which counts for all, is killed\n", victim.name)
			case killed && !started && now.After(startAt):
				started = true
				if err := victim.start(); err != nil {
					return err
				}
				fmt.Fprintf(s.out, "        %s is started again\n", victim.name)
			}
		}
	}
}

// A picture prints the events while they happen.
type picture struct {
	stage
	client *client
	began  time.Time
	done   chan struct{}
}

// head prints the column headings.
func (v picture) head(p plan) {
	fmt.Fprintf(v.out, "%4s %6s %7s  ", "s", "calls", "passed")
	for _, c := range v.world.cities {
		fmt.Fprintf(v.out, "%10s", c.title)
	}
	fmt.Fprintf(v.out, "   passed in the last %v\n", p.window)
}

// line prints one second: for each city, the passed calls of all calls.
func (v picture) line(p plan, now time.Time) {
	from := now.Add(-time.Second)
	made, passed := make([]int, len(v.world.cities)), make([]int, len(v.world.cities))
	calls, through, window := 0, 0, 0
	for _, c := range v.client.made() {
		if c.sent.After(from) && !c.sent.After(now) {
			made[c.city]++
			calls++
		}
	}
	for _, x := range v.origin.seen() {
		if x.at.After(from) && !x.at.After(now) {
			passed[x.city]++
			through++
		}
		if x.at.After(now.Add(-p.window)) && !x.at.After(now) {
			window++
		}
	}
	fmt.Fprintf(v.out, "%4.0f %6d %7d  ", now.Sub(v.began).Seconds(), calls, through)
	for i := range made {
		fmt.Fprintf(v.out, "%10s", fmt.Sprintf("%d/%d", passed[i], made[i]))
	}
	fmt.Fprintf(v.out, "   %s %d\n", bar(window), window)
}

// bar returns a bar with one block for each ten.
func bar(n int) string {
	const ten = amount / 10
	full := n / ten
	return strings.Repeat("█", full) + strings.Repeat("·", max(0, ten-full))
}
