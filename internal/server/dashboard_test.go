package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/status"
)

// A board is a running server with the view of a browser.
type board struct {
	t    *testing.T
	data string
	url  string

	visitors string
	jar      map[string]string
	header   map[string]string // of each request
	origin   syncBuffer        // the cookies that reached the origin
	log      *syncBuffer
	stop     func()
}

func openBoard(t *testing.T) *board {
	t.Helper()
	b := &board{t: t, data: t.TempDir(), jar: map[string]string{}, log: &syncBuffer{},
		header: map[string]string{"Sec-Fetch-Site": "same-origin"}}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(&b.origin, strings.Join(r.Header["Cookie"], "; ")+"\n")
		io.WriteString(w, "inside")
	}))
	t.Cleanup(origin.Close)
	other := strings.Replace(oneRoom, "name: shop", "name: other, host: other.example", 1)
	text := "listen: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\ndata: " + b.data + "\nrooms:\n" +
		strings.ReplaceAll(oneRoom+other, "ORIGIN", origin.URL)
	cfg, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	s, err := Open(ctx, cfg, slog.New(slog.NewTextHandler(b.log, all)))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	b.url, b.visitors = "http://"+s.AdminAddr().String(), "http://"+s.Addr().String()
	eventually(t, "ready", func() bool { return b.send("GET", "/readyz", "").StatusCode == 200 })
	return b
}

func (b *board) token(scopes ...string) (secret, id string) {
	b.t.Helper()
	secret, made, err := api.CreateToken(b.data, api.Token{Name: "ops", Scopes: scopes})
	if err != nil {
		b.t.Fatal(err)
	}
	return secret, made.ID
}

// open sends a request with the cookies of the browser, and returns the answer with its body open.
func (b *board) open(method, path, body string) *http.Response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for k, v := range b.header {
		r.Header.Set(k, v)
	}
	for k, v := range b.jar {
		r.AddCookie(&http.Cookie{Name: k, Value: v})
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range res.Cookies() {
		b.jar[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.jar, c.Name)
		}
	}
	return res
}

func (b *board) send(method, path, body string) reply {
	b.t.Helper()
	res := b.open(method, path, body)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return reply{Response: res, body: string(text)}
}

func (b *board) want(status int, method, path, body string) reply {
	b.t.Helper()
	got := b.send(method, path, body)
	if got.StatusCode != status {
		b.t.Fatalf("%s %s: %d, want %d: %s", method, path, got.StatusCode, status, got.body)
	}
	return got
}

func (b *board) signIn(secret string) reply {
	b.t.Helper()
	return b.send("POST", "/dashboard/session", `{"token": "`+secret+`"}`)
}

// remote makes the requests look like those of a remote browser behind a proxy that terminates TLS.
func (b *board) remote() {
	b.header["X-Forwarded-For"], b.header["X-Forwarded-Proto"] = "192.0.2.7", "https"
}

const raise = `{"total_active_users": 7}`

func TestDashboardSignsInByToken(t *testing.T) {
	b := openBoard(t)
	secret, id := b.token("write")
	wrong := "hg_" + strings.Repeat("A", 43)
	if got := b.signIn(wrong); got.StatusCode != 401 || len(got.Cookies()) > 0 {
		t.Fatalf("a wrong token: %d with %v", got.StatusCode, got.Cookies())
	}
	old, _, err := api.CreateToken(b.data, api.Token{Scopes: []string{"write"}, ExpiresAt: time.Now()})
	if got := b.signIn(old); err != nil || got.StatusCode != 401 {
		t.Errorf("a token that has expired: %d, %v", got.StatusCode, err)
	}
	put, _ := b.token("put:orders")
	if got := b.signIn(put); got.StatusCode != 401 {
		t.Errorf("a token that reads nothing: %d", got.StatusCode)
	}
	b.want(401, "PATCH", "/dashboard/api/v1/rooms/shop", raise)
	got := b.signIn(secret)
	if got.StatusCode != 204 || len(got.Cookies()) != 1 {
		t.Fatalf("%d with %v: %s", got.StatusCode, got.Cookies(), got.body)
	}
	c := got.Cookies()[0]
	if c.Name != "headgate-session" || !c.HttpOnly || c.Secure || c.Path != "/" ||
		c.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %+v", c)
	}
	told := b.want(200, "GET", "/dashboard/session", "").body
	if !strings.Contains(told, `"id":"`+id+`"`) || strings.Contains(told, secret) {
		t.Errorf("the session is told as %s", told)
	}
	changed := b.want(200, "PATCH", "/dashboard/api/v1/rooms/shop", raise).body
	if !strings.Contains(changed, `"total_active_users":7`) {
		t.Errorf("the change is answered by %s", changed)
	}
	audit := b.want(200, "GET", "/dashboard/api/v1/audit", "").body
	if !strings.Contains(audit, `"who":"`+id+`"`) ||
		!strings.Contains(audit, `"before":{"total_active_users":"1"}`) {
		t.Errorf("the audit log has %s", audit)
	}
	soon, _, err := api.CreateToken(b.data, api.Token{Scopes: []string{"write"},
		ExpiresAt: time.Now().Add(5 * time.Second)})
	if got := b.signIn(soon); err != nil || got.StatusCode != 204 {
		t.Fatalf("a token that has not expired yet: %d, %v", got.StatusCode, err)
	}
	eventually(t, "over with its token", func() bool {
		return b.send("PATCH", "/dashboard/api/v1/rooms/shop", raise).StatusCode == 401
	})
	b.signIn(secret)
	cookie := b.jar["headgate-session"]
	b.want(204, "DELETE", "/dashboard/session", "")
	b.jar["headgate-session"] = cookie
	b.want(401, "PATCH", "/dashboard/api/v1/rooms/shop", raise)
	if _, ok := b.jar["headgate-session"]; !ok {
		t.Fatal("the test has lost its cookie")
	}
	for _, s := range []string{secret, wrong, put, cookie} {
		if strings.Contains(b.log.String(), s) || strings.Contains(told+audit+changed, s) {
			t.Errorf("%.8s… is told", s)
		}
	}
}

// Cookies ignore ports: a browser that has signed in sends the session to every room of the same
// host name. With it, an origin could act as the operator.
func TestOriginDoesNotGetTheDashboardsCookie(t *testing.T) {
	for name, remote := range map[string]bool{"headgate-session": false, "__Host-headgate-session": true} {
		b := openBoard(t)
		if remote {
			b.remote()
		}
		secret, _ := b.token("write")
		b.signIn(secret)
		if b.jar[name] == "" {
			t.Fatalf("no %s in %v", name, b.jar)
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", b.visitors, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Cookie"] = []string{"theme=dark; " + name + "=" + b.jar[name] + ";lang=en",
			name + "=" + b.jar[name]}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := b.origin.String(); got != "theme=dark; lang=en\n" {
			t.Errorf("the origin got %q", got)
		}
	}
}

// A page at another port of the same host belongs to the same site, so its requests include the
// cookie. They must not count as signed in, not even for reading.
func TestDashboardSessionIsOfItsOwnOriginAlone(t *testing.T) {
	b := openBoard(t)
	b.remote()
	secret, _ := b.token("write")
	b.signIn(secret)
	for _, header := range []map[string]string{
		{"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"},
		{"Sec-Fetch-Site": "odd"}, {"Origin": "null"}, {"Origin": "https://127.0.0.1"},
		{"Origin": b.visitors},
	} {
		b.header = header
		b.remote()
		for _, path := range []string{"live", "history?room=shop", "api/v1/rooms", "api/v1/audit"} {
			if res := b.open("GET", "/dashboard/"+path, ""); res.StatusCode != 401 {
				t.Errorf("%v reads %s: %s", header, path, res.Status)
			} else {
				res.Body.Close()
			}
		}
		told := b.want(200, "GET", "/dashboard/session", "").body
		if !strings.Contains(told, `"signed_in":false`) {
			t.Errorf("%v: %s", header, told)
		}
	}
	for _, header := range []map[string]string{
		{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {}, {"Origin": b.url},
	} {
		b.header = header
		b.remote()
		b.want(200, "GET", "/dashboard/api/v1/rooms", "")
	}
}

// A session belongs to one token, not to its id: if an operator replaces the secret of an id in the
// file, sessions of the old secret must end.
func TestDashboardSessionEndsWhenTheSecretOfItsTokenIsAnother(t *testing.T) {
	b := openBoard(t)
	b.remote()
	secret, _ := b.token("write")
	b.signIn(secret)
	b.want(200, "GET", "/dashboard/api/v1/rooms", "")
	list, err := api.ListTokens(b.data)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	file := b.data + "/tokens.json"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.ReplaceAll(string(text), list[0].Hash, strings.Repeat("0", 64)) + "\n")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	b.want(401, "GET", "/dashboard/api/v1/rooms", "")
}

func TestDashboardFromElsewhereNeedsATokenToRead(t *testing.T) {
	b := openBoard(t)
	for _, path := range []string{"live", "history?room=shop", "api/v1/rooms"} {
		res := b.open("GET", "/dashboard/"+path, "") // from this machine
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("%s from this machine: %d", path, res.StatusCode)
		}
	}
	b.remote()
	for _, path := range []string{"live", "history?room=shop", "api/v1/rooms"} {
		b.want(401, "GET", "/dashboard/"+path, "")
	}
	page := b.want(200, "GET", "/dashboard/", "")
	csp := page.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'") || strings.Contains(csp, "unsafe") {
		t.Errorf("the policy is %q", csp)
	}
	secret, _ := b.token("read:shop")
	got := b.signIn(secret)
	if got.StatusCode != 204 {
		t.Fatalf("%d: %s", got.StatusCode, got.body)
	}
	c := got.Cookies()[0]
	if c.Name != "__Host-headgate-session" || !c.Secure || !c.HttpOnly ||
		c.SameSite != http.SameSiteStrictMode {
		t.Errorf("over https the cookie is %+v", c)
	}
	if rooms := b.want(200, "GET", "/dashboard/api/v1/rooms", "").body; strings.Contains(rooms, `"other"`) ||
		!strings.Contains(rooms, `"shop"`) {
		t.Errorf("a token for one room reads %s", rooms)
	}
	b.want(404, "GET", "/dashboard/history?room=other", "")
	b.want(404, "POST", "/dashboard/whatif",
		`{"room": "other", "total_active_users": 1, "new_users_per_minute": 1, "session_seconds": 1}`)
	b.want(403, "PATCH", "/dashboard/api/v1/rooms/shop", raise)
	first := b.events(1, "")
	if len(first) != 1 || strings.Contains(first[0], `"other"`) || !strings.Contains(first[0], `"shop"`) {
		t.Errorf("the stream has %q", first)
	}
	if one := b.events(2, "?room=other"); len(one) != 2 || strings.Contains(one[0]+one[1], "other") {
		t.Errorf("the stream of a room that may not be read has %q", one)
	}
}

// The list of rooms is sent once, followed by changes; the view of a room gets that room each
// second.
func TestDashboardStreamsWhatItsPageShows(t *testing.T) {
	b := openBoard(t)
	all := b.events(5, "")
	if len(all) != 5 || !strings.Contains(all[0], `"shop"`) || !strings.Contains(all[0], `"other"`) {
		t.Fatalf("the stream has %q", all)
	}
	for n := 1; len(all[n]) > 40; n++ { // it may not be stable yet
		if strings.Contains(all[n], `"host"`) || n == len(all)-1 {
			t.Fatalf("what has not changed is told again and again: %q", all)
		}
	}
	for _, event := range b.events(2, "?room=shop") {
		if !strings.Contains(event, `"shop"`) || !strings.Contains(event, `"session":"`) ||
			strings.Contains(event, `"other"`) {
			t.Errorf("of the room shop %q", event)
		}
	}
}

// events reads n events of the stream, or fewer when it ends.
func (b *board) events(n int, query string) (all []string) {
	b.t.Helper()
	res := b.open("GET", "/dashboard/live"+query, "")
	defer res.Body.Close()
	if res.StatusCode != 200 {
		b.t.Fatalf("the stream: %d", res.StatusCode)
	}
	all = readEvents(res, n+1)
	if !strings.HasPrefix(all[0], "event: session\ndata: ") {
		b.t.Fatalf("whose session the stream is for does not come first: %q", all)
	}
	return all[1:]
}

func readEvents(res *http.Response, n int) (all []string) {
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	event := ""
	for len(all) < n && lines.Scan() {
		if lines.Text() == "" {
			all = append(all, event)
			event = ""
			continue
		}
		event += lines.Text() + "\n"
	}
	return all
}

// Whatever another site's page sends, nothing changes, and nobody is signed in by it.
func TestDashboardIsNotUsedByOtherSites(t *testing.T) {
	b := openBoard(t)
	secret, _ := b.token("write")
	if got := b.signIn(secret); got.StatusCode != 204 {
		t.Fatal(got.StatusCode)
	}
	for _, header := range []map[string]string{
		{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
		{"Origin": "https://evil.example"}, {"Origin": "null"},
	} {
		b.header = header
		b.want(403, "PATCH", "/dashboard/api/v1/rooms/shop", raise)
		b.want(403, "DELETE", "/dashboard/session", "")
		b.want(403, "POST", "/dashboard/whatif", "{}")
		if got := b.signIn(secret); got.StatusCode != 403 {
			t.Errorf("with %v another site signs in: %d", header, got.StatusCode)
		}
	}
	b.header = map[string]string{}
	// A session is valid only for the dashboard's page: other programs must send the token in the
	// request.
	b.want(401, "PATCH", "/v1/rooms/shop", raise)
	b.header = map[string]string{"Sec-Fetch-Site": "same-origin"}
	got := b.want(200, "GET", "/dashboard/api/v1/rooms/shop", "").body
	if !strings.Contains(got, `"total_active_users":1,`) {
		t.Errorf("something has changed: %s", got)
	}
}

func TestDashboardSlowsWhoGuesses(t *testing.T) {
	b := openBoard(t)
	secret, _ := b.token("write")
	for range 10 {
		if got := b.signIn("hg_nonsense"); got.StatusCode != 401 {
			t.Fatalf("%d: %s", got.StatusCode, got.body)
		}
	}
	got := b.signIn(secret)
	if got.StatusCode != 429 || got.Header.Get("Retry-After") == "" || len(got.Cookies()) > 0 {
		t.Errorf("after ten attempts: %d with %v", got.StatusCode, got.Header)
	}
	for _, bad := range []string{"", "{", `{"token": 7}`, strings.Repeat(" ", 10<<10)} {
		other := openBoard(t)
		other.want(400, "POST", "/dashboard/session", bad)
	}
}

func TestDashboardStreamsAreBoundedAndEndWithTheirSession(t *testing.T) {
	b := openBoard(t)
	b.remote()
	secret, id := b.token("read")
	if got := b.signIn(secret); got.StatusCode != 204 {
		t.Fatal(got.StatusCode)
	}
	var open []*http.Response
	for range 8 {
		res := b.open("GET", "/dashboard/live", "")
		defer res.Body.Close()
		if got := readEvents(res, 1); len(got) != 1 {
			t.Fatalf("a stream: %d with %q", res.StatusCode, got)
		}
		open = append(open, res)
	}
	more := b.open("GET", "/dashboard/live", "")
	more.Body.Close()
	if more.StatusCode != 429 {
		t.Errorf("a ninth stream: %d", more.StatusCode)
	}
	open[0].Body.Close()
	eventually(t, "one more", func() bool {
		res := b.open("GET", "/dashboard/live", "")
		defer res.Body.Close()
		return res.StatusCode == 200
	})
	if _, ok, err := api.RevokeToken(b.data, id); !ok || err != nil {
		t.Fatal(ok, err)
	}
	rest := readEvents(open[1], 1000)
	if len(rest) == 0 || !strings.HasPrefix(rest[len(rest)-1], "event: end") {
		t.Errorf("after the token was revoked the stream ends with %q", rest)
	}
	b.want(401, "GET", "/dashboard/api/v1/rooms", "")
	var told struct {
		SignedIn bool `json:"signed_in"`
	}
	json.Unmarshal([]byte(b.want(200, "GET", "/dashboard/session", "").body), &told)
	if told.SignedIn {
		t.Error("still signed in with a token that was revoked")
	}
}

func TestDashboardStreamEndsWithTheServer(t *testing.T) {
	b := openBoard(t)
	res := b.open("GET", "/dashboard/live", "")
	defer res.Body.Close()
	if got := readEvents(res, 2); len(got) != 2 {
		t.Fatalf("the stream has %q", got)
	}
	b.stop() // waits for the requests in flight
	if got := readEvents(res, 1000); len(got) > 50 {
		t.Errorf("%d events after the end", len(got))
	}
}

func TestDashboardRemembersAndCountsTheOrigin(t *testing.T) {
	b := openBoard(t)
	if got := get(t, b.visitors, ""); got.body != "inside" {
		t.Fatalf("a visitor gets %q", got.body)
	}
	eventually(t, "one answer of the origin", func() bool {
		var got map[string][]float64
		json.Unmarshal([]byte(b.send("GET", "/dashboard/history?room=shop", "").body), &got)
		answers, took := 0.0, 0.0
		for i := range got["at"] {
			answers, took = answers+got["answers"][i], took+got["took"][i]
		}
		return answers == 1 && took > 0
	})
	for room, want := range map[string]int64{"shop": 0, "other": 1} { // one each, and one is inside
		eventually(t, "whose the slot is", func() bool {
			var st status.Room
			get(t, b.visitors, "") // admitted again if nobody is inside any more
			json.Unmarshal([]byte(b.send("GET", "/dashboard/api/v1/rooms/"+room, "").body), &st)
			return st.Lent != nil && st.Lent.Free == want && st.Lent.Inside+st.Lent.Called == 1-want &&
				len(st.Lent.Workers) == 1
		})
	}
	for _, bad := range []string{`{"room": "shop"}`, `{"room": "shop", "total_active_users": "x"}`} {
		if got := b.send("POST", "/dashboard/whatif", bad); got.StatusCode != 422 && got.StatusCode != 400 {
			t.Errorf("%s: %d", bad, got.StatusCode)
		}
	}
}
