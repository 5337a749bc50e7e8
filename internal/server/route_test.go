package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// lineOrigin is an origin that records the bytes of each request line, and the Host.
type lineOrigin struct {
	url   string
	mu    sync.Mutex
	lines []string
	hosts []string
}

func newLineOrigin(t *testing.T) *lineOrigin {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &lineOrigin{url: "http://" + l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { o.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return o
}

// serve answers one request.
func (o *lineOrigin) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	host := ""
	for {
		head, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if head = strings.TrimSpace(head); head == "" {
			break
		}
		if name, value, _ := strings.Cut(head, ":"); strings.EqualFold(name, "Host") {
			host = strings.TrimSpace(value)
		}
	}
	o.mu.Lock()
	o.lines, o.hosts = append(o.lines, strings.TrimRight(line, "\r\n")), append(o.hosts, host)
	o.mu.Unlock()
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\norigin")
}

// seen returns what was received since the last call.
func (o *lineOrigin) seen() (lines, hosts []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, hosts = o.lines, o.hosts
	o.lines, o.hosts = nil, nil
	return lines, hosts
}

// raw sends a request as written and returns the answer.
func raw(t *testing.T, visitors, request string) reply {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body) // the end of the connection ends the body
	out := reply{Response: res, body: string(body)}
	for _, x := range res.Cookies() {
		out.cookie = x.Name + "=" + x.Value
	}
	return out
}

// line returns a request without a body for a target as written.
func line(method, target, cookie string) string {
	length := ""
	if method == "POST" {
		length = "Content-Length: 0\r\n"
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: shop.example\r\nCookie: %s\r\n%s\r\n", method, target, cookie,
		length)
}

// spellings returns ways to write "from FOLDER up to PATH" that some origin reads so.
func spellings(folder, path string) (all []string) {
	for _, up := range []string{
		"../", "..%2f", "..%2F", "%2e%2e/", "%2E%2E%2F", ".%2e/", `..\`, "..%5c", "%2e%2e%5C", "..;x/",
		"..;/",
		"..%3b/", "%252e%252e/", "..%252f", "%252e%252e%252f", "..%255c", "./../", "/../", "%2e/../",
		"x/../../", "x/..;/..%2f", "..//", "../;/", "..%2f%2f", "../.%2f",
	} {
		all = append(all, folder+"/"+up+path)
	}
	return all
}

// TestWalls1NoReadingOfAPathPassesARoom, finding 1: a path that is excluded, bypassed or in another
// room in only one of its readings does not reach the origin.
func TestWalls1NoReadingOfAPathPassesARoom(t *testing.T) {
	const limits = "total_active_users: 1, new_users_per_minute: 9"
	rooms := map[string]string{
		"closed": "  - {name: shop, origin: ORIGIN, closed: true, " + limits + "}\n",
		"full":   "  - {name: shop, origin: ORIGIN, " + limits + "}\n",
		"not yet open": "  - {name: shop, origin: ORIGIN, opens_at: \"" +
			time.Now().Add(24*time.Hour).Format(time.RFC3339) + "\", " + limits + "}\n",
		"of a folder": "  - {name: all, origin: ORIGIN, suspended: true, " + limits + "}\n" +
			"  - {name: shop, path: /checkout, origin: ORIGIN, closed: true, " + limits + "}\n",
		"with a bypass": "  - {name: shop, origin: ORIGIN, closed: true, " + limits + ", rules: [{action: bypass, " +
			"expression: 'http.request.uri.path == \"/robots.txt\"'}], exclude: {defaults: false}}\n",
	}
	for state, room := range rooms {
		t.Run(state, func(t *testing.T) {
			origin := newLineOrigin(t)
			visitors, operators, _ := start(t, origin.url, room)
			if state == "full" {
				if r := get(t, visitors+"/", ""); r.body != "origin" {
					t.Fatal(r.StatusCode, r.body)
				}
			}
			if r := raw(t, visitors, line("POST", "/robots.txt", "")); r.body != "origin" {
				t.Fatalf("/robots.txt: %d %s", r.StatusCode, r.body)
			}
			origin.seen()
			before := roomStatus(t, operators)
			for _, target := range spellings("/checkout", "robots.txt") {
				r := raw(t, visitors, line("POST", target, ""))
				if r.StatusCode != http.StatusBadRequest || r.cookie != "" {
					t.Errorf("POST %s: %d, cookie %q", target, r.StatusCode, r.cookie)
				}
				r = raw(t, visitors, line("GET", target+"?a=%2f..", ""))
				if r.StatusCode != http.StatusPermanentRedirect || r.cookie != "" ||
					r.Header.Get("Location") != "/robots.txt?a=%2f.." ||
					r.Header.Get("Cache-Control") != "no-store" {
					t.Errorf("GET %s: %d %v", target, r.StatusCode, r.Header)
				}
			}
			if lines, _ := origin.seen(); len(lines) > 0 {
				t.Errorf("the origin saw %q", lines)
			}
			if s := roomStatus(t, operators); s.ActiveUsers != before.ActiveUsers ||
				s.WaitingUsers != before.WaitingUsers {
				t.Errorf("%d inside and %d wait, before %d and %d", s.ActiveUsers, s.WaitingUsers,
					before.ActiveUsers, before.WaitingUsers)
			}
		})
	}
}

// writings returns ways to write a path whose clean reading is /PATH.
func writings(path string) (all []string) {
	first := fmt.Sprintf("%%%02x", path[0])
	return append(spellings("/x", path), "/"+path+";", "/"+path+";v=1", "//"+path, "/./"+path,
		"/"+strings.ToUpper(path), "/"+strings.ToUpper(path[:1])+path[1:], "/"+first+path[1:],
		"/%25"+first[1:]+path[1:], `/\`+path, "/;a/"+path, "/%2f"+path, "/"+path+"%3fx", "/"+path+"%23",
		"/"+path+"/.", "/"+path+"/x/..", "/"+path+"/%2e", "/"+path+"%3bx",
		"/"+path+".", "/"+path+"%20", "/"+path+"%2e%20", "/"+path+"./x/..%20")
}

// inside returns the cookie of a visitor who is inside the room of a path.
func inside(t *testing.T, visitors, path string) string {
	t.Helper()
	r := get(t, visitors+path, "")
	if r.body != "origin" || r.cookie == "" {
		t.Fatalf("%s: %d %s", path, r.StatusCode, r.body)
	}
	return r.cookie
}

// TestWalls1NoReadingOfAPathPassesADeny, finding 1, for visitors inside.
func TestWalls1NoReadingOfAPathPassesADeny(t *testing.T) {
	for name, rule := range map[string]string{
		"exact": `http.request.uri.path in {"/admin" "/admin/"}`,
		"all":   `starts_with(http.request.uri.path, "/admin")`,
		"case":  `http.request.uri.path matches "^/Admin/?$"`,
	} {
		t.Run(name, func(t *testing.T) {
			origin := newLineOrigin(t)
			visitors, _, _ := start(t, origin.url, "  - {name: shop, origin: ORIGIN, total_active_users: 9, "+
				"new_users_per_minute: 9, rules: [{action: deny, expression: '"+rule+"'}]}\n")
			cookie := inside(t, visitors, "/")
			origin.seen()
			for _, target := range writings("admin") {
				for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS"} {
					raw(t, visitors, line(method, target, cookie))
				}
			}
			if lines, _ := origin.seen(); len(lines) > 0 {
				t.Errorf("the origin saw %q", lines)
			}
		})
	}
}

// TestWalls1NoReadingOfAPathReachesABypass, finding 1: a path that is bypassed or excluded in only
// one of its readings does not pass a full room.
func TestWalls1NoReadingOfAPathReachesABypass(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, operators, _ := start(t, origin.url, `
  - name: shop
    origin: ORIGIN
    total_active_users: 1
    new_users_per_minute: 9
    exclude: {paths: [/assets/]}
    rules: [{action: bypass, expression: 'starts_with(http.request.uri.path, "/hooks/")'}]
`)
	inside(t, visitors, "/")
	origin.seen()
	for _, folder := range []string{"/hooks", "/assets", "/.well-known"} {
		for _, target := range append(spellings(folder, "checkout"), folder+"%2fx", folder+"%2f..%2fcheckout",
			folder+`\x`, "/x;"+folder+"/x", "/checkout/%3f/.."+folder+"/x", strings.ToUpper(folder)+"x/a") {
			raw(t, visitors, line("POST", target, ""))
			raw(t, visitors, line("GET", target, ""))
		}
	}
	if lines, _ := origin.seen(); len(lines) > 0 {
		t.Errorf("the origin saw %q", lines)
	}
	for _, target := range []string{"/hooks/a%2Fb", "/hooks/a//b", "/hooks/a;b/c%20d"} {
		if r := raw(t, visitors, line("POST", target, "")); r.body != "origin" {
			t.Errorf("%s: %d %s", target, r.StatusCode, r.body)
		}
	}
	if s := roomStatus(t, operators); s.ActiveUsers != 1 {
		t.Errorf("%d inside", s.ActiveUsers)
	}
}

// TestWalls1NoReadingOfAPathIsOfAnotherRoom, finding 1: the pass of one room is not valid in
// another.
func TestWalls1NoReadingOfAPathIsOfAnotherRoom(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, `
  - {name: a, path: /a, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9}
  - {name: b, path: /b, origin: ORIGIN, closed: true, total_active_users: 9, new_users_per_minute: 9}
`)
	cookie := inside(t, visitors, "/a")
	origin.seen()
	for _, target := range append(append(spellings("/a", "b"), spellings("/a/x/..", "b/c")...),
		writings("b")...) {
		for _, method := range []string{"GET", "POST"} {
			raw(t, visitors, line(method, target, cookie))
		}
	}
	if lines, _ := origin.seen(); len(lines) > 0 {
		t.Errorf("the origin saw %q", lines)
	}
}

// A target that begins with // is a reference to another host for all that parse it as a URL: with
// url.Parse or new URL(req.url, base), an origin serves /checkout for //x/checkout.
func TestWalls1NoTargetNamesAHost(t *testing.T) {
	var seen atomic.Pointer[string]
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if u, err := url.Parse(r.RequestURI); err == nil && strings.HasPrefix(u.Path, "/checkout") {
			seen.Store(&r.RequestURI)
		}
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, `
  - {name: all, origin: ORIGIN, suspended: true, total_active_users: 9, new_users_per_minute: 9}
  - {name: shop, path: /checkout, origin: ORIGIN, closed: true, total_active_users: 9, new_users_per_minute: 9}
`)
	for _, x := range []string{"//x/checkout", "//shop.example:80/checkout?a=1", "///x/checkout", "////x/checkout",
		`/\x/checkout`, `\/\/x/checkout`, "//u:p@x/checkout/", "//x/checkout%2fb", "/%2fx/checkout", "/.//x/checkout",
		"/a/..//x/checkout", `//x\checkout`, "//x;b/checkout", "//x/CHECKOUT"} {
		for _, method := range []string{"GET", "POST"} {
			r := raw(t, visitors, line(method, x, ""))
			if r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusPermanentRedirect {
				t.Errorf("%s %s: %d", method, x, r.StatusCode)
			}
			if to := r.Header.Get("Location"); to != "" && !strings.HasPrefix(to, "/x/") &&
				!strings.HasPrefix(to, "/shop.example:80/") && !strings.HasPrefix(to, "/u:p@x/") {
				t.Errorf("GET %s: to %s", x, to)
			}
		}
	}
	if got := seen.Load(); got != nil {
		t.Errorf("the origin read %q as /checkout", *got)
	}
}

// TestWalls1NoReadingOfAPathHasALimitOfItsOwn, finding 1: all spellings of a path count as one key,
// and an allowed request is sent to the origin unchanged.
func TestWalls1NoReadingOfAPathHasALimitOfItsOwn(t *testing.T) {
	origin := newLineOrigin(t)
	p := &process{t: t, dir: t.TempDir(), origin: origin.url}
	p.file = p.dir + "/headgate.yaml"
	p.write(`
limits: [{name: login, algorithm: sliding_log, amount: 1, window: 1h, key: [path]}]
rooms:
  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9, limits: [login]}
`)
	p.start()
	t.Cleanup(func() { p.stop() })
	cookie := inside(t, p.visitors, "/")
	inside(t, p.visitors, "/login")
	origin.seen()
	for _, target := range writings("login") {
		r := raw(t, p.visitors, line("POST", target, cookie))
		// With a slash at the end it is another page at most origins.
		if r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusBadRequest &&
			!strings.HasSuffix(strings.TrimRight(target, "."), "/") && !strings.HasSuffix(target, "/%2e") {
			t.Errorf("POST %s: %d", target, r.StatusCode)
		}
	}
	if lines, _ := origin.seen(); len(lines) > 1 {
		t.Errorf("the origin saw %q", lines)
	}
}

// TestWalls1BytesOfAPathGoOnUnchanged checks that a path whose readings all lead to one decision is
// sent unchanged.
func TestWalls1BytesOfAPathGoOnUnchanged(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, "  - {name: shop, origin: ORIGIN, total_active_users: 9, "+
		"new_users_per_minute: 9}\n")
	cookie := inside(t, visitors, "/")
	origin.seen()
	for sent, want := range map[string]string{
		"/a%2Fb%2fc": "", "//a//b/": "", "/a;v=1/b;jsessionid=X": "", "/./a": "", "/a/../b": "",
		"/%7Euser": "",
		"/a%252Fb": "", "/%e2%82%ac": "", "/a(b)!*'": "", "/a?x=..%2f;y&z": "", "/a+b,c:d@e=f&g$h": "",
		"/%5B1%5D[2]": "", "/100%25": "", "/a%20b": "", "/a%5Cb": "", "/%FF": "", "/a%3Fb%23c": "",
		`/a%2Fb\c|d"e`: "/a%2Fb%5Cc%7Cd%22e", "/caf\xc3\xa9%2f": "/caf%C3%A9%2f", "/a#b": "/a%23b",
	} {
		if want == "" {
			want = sent
		}
		for _, method := range []string{"GET", "POST"} {
			r := raw(t, visitors, line(method, sent, cookie))
			lines, _ := origin.seen()
			if len(lines) != 1 || lines[0] != method+" "+want+" HTTP/1.1" {
				t.Errorf("%s %s: %d, and the origin saw %q", method, sent, r.StatusCode, lines)
			}
		}
	}
	for _, sent := range []string{"/a%00", "/a%0d%0aX-Y:%20z", "/%0A", "/a\tb", "/a%09", "/%7F",
		"/a\x01", "/%250a"} {
		r := raw(t, visitors, line("GET", sent, cookie))
		if lines, _ := origin.seen(); r.StatusCode != http.StatusBadRequest || len(lines) > 0 {
			t.Errorf("GET %q: %d, and the origin saw %q", sent, r.StatusCode, lines)
		}
	}
}

// TestWalls1PathsAsTheyComeAreJudgedStrictly, finding 1, for rooms with as_they_come.
func TestWalls1PathsAsTheyComeAreJudgedStrictly(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, `
  - name: all
    origin: ORIGIN
    paths: as_they_come
    total_active_users: 2
    new_users_per_minute: 9
    rules: [{action: deny, expression: 'starts_with(http.request.uri.path, "/admin")'}]
  - {name: sale, path: /sale, origin: ORIGIN, paths: as_they_come, total_active_users: 1, new_users_per_minute: 9}
`)
	all, sale := inside(t, visitors, "/"), inside(t, visitors, "/sale")
	expect := func(method, target, cookie string, want int) {
		t.Helper()
		origin.seen()
		r := raw(t, visitors, line(method, target, cookie))
		lines, _ := origin.seen()
		if r.StatusCode != want || (len(lines) == 1) != (want == 200) || want == 200 &&
			lines[0] != method+" "+target+" HTTP/1.1" {
			t.Errorf("%s %s: %d, want %d; the origin saw %q", method, target, r.StatusCode, want, lines)
		}
	}
	for _, method := range []string{"GET", "POST"} {
		expect(method, "/robots.txt;jsessionid=1", all, 200)
		expect(method, "/checkout/..%2frobots.txt", all, 200)
		expect(method, "/x/..%2fadmin", all, http.StatusForbidden)
		expect(method, "/admin/..%2fx", all, http.StatusForbidden)
		expect(method, "/sale;x/1", all+"; "+sale, 200)
		expect(method, "/sale;x/1", all, http.StatusServiceUnavailable)
	}
	inside(t, visitors, "/") // both rooms are full
	for _, method := range []string{"GET", "POST"} {
		expect(method, "/checkout/..%2frobots.txt", "", http.StatusServiceUnavailable)
		expect(method, "/sale;x/1", sale, http.StatusServiceUnavailable)
		expect(method, "/sale/..%2fx", sale, http.StatusServiceUnavailable)
	}
}

// A path that belongs to another room, as some origins read it, is no way around its limits.
func TestNoWayAroundLimitsByOddPaths(t *testing.T) {
	const rooms = `
  - {name: open, path: /public, origin: ORIGIN, suspended: true, total_active_users: 9, new_users_per_minute: 9 ALL}
  - {name: api, path: /api, origin: ORIGIN, suspended: true, total_active_users: 9, new_users_per_minute: 9, limits: [calls]}
limits:
  - {name: calls, algorithm: sliding_window, amount: 2, window: 1h, key: [method]}
`
	for has, want := range map[string][]int{
		"":                  {308, 308, 308},
		", limits: [calls]": {200, 200, 429},
	} {
		origin := newLineOrigin(t)
		visitors, _, _ := start(t, origin.url, strings.Replace(rooms, " ALL", has, 1))
		for i, path := range []string{"/public/../api", "/public/..%2fapi", "/public/..;/api"} {
			if r := raw(t, visitors, line("GET", path, "")); r.StatusCode != want[i] {
				t.Errorf("%q: %s: %s, want %d", has, path, r.Status, want[i])
			}
		}
		if lines, _ := origin.seen(); has == "" && len(lines) > 0 {
			t.Errorf("the origin saw %q", lines)
		}
	}
}

// Some origins ignore the case of a method. A rule that denies POST denies post, no rule about HEAD
// lets head in, and a limit has one key for all spellings.
func TestMethodsInAnyCase(t *testing.T) {
	origin := newLineOrigin(t)
	visitors, _, _ := start(t, origin.url, `
  - name: shop
    origin: ORIGIN
    closed: true
    total_active_users: 9
    new_users_per_minute: 9
    limits: [calls]
    rules:
      - {action: deny, expression: 'http.request.method == "POST"'}
      - {action: bypass, expression: 'http.request.method == "HEAD"'}
      - {action: bypass, expression: 'http.request.method == "put"'}
      - {action: bypass, expression: 'http.request.uri.path == "/limited"'}
limits:
  - {name: calls, algorithm: fixed_window, amount: 2, window: 1h, key: [path, method]}
`)
	for _, x := range []struct {
		method, target string
		want           int
	}{
		{"POST", "/", 403}, {"post", "/", 403}, {"PoST", "/", 403},
		{"GET", "/", 503}, {"get", "/", 503}, {"HEAD", "/", 200}, {"head", "/", 503}, {"put", "/", 503},
		{"PATCH", "/limited", 200}, {"patch", "/limited", 200}, {"Patch", "/limited", 429},
	} {
		if r := raw(t, visitors, line(x.method, x.target, "")); r.StatusCode != x.want {
			t.Errorf("%s %s: %d, want %d", x.method, x.target, r.StatusCode, x.want)
		}
	}
}

// TestWalls1AShadowRefusesNobody checks that a room that holds nobody back lets every spelling
// pass.
func TestWalls1AShadowRefusesNobody(t *testing.T) {
	for _, key := range []string{"shadow", "suspended"} {
		origin := newLineOrigin(t)
		visitors, _, _ := start(t, origin.url, "  - {name: shop, path: /a, origin: ORIGIN, total_active_users: 9, "+
			"new_users_per_minute: 9, "+key+": true}\n  - {name: all, origin: ORIGIN, total_active_users: 9, "+
			"new_users_per_minute: 9, shadow: true}\n")
		for _, target := range spellings("/a", "robots.txt") {
			if r := raw(t, visitors, line("POST", target,
				"")); r.body != "origin" && !strings.Contains(target, "x/../../") {
				t.Errorf("%s: POST %s: %d", key, target, r.StatusCode)
			}
		}
	}
}

// OPTIONS and HEAD once passed with any path, cookies and bodies, even while the room was closed.
func TestOptionsAndHeadAreNoWayAround(t *testing.T) {
	var asked, cookies atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header["Cookie"] != nil {
			cookies.Add(1)
		}
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "of the origin"})
		w.Header().Set("X-Origin", "1")
		fmt.Fprint(w, "the page, rendered whole")
	}))
	defer origin.Close()
	const limits = "origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100"
	visitors, operators, _ := start(t, origin.URL, "  - {name: full, path: /full, "+limits+"}\n"+
		"  - {name: shut, path: /shut, closed: true, "+limits+"}\n"+
		"  - {name: soon, path: /soon, opens_at: 2100-01-01T00:00:00Z, "+limits+"}\n"+
		"  - {name: free, path: /free, "+limits+"}\n"+
		"  - {name: asis, path: /asis, closed: true, exclude: {methods: [OPTIONS, HEAD]}, "+limits+"}\n")
	var inside strings.Builder // has the only slot
	for _, c := range get(t, visitors+"/full", "").Cookies() {
		inside.WriteString(c.Name + "=" + c.Value + "; ")
	}
	const preflight = "Origin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n"
	for _, x := range []struct {
		what, line, headers string
		passes, cookie      bool
	}{
		{"a preflight", "OPTIONS /%s", preflight + "Cookie: session=1\r\n", true, false},
		{"OPTIONS", "OPTIONS /%s", "", false, false},
		{"without Origin", "OPTIONS /%s", "Access-Control-Request-Method: PUT\r\n", false, false},
		{"without the method", "OPTIONS /%s", "Origin: https://a.example\r\n", false, false},
		{"with a body", "OPTIONS /%s", preflight + "Content-Length: 1\r\n", false, false},
		{"with a chunked body", "OPTIONS /%s", preflight + "Transfer-Encoding: chunked\r\n", false, false},
		{"HEAD", "HEAD /%s", "Cookie: session=1\r\n", false, false},
	} {
		for _, room := range []string{"full", "shut", "soon"} {
			asked.Store(0)
			cookies.Store(0)
			c, _ := dial(t, visitors)
			body := ""
			if x.what == "with a body" {
				body = "x"
			} else if x.what == "with a chunked body" {
				body = "1\r\nx\r\n0\r\n\r\n"
			}
			fmt.Fprintf(c, x.line+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+x.headers+"\r\n"+body, room)
			all, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			if got := asked.Load() > 0; got != x.passes {
				t.Errorf("%s, room %s: at the origin %v, want %v: %s", x.what, room, got, x.passes, all)
			}
			if cookies.Load() > 0 || contains(all, "of the origin") || contains(all, "rendered") {
				t.Errorf("%s, room %s: cookies at the origin %d, answer %s", x.what, room, cookies.Load(), all)
			}
			if !x.passes && !contains(all, " 503 ") {
				t.Errorf("%s, room %s: %s", x.what, room, all)
			}
		}
	}
	head := func(method, path, cookie string) *http.Response {
		asked.Store(0)
		cookies.Store(0)
		r, err := http.NewRequestWithContext(t.Context(), method, visitors+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", cookie)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res
	}
	for range 3 { // a monitor takes no slot
		if res := head("HEAD", "/free", "session=1"); res.StatusCode != 200 || asked.Load() != 1 ||
			cookies.Load() != 0 || len(res.Cookies()) != 0 {
			t.Errorf("HEAD in a room with a free slot: %d, cookies %d %v", res.StatusCode, cookies.Load(), res.Cookies())
		}
	}
	if res := get(t, visitors+"/free", ""); res.StatusCode != 200 {
		t.Errorf("HEAD has taken the slot: %d", res.StatusCode)
	}
	for _, method := range []string{"HEAD", "OPTIONS"} { // with a pass every method passes
		if res := head(method, "/full", inside.String()); res.StatusCode != 200 || cookies.Load() != 1 ||
			len(res.Cookies()) == 0 {
			t.Errorf("%s of a visitor inside: %d, cookies %d %v", method, res.StatusCode, cookies.Load(), res.Cookies())
		}
		if res := head(method, "/asis", "session=1"); res.StatusCode != 200 || cookies.Load() != 1 {
			t.Errorf("%s that the file excludes: %d, cookies %d", method, res.StatusCode, cookies.Load())
		}
	}
	if s := roomStatus(t, operators); s.ActiveUsers != 1 {
		t.Errorf("%d are inside", s.ActiveUsers)
	}
}

// A monitor that uses HEAD must not mistake the waiting page for the site.
func TestHeadThatWaitsIs503(t *testing.T) {
	for _, code := range []string{"200", "202", "429", "503"} {
		visitors, _, _ := start(t, "http://127.0.0.1:1", "  - {name: shut, origin: ORIGIN, closed: true, "+
			"total_active_users: 1, new_users_per_minute: 100, queueing_status_code: "+code+"}\n")
		page := askRaw(t, visitors, "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n")
		if page.Status[:3] != code {
			t.Fatalf("the page has %s, not %s", page.Status, code)
		}
		for _, accept := range []string{"text/html", "application/json", "*/*", "image/png"} {
			res := askRaw(t, visitors, "HEAD / HTTP/1.1\r\nHost: x\r\nAccept: "+accept+"\r\n\r\n")
			if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
				t.Errorf("HEAD for %s where pages have %s: %s, Retry-After %q", accept, code, res.Status,
					res.Header.Get("Retry-After"))
			}
		}
	}
}

func contains(all []byte, text string) bool { return bytes.Contains(all, []byte(text)) }

// crumbs sends an HTTP/2 request with each cookie line in a field of its own, as RFC 9113 §8.2.3
// allows, and returns the status of the answer.
func crumbs(t *testing.T, url string, lines []string) (status string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	field := func(name, value string) { enc.WriteField(hpack.HeaderField{Name: name, Value: value}) }
	field(":method", "GET")
	field(":scheme", "http")
	field(":authority", strings.TrimPrefix(url, "http://"))
	field(":path", "/")
	field("accept", "text/html")
	for _, l := range lines {
		field("cookie", l)
	}
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	const piece = 16 << 10
	b := block.Bytes()
	n := min(piece, len(b))
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:n], EndStream: true,
		EndHeaders: n == len(b)})
	for b = b[n:]; len(b) > 0; b = b[n:] {
		n = min(piece, len(b))
		f.WriteContinuation(1, n == len(b), b[:n])
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.GoAwayFrame:
			return frame.ErrCode.String()
		}
	}
}

// Cookies of 4 kB in fragments do not hide a pass, do not replace one, and reach the origin whole,
// without ours.
func TestCookiesInFragments(t *testing.T) {
	var seen atomic.Pointer[http.Header]
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Store(&r.Header)
	}))
	t.Cleanup(origin.Close)
	visitors, _, _ := start(t, origin.URL, "  - {name: shop, origin: ORIGIN, total_active_users: 1, "+
		"new_users_per_minute: 100, session_duration: 10m}\n")
	pass := get(t, visitors, "").cookie
	name, value, _ := strings.Cut(pass, "=")
	var big []string
	for i := range 12 {
		big = append(big, fmt.Sprintf("c%d=", i)+strings.Repeat("v", 4090))
	}
	forged := make([]string, 250)
	for i := range forged {
		forged[i] = name + "=" + value[:len(value)-2] + "AA"
	}
	near := []string{"x" + name + "=1", name + "x=1", "q=\"" + name + "\"", "="}
	for _, c := range []struct {
		what  string
		lines []string
		want  string
		kept  []string
	}{
		{"last of many", slices.Concat(big, []string{pass}), "200", big},
		{"first of many", slices.Concat([]string{pass}, big), "200", big},
		{"in one line with others", []string{big[0] + "; " + pass + ";" + big[1]}, "200", big[:2]},
		{"between forged ones", slices.Concat(forged[:100], []string{pass}, forged[:100]), "200", nil},
		{"beside names that are like it", slices.Concat(near, []string{pass}), "200", near[:1]},
		{"in two pieces", []string{pass[:len(pass)/2], pass[len(pass)/2:]}, "503", nil},
		{"forged ones alone", forged, "503", nil},
		{"too many", slices.Concat(big, big[:5], []string{pass}), "431", nil},
		{"once more", []string{pass}, "200", nil},
	} {
		seen.Store(nil)
		if got := crumbs(t, visitors, c.lines); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		h := seen.Load()
		if (h != nil) != (c.want == "200") {
			t.Errorf("%s: the origin was asked: %v", c.what, h != nil)
		}
		if h == nil {
			continue
		}
		cookies := "; " + strings.Join((*h)["Cookie"], "; ") + ";"
		if strings.Contains(cookies, " "+name+"=") || strings.Contains(cookies, value) {
			t.Errorf("%s: the origin reads our cookie", c.what)
		}
		for _, line := range c.kept {
			if !strings.Contains(cookies, "; "+line+";") {
				t.Errorf("%s: the origin misses %.20s…", c.what, line)
			}
		}
	}
}

// A sibling host can set cookies of the common domain, but none with __Host-: its own cookie never
// replaces a visitor's.
func TestACookieOfASiblingHostCostsNobodyAPlace(t *testing.T) {
	visitors, _, _ := start(t, "http://127.0.0.1:1", "  - {name: shop, origin: ORIGIN, total_active_users: 1, "+
		"new_users_per_minute: 100, queue_all: true}\n  - {name: free, host: free.example, origin: ORIGIN, "+
		"total_active_users: 1, new_users_per_minute: 100, queue_all: true}\ntrusted_proxies: [127.0.0.1]\n")
	ask := func(host, more string) (cookie, number string) {
		res := askRaw(t, visitors, "GET / HTTP/1.1\r\nHost: "+host+"\r\nX-Forwarded-Proto: https\r\n"+
			"Accept: application/json\r\nConnection: close\r\n"+more+"\r\n")
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range res.Cookies() {
			cookie = c.Name + "=" + c.Value
		}
		_, number, _ = strings.Cut(string(b), `"number":`)
		number, _, _ = strings.Cut(number, ",")
		return cookie, number
	}
	own, place := ask("x", "")
	foreign, _ := ask("x", "") // of the same second or a later one
	other, _ := ask("free.example", "")
	for what, tossed := range map[string]string{
		"a place behind": strings.TrimPrefix(foreign, "__Host-"),
		"another room's": strings.Replace(other, "__Host-__cfwaitingroom_free", "__cfwaitingroom_shop", 1),
		"none":           "__cfwaitingroom_shop=AAAA",
	} {
		for _, line := range []string{tossed + "; " + own, own + "; " + tossed,
			own + "\r\nCookie: " + tossed} {
			set, got := ask("x", "Cookie: "+line+"\r\n")
			if got != place || set != "" && !strings.HasPrefix(set, "__Host-") {
				t.Errorf("%s: the place is %s, not %s, and the answer sets %q", what, got, place, set)
			}
		}
	}
}
