package headgate

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRoomModes(t *testing.T) { //nolint:funlen // a list of cases
	one := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: time.Minute}
	bubble(t, "queue_all holds the new and keeps those inside", func(t *testing.T) {
		c := one
		c.TotalActiveUsers = 5
		g := openGate(t, c)
		a, b := g.visitor(), g.visitor()
		a.in()
		g.room.SetQueueAll(true)
		if !a.in() || b.in() {
			t.Fatal("who is inside stays, who is new waits")
		}
		if p := b.poll(); p.State != StateQueueAll || p.ETA != nil {
			t.Fatalf("%+v: want queue_all, no expected time", p)
		}
		g.room.SetQueueAll(false)
		if !b.until(5*time.Second) || !b.in() {
			t.Fatal("not let in after queue_all ended")
		}
	})
	bubble(t, "a suspended room lets all pass and sets no cookie", func(t *testing.T) {
		g := openGate(t, one)
		g.room.SetSuspended(true)
		for range 5 {
			v := g.visitor()
			if !v.in() || v.cookie != "" {
				t.Fatal("held, or given a cookie")
			}
		}
	})
	bubble(t, "shadow decides, counts and holds nobody", func(t *testing.T) {
		c := one
		c.Shadow = true
		g := openGate(t, c)
		for range 5 {
			v := g.visitor()
			for range 2 {
				if !v.in() {
					t.Fatal("held in shadow mode")
				}
			}
		}
		if s := g.room.Status(); s.Totals.Shadowed != 4 || s.ActiveUsers != 1 || s.WaitingUsers != 0 {
			t.Fatalf("%+v: want 4 that would have been held, 1 active", s)
		}
	})
	bubble(t, "opens_at counts down and then lets in by order", func(t *testing.T) {
		c := one
		c.OpensAt = time.Now().Add(5 * time.Minute)
		g := openGate(t, c)
		a, b := g.visitor(), g.visitor()
		if a.in() || b.in() {
			t.Fatal("let in before the room opened")
		}
		if p := a.poll(); p.State != StateOpensSoon {
			t.Fatalf("%+v", p)
		}
		// A visitor who keeps the page open keeps the place.
		if !a.until(10*time.Minute) || !a.in() || b.in() {
			t.Fatal("the first in line is not the first inside")
		}
	})
	bubble(t, "while the origin is down nobody is called and nobody loses a place", func(t *testing.T) {
		g := openGate(t, one)
		a, b, c := g.visitor(), g.visitor(), g.visitor()
		a.in()
		b.in()
		g.room.SetOriginUp(false)
		b.accept = "*/*"
		if w := b.do("GET", "/style.css"); !strings.Contains(w.Body.String(), "does not answer") {
			t.Errorf("a script is told %q", w.Body)
		}
		for range 30 { // the session of a ends meanwhile
			if p := b.poll(); p.State != StateDown {
				t.Fatalf("%+v", p)
			}
			if c.in() {
				t.Fatal("let in to an origin that is down")
			}
			time.Sleep(4 * time.Second)
		}
		g.room.SetOriginUp(true)
		if !b.until(10*time.Second) || c.poll().State == StateCalled || !b.in() {
			t.Fatal("the order is lost")
		}
	})
	bubble(t, "a hard end ends a stay that is renewed", func(t *testing.T) {
		c := one
		c.HardEnd = 3 * time.Minute
		g := openGate(t, c)
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		for range 5 {
			time.Sleep(30 * time.Second)
			if !a.in() || b.in() {
				t.Fatal("the wrong one is inside")
			}
		}
		if !b.until(40*time.Second) || a.in() || !b.in() {
			t.Fatal("the hard end did not end the stay")
		}
	})
	bubble(t, "a download holds the stay past its end", func(t *testing.T) {
		c := one
		c.SessionDuration = 10 * time.Second
		g := openGate(t, c)
		a, b := g.visitor(), g.visitor()
		g.slow = 2 * time.Minute
		done := make(chan bool)
		go func() { done <- a.in() }()
		time.Sleep(time.Second)
		for range 11 {
			time.Sleep(10 * time.Second)
			if b.poll().State == StateCalled || g.room.Status().ActiveUsers != 1 {
				t.Fatal("the slot of a download was given away")
			}
		}
		if !<-done {
			t.Fatal("the download was cut")
		}
		g.slow = 0
		b.in()
		if !b.until(20*time.Second) || !b.in() {
			t.Fatal("the slot did not come back")
		}
	})
	bubble(t, "a fixed session's download holds the slot, its pass is over", func(t *testing.T) {
		c := one
		c.SessionDuration, c.FixedSession = 10*time.Second, true
		g := openGate(t, c)
		a, b := g.visitor(), g.visitor()
		a.in()
		g.slow = time.Minute
		done := make(chan bool)
		go func() { done <- a.in() }()
		time.Sleep(time.Second)
		b.in()
		for range 11 {
			time.Sleep(5 * time.Second)
			if b.poll().State == StateCalled {
				t.Fatal("the slot of a download was given away")
			}
		}
		if !<-done {
			t.Fatal("the download was cut")
		}
		g.slow = 0
		if a.in() {
			t.Fatal("a fixed session was renewed by a download")
		}
		if !b.until(20*time.Second) || !b.in() {
			t.Fatal("the slot did not come back")
		}
	})
}

func TestRoomKeepsPlaces(t *testing.T) {
	one := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: 20 * time.Second}
	bubble(t, "an absent ticket is skipped, and called first when it is back", func(t *testing.T) {
		g := openGate(t, one)
		a, b, c, d := g.visitor(), g.visitor(), g.visitor(), g.visitor()
		a.in()
		b.in() // first in line, and silent from now on
		c.in()
		d.in()
		if !c.until(40*time.Second) || !c.in() {
			t.Fatal("an absent ticket at the head blocks the line")
		}
		time.Sleep(time.Minute) // the hold is 5 minutes
		b.poll()
		d.poll()
		if !b.until(30*time.Second) || !b.in() {
			t.Fatal("the absent ticket lost its place")
		}
		if d.in() {
			t.Fatal("a later ticket went in first")
		}
	})
	bubble(t, "an absent ticket loses its place after its hold, a phone later", func(t *testing.T) {
		g := openGate(t, one)
		a, desk, phone := g.visitor(), g.visitor(), g.visitor()
		phone.extra = http.Header{"User-Agent": {"Mozilla/5.0 (iPhone) Mobile/15E148"}}
		a.in()
		desk.in()
		phone.in()
		time.Sleep(6 * time.Minute)
		g.visitor().in() // the next one takes the free slot or the end of the line
		if s := g.room.Status(); s.WaitingUsers > 2 {
			t.Fatalf("%d wait: the place of an absent ticket is still held", s.WaitingUsers)
		}
		if p := phone.poll(); p.State != StateCalled && p.Position != 1 {
			t.Fatalf("the phone lost its place: %+v", p)
		}
	})
	bubble(t, "three tabs are one visitor", func(t *testing.T) {
		g := openGate(t, one)
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		tab2, tab3 := *b, *b
		tab2.in()
		tab3.in()
		if s := g.room.Status(); s.WaitingUsers != 1 {
			t.Fatalf("%d wait", s.WaitingUsers)
		}
		if !b.until(time.Minute) || !b.in() || !tab2.in() || !tab3.in() {
			t.Fatal("a tab was left outside")
		}
		if s := g.room.Status(); s.ActiveUsers != 1 {
			t.Fatalf("%d active", s.ActiveUsers)
		}
	})
	bubble(t, "a position never rises", func(t *testing.T) {
		g := openGate(t, one)
		g.visitor().in()
		var line []*visitor
		last := map[int]int64{}
		for range 30 {
			v := g.visitor()
			v.in()
			line = append(line, v)
		}
		for round := range 60 {
			for i, v := range line {
				if (i+round)%5 == 0 { // some are absent, and come back
					continue
				}
				p := v.poll()
				if p.State == StateCalled {
					v.in()
					continue
				}
				if old, ok := last[i]; ok && p.Position > old {
					t.Fatalf("visitor %d rose from %d to %d", i, old, p.Position)
				}
				last[i] = p.Position
			}
			time.Sleep(2 * time.Second)
		}
	})
}

func TestRoomRefusesFloods(t *testing.T) {
	room := RoomConfig{TotalActiveUsers: 200, NewUsersPerMinute: 200}
	bubble(t, "the first request that brings the cookie back makes it a session", func(t *testing.T) {
		c := room
		c.TotalActiveUsers = 1
		g := openGate(t, c)
		app, other := g.visitor(), g.visitor()
		app.accept = "application/json"
		app.in()
		time.Sleep(20 * time.Second)
		app.in()
		time.Sleep(20 * time.Second)
		if other.in() || !app.in() {
			t.Fatal("a session that came back was taken for a probe")
		}
	})
	bubble(t, "max_waiting tells the next that the line is full", func(t *testing.T) {
		c := room
		c.TotalActiveUsers, c.MaxWaiting = 1, 2
		g := openGate(t, c)
		for range 3 {
			g.visitor().in()
		}
		v := g.visitor()
		v.accept = "application/json"
		w := v.do("GET", "/")
		var m struct {
			CF struct {
				Full bool `json:"queueIsFull"`
			} `json:"cfWaitingRoom"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || !m.CF.Full {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if w.Header().Get(StateHeader) != string(StateFull) || v.pass().ID != 0 {
			t.Errorf("a full line gave a ticket: %q, %+v", w.Header().Get(StateHeader), v.pass())
		}
		if p := v.poll(); p.State != StateFull { // its page asks again, and its cookie comes back
			t.Errorf("the page of a full line is told %q", p.State)
		}
	})
	bubble(t, "a join limit that refuses stops one network and no other", func(t *testing.T) {
		c := room
		c.TotalActiveUsers, c.JoinLimit = 1, JoinLimit{Amount: 3, PrefixV4: 24, Refuse: true}
		g := openGate(t, c)
		g.visitor().in()
		for i := range 6 {
			v := g.visitor()
			v.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 1).String()
			w := v.do("GET", "/")
			if limited := w.Header().Get(StateHeader) == string(StateLimited); limited != (i >= 3) {
				t.Fatalf("join %d: limited %v", i, limited)
			}
		}
		v := g.visitor()
		v.addr = "10.1.0.1:1"
		if w := v.do("GET", "/"); w.Header().Get(StateHeader) != string(StateWaiting) {
			t.Fatal("another prefix is stopped too")
		}
	})
	bubble(t, "excluded requests pass and are not counted", func(t *testing.T) {
		c := room
		c.TotalActiveUsers = 1
		c.Exclude = Exclude{
			Paths: []string{"/hook", "/pay/"}, Headers: []string{"X-Probe: yes"},
			CIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
		}
		g := openGate(t, c)
		g.visitor().in()
		for _, x := range []struct{ method, path, addr, header string }{
			{"GET", "/robots.txt", "", ""},
			{"GET", "/.well-known/x", "", ""}, {"POST", "/hook", "", ""}, {"GET", "/pay/1", "", ""},
			{"GET", "/", "10.9.1.1:5", ""}, {"GET", "/", "", "yes"},
		} {
			v := g.visitor()
			v.addr = x.addr
			if x.header != "" {
				v.extra = http.Header{"X-Probe": {x.header}}
			}
			if w := v.do(x.method, x.path); w.Code != 200 || v.cookie != "" {
				t.Errorf("%+v: %d", x, w.Code)
			}
		}
		for _, path := range []string{"/hooks", "/pay/../secret", "/pay/%2e%2e/x/../../secret"} {
			if w := g.visitor().do("GET", path); w.Code == 200 {
				t.Errorf("%s passed", path)
			}
		}
		if s := g.room.Status(); s.ActiveUsers != 1 {
			t.Errorf("%d active", s.ActiveUsers)
		}
	})
}

func TestWaitingAnswers(t *testing.T) {
	full := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100}
	bubble(t, "each kind of request gets its kind of answer", func(t *testing.T) {
		for _, code := range []int{503, 200, 202, 429} {
			c := full
			c.StatusCode, c.Name = code, "shop"
			g := openGate(t, c)
			g.visitor().in()
			script := code
			if code < 300 {
				script = 503
			}
			for _, x := range []struct {
				name, method, accept, mode, kind string
				code                             int
			}{
				{"navigation", "GET", "text/html,*/*;q=0.8", "navigate", "text/html", code},
				{"old browser", "GET", "text/html,*/*;q=0.8", "", "text/html", code},
				{"app", "GET", "application/json", "", "application/json", code},
				{"app by weight", "GET", "text/html;q=0.4, application/json", "", "application/json", code},
				{"app by a range", "GET", "application/*, text/html;q=0.5", "", "application/json", code},
				{"fetch", "GET", "*/*", "cors", "text/plain", script},
				{"image", "GET", "image/avif,*/*", "no-cors", "text/plain", script},
				{"form", "POST", "text/plain", "", "text/plain", script},
			} {
				v := g.visitor()
				v.accept = x.accept
				if x.mode != "" {
					v.extra = http.Header{"Sec-Fetch-Mode": {x.mode}}
				}
				w := v.do(x.method, "/a?b=c")
				h := w.Header()
				if w.Code != x.code || !strings.HasPrefix(h.Get("Content-Type"), x.kind) {
					t.Errorf("%d %s: %d %s", code, x.name, w.Code, h.Get("Content-Type"))
				}
				if h.Get("Cache-Control") != "no-store" || h.Get("Retry-After") == "" ||
					h.Get("X-Robots-Tag") != "noindex" || !strings.Contains(h.Get("Vary"), "Cookie") {
					t.Errorf("%s: headers %v", x.name, h)
				}
			}
		}
	})
	bubble(t, "the JSON answer has all the keys of the contract", func(t *testing.T) {
		g := openGate(t, full)
		g.visitor().in()
		v := g.visitor()
		v.accept = "application/json"
		var m map[string]map[string]any
		if err := json.Unmarshal(v.do("GET", "/").Body.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		const keys = "inWaitingRoom waitTimeKnown waitTime waitTime25Percentile waitTime50Percentile " +
			"waitTime75Percentile waitTimeFormatted queueIsFull queueAll lastUpdated " +
			"refreshIntervalSeconds queueingMethod isFIFOQueue isRandomQueue isPassthroughQueue " +
			"isRejectQueue isEventActive isEventPrequeueing timeUntilEventStart " +
			"timeUntilEventStartFormatted timeUntilEventEnd timeUntilEventEndFormatted " +
			"shuffleAtEventStart turnstile infiniteQueue"
		for k := range strings.FieldsSeq(keys) {
			if _, ok := m["cfWaitingRoom"][k]; !ok {
				t.Errorf("cfWaitingRoom.%s is missing", k)
			}
		}
		if n := len(m["cfWaitingRoom"]); n != 25 {
			t.Errorf("%d keys, want 25", n)
		}
		for k := range strings.FieldsSeq("position ahead waiting eta_seconds poll_after_seconds method ticket") {
			if _, ok := m["headgate"][k]; !ok {
				t.Errorf("headgate.%s is missing", k)
			}
		}
	})
	bubble(t, "a poll without a cookie is told to allow cookies and takes no place", func(t *testing.T) {
		g := openGate(t, full)
		g.visitor().in()
		if p := g.visitor().poll(); p.State != StateNoCookie || g.room.Status().WaitingUsers != 0 {
			t.Fatalf("%+v", p)
		}
	})
	bubble(t, "the shared document tells which tickets were called", func(t *testing.T) {
		g := openGate(t, full)
		g.visitor().in()
		v := g.visitor()
		v.in()
		w := g.visitor().do("GET", "/.headgate/served")
		var m struct {
			Served, Waiting int
			State           State
		}
		err := json.Unmarshal(w.Body.Bytes(), &m)
		if err != nil || m.Waiting != 1 || m.State != StateWaiting {
			t.Fatalf("%v %s", err, w.Body)
		}
		cache := w.Header().Get("Cache-Control")
		if w.Header().Get("Set-Cookie") != "" || !strings.Contains(cache, "public") {
			t.Error("not cacheable")
		}
	})
}

// Configuration errors are returned when the room is opened: a status that no answer can have would
// otherwise make each request of a waiting visitor panic.
func TestImpossibleRoomsAreRefused(t *testing.T) {
	for _, c := range []RoomConfig{
		{},
		{Name: "shop", TotalActiveUsers: -1},
		{Name: "shop", Path: "sale"},
		{Name: "shop", SessionDuration: -time.Second},
		{Name: "shop", StatusCode: 5030},
		{Name: "shop", Method: "lifo"},
	} {
		if _, err := OpenRoom(t.Context(), c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestARoomRunsOnce(t *testing.T) {
	bubble(t, "a second Run is refused and ends nothing", func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 2, NewUsersPerMinute: 2})
		if !g.visitor().in() {
			t.Fatal("not let in")
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := g.room.Run(ctx); !errors.Is(err, ErrConfig) || ctx.Err() != nil {
			t.Errorf("%v", err)
		}
		if !g.visitor().in() {
			t.Error("the room does not go on")
		}
	})
}

// TestKeysDocumented: the table of keys in docs/http.md names exactly the keys that apps get.
func TestKeysDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| key of `headgate` | meaning |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for row := range strings.Lines(table) {
		names := strings.Split(row, "|")[1]
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(names, -1) {
			documented = append(documented, m[1])
		}
	}
	var answer struct {
		Headgate map[string]any `json:"headgate"`
	}
	if err := json.Unmarshal((&View{Challenge: "null"}).appendJSON(nil), &answer); err != nil {
		t.Fatal(err)
	}
	keys := slices.Sorted(maps.Keys(answer.Headgate))
	if slices.Sort(documented); !slices.Equal(keys, documented) {
		t.Errorf("keys of headgate in docs/http.md:\n%v\nwant\n%v", documented, keys)
	}
}
