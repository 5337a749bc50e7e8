package edges

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
	worlds "github.com/headgate/headgate/tests/world"
)

// TestAnOriginThatAProxyForwardsTo: headgate forwards nothing and notices all the same when the
// origin is down, calls nobody meanwhile, and goes on when it is back. What a monitor reports at one
// node holds at the others, and lapses.
func TestAnOriginThatAProxyForwardsTo(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		const origin = "127.0.0.1:9000"
		asks := map[string]string{"n1": "127.0.0.1:9101", "n2": "127.0.0.1:9102", "n3": "127.0.0.1:9103"}
		w := worlds.New(t, worlds.Config{Seed: 1, Servers: []string{"n1", "n2", "n3"}})
		defer w.Close()
		for _, name := range []string{"n1", "n2", "n3"} {
			w.Add(name, "decide: {listen: \""+asks[name]+"\"}\ntrusted_proxies: [127.0.0.1]\nrooms:\n"+
				"  - {name: shop, host: shop.example, origin: \"http://"+origin+"\", total_active_users: 90, "+
				"new_users_per_minute: 900}\n")
		}
		client := outside(w)
		defer client.CloseIdleConnections()
		for _, n := range w.Nodes() {
			n.Start()
		}
		for _, n := range w.Nodes() {
			n.Ready()
		}
		lets := func(when, want string) {
			t.Helper()
			got := ""
			for _, node := range []string{"n1", "n2", "n3"} {
				c := &connector{t, asks[node], client}
				if c.enters(&kept{}) {
					got += node + " "
				}
			}
			if got = strings.TrimSpace(got); got != want {
				t.Errorf("%s: newcomers come in at %q, want %q", when, got, want)
			}
		}
		lets("the origin was never reached", "n1 n2 n3")
		l, err := w.Net.Listen(worlds.Outside, origin)
		if err != nil {
			t.Fatal(err)
		}
		w.Rest(5 * time.Second)
		lets("the origin is up", "n1 n2 n3")
		l.Close()
		w.Rest(5 * time.Second)
		lets("the origin is down", "")
		if l, err = w.Net.Listen(worlds.Outside, origin); err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w.Rest(5 * time.Second)
		lets("the origin is back", "n1 n2 n3")

		at := w.Node("n1")
		report := func(body, want string) {
			t.Helper()
			got, err := w.Ask(at, "POST", "/v1/rooms/shop/origin", at.Token(), body)
			if got = fmt.Sprint(strings.TrimSpace(got), " ", err); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", body, got, want)
			}
			w.Rest(time.Second)
		}
		report(`{"up": false, "for_seconds": 60}`, `{"up":false}`)
		lets("reported down", "")
		w.Rest(50 * time.Second)
		report(`{"up": false, "for_seconds": 20}`, `{"up":false}`)
		w.Rest(15 * time.Second)
		lets("reported down again", "")
		w.Rest(5 * time.Second)
		lets("the report has lapsed", "n1 n2 n3")
		for _, at = range w.Nodes() { // one of them counts the room
			report(`{"up": false, "for_seconds": 3600}`, `{"up":false}`)
			lets("reported down for an hour at "+at.Name, "")
			report(`{"up": true}`, `{"up":true}`)
			lets("reported up at "+at.Name, "n1 n2 n3")
		}
		for _, bad := range []string{``, `{}`, `{"up": 1}`, `{"up": false}`, `{"up": true} {}`, `{"down": true}`,
			`{"up": false, "for_seconds": 0}`, `{"up": false, "for_seconds": 3601}`, `{"up": false, "for_seconds": 1.5}`} {
			report(bad, "400")
		}
		lets("bad reports", "n1 n2 n3")
	})
}
