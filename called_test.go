package headgate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// In a review, five suspended phones were told "your turn", and only one of them got in.

// next polls once. If the answer is "called", the visitor loads the page and must get in.
func (v *visitor) next() (state State, notice string) {
	v.g.t.Helper()
	p := v.poll()
	if p.State == StateCalled && !v.in() {
		v.g.t.Errorf("told called, and the page says %s", v.poll().State)
	}
	return p.State, p.Notice
}

// Visitors whose devices were suspended are told "called" only if they hold a slot: the next page
// admits them.
func TestCalledMeansIn(t *testing.T) {
	for name, sleep := range map[string]time.Duration{
		"longer than a call is kept":  time.Minute,
		"longer than a place is kept": 10 * time.Minute,
	} {
		for _, others := range []int{0, 3} { // that enter meanwhile, ahead of the suspended ones
			bubble(t, fmt.Sprint(name, ", passed by ", others), func(t *testing.T) {
				g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
					SessionDuration: 10 * time.Second, Hold: 5 * time.Minute, PollMax: 5 * time.Second})
				inside := g.visitor()
				inside.in()
				var phones, awake []*visitor
				for range 5 {
					v := g.visitor()
					v.in()
					v.poll()
					phones = append(phones, v)
				}
				for range others {
					v := g.visitor()
					v.in()
					awake = append(awake, v)
				}
				for slept := time.Duration(0); slept < sleep; slept += time.Second {
					time.Sleep(time.Second)
					if len(awake) == 0 {
						inside.in() // the room is full when the phones wake
						continue
					}
					for i, v := range awake {
						if s, _ := v.next(); s == StateCalled {
							inside, awake = v, slices.Delete(awake, i, i+1)
							break
						}
					}
				}
				if len(awake) > 0 || !inside.in() {
					t.Fatalf("%d who polled still wait", len(awake))
				}
				over := sleep > 5*time.Minute
				for i, v := range phones {
					s, notice := v.next()
					if s == StateCalled || (notice == "ticket_over") != over {
						t.Errorf("the room is full, and phone %d is told %s and %q", i, s, notice)
					}
				}
				for range 120 {
					left := phones[:0]
					for _, v := range phones {
						if s, _ := v.next(); s != StateCalled {
							left = append(left, v)
						}
					}
					if phones = left; len(phones) == 0 {
						return
					}
					time.Sleep(time.Second)
				}
				t.Errorf("%d of five never came in", len(phones))
			})
		}
	}
}

// The answer to a poll with a pass agrees with what the next page does.
func TestCalledWithAPassMeansIn(t *testing.T) {
	cfg := RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600, SessionDuration: 10 * time.Second}
	bubble(t, "a session that is over, in a room where others wait", func(t *testing.T) {
		g := openGate(t, cfg)
		v, other := g.visitor(), g.visitor()
		v.in()
		if s, _ := v.next(); s != StateCalled {
			t.Fatalf("inside, and told %s", s)
		}
		other.in()
		if !other.until(30*time.Second) || !other.in() {
			t.Fatal("not called")
		}
		if s, _ := v.next(); s != StateWaiting {
			t.Errorf("the session is over, and told %s", s)
		}
		if !v.until(30*time.Second) || !v.in() {
			t.Error("never called")
		}
	})
	for _, action := range []string{"wait", "end"} {
		bubble(t, "a pass in one network too many: "+action, func(t *testing.T) {
			cfg := cfg
			cfg.PassSharing = PassSharing{Networks: 1, Action: action}
			g := openGate(t, cfg)
			v := g.visitor()
			v.addr = "192.0.2.1:1"
			v.in()
			g.visitor().in()
			other := *v
			other.addr = "198.51.100.1:1"
			if s, _ := other.next(); s != StateWaiting {
				t.Errorf("told %s", s)
			}
		})
	}
	bubble(t, "a shadow room", func(t *testing.T) {
		cfg := cfg
		cfg.Shadow = true
		g := openGate(t, cfg)
		for range 3 {
			v := g.visitor()
			v.in()
			for range 3 {
				if s, _ := v.next(); s != StateCalled {
					t.Errorf("told %s", s)
				}
				time.Sleep(8 * time.Second)
			}
		}
	})
}

// A second tab polls with the ticket while the first tab's claim is written. It is not a newcomer,
// whose cookie would replace the pass.
func TestAPollDuringAClaimIsNoNewcomer(t *testing.T) {
	bubble(t, "a write takes half a second", func(t *testing.T) {
		p, owner, copies := calledWithCopies(t, RoomConfig{SessionDuration: time.Hour}, 1)
		p.slow.Store(int64(500 * time.Millisecond))
		in := make(chan bool)
		go func() { in <- owner.in() }()
		time.Sleep(100 * time.Millisecond)
		before := copies[0].cookie
		if s := copies[0].poll().State; s != StateCalled || copies[0].cookie != before {
			t.Errorf("told %s, another cookie: %v", s, copies[0].cookie != before)
		}
		if !<-in || !copies[0].in() {
			t.Error("not in")
		}
	})
}

// A visitor whose pass is over and who must wait is told why, once, by the poll and by the page.
func TestAVisitThatIsOverIsTold(t *testing.T) {
	for name, end := range map[string]func(v *visitor){
		"expired":               func(*visitor) {}, // while the other one waits
		"ended by the operator": (*visitor).revoked,
		"revoked by the site": func(v *visitor) {
			kept := v.cookie // a browser deletes it
			v.g.header.Set(CommandHeader, "revoke")
			v.do("GET", "/done")
			v.g.header.Del(CommandHeader)
			v.cookie = kept
		},
	} {
		for _, page := range []bool{false, true} {
			bubble(t, fmt.Sprint(name, ", page ", page), func(t *testing.T) {
				g := openGate(t, RoomConfig{TotalActiveUsers: 1, NewUsersPerMinute: 600,
					SessionDuration: 10 * time.Second})
				v, other, newcomer := g.visitor(), g.visitor(), g.visitor()
				v.in()
				other.in()
				if p := other.poll(); p.Notice != "" || p.Slower != "" {
					t.Errorf("a newcomer is told %q, %q", p.Notice, p.Slower)
				}
				end(v)
				if !other.until(30*time.Second) || !other.in() {
					t.Fatal("not called")
				}
				newcomer.in()
				if page {
					v.accept = "application/json"
					if body := v.do("GET", "/").Body.String(); !strings.Contains(body, `"notice":"session_over"`) {
						t.Errorf("the page is %s", body)
					}
				} else if p := v.poll(); p.Notice != "session_over" || p.Slower == "" {
					t.Errorf("told %+v", p)
				}
				if p := v.poll(); p.State != StateWaiting || p.Notice != "" || p.Slower != "" {
					t.Errorf("with a place of its own it is told %+v", p)
				}
			})
		}
	}
}
