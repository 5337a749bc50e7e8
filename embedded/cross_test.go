package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/loopback"
)

// A world is several data centers on this machine, each with its own CA.
type world struct {
	t  *testing.T
	at map[string]*trio
	// leaf are the addresses of the links, by data center and node. via are the addresses at which
	// the others reach them.
	leaf, via map[string]map[string]string
}

// newWorld makes data centers that are not started yet, with the same nodes in each.
func newWorld(t *testing.T, nodes []string, names ...string) *world {
	t.Helper()
	w := &world{t: t, at: map[string]*trio{}, leaf: map[string]map[string]string{},
		via: map[string]map[string]string{}}
	for _, name := range names {
		w.at[name] = newTrioOf(t, name, nodes...)
		w.leaf[name] = map[string]string{}
		for _, node := range nodes {
			w.leaf[name][node] = loopback.Free(t)
		}
		w.via[name] = maps.Clone(w.leaf[name])
	}
	for name := range w.at {
		w.join(name)
	}
	return w
}

// join configures all others at a data center, for its next start.
func (w *world) join(name string) {
	c := w.at[name]
	c.change = func(node string, config *Config) {
		config.Cluster.Leaf = w.leaf[name][node]
		config.Log = slog.New(slog.NewTextHandler(c.log, nil)).With("node", node, "dc", name)
		for _, other := range slices.Sorted(maps.Keys(w.at)) {
			if other != name {
				config.Cluster.Others = append(config.Cluster.Others, w.datacenter(other))
			}
		}
	}
}

func (w *world) datacenter(name string) Datacenter {
	w.t.Helper()
	ca, err := os.ReadFile(filepath.Join(w.at[name].dir, "ca.pem"))
	if err != nil {
		w.t.Fatal(err)
	}
	return Datacenter{Name: name, CA: ca,
		Servers: slices.Sorted(maps.Values(w.via[name]))}
}

func (w *world) start() {
	w.t.Helper()
	for _, c := range w.at {
		c.start(slices.Sorted(maps.Keys(c.peers))...)
	}
}

// serve answers requests on a connection.
func serve(t *testing.T, conn *nats.Conn, subject, answer string) {
	t.Helper()
	if _, err := conn.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(answer)) }); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// ask requests subject and expects the answer want.
func ask(conn *nats.Conn, subject, want string) func(context.Context) error {
	return func(ctx context.Context) error {
		m, err := conn.RequestWithContext(ctx, subject, nil)
		if err != nil {
			return err
		}
		if got := string(m.Data); got != want {
			return fmt.Errorf("%q answers, want %q", got, want)
		}
		return nil
	}
}

// both waits until two engines receive each other's messages, and returns how long that took.
func (w *world) both(what string, one, other *Server, names ...string) time.Duration {
	w.t.Helper()
	a, b := other.Link(names[0]), one.Link(names[1])
	begin := time.Now()
	eventually(w.t, what+": "+names[0]+" is asked", ask(a, "to."+names[0], names[0]))
	eventually(w.t, what+": "+names[1]+" is asked", ask(b, "to."+names[1], names[1]))
	return time.Since(begin)
}

// pair returns two engines that answer each other.
func (w *world) pair(a, b string) (one, other *Server) {
	w.t.Helper()
	one, other = w.at[a].run["n1"], w.at[b].run["n1"]
	serve(w.t, one.Link(b), "to."+a, a)
	serve(w.t, other.Link(a), "to."+b, b)
	return one, other
}

// heardOnce publishes from n1 of one data center to another, until all expected subscribers have
// received the message, and checks that each message arrives at most once.
func (w *world) heardOnce(heard map[string]*nats.Subscription, from, to string, want []string) {
	w.t.Helper()
	const times = 5
	conn := w.at[from].run["n1"].Link(to)
	eventually(w.t, "heard by all", func(context.Context) error {
		if err := conn.Publish("all", []byte("try")); err != nil {
			return err
		}
		for _, who := range want {
			if _, err := heard[who].NextMsg(100 * time.Millisecond); err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
		}
		return nil
	})
	for range times {
		if err := conn.Publish("all", []byte("count")); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := conn.Publish("all", []byte("end")); err != nil {
		w.t.Fatal(err)
	}
	for who, sub := range heard {
		got := 0
		for wait := within; ; {
			if !slices.Contains(want, who) {
				wait = 50 * time.Millisecond // the others have received it by now
			}
			m, err := sub.NextMsg(wait)
			if err != nil || string(m.Data) == "end" {
				break
			}
			if string(m.Data) == "count" {
				got++
			}
		}
		if slices.Contains(want, who) && got != times || !slices.Contains(want, who) && got != 0 {
			w.t.Errorf("%s says %d things to %s: %s hears %d", from, times, to, who, got)
		}
	}
}

// allAsk sends a request from each of some nodes to each node of the other data center.
func (w *world) allAsk(nodes map[string][]string) {
	w.t.Helper()
	for name, all := range nodes {
		for _, node := range all {
			for _, there := range nodes[other(name)] {
				who := other(name) + "/" + there
				conn := w.at[name].run[node].Link(other(name))
				eventually(w.t, name+"/"+node+" asks "+who, ask(conn, "to."+who, who))
			}
		}
	}
}

func other(name string) string {
	if name == "lhr" {
		return "sjc"
	}
	return "lhr"
}
