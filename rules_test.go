package headgate

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/wire"
)

// byPath decides by the prefix of a path.
type byPath map[string]RuleAction

func (b byPath) Match(r RuleRequest) RuleAction {
	for prefix, a := range b {
		if strings.HasPrefix(r.Path, prefix) {
			return a
		}
	}
	return RuleNone
}

// TestRulesDecideBeforeTheRoom: suspended, then bypass and crawlers, then deny, then the room.
func TestRulesDecideBeforeTheRoom(t *testing.T) {
	rules := byPath{"/by": RuleBypass, "/bot": RuleCrawler, "/no": RuleDeny}
	states := map[string]func(*RoomConfig){
		"full":   func(*RoomConfig) {},
		"held":   func(c *RoomConfig) { c.QueueAll = true },
		"closed": func(c *RoomConfig) { c.Closed = true },
	}
	for name, set := range states {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 100, Rules: rules}
				g := openGate(t, cfg)
				inside := g.visitor()
				inside.in()
				if err := g.again(set); err != nil {
					t.Fatal(err)
				}
				for path, want := range map[string]int{
					"/by": 200, "/bot/x": 200, "/no": 403, "/a/../by": 308, "//no/x": 308, "/": 503,
				} {
					v := g.visitor()
					if w := v.do("GET", path); w.Code != want || w.Code != 503 && v.cookie != "" {
						t.Errorf("%s: %d, cookie %q, want %d and none", path, w.Code, v.cookie, want)
					}
				}
				if w := inside.do("HEAD", "/no/x"); w.Code != 403 {
					t.Errorf("who is inside, by HEAD: %d, want 403", w.Code)
				}
				s := g.room.Status()
				if s.Totals.Bypassed != 1 || s.Totals.Crawlers != 1 || s.Totals.Denied != 2 ||
					s.ActiveUsers != 1 {
					t.Errorf("%+v, %d inside", s.Totals, s.ActiveUsers)
				}
			})
		})
	}
	t.Run("suspended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 1, NewUsersPerMinute: 1, Rules: rules, Suspended: true,
			})
			if w := g.visitor().do("GET", "/no"); w.Code != 200 {
				t.Errorf("denied in a suspended room: %d", w.Code)
			}
		})
	})
	t.Run("shadow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := openGate(t, RoomConfig{
				TotalActiveUsers: 1, NewUsersPerMinute: 1, Rules: rules, Shadow: true,
			})
			if w := g.visitor().do("GET", "/no"); w.Code != 200 || g.room.Status().Totals.Denied != 1 {
				t.Errorf("shadow: %d, %d denied", w.Code, g.room.Status().Totals.Denied)
			}
		})
	})
}

// TestTheDeniedAreTold checks that browsers get a page and clients that prefer JSON get JSON.
func TestTheDeniedAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 1, Rules: byPath{"/": RuleDeny},
		})
		for accept, want := range map[string]string{
			"text/html": "text/html; charset=utf-8", "application/json": "application/problem+json",
			"image/*": "text/plain; charset=utf-8",
		} {
			v := g.visitor()
			v.accept = accept
			w := v.do("GET", "/")
			if w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != want ||
				w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Body.String(), wire.Denied) {
				t.Errorf("%s: %d %v %q", accept, w.Code, w.Header(), w.Body)
			}
		}
	})
}

// TestNoSpellingOfAPathIsReadInTwoWays checks that the rules are applied to each reading of a path,
// and that a bypass needs a match in all of them.
func TestNoSpellingOfAPathIsReadInTwoWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		g := openGate(t, RoomConfig{
			Path: "/shop", TotalActiveUsers: 1000, NewUsersPerMinute: 1000,
			Rules: matcher(func(r RuleRequest) RuleAction {
				told = append(told, r.Path)
				if strings.HasPrefix(r.Path+"/", "/shop/") {
					return RuleBypass
				}
				return RuleDeny
			}),
		})
		for _, path := range []string{
			"/shop", "/shop/", "//shop", "/./shop", "/x/../shop", "/shop;v=1", "/shop%2f", "/%73hop",
			"/shop/..;/shop", `/shop%5c..%5cpay`, "/shop/../pay", "/shop/%2e%2e/pay", "/x;/../shop",
			"/shopping", "/shop//..//shop/a", "/..//shop", "/shop/.", "/shop/a;b/../c",
		} {
			told = nil
			w := g.visitor().do("GET", path)
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://x"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := paths.Of(r.URL)
			want := http.StatusPermanentRedirect
			for i := range p.Len() {
				asked := slices.Contains(told, p.At(i))
				switch ours := strings.HasPrefix(p.At(i)+"/", "/shop/"); {
				case !asked && w.Code != http.StatusPermanentRedirect:
					t.Errorf("%s: %d, and nobody asked about %s", path, w.Code, p.At(i))
				case p.Excessive():
				case i == 0 && ours:
					want = http.StatusOK
				case i == 0:
					want = http.StatusForbidden
				case ours != (want == http.StatusOK):
					want = http.StatusPermanentRedirect
				}
			}
			if w.Code != want {
				t.Errorf("%s: %d, want %d, of %q", path, w.Code, want, told)
			}
		}
	})
}

type matcher func(RuleRequest) RuleAction

func (m matcher) Match(r RuleRequest) RuleAction { return m(r) }

// TestARuleSendsIntoALane checks that a visitor who has to wait waits in the lane and stays there,
// that visitors inside or first in line are not affected, and that a lane that does not exist is
// the ordinary line.
func TestARuleSendsIntoALane(t *testing.T) {
	bubble(t, "in order", func(t *testing.T) {
		g, p := openPlugged(t, RoomConfig{
			TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: time.Hour,
			Rules: byPath{"/vip": RuleLane, "/odd": RuleLane + 7}, Lanes: []Lane{{Name: "vip", Share: 50}},
		})
		defer p.pulled.Store(false)
		if w := g.visitor().do("GET", "/vip"); w.Code != 200 {
			t.Fatal("a free slot is not given to who would wait in a lane")
		}
		var line []*visitor
		for range 6 {
			v := g.visitor()
			v.in()
			line = append(line, v)
		}
		vip, odd := g.visitor(), g.visitor()
		vip.do("GET", "/vip")
		odd.do("GET", "/odd")
		line[5].do("GET", "/vip")
		for v, want := range map[*visitor]int64{vip: 2, odd: 8, line[5]: 6} {
			if got := v.poll(); got.Position != want || got.Waiting != 8 {
				t.Errorf("at %d of %d, want %d of 8", got.Position, got.Waiting, want)
			}
		}
		for v, want := range map[*visitor]string{vip: "vip", odd: "", line[5]: ""} {
			if w, err := g.room.FindTicket(t.Context(), v.poll().Ticket); err != nil || w.Lane != want {
				t.Errorf("in the lane %q, want %q: %v", w.Lane, want, err)
			}
		}
		vip.accept = "application/json"
		if w := vip.do("GET", "/"); !strings.Contains(w.Body.String(), `"served_url":""`) {
			t.Errorf("it is told of numbers of the other line: %s", w.Body)
		}
		st := g.room.Status()
		if st.Totals.SentToLane != 4 || len(st.Lanes) != 1 || st.Lanes[0].Waiting != 1 ||
			st.WaitingUsers != 8 {
			t.Errorf("%+v %+v", st.Totals, st.Lanes)
		}
	})
	bubble(t, "while an event is to be drawn", func(t *testing.T) {
		g := openGate(t, RoomConfig{
			TotalActiveUsers: 10, NewUsersPerMinute: 600,
			Rules: byPath{"/vip": RuleLane}, Lanes: []Lane{{Name: "vip", Share: 50}},
		})
		g.sale(true, false)
		var all []*visitor
		for range 5 {
			v, vip := g.visitor(), g.visitor()
			v.in()
			vip.do("GET", "/vip")
			all = append(all, v, vip)
		}
		if v, vip := all[8].poll(), all[9].poll(); v.Position != 0 || vip.Position != 10 {
			t.Errorf("before the draw one is at %d, one of the lane at %d", v.Position, vip.Position)
		}
		g.sale(true, true)
		time.Sleep(3 * time.Second)
		for _, v := range all {
			if !v.until(time.Minute) || !v.in() {
				t.Error("not let in after the draw")
			}
		}
	})
}
