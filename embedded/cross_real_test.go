//go:build real

package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/tests/yardstick"
)

// cutWithin is the maximum time until a link that was cut works again.
const cutWithin = 5 * time.Second // repeated attempts, half a second each

func TestTwoDatacentersTalkBothWays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	w.start()
	lhr, sjc := w.pair("lhr", "sjc")
	w.both("from the start", lhr, sjc, "lhr", "sjc")
	if sjc.Link("sjc") != nil || sjc.Link("del") != nil {
		t.Error("there is a connection to a data center that is not there")
	}

	// The engine restarts, on either side: the connection stays the same.
	for _, s := range []*Server{lhr, sjc} {
		before := s.engine.Load()
		s.restart(t.Context())
		if e := s.engine.Load(); e == nil || e == before {
			t.Fatal("the engine is the same")
		}
		w.both("after a restart", lhr, sjc, "lhr", "sjc")
	}
}

func TestThreeDatacentersInPairsDoNotLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "del", "lhr", "sjc")
	w.start()
	heard := map[string]*nats.Subscription{}
	for _, p := range [][2]string{{"del", "lhr"}, {"del", "sjc"}, {"lhr", "sjc"}} {
		one, other := w.pair(p[0], p[1])
		w.both("a pair", one, other, p[0], p[1])
	}
	for name, c := range w.at {
		for other := range w.at {
			if other != name {
				heard[name+" of "+other] = listen(t, c.run["n1"].Link(other), "all")
			}
		}
	}
	w.heardOnce(heard, "lhr", "sjc", []string{"lhr of sjc", "sjc of lhr"})
	w.heardOnce(heard, "sjc", "del", []string{"sjc of del", "del of sjc"})
	for name, c := range w.at {
		if log := c.log.String(); strings.Contains(log, "oop detected") || strings.Contains(log, "ERROR") {
			t.Errorf("%s says:\n%s", name, log)
		}
	}
}

func listen(t *testing.T, conn *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	sub, err := conn.SubscribeSync(subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return sub
}

// Each data center has three store nodes, and one of them fails, on either side.
func TestTwoDatacentersOfThreeStoreNodes(t *testing.T) {
	stick := yardstick.Start(t)
	t.Parallel()
	nodes := []string{"n1", "n2", "n3"}
	w := newWorld(t, nodes, "lhr", "sjc")
	w.start()
	heard := map[string]*nats.Subscription{}
	var want []string
	for name, c := range w.at {
		for _, node := range nodes {
			who := name + "/" + node
			conn := c.run[node].Link(other(name))
			serve(t, conn, "to."+who, who)
			heard[who] = listen(t, conn, "all")
			want = append(want, who)
		}
	}
	w.allAsk(map[string][]string{"lhr": nodes, "sjc": nodes})
	w.heardOnce(heard, "lhr", "sjc", want)
	w.heardOnce(heard, "sjc", "lhr", want)
	for _, name := range []string{"lhr", "sjc"} {
		c := w.at[name]
		dies := slices.IndexFunc(nodes, func(node string) bool {
			return c.run[node].engine.Load().NumLeafNodes() > 0
		})
		gone, left := nodes[dies], slices.Delete(slices.Clone(nodes), dies, dies+1)
		c.stop(gone)
		begin := time.Now()
		w.allAsk(map[string][]string{name: left, other(name): nodes})
		judge(t, stick, "a link whose node is gone", time.Since(begin), cutWithin)
		c.start(gone)
		serve(t, c.run[gone].Link(other(name)), "to."+name+"/"+gone, name+"/"+gone)
		w.allAsk(map[string][]string{"lhr": nodes, "sjc": nodes})
	}
}

func TestNothingElseCrosses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	w.start()
	lhr, sjc := w.pair("lhr", "sjc")
	w.both("the link", lhr, sjc, "lhr", "sjc")
	for name, c := range w.at {
		js := domainOf(t, c.run["n1"].Conn(), name)
		eventually(t, "a stream", create(js, 1))
		eventually(t, "a write", write(js, "of "+name))
	}
	for _, s := range []*Server{lhr, sjc} {
		there, here := sjc, s.Link("sjc")
		name := "sjc"
		if s == sjc {
			there, here, name = lhr, s.Link("lhr"), "lhr"
		}
		// Messages within a cluster, and what is stored.
		subs := []*nats.Subscription{
			listen(t, there.Conn(), "x"), listen(t, there.Conn(), "s.x"),
			listen(t, there.Conn(), "from.pair"),
			listen(t, there.Link(other(name)), "x"), listen(t, there.Link(other(name)), "s.x"),
		}
		for _, m := range []struct {
			conn    *nats.Conn
			subject string
		}{{s.Conn(), "x"}, {s.Conn(), "s.x"}, {here, "from.pair"}} {
			if err := m.conn.Publish(m.subject, []byte("heard")); err != nil {
				t.Fatal(err)
			}
		}
		w.both("what crosses has crossed by then", lhr, sjc, "lhr", "sjc")
		for i, sub := range subs {
			if m, err := sub.NextMsg(50 * time.Millisecond); err == nil {
				t.Errorf("%d: %q with %q came across to %s", i, m.Subject, m.Data, name)
			}
		}
		// The engine and the records there: by their names, and by the domain's name.
		for _, subject := range []string{"$JS." + name + ".API.STREAM.NAMES", "$JS." + name + ".API.INFO",
			"$JS." + name + ".API.STREAM.MSG.GET.s", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.$G.JSZ"} {
			if m, err := here.Request(subject, []byte("{}"), 300*time.Millisecond); err == nil {
				t.Errorf("%s of %s answers %s", subject, name, m.Data)
			}
		}
		for _, subject := range []string{"$JS.API.STREAM.NAMES", "$JS.API.INFO", "$SYS.REQ.USER.INFO"} {
			m, err := here.Request(subject, nil, 300*time.Millisecond)
			if err == nil && strings.Contains(string(m.Data), there.engine.Load().ID()) {
				t.Errorf("%s is answered by %s: %s", subject, name, m.Data)
			}
			if err == nil && strings.Contains(string(m.Data), `"streams":["s"]`) {
				t.Errorf("%s tells of the records: %s", subject, m.Data)
			}
		}
	}
}

// Records that were written before there was another data center are kept. The cluster keeps
// running while its nodes learn of the other data center one after the other.
func TestRecordsStayWhenDatacentersAreAdded(t *testing.T) {
	t.Parallel()
	for _, nodes := range [][]string{{"n1"}, {"n1", "n2", "n3"}} {
		t.Run(fmt.Sprint(len(nodes)), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nodes, "lhr", "sjc")
			lhr, sjc := w.at["lhr"], w.at["sjc"]
			sjc.change = nil
			sjc.start(nodes...)
			js := stream(t, sjc.worker("n1"), len(nodes))
			eventually(t, "the first write", write(js, "one"))
			w.join("sjc")
			for i, node := range nodes {
				sjc.stop(node)
				sjc.start(node)
				eventually(t, "a write after "+node, write(js, node))
				if len(nodes) > 1 {
					sjc.caughtUp(js, 2+i)
				}
			}
			lhr.start(nodes...)
			serve(t, lhr.run["n1"].Link("sjc"), "to.lhr", "lhr")
			for _, node := range nodes {
				eventually(t, node+" asks", ask(sjc.run[node].Link("lhr"), "to.lhr", "lhr"))
			}
			eventually(t, "all is there", func(ctx context.Context) error {
				s, err := js.Stream(ctx, "s")
				if err != nil {
					return err
				}
				first, err := s.GetMsg(ctx, 1)
				if err != nil {
					return err
				}
				if n := s.CachedInfo().State.Msgs; string(first.Data) != "one" || n < uint64(1+len(nodes)) {
					return fmt.Errorf("%d records, the first is %q", n, first.Data)
				}
				return nil
			})
		})
	}
}

// A link that is cut, or only silent, is detected and reconnects automatically.
func TestALinkHeals(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, []string{"n1"}, "lhr", "sjc")
			stick := yardstick.Start(t)
			wire := newWire(t, w.leaf["sjc"]["n1"])
			w.via["sjc"]["n1"] = wire.addr
			w.start()
			lhr, sjc := w.pair("lhr", "sjc")
			w.both("through the wire", lhr, sjc, "lhr", "sjc")
			if silent {
				wire.silence(true)
			} else {
				wire.cut()
			}
			const noticed = 5 * time.Second
			begin := time.Now()
			for name, conn := range map[string]*nats.Conn{"lhr": lhr.Link("sjc"), "sjc": sjc.Link("lhr")} {
				eventually(t, name+" notices", func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
					defer cancel()
					_, err := conn.RequestWithContext(ctx, "to."+other(name), nil)
					if !errors.Is(err, nats.ErrNoResponders) {
						return fmt.Errorf("got %v", err)
					}
					return nil
				})
			}
			judge(t, stick, "to notice", time.Since(begin), noticed)
			wire.heal()
			judge(t, stick, "to heal", w.both("healed", lhr, sjc, "lhr", "sjc"), cutWithin)
		})
	}
}

// A data center that is not running yet is dialed three times a second.
func TestADatacenterThatIsNotThereFillsNoLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"n1"}, "lhr", "sjc")
	stranger := newWorld(t, []string{"n1"}, "lhr", "sjc") // has other CAs
	stranger.leaf["sjc"] = w.leaf["sjc"]
	w.at["lhr"].start("n1")
	pause(t)
	stranger.at["sjc"].start("n1") // from now on rejected each time
	pause(t)
	for name, log := range map[string]*book{"lhr": w.at["lhr"].log, "sjc": stranger.at["sjc"].log} {
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		const few = 4 // not there, rejected by us, rejected by them, and one to spare
		if len(lines) > few || strings.Contains(log.String(), "ERROR") {
			t.Errorf("%s has %d lines, want at most %d:\n%s", name, len(lines), few, log)
		}
	}
	if !strings.Contains(w.at["lhr"].log.String(), "WARN") {
		t.Errorf("nothing is said:\n%s", w.at["lhr"].log)
	}
}
