package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/internal/crowd"
)

// stillDemo is a demo of data centers that are not started, whose visitors have been
// coming for a while.
func stillDemo(t *testing.T, since time.Duration) *worldwide {
	t.Helper()
	d := &demo{cfg: Config{Limits: WorldLimits(), For: WorldFor}, opened: time.Now().Add(-since),
		begun: time.Now().Add(-since), judge: newJudge(), failed: make(chan error, 1)}
	var err error
	if d.shop, err = openShop(d.cfg.Limits); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.shop.close() })
	w, err := newWorldwide(d, &ground{program: built, folder: t.TempDir(), origin: d.shop.url,
		limits: d.cfg.Limits, failed: d.failed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// playedCity is the node of a city whose answers to operators come from another server.
func playedCity(i int, admin string) *node {
	at := places()[i]
	n := newNode(at.name, at.title, "", "", nil)
	n.admin, n.process = &adminclient.Client{URL: admin}, &process{}
	return n
}

// isCut says which wires are cut.
func isCut(d *worldwide) (cut []string) {
	for _, w := range d.world.wires {
		if w.mu.Lock(); w.cut {
			cut = append(cut, w.ends[0]+"-"+w.ends[1])
		}
		w.mu.Unlock()
	}
	return cut
}

// TestKeysCutCities: a key cuts both wires of a city, and mends those whose other end is
// not cut off itself.
func TestKeysCutCities(t *testing.T) {
	d := stillDemo(t, time.Second)
	for i, step := range []struct {
		keys string
		want []string
	}{
		{"2", []string{"del-lhr", "lhr-sjc"}}, {"q 49", []string{"del-lhr", "lhr-sjc"}},
		{"3", []string{"del-lhr", "del-sjc", "lhr-sjc"}}, {"2", []string{"del-lhr", "del-sjc"}},
		{"3", nil}, {"1", []string{"del-sjc", "lhr-sjc"}},
	} {
		for _, k := range []byte(step.keys) {
			d.key(t.Context(), k)
		}
		if got := isCut(d); !slices.Equal(got, step.want) {
			t.Errorf("step %d: %v are cut, want %v", i, got, step.want)
		}
		if i == 3 && (d.cuts[0].took == 0 || d.cuts[1].took != 0) {
			t.Errorf("cuts %+v, want London's to be over, and Delhi's not", d.cuts)
		}
	}
	s := &Summary{took: time.Hour}
	d.sum(s)
	var cuts []string
	for _, l := range s.more {
		if l[0] == "cut off" {
			cuts = append(cuts, l[1])
		}
	}
	if len(cuts) != 3 || !strings.HasPrefix(cuts[0], "London") || strings.Contains(cuts[2], " 0.0 s") {
		t.Errorf("cuts %q, want London, Delhi and San Jose", cuts)
	}
	d.opened = time.Time{}
	if d.key(t.Context(), '1'); len(isCut(d)) != 2 {
		t.Error("a key does something before visitors come")
	}
}

// TestDirector cuts London off once in each show, and mends it, if no key was quicker.
func TestDirector(t *testing.T) {
	d := stillDemo(t, time.Second)
	at := func(share float64, want bool) {
		t.Helper()
		now := time.Now()
		d.opened = now.Add(-time.Duration(share * float64(WorldFor)))
		d.follow(t.Context())
		if got := d.world.of(cutCity).isOff(); got != want {
			t.Errorf("at %.2f of the show London is cut off: %t, want %t", share, got, want)
		}
	}
	at(0.01, false)
	at(cutAt-0.02, false)
	at(cutAt+0.01, true)
	at(cutAt+0.1, true)
	at(cutAt+cutShare+0.02, false)
	at(0.9, false)
	at(1+cutAt+0.01, true)
	d.key(t.Context(), '2')
	at(1+cutAt+0.02, false)
	at(1.9, false)
	var said []string
	for _, n := range d.news {
		said = append(said, n.text)
	}
	text := strings.Join(said, "; ")
	if strings.Count(text, "cut off") != 2 || strings.Count(text, "joined") != 2 ||
		!strings.Contains(text, "morning in London") {
		t.Errorf("told: %s", text)
	}
}

// TestADay: the busiest city wanders west, in each it is calm most of the day, and at
// noon all visitors there are come.
func TestADay(t *testing.T) {
	var busiest []string
	for hour := range 24 {
		day, sum := (float64(hour)+0.5)/24, 0.0
		all := places()
		for i := range all {
			sum += allDay + atNoon*all[i].busy(day)
		}
		if sum > 1+1e-9 || sum < 0.3 {
			t.Errorf("at %d o'clock %.2f of all come", hour, sum)
		}
		p := slices.MaxFunc(all, func(a, b place) int { return int(1e9 * (a.busy(day) - b.busy(day))) })
		if n := len(busiest); n == 0 || busiest[n-1] != p.name {
			busiest = append(busiest, p.name)
		}
	}
	if got := strings.Join(busiest, " "); got != "del lhr sjc" {
		t.Errorf("people wander %s", got)
	}
	if p := places()[0]; math.Abs(p.busy(p.noon)-1) > 1e-9 || p.busy(p.noon+0.5) != 0 {
		t.Error("noon is not the busiest, or midnight not calm")
	}
}

// TestCityLooks: what a data center says of itself is understood, and what it cannot say
// yet is no harm.
func TestCityLooks(t *testing.T) {
	body, metrics := `{"active_users": 3}`, "# nothing\n"
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/rooms/" + roomName:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		case "/metrics":
			fmt.Fprint(w, metrics)
		}
	}))
	defer web.Close()
	c := newCity(places()[2], playedCity(2, web.URL))
	c.look(t.Context())
	c.count(t.Context())
	if c.stands() != up || c.joined() || c.says.World != nil || len(c.sent) > 0 {
		t.Errorf("%+v: want one that is up and alone", c.says)
	}
	body = `{"active_users": 17, "datacenters": {"own": "del", "home": "sjc", "uncertainty_seconds": 0.22,
		"anywhere": {"age_seconds": 0.4, "limit": 60, "free": 11, "presumed": 2}, "datacenters": [
		{"name": "lhr", "age_seconds": -1, "held": 5},
		{"name": "del", "active": 17, "waiting": 4, "held": 20, "unused": 3}]}}`
	c.look(t.Context())
	if c.joined() || c.says.World.Home != "sjc" || c.says.of("del").Held != 20 {
		t.Errorf("%+v: want one that has not heard of London", c.says)
	}
	body = strings.Replace(strings.Replace(body, "-1", "0.3", 1), `"held": 20`, `"held": 26`, 1)
	c.look(t.Context())
	got := c.scene(time.Now())
	got.place = place{}
	if want := (cityScene{Up: true, Active: 17, Waiting: 4, Held: 26, Unused: 3, Flow: 26}); got != want ||
		!c.joined() {
		t.Errorf("%+v, want 17 inside, 4 waiting, 26 held", got)
	}
	c.counted("sjc", 100, at(0))
	c.counted("sjc", 130, at(10))
	metrics = "headgate_datacenter_messages_total{to=\"lhr\"} 7\nheadgate_datacenter_messages_total{to=\"lhr\"} x\n"
	c.count(t.Context())
	if n, ok := c.sent["sjc"].perSecond(); n != 3 || !ok {
		t.Errorf("%.1f messages a second, %t; want 3", n, ok)
	}
	if _, ok := c.sent["lhr"].perSecond(); ok || c.sent["lhr"].n != 7 {
		t.Errorf("%+v: want 7, and no speed of one look", c.sent["lhr"])
	}
}

// TestFirstAnswers: the time to a first answer is kept by what the city held.
func TestFirstAnswers(t *testing.T) {
	c := newCity(places()[1], playedCity(1, ""))
	look := func(unused int) {
		text := fmt.Sprintf(`{"datacenters": {"datacenters": [{"name": "lhr", "unused": %d}]}}`, unused)
		if err := json.Unmarshal([]byte(text), &c.says); err != nil {
			t.Fatal(err)
		}
		c.hears(time.Now())
	}
	visit := func(state string, took time.Duration, problem string) {
		f := &flock{came: c.newcomer}
		tell := f.newcomer()
		tell(&crowd.Event{What: crowd.EventArrived})
		for range 2 { // the second is no first answer
			tell(&crowd.Event{What: crowd.EventPolled, Poll: crowd.Poll{State: state, Err: problem,
				SentAt: time.Second, AnswerAt: time.Second + took}})
		}
	}
	look(2)
	visit("", time.Millisecond, "")
	visit("", 3*time.Millisecond, "")
	visit("", 200*time.Millisecond, "") // both slots have gone to those before
	look(1)
	visit("", 2*time.Millisecond, "")
	look(0)
	visit("", 300*time.Millisecond, "")
	visit("waiting", 9*time.Millisecond, "")
	visit("", time.Hour, "timeout")
	d := &worldwide{demo: &demo{}, world: &world{cities: []*city{c}},
		cuts: []cutting{{city: c, took: 12 * time.Second, held: 42, first: 10, after: 31}}}
	var text strings.Builder
	sum := &Summary{world: true, report: report{Count: 1}, seen: finding{Tickets: 1}}
	d.sum(sum)
	if err := sum.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 ms, of 3 let in; a slot was unused at the last look",
		"300 ms, of 2 let in; none was", " 9 ms, of 1 told to wait", "London for 12.0 s: it held 42 slots, and let in 21 meanwhile",
		"sjc–lhr 70 ms, sjc–del 110 ms, lhr–del 60 ms"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	for _, not := range []string{"kills", "messages a second", "order between"} {
		if strings.Contains(text.String(), not) {
			t.Errorf("%q in\n%s", not, &text)
		}
	}
}

// TestAWorldThatDoesNotMeet: a city whose data center hears nobody keeps all waiting, and
// an end while they wait is no error.
func TestAWorldThatDoesNotMeet(t *testing.T) {
	w := &worldwide{demo: &demo{begun: time.Now()},
		world: &world{cities: []*city{newCity(places()[0], playedCity(0, ""))}}}
	ctx, stop := context.WithTimeout(t.Context(), 3*lookEvery)
	defer stop()
	if err := w.open(ctx); err != nil || ctx.Err() == nil {
		t.Errorf("%v, %v: want to wait to the end", err, ctx.Err())
	}
}
