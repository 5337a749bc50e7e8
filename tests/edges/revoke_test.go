package edges

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// relays sends the origin's command for a request of a visitor, and returns the status.
func (c *connector) relays(wire, uri, cookie string, more ...string) int {
	c.t.Helper()
	_, host, headers := question(wire, "GET", uri, cookie)
	r, err := http.NewRequest("GET", "http://"+c.addr+wire+"/revoke", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Host = host
	for _, h := range append(headers, more...) {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	res, err := c.client.Transport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	res.Body.Close()
	if len(res.Cookies()) > 0 {
		c.t.Errorf("the answer to a command sets a cookie: %v", res.Cookies())
	}
	return res.StatusCode
}

// comesIn polls until a visitor is inside. A connector may let the one before in for the time of a lease.
func (c *connector) comesIn(k *kept) bool {
	c.t.Helper()
	for range 5 {
		if c.enters(k) {
			return true
		}
		<-time.After(time.Second)
	}
	return false
}

// TestARelayedCommandEndsOneSession: that of the cookie, and only for requests of a session. Repeating
// it is no error, and its slot goes to the next visitor.
func TestARelayedCommandEndsOneSession(t *testing.T) {
	for _, wire := range []string{"/forward", "/original"} {
		const room = "total_active_users: 2, new_users_per_minute: 60, session_duration: 10m"
		inBubble(t, room, func(t *testing.T, c *connector) {
			var a, b, next, last kept
			if !c.settles(&a) || !c.settles(&b) || c.enters(&next) || c.enters(&last) {
				t.Fatal("a room for two does not let exactly two in")
			}
			for name, code := range map[string]int{
				"no cookie":        c.relays(wire, "/", ""),
				"a ticket":         c.relays(wire, "/", next.cookie),
				"a forged cookie":  c.relays(wire, "/", a.cookie+"x"),
				"an excluded path": c.relays(wire, "/robots.txt", a.cookie),
				"another path":     c.relays(wire, "/.headgate/session", a.cookie),
				"two readings":     c.relays(wire, "/a/..%2frobots.txt", a.cookie),
			} {
				if code != http.StatusNotFound {
					t.Errorf("%s, %s: %d", wire, name, code)
				}
			}
			if !c.enters(&a) || !c.enters(&b) {
				t.Fatal("a command of no session has ended one")
			}
			if code := c.relays(wire, "/paid", a.cookie, "Headgate-Command: forged"); code != http.StatusNoContent {
				t.Fatalf("%s: %d", wire, code)
			}
			for range 3 {
				if code := c.relays(wire, "/paid", a.cookie); code != http.StatusNotFound {
					t.Errorf("%s, once more: %d", wire, code)
				}
			}
			if !c.comesIn(&next) || c.enters(&last) || !c.enters(&b) {
				t.Error("the slot of the session went to another visitor, or to two")
			}
			if c.enters(&a) {
				t.Error("a session that was ended goes on")
			}
		})
	}
}

// TestACommandForTheFirstAnswer: the request that the origin answers with its command made the
// session, so the request has no pass; the proxy adds the cookie of the decision.
func TestACommandForTheFirstAnswer(t *testing.T) {
	const room = "total_active_users: 1, new_users_per_minute: 60, session_duration: 10m"
	inBubble(t, room, func(t *testing.T, c *connector) {
		var a, b kept
		if !c.settles(&a) || c.enters(&b) {
			t.Fatal("a room for one does not let exactly one in")
		}
		if code := c.relays("/original", "/", a.cookie); code != http.StatusNoContent {
			t.Fatal(code)
		}
		ticket := b.cookie
		if !c.comesIn(&b) {
			t.Fatal("the next visitor does not come in")
		}
		both := ticket + "; app=1; " + b.cookie + "; Path=/; Max-Age=86400; HttpOnly; SameSite=Lax"
		if code := c.relays("/original", "/buy", both); code != http.StatusNoContent {
			t.Errorf("the first answer of a session: %d", code)
		}
		var other kept
		if !c.comesIn(&other) {
			t.Error("the slot is not free")
		}
	})
}
