package headgate

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Common complaints about other waiting rooms, each with the guarantee here, as a visitor sees it.
// docs/complaints.md lists the tests that cover each in depth.
func TestComplaints(t *testing.T) { //nolint:funlen // a list of cases
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Hour,
		PollMin: 100 * time.Millisecond, PollMax: time.Second}
	line := func(t *testing.T, n int) (g *gate, inside *visitor, all []*visitor) {
		t.Helper()
		g = openGate(t, cfg)
		if inside = g.visitor(); !inside.in() {
			t.Fatal("the room is empty")
		}
		for i := range n {
			v := g.visitor()
			v.in()
			if p := v.poll(); p.Position != int64(i+1) {
				t.Fatalf("position %d", p.Position)
			}
			all = append(all, v)
		}
		return g, inside, all
	}
	bubble(t, "a closed tab loses the place", func(t *testing.T) {
		_, _, all := line(t, 3)
		for range 4 * 60 {
			time.Sleep(time.Second)
			all[2].poll()
		}
		all[1].in() // opened again
		if p := all[1].poll(); p.Position != 2 || all[2].poll().Position != 3 {
			t.Errorf("%+v", p)
		}
	})
	bubble(t, "another device loses the place", func(t *testing.T) {
		g, _, all := line(t, 2)
		phone := g.visitor()
		if !phone.moved(phone.open(all[1].link())) || phone.poll().Position != 2 {
			t.Errorf("%+v", phone.poll())
		}
	})
	bubble(t, "a phone that sleeps loses the place", func(t *testing.T) {
		g, _, all := line(t, 1)
		phone := g.visitor()
		phone.extra = http.Header{"User-Agent": {"Mobile"}}
		phone.in()
		for range 14 * 60 {
			time.Sleep(time.Second)
			all[0].poll()
		}
		if p := phone.poll(); p.Position != 2 {
			t.Errorf("%+v", p)
		}
	})
	bubble(t, "a second tab wins over the first", func(t *testing.T) {
		g, inside, all := line(t, 2)
		tab := *all[0]
		if tab.poll().Position != 1 || all[0].poll().Position != 1 || g.room.Status().WaitingUsers != 2 {
			t.Error("two tabs are two places")
		}
		g.header.Set(CommandHeader, "revoke")
		inside.in()
		g.header.Del(CommandHeader)
		if !tab.until(time.Minute) || !tab.in() || !all[0].in() {
			t.Error("one of two tabs is left out")
		}
	})
	bubble(t, "a reload loses the place", func(t *testing.T) {
		_, _, all := line(t, 3)
		for range 50 {
			all[1].in()
		}
		if all[1].poll().Position != 2 || all[2].poll().Position != 3 {
			t.Error("reloads have changed the order")
		}
	})
	bubble(t, "the line stands still without a word", func(t *testing.T) {
		g, _, all := line(t, 1)
		g.room.SetQueueAll(true)
		g.room.SetMessage("We are fixing the checkout.")
		if p := all[0].poll(); p.State != StateQueueAll || p.Message != "We are fixing the checkout." ||
			p.ETA != nil {
			t.Errorf("%+v", p)
		}
	})
	bubble(t, "the place moves back", func(t *testing.T) {
		g, _, all := line(t, 5)
		least := int64(99)
		for i := range 60 {
			if i%7 == 0 {
				g.visitor().in()
			}
			if i == 20 {
				all[1].do("POST", "/.headgate/leave")
			}
			p := all[4].poll().Position
			if p > least {
				t.Fatalf("from %d to %d", least, p)
			}
			least = p
			time.Sleep(time.Second)
		}
	})
	bubble(t, "nobody says how the order comes about", func(t *testing.T) {
		_, _, all := line(t, 1)
		if m := all[0].cf(); m["queueingMethod"] != "fifo" {
			t.Errorf("%v", m)
		}
	})
	bubble(t, "thrown out while paying", func(t *testing.T) {
		c := cfg
		c.SessionDuration, c.Grace = time.Minute, Grace{Paths: []string{"/pay"}, For: 10 * time.Minute}
		g := openGate(t, c)
		v := g.visitor()
		if !v.in() || !v.at("/pay") {
			t.Fatal("not in")
		}
		time.Sleep(9 * time.Minute) // looks for the credit card
		if !v.at("/pay") || g.visitor().in() {
			t.Error("the visit has ended, or somebody has its slot")
		}
	})
	bubble(t, "one ticket lets many in", func(t *testing.T) {
		g, inside, all := line(t, 1)
		friend := *all[0]
		g.header.Set(CommandHeader, "revoke")
		inside.in()
		if !all[0].until(time.Minute) || !all[0].in() { // and has left again
			t.Fatal("not in")
		}
		g.header.Del(CommandHeader)
		if next := g.visitor(); !next.in() && (!next.until(time.Minute) || !next.in()) {
			t.Fatal("nobody is next")
		}
		if friend.in() {
			t.Error("a ticket was used twice")
		}
	})
	bubble(t, "without cookies one waits for ever", func(t *testing.T) {
		g, _, _ := line(t, 1)
		v := g.visitor()
		if p := v.poll(); p.State != StateNoCookie || g.room.Status().WaitingUsers != 1 {
			t.Errorf("%+v", p)
		}
	})
	bubble(t, "a script gets a page and takes it for its answer", func(t *testing.T) {
		g, _, _ := line(t, 1)
		for accept, want := range map[string]string{"application/json": "application/json",
			"text/html;q=0.5, application/json": "application/json", "*/*": "text/plain; charset=utf-8"} {
			v := g.visitor()
			v.accept = accept
			w := v.do("GET", "/api")
			if got := w.Header().Get("Content-Type"); w.Code != 503 || got != want {
				t.Errorf("%s: %d %s", accept, w.Code, got)
			}
		}
	})
	bubble(t, "webhooks and probes wait in line", func(t *testing.T) {
		c := cfg
		c.Exclude.Paths = []string{"/webhook/"}
		g := openGate(t, c)
		g.visitor().in()
		for _, path := range []string{"/webhook/paid", "/robots.txt", "/favicon.ico"} {
			if w := g.visitor().do("POST", path); !strings.HasPrefix(w.Body.String(), "origin") {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
	})
	bubble(t, "search engines keep the waiting page", func(t *testing.T) {
		g, _, _ := line(t, 1)
		w := g.visitor().do("GET", "/")
		if w.Code != 503 || w.Header().Get("Retry-After") == "" ||
			w.Header().Get("X-Robots-Tag") != "noindex" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
	bubble(t, "the back button shows an old place", func(t *testing.T) {
		g, _, _ := line(t, 1)
		h := g.visitor().do("GET", "/").Header()
		if h.Get("Cache-Control") != "no-store" || !strings.HasPrefix(h.Get("Vary"), "Cookie, Accept") {
			t.Errorf("%v", h)
		}
	})
	bubble(t, "all come back at the same second", func(t *testing.T) {
		_, _, all := line(t, 40)
		seen := map[float64]bool{}
		for _, v := range all[20:] {
			seen[v.poll().After] = true
		}
		if len(seen) < 10 {
			t.Errorf("20 visitors were told %d times to come back", len(seen))
		}
	})
	bubble(t, "within a page of another site one waits for ever", func(t *testing.T) {
		c := cfg
		c.SameSite, c.Secure = http.SameSiteNoneMode, func(*http.Request) bool { return true }
		set := openGate(t, c).visitor().do("GET", "/").Result().Cookies()
		if len(set) != 1 || set[0].SameSite != http.SameSiteNoneMode || !set[0].Partitioned {
			t.Errorf("browsers keep no cookie of a frame such as %v", set)
		}
		set = openGate(t, cfg).visitor().do("GET", "/").Result().Cookies()
		if len(set) != 1 || set[0].SameSite != http.SameSiteLaxMode || set[0].Partitioned {
			t.Errorf("without frames %v", set)
		}
	})
	bubble(t, "an error of the site loses the place", func(t *testing.T) {
		g, inside, all := line(t, 1)
		g.room.SetOriginUp(false)
		if p := all[0].poll(); p.State != StateDown || p.Position != 1 {
			t.Errorf("%+v", p)
		}
		g.room.SetOriginUp(true)
		if p := all[0].poll(); p.State != StateWaiting || p.Position != 1 || !inside.in() {
			t.Errorf("%+v", p)
		}
	})
	bubble(t, "waiting for what is sold out", func(t *testing.T) {
		c := cfg
		c.Closed, c.Message = true, "Sold out. Thank you!"
		g := openGate(t, c)
		v := g.visitor()
		v.in()
		if p := v.poll(); p.State != StateClosed || p.Message != c.Message {
			t.Errorf("%+v", p)
		}
		for _, v.accept = range []string{"*/*", "text/html"} { // a script, and a page without a template
			if w := v.do("GET", "/"); !strings.Contains(w.Body.String(), "is closed") {
				t.Errorf("%s is told %q", v.accept, w.Body)
			}
		}
	})
}
