package headgate

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/ticket"
)

// Each test is for one security hole; its name describes it.

func TestForgedCookiesGiveAPlaceAtTheEndAndNoPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: time.Minute}
		g := openGate(t, cfg)
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		name, pass, _ := strings.Cut(a.cookie, "=")
		other, err := ticket.NewRing(1, map[byte]ticket.Key{1: ticket.NewKey()})
		if err != nil {
			t.Fatal(err)
		}
		end := &ticket.Token{Kind: ticket.Pass, ID: 1, End: 1 << 62, Life: 1}
		ours := g.room.keys.Load()
		for what, value := range map[string]string{
			"made up":                "hello",
			"empty":                  "",
			"cut":                    pass[:len(pass)-2],
			"longer":                 pass + "AA",
			"one bit":                flip(pass),
			"another key":            string(other.Seal(nil, "shop", end)),
			"a megabyte":             strings.Repeat("A", 1<<20),
			"ours, of another room":  string(ours.Seal(nil, "blog", end)),
			"ours, of another life":  string(ours.Seal(nil, "shop", end)),
			"shadow's, out of place": string(ours.Seal(nil, "shop", &ticket.Token{Kind: ticket.Pass})),
			"a ticket never issued": string(ours.Seal(nil, "shop", &ticket.Token{
				Kind: ticket.Ticket, ID: 1 << 40, Life: g.room.counter.State(0, 0).Life,
			})),
		} {
			v := g.visitor()
			v.cookie = name + "=" + value
			if v.in() {
				t.Errorf("%s: let in", what)
			}
			if p := v.poll(); p.State != StateWaiting || p.Ahead == 0 {
				t.Errorf("%s: %+v, want a new place behind the first", what, p)
			}
		}
		if !a.in() {
			t.Error("the real pass is refused")
		}
	})
}

func flip(s string) string {
	b := []byte(s)
	b[20] ^= 1
	return string(b)
}

func TestAnExpiredPassGoesToTheEndOfTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: time.Minute}
		g := openGate(t, cfg)
		a, b, c := g.visitor(), g.visitor(), g.visitor()
		a.in()
		b.in()
		c.in()
		if !b.until(2*time.Minute) || !b.in() {
			t.Fatal("not called")
		}
		if a.in() || a.poll().Position != 2 {
			t.Error("an expired pass is worth more than a place at the end")
		}
	})
}

func TestACopiedTicketAdmitsOneStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: time.Minute}
		g := openGate(t, cfg)
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		friends := make([]visitor, 100)
		for i := range friends {
			friends[i] = *b
		}
		if !b.until(2*time.Minute) || !b.in() {
			t.Fatal("not called")
		}
		time.Sleep(40 * time.Second)
		for i := range friends {
			if friends[i].in() {
				t.Fatal("a copied ticket let a friend in")
			}
		}
		if s := g.room.Status(); s.ActiveUsers > 1 {
			t.Errorf("%d active of 1", s.ActiveUsers)
		}
	})
}

func TestTheWallClockDecidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := time.Duration(0)
		cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100, SessionDuration: time.Minute}
		cfg.Wall = func() time.Time { return time.Now().Add(step) }
		g := openGate(t, cfg)
		a, b := g.visitor(), g.visitor()
		a.in()
		b.in()
		for _, s := range []time.Duration{-10 * 365 * 24 * time.Hour, 10 * 365 * 24 * time.Hour, 0} {
			step = s
			time.Sleep(10 * time.Second)
			if !a.in() || b.in() {
				t.Fatalf("a clock stepped by %v changed who is inside", s)
			}
		}
		if !b.until(90*time.Second) || !b.in() {
			t.Fatal("not called")
		}
	})
}

func TestARoomThatCannotBeIsRefusedWithAllItsFaults(t *testing.T) {
	_, err := OpenRoom(t.Context(), RoomConfig{
		TotalActiveUsers: -1, NewUsersPerMinute: 1 << 60, SessionDuration: time.Hour, HardEnd: time.Minute,
	})
	if err == nil {
		t.Fatal("opened")
	}
	for _, want := range []string{"-1 slots", "slots, want 0 to", "name", "hard end"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestARoomOfNoSlotsHoldsEverybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{TotalActiveUsers: 0, NewUsersPerMinute: 0})
		v := g.visitor()
		if v.in() || v.poll().State != StateWaiting {
			t.Error("let in")
		}
	})
}

// TestRandomCrowdNeverOver runs a room with random visitors for hours of bubble time and counts
// them at the origin.
func TestRandomCrowdNeverOver(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { randomCrowd(t, seed) })
	}
}

func randomCrowd(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	cfg := RoomConfig{
		Name: "shop", TotalActiveUsers: int64(3 + r.IntN(8)), NewUsersPerMinute: int64(5 + r.IntN(20)),
		SessionDuration: time.Duration(10+r.IntN(20)) * time.Second,
	}
	if seed%2 == 1 {
		cfg.Grace = Grace{Paths: []string{"/pay/"}, For: 40 * time.Second}
		cfg.FixedSession = seed%4 == 3
	}
	start := time.Now()
	cfg.Boot = func() time.Duration { return time.Since(start) + time.Hour }
	room, err := OpenRoom(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { room.Run(t.Context()); close(done) }()
	t.Cleanup(func() { <-done })
	until, last, news := map[string]time.Time{}, map[string]time.Time{}, []time.Time{}
	h := room.Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, partOfPage) {
			return
		}
		id := q.Header.Get("X-Visitor")
		now := time.Now()
		if last, ok := last[id]; !ok || now.Sub(last) > cfg.longest()+5*time.Second {
			news = append(news, now) // surely another stay: the first has ended and is settled
		}
		last[id] = now
		for v, end := range until { // surely inside: a session, less what clocks may differ
			if now.After(end) {
				delete(until, v)
			}
		}
		s, ok := SessionOf(w)
		if !ok {
			t.Error("inside, and no stay")
		}
		if !cfg.FixedSession {
			s.Remaining = max(s.Remaining, cfg.SessionDuration)
		}
		if end := now.Add(s.Remaining - s.Remaining/200); end.After(until[id]) {
			until[id] = end
		}
		if int64(len(until)) > cfg.TotalActiveUsers {
			t.Errorf("seed %d: %d inside of %d", seed, len(until), cfg.TotalActiveUsers)
		}
		n := int64(0)
		for _, at := range news {
			if now.Sub(at) < time.Minute {
				n++
			}
		}
		if n > cfg.NewUsersPerMinute {
			t.Errorf("seed %d: %d new in a minute of %d", seed, n, cfg.NewUsersPerMinute)
		}
		if r.IntN(10) == 0 {
			w.Header().Set(CloudflareCommandHeader, "revoke")
			delete(until, id)
		}
		fmt.Fprint(w, "origin")
	}))
	g := &gate{t: t, room: room, h: h}
	var crowd []*visitor
	for step := range 4000 {
		if len(crowd) < 60 && r.IntN(4) == 0 {
			v := g.visitor()
			v.extra = http.Header{"X-Visitor": {fmt.Sprint(step)}}
			crowd = append(crowd, v)
		}
		if len(crowd) > 0 {
			i := r.IntN(len(crowd))
			switch v := crowd[i]; {
			case r.IntN(40) == 0:
				crowd = append(crowd[:i], crowd[i+1:]...) // gone without a word
			case v.at([]string{"/", "/", "/pay/"}[r.IntN(3)]) && v.cookie == "": // revoked: a new one
				v.extra = http.Header{"X-Visitor": {fmt.Sprint("r", step)}}
			}
		}
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
	}
	if len(news) < 20 {
		t.Errorf("seed %d: only %d were let in", seed, len(news))
	}
}

func FuzzCookieHeader(f *testing.F) {
	ctx := f.Context()
	room, err := OpenRoom(ctx, RoomConfig{Name: "shop", TotalActiveUsers: 0, NewUsersPerMinute: 1})
	if err != nil {
		f.Fatal(err)
	}
	go room.Run(ctx)
	h := room.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { f.Error("let in") }))
	f.Add("__cfwaitingroom_shop=x", "text/html", "navigate")
	f.Add("a=b; __cfwaitingroom_shop=; =;;", "application/json;q=x", "")
	f.Fuzz(func(t *testing.T, cookie, accept, mode string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Cookie"] = []string{cookie}
		r.Header["Accept"] = []string{accept}
		r.Header["Sec-Fetch-Mode"] = []string{mode}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == 200 {
			t.Fatalf("%q %q %q: 200", cookie, accept, mode)
		}
	})
}
