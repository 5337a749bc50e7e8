package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/cluster"
	"github.com/headgate/headgate/internal/rights"
	"github.com/headgate/headgate/internal/store"
)

const (
	// listenFor is three heartbeats and a little: two may be lost or late.
	listenFor = 3*cluster.HeartbeatInterval + 100*time.Millisecond
	lookWait  = 2 * time.Second // for the store's answer about the records; chosen
)

// A heard is a process of the cluster, known from its heartbeats.
type heard struct {
	cluster.Member
	first, last time.Time
}

// A kept is what the store reports about the records.
type kept struct {
	store.Placement
	asked bool
	err   error
}

// up returns the store nodes that answer here, and those that do not.
func (c *finding) up() (up, down []string) {
	for _, name := range c.Store {
		front, _ := c.of(name)
		if name == c.Node && c.server != "" || front != nil && front.why == "" {
			up = append(up, name)
		} else {
			down = append(down, name)
		}
	}
	return up, down
}

// listen receives heartbeats for a short time and requests where the records are, over a connection
// like a worker's. It does not act as a node and writes nothing.
func (c *finding) listen(ctx context.Context) {
	var servers []string
	for _, d := range slices.Concat(c.doors, c.here) {
		if !d.route && d.why == "" && d.server != "" {
			servers = append(servers, d.addr)
		}
	}
	if len(servers) == 0 {
		return
	}
	conn, err := embedded.Connect(ctx, embedded.Remote{Name: rights.Drawn(rand.Uint32()),
		Servers: servers, TLS: c.tls, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.kept = kept{asked: true, err: err}
		return
	}
	defer conn.Close()
	var mu sync.Mutex
	lives := map[uint64]heard{}
	stop, err := cluster.ListenHeartbeats(store.NewBus(conn), func(m cluster.Member) {
		mu.Lock()
		defer mu.Unlock()
		h, ok := lives[m.Life]
		if now := time.Now(); !ok {
			h = heard{Member: m, first: now, last: now}
		} else {
			// The delay of a heartbeat can only make a clock appear behind. The fastest heartbeat
			// gives the best estimate.
			m.Skew = max(m.Skew, h.Skew)
			h.Member, h.last = m, now
		}
		lives[m.Life] = h
	})
	if err != nil {
		c.kept = kept{asked: true, err: err}
		return
	}
	enough := time.After(listenFor)
	look, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	c.kept.asked = true
	c.kept.Placement, c.kept.err = store.Inspect(look, conn)
	select {
	case <-enough:
	case <-ctx.Done():
	}
	stop()
	mu.Lock()
	defer mu.Unlock()
	c.heard = slices.SortedFunc(maps.Values(lives), func(a, b heard) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.first.Compare(b.first))
	})
}

// quorum reports whether enough store nodes answer to admit anybody.
func (x *examiner) quorum(c *finding) {
	up, down := c.up()
	n := len(c.Store)
	what := fmt.Sprintf("%d of %d store nodes answer", len(up), n)
	if len(up) == 1 {
		what += "s"
	}
	if n == 1 {
		what = "the only store node answers"
	}
	missing := strings.Join(down, " and ")
	switch {
	case len(up)*2 <= n && n == 1 && c.IsStore():
		x.say(Warning, "this is the only store node, and it does not run: no worker lets anybody new in",
			"start headgate run here")
		return
	case len(up)*2 <= n:
		if n == 1 {
			what = "the only store node does not answer"
		}
		x.say(Fault, what+": newcomers are not admitted; passes and places are kept", fmt.Sprintf("start %s: "+
			"%d of %d are needed, and the very first time all; or mend the way there, see store nodes",
			missing, n/2+1, n))
		return
	case len(down) > 0:
		x.say(Warning, fmt.Sprintf("%s, %s does not: it works, but no further one may die", what, missing),
			fmt.Sprintf("start %s, or mend the way there, see store nodes", missing))
	case n == 1:
		x.ok("%s", what)
	default:
		x.ok("%s; one may die", what)
	}
	x.leads(c)
}

// leads reports which node orders the writes.
func (x *examiner) leads(c *finding) {
	const do = "an election takes up to 10 s: look again; if it stays so, see the logs of the store nodes"
	switch {
	case errors.Is(c.kept.err, store.ErrNotFound):
		x.say(Warning, "no records are there yet", "headgate run makes them when it starts")
	case c.kept.err != nil:
		x.say(Fault, fmt.Sprintf("the records cannot be reached: %v: newcomers are not admitted", c.kept.err), do)
	case c.kept.Leader != "":
		x.ok("%s orders the writes", c.kept.Leader)
	case len(c.Store) > 1:
		x.say(Fault, "no store node orders the writes: newcomers are not admitted", do)
	}
}

// keptWhere reports whether each record is on as many store nodes as there are.
func (x *examiner) keptWhere(c *finding) {
	k, n := &c.kept, len(c.Store)
	// A leader that has just lost the others may not have noticed it yet.
	if up, _ := c.up(); !k.asked || k.err != nil || len(up)*2 <= n {
		x.say(Skipped, "where the records are kept cannot be told: see quorum", "")
		return
	}
	if k.Wanted < n {
		x.say(Warning, fmt.Sprintf("the records are kept on %d store node, not on %d", k.Wanted, n),
			"they were made when there was only one: lose none of the nodes, and grow the stream by hand "+
				"(nats stream edit HEADGATE --replicas 3 --tlsfirst, with the certificate of a node)")
		return
	}
	late := c.late()
	if len(late) > 0 {
		x.say(Warning, fmt.Sprintf("%d of %d store nodes have all records: %s", n-len(late), n,
			strings.Join(late, ", ")), "what runs catches up by itself: look again in a while, and stop "+
			"no other meanwhile")
		return
	}
	x.ok("%d of %d store nodes have all records", n, n)
}

// late returns, for each store node that lacks records, the reason.
func (c *finding) late() (all []string) {
	up, _ := c.up()
	for _, name := range c.Store {
		behind, late := c.kept.Behind[name]
		switch gone := slices.Contains(c.kept.Gone, name); {
		case (late || gone) && !slices.Contains(up, name):
			all = append(all, name+" does not answer")
		case gone:
			all = append(all, name+" has just been away")
		case late:
			all = append(all, fmt.Sprintf("%s has not %d of the newest writes", name, behind))
		}
	}
	return all
}

// nodes reports which nodes are there, and compares their versions and names.
func (x *examiner) nodes(c *finding) {
	x.asHeardHere(c)
	versions := map[string][]string{}
	var last heard
	for _, h := range c.heard {
		if h.Leaving {
			continue
		}
		// After a restart, heartbeats of the old and the new process are received, one after the
		// other.
		if h.Name == last.Name && last.last.After(h.first) {
			x.say(Fault, fmt.Sprintf("two processes are called %s: neither knows of the other", h.Name),
				"stop one, or give it a join file of its own: headgate cluster node NAME")
		} else {
			versions[h.Version] = append(versions[h.Version], h.Name)
		}
		last = h
	}
	switch len(versions) {
	case 0:
		x.say(Skipped, "no heartbeat was heard: see quorum", "")
	case 1:
		for v, names := range versions {
			x.ok("%d, all of version %s: %s", len(names), v, few(names))
		}
	default:
		var all []string
		for _, v := range slices.Sorted(maps.Keys(versions)) {
			all = append(all, v+" on "+few(versions[v]))
		}
		x.say(Warning, "they run different versions: "+strings.Join(all, "; "),
			"bring all to the same: two are meant for the time of an upgrade")
	}
}

// few lists names, and only the first ones if there are many.
func few(names []string) string {
	const most = 12 // one line; chosen
	if len(names) <= most {
		return strings.Join(names, " ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], " "), len(names)-most)
}

// asHeardHere reports what the running headgate knows of the others.
func (x *examiner) asHeardHere(c *finding) {
	r := x.heard
	switch {
	case r == nil:
		return
	case r.Alone:
		x.say(Fault, "the headgate that runs here is not part of the cluster",
			"it started before cluster was in the configuration: restart it")
		return
	case r.Cluster == nil:
		return
	case r.Cluster.Problem != "":
		x.say(Fault, "the headgate that runs here says: "+r.Cluster.Problem, "see quorum")
	}
	var deaf []string
	for i := range r.Cluster.Nodes {
		n := &r.Cluster.Nodes[i]
		speaks := func(h heard) bool { return h.Name == n.Name && !h.Leaving }
		if !n.Alive && slices.ContainsFunc(c.heard, speaks) {
			deaf = append(deaf, n.Name)
		}
	}
	if len(deaf) > 0 {
		x.say(Warning, fmt.Sprintf("the headgate that runs here does not hear %s, who can be heard",
			few(deaf)), "it may have just come; if it stays so, restart headgate here")
	}
}

// These constants limit the difference between clocks. Chosen: half a second does not matter for
// heartbeats or for people, and time services keep machines within milliseconds.
const (
	oddClock = 500 * time.Millisecond
	badClock = 2 * time.Second
)

// A skew is how far the clock of a node is ahead of this machine's clock.
type skew struct {
	node string
	by   time.Duration
}

// skews returns the clock differences from heartbeats. Without heartbeats it returns those that the
// running headgate reports, in tenths of a second.
func (x *examiner) skews(c *finding) (all []skew) {
	for _, h := range c.heard {
		if h.Name != c.Node {
			all = append(all, skew{h.Name, h.Skew})
		}
	}
	if r := x.heard; len(all) == 0 && r != nil && r.Cluster != nil {
		for i := range r.Cluster.Nodes {
			if n := &r.Cluster.Nodes[i]; n.Alive && n.Name != c.Node {
				all = append(all, skew{n.Name, time.Duration(n.Skew * float64(time.Second))})
			}
		}
	}
	return all
}

// clocks compares the clocks of the nodes. With three or more, it takes the median as correct. With
// two, it cannot decide which is wrong.
func (x *examiner) clocks(c *finding) {
	all := x.skews(c)
	if len(all) == 0 {
		x.say(Skipped, "no other node was heard", "")
		return
	}
	if len(all) > 1 {
		all = append(all, skew{"this machine", 0})
		by := slices.SortedFunc(slices.Values(all),
			func(a, b skew) int { return cmp.Compare(a.by, b.by) })
		middle := by[len(by)/2].by
		for i := range all {
			all[i].by -= middle
		}
	}
	worst := time.Duration(0)
	for _, s := range all {
		worst = max(worst, s.by.Abs())
		state := Warning
		switch {
		case s.by.Abs() <= oddClock:
			continue
		case s.by.Abs() > badClock:
			state = Fault
		}
		way, than := "ahead of", "the others"
		if s.by < 0 {
			way = "behind"
		}
		if len(all) == 1 {
			than = "this machine"
		}
		x.say(state, fmt.Sprintf("the clock of %s is %.1f s %s %s: sealing keys depend on it, for a "+
			"new one seals 30 s after it was made, and times that are shown; limits and places do not",
			s.node, s.by.Abs().Seconds(), way, than), "run a time service there, such as chrony; "+
			"timedatectl says whether the clock is synchronized")
	}
	if worst <= oddClock {
		x.ok("all within %.1f s", worst.Seconds())
	}
}
