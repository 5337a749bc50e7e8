package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
)

const (
	limitsOfCORS = "origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100"
	someCORS     = "cors: {origins: [https://app.example, 'https://*.shop.example'], methods: [GET, PUT], " +
		"headers: [content-type, x-member], max_age: 10m, credentials: true}, "
)

// rawBytes sends the bytes of one request and returns those of the answer, without its Date.
func rawBytes(t *testing.T, url, text string) string {
	t.Helper()
	c, _ := dial(t, url)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(all), "Date: ")
	if _, after, cut := strings.Cut(rest, "\r\n"); ok && cut {
		return before + after
	}
	return string(all)
}

// What a room answers to preflights itself, whatever state it is in.
func TestPreflightsAnsweredHere(t *testing.T) {
	var asked atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer origin.Close()
	dead := httptest.NewServer(nil)
	dead.Close()
	states := map[string]string{"full": "", "shut": "closed: true, ",
		"soon": "opens_at: 2100-01-01T00:00:00Z, ",
		"off":  "suspended: true, ", "shadow": "shadow: true, ",
		"rule":   "rules: [{action: deny, expression: 'true'}], ",
		"passed": "exclude: {methods: [OPTIONS]}, ", "down": ""}
	var rooms strings.Builder
	rooms.WriteString("  - {name: plain, path: /plain, " + limitsOfCORS + "}\n")
	for name, state := range states {
		room := "  - {name: " + name + ", path: /" + name + ", " + state + someCORS + limitsOfCORS + "}\n"
		if name == "down" {
			room = strings.Replace(room, "ORIGIN", dead.URL, 1)
		}
		rooms.WriteString(room)
	}
	visitors, operators, _ := start(t, origin.URL, rooms.String())
	get(t, visitors+"/full", "")
	asked.Store(0)
	const (
		vary    = "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\nConnection: close\r\n\r\n"
		refused = "HTTP/1.1 204 No Content\r\n" + vary
		allowed = "HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Credentials: true\r\n" +
			"Access-Control-Allow-Headers: Content-Type, X-Member\r\nAccess-Control-Allow-Methods: GET, PUT\r\n" +
			"Access-Control-Allow-Origin: https://app.example\r\nAccess-Control-Max-Age: 600\r\n" + vary
	)
	for room := range states {
		for _, x := range []struct{ what, origin, method, headers, want string }{
			{"allowed", "https://app.example", "PUT", "content-type,x-member", allowed},
			{"another origin", "https://evil.example", "PUT", "content-type,x-member", refused},
			{"another method", "https://app.example", "DELETE", "x-member", refused},
			{"another header", "https://app.example", "PUT", "x-member,x-other", refused},
			{"null", "null", "PUT", "x-member", refused},
		} {
			got := rawBytes(t, visitors, "OPTIONS /"+room+"/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
				"Cookie: a=b\r\nOrigin: "+x.origin+"\r\nAccess-Control-Request-Method: "+x.method+
				"\r\nAccess-Control-Request-Headers: "+x.headers+"\r\nAccess-Control-Request-Private-Network: true\r\n\r\n")
			if got != x.want {
				t.Errorf("%s, room %s: %q, want %q", x.what, room, got, x.want)
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the origin was asked %d times", n)
	}
	if got := rawBytes(t, visitors, "OPTIONS /full HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n"+
		"Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n\r\nx"); !strings.Contains(got, " 503 ") {
		t.Errorf("with a body: %q", got)
	}
	rawBytes(t, visitors, "OPTIONS /plain HTTP/1.1\r\nHost: x\r\nConnection: close\r\nOrigin: https://app.example\r\n"+
		"Access-Control-Request-Method: PUT\r\n\r\n")
	if n := asked.Load(); n != 1 {
		t.Errorf("without cors: the origin was asked %d times, want once", n)
	}
	var m struct{ Rooms []headgate.Status }
	err := json.Unmarshal([]byte(get(t, operators+"/v1/rooms", "").body), &m)
	if err != nil || len(m.Rooms) != len(states)+1 {
		t.Fatal(err, len(m.Rooms))
	}
	for _, s := range m.Rooms {
		if inside := s.ActiveUsers == 1; inside != (s.Name == "full") || s.WaitingUsers != 0 {
			t.Errorf("room %s: %d inside, %d wait", s.Name, s.ActiveUsers, s.WaitingUsers)
		}
	}
}

// Where readings of a path are of several rooms, one of them cannot allow what reaches the other.
func TestPreflightsOfSeveralRoomsAreTheOrigins(t *testing.T) {
	var asked atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, "  - {name: a, path: /a, paths: as_they_come, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: ab, path: /a/b, paths: as_they_come, "+limitsOfCORS+"}\n"+
		"  - {name: c, path: /a/b/c, paths: as_they_come, "+someCORS+limitsOfCORS+"}\n")
	for _, path := range []string{"/a/b%2fc", "/a%2fb"} {
		asked.Store(0)
		got := rawBytes(t, visitors, "OPTIONS "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+
			"Origin: https://app.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n")
		if asked.Load() != 1 || strings.Contains(got, "Access-Control-") {
			t.Errorf("%s: asked %d times, %q", path, asked.Load(), got)
		}
	}
}

// Answers of headgate's own can be read by the pages of the origins that are listed, and by no others.
func TestWaitingAnswersAreShared(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("says") {
		case "own":
			w.Header().Set("Access-Control-Allow-Origin", "https://origins.example")
			w.Header().Add("Vary", "Origin")
			w.Header().Add("Vary", "X-Own")
		case "nothing":
		case "hang up":
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, "inside")
	}))
	defer origin.Close()
	file := strings.ReplaceAll("  - {name: full, path: /full, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: open, path: /open, exclude: {paths: [/open/*]}, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: limited, path: /limited, limits: [each], exclude: {paths: [/limited*]}, "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: denied, path: /denied, rules: [{action: deny, expression: 'true'}], "+someCORS+limitsOfCORS+"}\n"+
		"  - {name: any, path: /any, closed: true, cors: {origins: ['*']}, "+limitsOfCORS+"}\n"+
		"  - {name: plain, path: /plain, closed: true, "+limitsOfCORS+"}\n"+
		"limits:\n  - {name: each, algorithm: sliding_log, amount: 1, window: 1h}\n", "ORIGIN", origin.URL)
	visitors, _, _ := start(t, origin.URL, file)
	get(t, visitors+"/full", "")
	get(t, visitors+"/limited", "")
	ask := func(path, from string) (*http.Response, string) {
		t.Helper()
		text := "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: application/json\r\n"
		if from != "" {
			text += "Origin: " + from + "\r\n"
		}
		if strings.HasSuffix(path, "#poll") {
			text = strings.Replace(text, "#poll", "", 1) + "Headgate-Poll: 1\r\n"
		}
		res := askRaw(t, visitors, text+"\r\n")
		body, err := io.ReadAll(res.Body)
		if err != nil && path != "/open/?says=hang%20up" {
			t.Fatal(err)
		}
		return res, string(body)
	}
	const exposed = "Headgate-State, RateLimit, RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, " +
		"RateLimit-Reset, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id"
	for _, x := range []struct {
		path   string
		status int
		has    string
	}{
		{"/full", 503, `"cfWaitingRoom"`}, {"/full#poll", 200, `"cfWaitingRoom"`},
		{"/full/.headgate/served", 200, `"served"`}, {"/limited", 429, "quota-exceeded"},
		{"/denied", 403, ""}, {"/open/?says=hang%20up", 502, ""},
	} {
		res, body := ask(x.path, "https://a.shop.example")
		h := res.Header
		if res.StatusCode != x.status || !strings.Contains(body, x.has) {
			t.Errorf("%s: %s %s", x.path, res.Status, body)
		}
		if from := h["Access-Control-Allow-Origin"]; len(from) != 1 || from[0] != "https://a.shop.example" ||
			h.Get("Access-Control-Allow-Credentials") != "true" ||
			h.Get("Access-Control-Expose-Headers") != exposed ||
			h.Get("Cache-Control") != "no-store" && !strings.Contains(listed(h["Vary"]), "Origin") {
			t.Errorf("%s: %v", x.path, res.Header)
		}
		for _, from := range []string{"https://evil.example", "null", ""} {
			res, _ := ask(x.path, from)
			if got := corsOf(res.Header); got != "" {
				t.Errorf("%s for %q: %s", x.path, from, got)
			}
			if v := listed(res.Header["Vary"]); x.status == 200 && !strings.Contains(v, "Origin") {
				t.Errorf("%s for %q: a cache could hand it to others: Vary %s", x.path, from, v)
			}
		}
	}
	if res, _ := ask("/any", "null"); corsOf(res.Header) !=
		"Access-Control-Allow-Origin: *; Access-Control-Expose-Headers: "+exposed+"; " {
		t.Error("any:", res.Header)
	}
	if res, _ := ask("/plain", "https://app.example"); corsOf(res.Header) != "" {
		t.Error("without cors:", res.Header)
	}
	for says, want := range map[string]string{"nothing": "|",
		"own": "Access-Control-Allow-Origin: https://origins.example; |Origin,X-Own"} {
		res, body := ask("/open/?says="+says, "https://app.example")
		if got := corsOf(res.Header) + "|" + listed(res.Header["Vary"]); got != want || body != "inside" {
			t.Errorf("the origin says %s: %s, want %s", says, got, want)
		}
	}
}

func listed(lines []string) string { return strings.Join(lines, ",") }

// corsOf are the headers of CORS, sorted.
func corsOf(h http.Header) (all string) {
	for _, name := range []string{"Allow-Credentials", "Allow-Headers", "Allow-Methods", "Allow-Origin",
		"Expose-Headers", "Max-Age"} {
		for _, v := range h["Access-Control-"+name] {
			all += "Access-Control-" + name + ": " + v + "; "
		}
	}
	return all
}
