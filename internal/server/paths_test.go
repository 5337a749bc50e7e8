package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// lineOrigin is an origin that keeps the bytes of each request line, and the Host.
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

// seen returns what came since the last call.
func (o *lineOrigin) seen() (lines, hosts []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines, hosts = o.lines, o.hosts
	o.lines, o.hosts = nil, nil
	return lines, hosts
}

// raw sends a request as it is written and returns the answer.
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
	body, _ := io.ReadAll(res.Body) // a connection that ends is an end
	out := reply{Response: res, body: string(body)}
	for _, x := range res.Cookies() {
		out.cookie = x.Name + "=" + x.Value
	}
	return out
}

// line is a request without a body for a target as it is written.
func line(method, target, cookie string) string {
	length := ""
	if method == "POST" {
		length = "Content-Length: 0\r\n"
	}
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: shop.example\r\nCookie: %s\r\n%s\r\n", method, target, cookie,
		length)
}

// spellings are ways to write "from FOLDER up to PATH" that some origin reads so.
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

// TestWalls1NoReadingOfAPathPassesARoom: finding 1. What is excluded, bypassed or of another room in
// one reading alone does not reach the origin.
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
			before := status(t, operators)
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
			if s := status(t, operators); s.ActiveUsers != before.ActiveUsers ||
				s.WaitingUsers != before.WaitingUsers {
				t.Errorf("%d inside and %d wait, before %d and %d", s.ActiveUsers, s.WaitingUsers,
					before.ActiveUsers, before.WaitingUsers)
			}
		})
	}
}

// writings are ways to write a path whose clean reading is /PATH.
func writings(path string) (all []string) {
	first := fmt.Sprintf("%%%02x", path[0])
	return append(spellings("/x", path), "/"+path+";", "/"+path+";v=1", "//"+path, "/./"+path,
		"/"+strings.ToUpper(path), "/"+strings.ToUpper(path[:1])+path[1:], "/"+first+path[1:],
		"/%25"+first[1:]+path[1:], `/\`+path, "/;a/"+path, "/%2f"+path, "/"+path+"%3fx", "/"+path+"%23",
		"/"+path+"/.", "/"+path+"/x/..", "/"+path+"/%2e", "/"+path+"%3bx",
		"/"+path+".", "/"+path+"%20", "/"+path+"%2e%20", "/"+path+"./x/..%20")
}

// inside returns the cookie of a visitor who is in the room of a path.
func inside(t *testing.T, visitors, path string) string {
	t.Helper()
	r := get(t, visitors+path, "")
	if r.body != "origin" || r.cookie == "" {
		t.Fatalf("%s: %d %s", path, r.StatusCode, r.body)
	}
	return r.cookie
}

// TestWalls1NoReadingOfAPathPassesADeny: finding 1, for who is inside.
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

// TestWalls1NoReadingOfAPathReachesABypass: finding 1. What is bypassed or excluded in one reading
// alone does not pass a full room.
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
	if s := status(t, operators); s.ActiveUsers != 1 {
		t.Errorf("%d inside", s.ActiveUsers)
	}
}

// TestWalls1NoReadingOfAPathIsOfAnotherRoom: finding 1. The pass of a room opens no other one.
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

// TestWalls1NoReadingOfAPathHasALimitOfItsOwn: finding 1. However a path is written, it counts as
// one key, and what passes goes to the origin as it came.
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
		// A slash at the end is another page to most origins.
		if r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusBadRequest &&
			!strings.HasSuffix(strings.TrimRight(target, "."), "/") && !strings.HasSuffix(target, "/%2e") {
			t.Errorf("POST %s: %d", target, r.StatusCode)
		}
	}
	if lines, _ := origin.seen(); len(lines) > 1 {
		t.Errorf("the origin saw %q", lines)
	}
}

// TestWalls1BytesOfAPathGoOnUnchanged: paths whose readings lead to one decision are the site's own.
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

// TestWalls1PathsAsTheyComeAreJudgedStrictly: finding 1, for rooms that take paths as they come.
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

// TestWalls1AShadowRefusesNobody: a room that holds nobody lets every spelling through.
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
