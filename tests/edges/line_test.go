//go:build edges

package edges

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	visitors "github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/tests/crowd"
)

// An origin records the requests that it gets.
type origin struct {
	*httptest.Server
	mu  sync.Mutex
	got []*http.Request
}

func serveOrigin(t *testing.T) *origin {
	o := &origin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		o.mu.Lock()
		o.got = append(o.got, r)
		o.mu.Unlock()
		w.Header().Set("Cache-Control", "public, max-age=60")
		io.WriteString(w, "the shop\n")
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *origin) addr() string { return strings.TrimPrefix(o.URL, "http://") }

// take returns the requests since the last call.
func (o *origin) take() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	got := o.got
	o.got = nil
	return got
}

// A browser is a visitor with a jar of cookies.
type browser struct {
	w   *world
	jar visitors.Jar
}

// ask sends a request as a browser that opens a page.
func (b *browser) ask(t *testing.T, method, path string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+b.w.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "shop.example"
	r.Header.Set("Accept", "text/html")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if c := b.jar.String(); c != "" {
		r.Header.Set("Cookie", c)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	b.jar.Keep(res.Header["Set-Cookie"])
	return res, string(body)
}

// TestLine: one visitor is inside and stays so, the next waits in line, polls, and comes in.
func TestLine(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 1, new_users_per_minute: 100, session_duration: 2s")
		a, b := browser{w: w}, browser{w: w}
		res, body := a.ask(t, "GET", "/tickets?x=1;y")
		cache, target := "Cache-Control", "/tickets?x=1;y"
		if strings.HasSuffix(e.name, "traefik") { // it cannot change a header of some answers only, and reads ; as &
			cache, target = "Cdn-Cache-Control", "/tickets?x=1&y"
		}
		if res.StatusCode != 200 || body != "the shop\n" || len(res.Header["Set-Cookie"]) != 1 ||
			!strings.Contains(strings.Join(res.Header[cache], ", "), "no-store") {
			t.Fatalf("newcomer: %d %q %v", res.StatusCode, body, res.Header)
		}
		if got := o.take(); len(got) != 1 || got[0].RequestURI != target {
			t.Errorf("the origin got %v", got)
		}
		if res, body = a.ask(t, "GET", "/tickets"); res.StatusCode != 200 || body != "the shop\n" {
			t.Errorf("with a pass: %d %q", res.StatusCode, body)
		}
		if res, body = b.ask(t, "GET", "/"); res.StatusCode != e.waits() || !strings.Contains(body, "<html") ||
			len(res.Header["Set-Cookie"]) == 0 {
			t.Fatalf("second visitor: %d %.80q %v", res.StatusCode, body, res.Header)
		}
		if res, body = b.ask(t, "GET", "/", "Headgate-Poll", "1"); res.StatusCode != 200 ||
			!strings.HasPrefix(body, "{") {
			t.Errorf("poll: %d %.80q", res.StatusCode, body)
		}
		if res, body = b.ask(t, "GET", "/.headgate/served"); res.StatusCode != 200 ||
			!strings.Contains(body, "rate_per_minute") {
			t.Errorf("served: %d %.80q", res.StatusCode, body)
		}
		o.take()
		for tries := 0; ; tries++ {
			if tries == 200 {
				t.Fatal("the second visitor never came in")
			}
			if res, _ = b.ask(t, "POST", "/buy"); res.StatusCode == 200 {
				break
			}
			if got := o.take(); len(got) > 0 {
				t.Fatalf("the origin got %v of a visitor that waits", got)
			}
			<-time.After(100 * time.Millisecond)
		}
		if got := o.take(); len(got) != 1 || got[0].Method != "POST" || got[0].RequestURI != "/buy" {
			t.Errorf("the origin got %v", got)
		}
	})
}

// TestCrowd: 400 visitors, judged by the origin behind the proxy.
func TestCrowd(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o, err := crowd.StartOrigin()
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		w := e.open(t, strings.TrimPrefix(o.URL, "http://"),
			"total_active_users: 40, new_users_per_minute: 80, session_duration: 3s, join_limit: {amount: 0}")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := visitors.Run(ctx, visitors.Config{URL: "http://" + w.addr + "/", Host: "shop.example", N: 400,
			Arrive: 5 * time.Second, Duration: 35 * time.Second, Seed: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := got.Summary()
		in := crowd.Arrivals(o.Requests())
		t.Logf("%d came in, %d overtaken of %d, errors %v; %s", len(in), s.Order.Overtaken, s.Order.Judged, s.Errors, s.Order.Example)
		if n := crowd.MaxInside(o.Requests()); n > 40 {
			t.Errorf("%d inside at once, limit 40", n)
		}
		if n := crowd.MaxInWindow(in, time.Minute); n > 80 {
			t.Errorf("%d new ones within a minute, limit 80", n)
		}
		if s.Order.Overtaken > 0 || len(s.Errors) > 0 || s.RisenPlace > 0 || len(in) < 45 {
			t.Errorf("overtaken %d, errors %v, places risen %d, came in %d", s.Order.Overtaken, s.Errors,
				s.RisenPlace, len(in))
		}
	})
}
