package headgate

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/virtual"
)

// invitedRoom is a room for invitations, which are in a header. They end after for.
func invitedRoom(users int64, after time.Duration) RoomConfig {
	cfg := memberRoom(users, true)
	end := time.Now().Add(after)
	cfg.Identity.Until = func(string) time.Time { return end }
	cfg.Identity.SignIn = "/invited?why={reason}"
	return cfg
}

// isSentAway reports whether a page is redirected to where one gets an invitation, with a reason.
func (v *visitor) isSentAway(reason string) bool {
	v.g.t.Helper()
	w := v.do("GET", "/")
	to := w.Header().Get("Location")
	if w.Code == http.StatusSeeOther && to != "/invited?why="+reason {
		v.g.t.Errorf("sent to %q, want the reason %q", to, reason)
	}
	return w.Code == http.StatusSeeOther
}

func TestAnInvitationLetsInOnce(t *testing.T) { //nolint:funlen // a list of cases
	bubble(t, "on all devices, and after the session on none", func(t *testing.T) {
		g := openGate(t, invitedRoom(10, time.Hour))
		time.Sleep(5 * time.Second)
		desk, phone := g.device("one"), g.device("one")
		if !desk.comesIn(10*time.Second) || !phone.comesIn(10*time.Second) || desk.enters() != phone.enters() {
			t.Fatal("both devices are in one session")
		}
		time.Sleep(2 * time.Minute)
		for _, v := range []*visitor{desk, phone, g.device("one")} {
			if !v.isSentAway("used") {
				t.Error("a second session by the same invitation")
			}
			v.accept = "application/json"
			if m := v.json(); m.State != StateSignIn || m.Ticket != "" {
				t.Errorf("an app is told %+v", m)
			}
		}
		if !g.device("two").comesIn(10 * time.Second) {
			t.Error("another invitation counts no more")
		}
	})
	bubble(t, "also when the origin ends the session", func(t *testing.T) {
		g := openGate(t, invitedRoom(10, time.Hour))
		time.Sleep(5 * time.Second)
		v := g.device("one")
		if !v.comesIn(10 * time.Second) {
			t.Fatal("not in")
		}
		v.revoked()
		time.Sleep(reported)
		if !v.isSentAway("used") || !g.device("one").isSentAway("used") {
			t.Error("a second session by the same invitation")
		}
	})
	bubble(t, "and is not used by a place that was lost or given up", func(t *testing.T) {
		cfg := invitedRoom(1, 24*time.Hour)
		cfg.Hold = time.Minute
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		other := g.device("other")
		if !other.comesIn(10 * time.Second) {
			t.Fatal("not in")
		}
		lost, left := g.device("lost"), g.device("left")
		lost.in()
		left.in()
		left.do("POST", "/.headgate/leave")
		other.revoked()
		time.Sleep(time.Hour) // lost is called, and does not come
		for _, v := range []*visitor{g.device("lost"), g.device("left")} {
			if !v.comesIn(10 * time.Second) {
				t.Error("an invitation that let nobody in is used")
			}
			v.revoked()
			time.Sleep(reported)
		}
	})
	bubble(t, "until it ends, which ends no place and no session", func(t *testing.T) {
		cfg := invitedRoom(1, time.Minute)
		cfg.SessionDuration = 10 * time.Minute
		g := openGate(t, cfg)
		time.Sleep(5 * time.Second)
		inside, waits := g.device("inside"), g.device("waits")
		if !inside.comesIn(10*time.Second) || waits.in() {
			t.Fatal("a room for one")
		}
		time.Sleep(2 * time.Minute)
		if !inside.in() || !g.device("inside").in() {
			t.Error("the end of the invitation ended a session")
		}
		if p := waits.polls(); p.Position != 1 || waits.in() {
			t.Errorf("the end of the invitation ended a place: %+v", p)
		}
		if !g.device("late").isSentAway("") {
			t.Error("joined after the end")
		}
		inside.revoked()
		if !waits.comesIn(10 * time.Second) {
			t.Error("the one who waited is not in")
		}
	})
	bubble(t, "and has to be shown with each request", func(t *testing.T) {
		g := openGate(t, invitedRoom(1, time.Hour))
		time.Sleep(5 * time.Second)
		inside, waits := g.device("inside"), g.device("waits")
		if !inside.comesIn(10*time.Second) || waits.in() {
			t.Fatal("a room for one")
		}
		for _, v := range []*visitor{inside, waits} { // revoked, or the cookie with the code is left out
			was := v.cookie
			for _, v.extra = range []http.Header{nil, {"X-Member": {"another"}}} {
				if v.cookie = was; v.in() {
					t.Error("a session without its invitation")
				}
				r := virtualRequest(t, v)
				if _, ok := g.room.PeekSession(r); ok {
					t.Error("limits and connectors see a session without its invitation")
				}
			}
		}
	})
}

func virtualRequest(t *testing.T, v *visitor) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://shop.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr = "192.0.2.1:1234"
	if v.extra != nil {
		r.Header = v.extra.Clone()
	}
	r.Header.Set("Cookie", v.cookie)
	return r
}

// All devices show the same codes at two nodes in the same moment, again and again, while sessions end and
// the host dies. Nobody comes in twice by one code.
func TestAnInvitationLetsInOnceAtAnyNode(t *testing.T) {
	virtual.Test(t, testAnInvitationLetsInOnceAtAnyNode)
}

func testAnInvitationLetsInOnceAtAnyNode(t *testing.T) {
	cfg := invitedRoom(1000, 24*time.Hour)
	cfg.SessionDuration = 20 * time.Second
	w, a, b := twoNodes(t, cfg)
	const codes = 6
	var sent atomic.Int64
	sessions := map[string]map[string]bool{} // by code
	burst := func(gates ...*gate) {
		var wg sync.WaitGroup
		in := make([]*visitor, codes*len(gates))
		for i := range in {
			wg.Go(func() {
				v := gates[i%len(gates)].device(fmt.Sprint("code ", i/len(gates)))
				for range 5 {
					if v.isSentAway("used") {
						sent.Add(1)
						return
					} else if v.in() {
						in[i] = v
						return
					}
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		for i, v := range in {
			if v == nil {
				continue
			}
			name := fmt.Sprint("code ", i/len(gates))
			if sessions[name] == nil {
				sessions[name] = map[string]bool{}
			}
			sessions[name][v.enters()] = true
		}
	}
	judge := func(when string, away int64) {
		t.Helper()
		for name, all := range sessions {
			if len(all) != 1 || all[""] {
				t.Errorf("%s: %s was in the sessions %v", when, name, all)
			}
		}
		if len(sessions) != codes || sent.Load() != away {
			t.Errorf("%s: %d of %d came in, %d of %d were sent away", when, len(sessions), codes, sent.Load(), away)
		}
	}
	burst(a, b, a, b)
	judge("all at once", 0)
	w.pause(time.Minute)
	burst(a, b)
	judge("after the sessions", 2*codes)
	host, other := "n1", b
	for _, n := range a.room.Config().Engine.Nodes() {
		if n.Name == "n2" && len(n.Rooms) > 0 {
			host, other = "n2", a
		}
	}
	w.stop[host]()
	w.until("the other node hosts the room", 30*time.Second, func() bool {
		v := other.device("code 0")
		return v.isSentAway("used")
	})
	sent.Store(0)
	burst(other)
	judge("after the takeover", codes)
	if s := other.room.Status(); s.WaitingUsers != 0 {
		t.Errorf("%d wait", s.WaitingUsers)
	}
}
