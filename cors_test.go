package headgate_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

const fromApp = "Host: shop.example\r\nConnection: close\r\nOrigin: https://app.example\r\n"

// A room of the library answers preflights as the command's rooms do, in every state.
func TestLibraryAnswersPreflights(t *testing.T) {
	for state, change := range map[string]func(*headgate.RoomConfig){
		"open":         func(*headgate.RoomConfig) {},
		"closed":       func(c *headgate.RoomConfig) { c.Closed = true },
		"suspended":    func(c *headgate.RoomConfig) { c.Suspended = true },
		"OPTIONS pass": func(c *headgate.RoomConfig) { c.Exclude = headgate.Exclude{Methods: []string{"OPTIONS"}} },
	} {
		l := newLibrary(t, func(c *headgate.RoomConfig) {
			change(c)
			c.CORS = &headgate.CORS{Origins: []string{"https://app.example", "https://*.shop.example"},
				Methods: []string{"GET", "PUT"}, Headers: []string{"x-member"}, MaxAge: 10 * time.Minute,
				Credentials: true}
		})
		for _, x := range []struct {
			origin, method string
			allowed        bool
		}{
			{"https://app.example", "PUT", true}, {"https://m.shop.example", "GET", true},
			{"https://app.example", "DELETE", false}, {"https://evil.example", "PUT", false}, {"null", "PUT", false},
		} {
			res := l.send("OPTIONS /x HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nOrigin: " + x.origin +
				"\r\nAccess-Control-Request-Method: " + x.method + "\r\nAccess-Control-Request-Headers: X-Member\r\n\r\n")
			if len(res) != 1 || res[0].StatusCode != http.StatusNoContent {
				t.Fatalf("%s: answered %v", state, res)
			}
			want := http.Header{}
			if x.allowed {
				want = http.Header{"Access-Control-Allow-Origin": {x.origin},
					"Access-Control-Allow-Credentials": {"true"}, "Access-Control-Allow-Methods": {"GET, PUT"},
					"Access-Control-Allow-Headers": {"X-Member"}, "Access-Control-Max-Age": {"600"}}
			}
			for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Credentials",
				"Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Access-Control-Max-Age"} {
				if got := res[0].Header.Get(name); got != want.Get(name) {
					t.Errorf("%s, %s from %s: %s is %q", state, x.method, x.origin, name, got)
				}
			}
		}
		if n := len(l.requests()); n != 0 {
			t.Errorf("%s: the site was asked %d times", state, n)
		}
	}
}

// Pages of listed origins can read the room's own answers. The site decides about its own answers.
func TestLibrarySharesItsOwnAnswers(t *testing.T) {
	l := newLibrary(t, func(c *headgate.RoomConfig) {
		c.CORS = &headgate.CORS{Origins: []string{"https://app.example"}}
	})
	inside := l.send("GET / HTTP/1.1\r\n" + fromApp + "\r\n")[0]
	waits := l.send("GET / HTTP/1.1\r\n" + fromApp + "\r\n")[0]
	if got := inside.Header.Get("Access-Control-Allow-Origin"); inside.StatusCode != 200 || got != "" {
		t.Errorf("the site's answer, %d, is shared with %q", inside.StatusCode, got)
	}
	if got := waits.Header.Get("Access-Control-Allow-Origin"); waits.StatusCode != 503 || got != "https://app.example" {
		t.Errorf("the waiting answer, %d, is shared with %q", waits.StatusCode, got)
	}
	if res := l.send("OPTIONS / HTTP/1.1\r\n" + fromApp + "Access-Control-Request-Method: POST\r\n\r\n")[0]; res.Header.
		Get("Access-Control-Allow-Methods") != "GET, HEAD, POST" || res.Header.Get("Access-Control-Max-Age") != "5" {
		t.Errorf("by default: %v", res.Header)
	}
	cfg := headgate.RoomConfig{Name: "shop", CORS: &headgate.CORS{Origins: []string{"*"}, Credentials: true}}
	if _, err := headgate.OpenRoom(t.Context(), cfg); !errors.Is(err, headgate.ErrConfig) {
		t.Errorf("all origins with credentials: %v", err)
	}
}
