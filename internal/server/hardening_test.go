package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/store"
)

// sealer returns the number of the key that sealed a cookie.
func sealer(t *testing.T, cookie string) byte {
	t.Helper()
	_, value, _ := strings.Cut(cookie, "=")
	raw, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || len(raw) < 2 {
		t.Fatalf("%q: %v", cookie, err)
	}
	return raw[1]
}

// A reload that has read the keys before a rotation must not put them into force after it: cookies
// sealed by the new key could not be opened any more.
func TestARotationBesideAReloadOfTheKeys(t *testing.T) {
	p := run(t, shop)
	k := p.s.node
	read, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := k.UseKeys(func() ([]datadir.SealingKey, error) {
			keys, err := k.Folder.Keys()
			close(read)
			<-goOn
			return keys, err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-read
	rotated := make(chan struct{})
	wg.Go(func() {
		defer close(rotated)
		if _, err := k.RotateKeys(time.Now()); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-rotated: // it did not wait
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	wg.Wait()
	keys, err := k.Folder.Keys()
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	if got := sealer(t, get(t, p.visitors+"/", "").cookie); got != keys[0].ID {
		t.Errorf("key %d seals, the newest is %d", got, keys[0].ID)
	}
}

// patch changes a room as an operator.
func (p *process) patch(room, body string) (status int, text string) {
	p.t.Helper()
	return p.say("PATCH", "/v1/rooms/"+room, body)
}

// A cut store executes one more write, then its engine is gone.
type cut struct {
	store.Store
	engine interface{ Close() }
}

func (c *cut) CompareAndSwap(ctx context.Context, key string, rev uint64, v []byte) (uint64, error) {
	defer c.engine.Close()
	return c.Store.CompareAndSwap(ctx, key, rev, v)
}

// The live record is written, then the disk fails, and the change cannot be undone. If the API
// reported that nothing has changed, that would be false after the next start.
func TestALiveChangeThatIsLeftBehindSaysSo(t *testing.T) {
	p := run(t, shop)
	p.s.turn.Lock()
	p.s.node.Records = &cut{p.s.node.Records, p.s.node.Engine}
	p.s.turn.Unlock()
	status, body := p.patch("shop", `{"total_active_users": 3}`)
	if status != 500 || !strings.Contains(body, `"half_done"`) ||
		!strings.Contains(body, "comes into force at the next start") {
		t.Errorf("%d %s", status, body)
	}
	if n := p.status("shop").TotalActiveUsers; n != 1 || p.live("shop") != nil {
		t.Errorf("the limit is %d", n)
	}
	p.stop()
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 3 {
		t.Errorf("after the next start the limit is %d", n)
	}
}

// The same for a reload that fails after it has removed the live changes.
func TestAReloadThatIsLeftBehindSaysSo(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"message": "Live"})
	p.s.turn.Lock()
	p.s.node.Records = &cut{p.s.node.Records, p.s.node.Engine}
	p.s.turn.Unlock()
	keys := p.dir + "/data/keys"
	if err := os.Chmod(keys, 0o755); err != nil { // rejected: others may read them
		t.Fatal(err)
	}
	_, err := p.s.Reload(t.Context())
	if l, ok := errors.AsType[*api.RollbackError](err); !ok || l.Do == "" {
		t.Errorf("%v", err)
	}
	if live := p.live("shop"); live == nil {
		t.Error("half a reload is in force")
	}
	if err := os.Chmod(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	p.stop()
	p.start()
	if live := p.live("shop"); live != nil {
		t.Errorf("it was true after all: %+v", live)
	}
}

// damage makes the record of a room unreadable while headgate is stopped.
func (p *process) damage(room string) {
	p.t.Helper()
	k, err := node.Open(p.t.Context(), node.Options{Log: p.s.log}, &config.Config{Data: p.dir + "/data"})
	if err != nil {
		p.t.Fatal(err)
	}
	defer k.Close()
	_, rev, err := k.Records.Load(p.t.Context(), "counter."+room)
	if err == nil {
		_, err = k.Records.CompareAndSwap(p.t.Context(), "counter."+room, rev, []byte("damaged"))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// A room whose record cannot be read does not prevent changes of the others.
func TestADamagedRoomIsLeftAsItIs(t *testing.T) {
	const tea = "  - {name: tea, path: /tea, origin: ORIGIN, " + limits + "}\n"
	p := run(t, shop+tea)
	p.change("shop", map[string]string{"message": "Live"})
	p.stop()
	p.damage("shop")
	p.start()
	if st := p.status("shop"); st.Status != "damaged" {
		t.Fatalf("%+v", st)
	}
	p.write(strings.ReplaceAll(shop+tea, "users: 1,", "users: 7,"))
	for n := range 2 {
		got := p.reload()
		changed := []string{"tea"}
		if n > 0 {
			changed = []string{}
		}
		if !slices.Equal(got.Rooms.Changed, changed) || len(got.Dropped) > 0 {
			t.Errorf("%+v", got)
		}
	}
	if n := p.status("tea").TotalActiveUsers; n != 7 {
		t.Errorf("the limit of the good room is %d", n)
	}
	if n := p.status("shop").TotalActiveUsers; n != 1 || p.live("shop") == nil {
		t.Errorf("the damaged room was touched: %d", n)
	}
	if !strings.Contains(p.log.String(), `"room not reloaded: its record cannot be read" room=shop`) {
		t.Error("it is not named")
	}
	if status, body := p.patch("shop", `{"message": "x"}`); status != 409 ||
		!strings.Contains(body, `"room_damaged"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := p.patch("tea", `{"message": "x"}`); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	p.write("rooms:\n" + tea) // it can be removed
	if got := p.reload(); !slices.Equal(got.Rooms.Removed, []string{"shop"}) {
		t.Errorf("%+v", got)
	}
}

// A recovery after a write failure used to fail for ever here: the restarted engine does not find a
// stream whose description was damaged meanwhile.
func TestAStreamThatIsGoneComesBackByItself(t *testing.T) {
	p := run(t, shop)
	inside := get(t, p.visitors+"/", "").cookie
	waits := get(t, p.visitors+"/", "").cookie
	p.change("shop", map[string]string{"message": "Live"})
	descriptions, _ := filepath.Glob(p.dir + "/data/engine/jetstream/*/streams/*/meta.*")
	for _, f := range descriptions {
		if err := os.WriteFile(f, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.s.node.Engine.Heal(io.ErrUnexpectedEOF)
	eventually(t, "made anew", func() bool {
		return strings.Contains(p.log.String(), "made anew from what is on the disk")
	})
	eventually(t, "written again", func() bool {
		_, err := p.s.Change(t.Context(), "shop", map[string]string{"total_active_users": "2"}, "")
		return err == nil
	})
	eventually(t, "let in", func() bool { return get(t, p.visitors+"/", waits).StatusCode == 200 })
	if r := get(t, p.visitors+"/", inside); r.StatusCode != 200 {
		t.Errorf("who was inside is not: %d", r.StatusCode)
	}
	if live := p.live("shop"); live == nil || live.Pairs["message"] != "Live" {
		t.Errorf("%+v", live)
	}
}

// patience is waited in full only when a test fails.
const patience = 20 * time.Second

// One address opens as many connections as it can. The key is in the file, so it applies to
// loopback too.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, oneRoom+"max_connections_per_address: 3\n")
	served := func(c net.Conn, in *bufio.Reader) bool {
		io.WriteString(c, "GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(in, nil)
		return err == nil && res.StatusCode == 200
	}
	var open []net.Conn
	for range 3 {
		c, in := dial(t, visitors)
		if !served(c, in) {
			t.Fatal("one of the first three is refused")
		}
		open = append(open, c)
	}
	for range 5 {
		c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
		if err == nil && served(c, bufio.NewReader(c)) {
			t.Error("one more than three is served")
		}
		if err == nil {
			c.Close()
		}
	}
	const metric = "headgate_refused_connections_total"
	if got := get(t, operators+"/metrics", "").body; !strings.Contains(got, "\n"+metric+" 5\n") {
		_, got, _ = strings.Cut(got, "\n"+metric)
		t.Errorf("%s%.9s", metric, got)
	}
	open[0].Close()
	eventually(t, "let in when one has gone", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
		if err != nil {
			return false
		}
		defer c.Close()
		return served(c, bufio.NewReader(c))
	})
}

// A proxy carries the connections of many clients. A trusted one has no limit, and neither has this
// machine unless the file sets one.
func TestProxiesHaveAnyNumberOfConnections(t *testing.T) {
	for _, more := range []string{"", "max_connections_per_address: 3\ntrusted_proxies: [127.0.0.1]\n"} {
		visitors, _, _ := start(t, "http://127.0.0.1:1", oneRoom+more)
		for i := range 300 {
			c, in := dial(t, visitors)
			fmt.Fprint(c, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := http.ReadResponse(in, nil); err != nil {
				t.Fatalf("%q: connection %d: %v", more, i, err)
			}
		}
	}
}

// A recorder is an origin that stores the bytes of each request.
type recorder struct {
	mu       sync.Mutex
	messages []string
	open     []net.Conn
}

func (o *recorder) serve(c net.Conn) {
	defer c.Close()
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(c, &raw))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		o.mu.Lock()
		o.messages = append(o.messages, string(raw.Next(raw.Len()-in.Buffered())))
		o.mu.Unlock()
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// of returns the requests for a path, or for paths below it.
func (o *recorder) of(path string) (all []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.messages {
		if _, target, _ := strings.Cut(m, " "); strings.HasPrefix(target, path) {
			all = append(all, m)
		}
	}
	return all
}

// record starts an origin that goes on reading after each request.
func record(t *testing.T) (o *recorder, url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o = &recorder{}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.open = append(o.open, c)
			o.mu.Unlock()
			all.Go(func() { o.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		o.mu.Lock()
		for _, c := range o.open {
			c.Close()
		}
		o.mu.Unlock()
		all.Wait()
	})
	return o, "http://" + l.Addr().String()
}

// oneMessage returns why the bytes are not exactly one request, or "" if they are.
func oneMessage(raw string) string {
	head, _, ok := strings.Cut(raw, "\r\n\r\n")
	switch lower := strings.ToLower(head + "\r\n"); {
	case !ok:
		return "no end of the header"
	case strings.ContainsAny(strings.ReplaceAll(head, "\r\n", ""), "\r\n\x00"):
		return "a bare CR, LF or NUL in the header"
	case strings.Count(lower, "\r\ncontent-length:")+strings.Count(lower, "\r\ntransfer-encoding:") > 1:
		return "two lengths"
	case strings.Contains(lower, "\r\n ") || strings.Contains(lower, "\r\n\t"):
		return "a folded line"
	case strings.Count(lower, "transfer-encoding:") != strings.Count(lower, "transfer-encoding: chunked\r\n"):
		return "another encoding than chunked"
	}
	return ""
}

// What headgate treats as one request must be one request to the origin, byte by byte: a second one
// inside it would pass without a room. /hidden is in a closed room.
func TestNoRequestWithinARequest(t *testing.T) {
	o, url := record(t)
	visitors, _, _ := start(t, url, "  - {name: shut, path: /hidden, origin: ORIGIN, total_active_users: 1, "+
		"new_users_per_minute: 1, closed: true}\n"+strings.ReplaceAll(oneRoom, "users: 1,", "users: 1000,"))
	const hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
	pass := "Cookie: " + get(t, visitors+"/", "").cookie + "\r\n"
	post := "POST / HTTP/1.1\r\nHost: x\r\n" + pass
	for i, x := range []struct {
		what, send string
		passes     bool
	}{
		{"plain", "GET / HTTP/1.1\r\nHost: x\r\n" + pass + "\r\n", true},
		{"a whole body", post + "Content-Length: 5\r\n\r\nhello", true},
		{"CL.TE", post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, true},
		{"TE.CL", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n21\r\n" + hidden + "\r\n0\r\n\r\n", true},
		{"two lengths", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + hidden, false},
		{"the same length twice", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", true},
		{"a list of lengths", post + "Content-Length: 5, 6\r\n\r\nhello" + hidden, false},
		{"a length with a sign", post + "Content-Length: +5\r\n\r\nhello", false},
		{"a length in hex", post + "Content-Length: 0x5\r\n\r\nhello", false},
		{"a length below zero", post + "Content-Length: -1\r\n\r\n" + hidden, false},
		{"xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden, false},
		{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden, false},
		{"chunked, identity", post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden, false},
		{"a tab before chunked", post + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", true},
		{"a vertical tab before chunked", post + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + hidden, false},
		{"a space before the colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, false},
		{"a folded length", post + "Content-Length:\r\n 5\r\n\r\nhello", true},
		{"a folded encoding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", true},
		{"a folded header", post + "X-A: b\r\n Content-Length: 60\r\nContent-Length: 5\r\n\r\nhello", true},
		{"a line that begins folded", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", false},
		{"bare LF", "GET / HTTP/1.1\nHost: x\n" + strings.TrimSpace(pass) + "\nX-A: b\n\n", true},
		{"bare CR in a value", "GET / HTTP/1.1\r\nHost: x\r\n" + pass + "X-A: b\rX-C: d\r\n\r\n", false},
		{"NUL in a value", "GET / HTTP/1.1\r\nHost: x\r\n" + pass + "X-A: b\x00c\r\n\r\n", false},
		{"NUL in a name", "GET / HTTP/1.1\r\nHost: x\r\n" + pass + "X\x00A: b\r\n\r\n", false},
		{"no colon", "GET / HTTP/1.1\r\nHost: x\r\n" + pass + "GET /hidden HTTP/1.1\r\n\r\n", false},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\n" + pass + "Host: y\r\n\r\n", false},
		{"chunk extensions", post + "Transfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d\"\r\nhello\r\n0\r\n\r\n", true},
		{"a chunk extension with LF", post + "Transfer-Encoding: chunked\r\n\r\n5;a\nhello\r\n0\r\n\r\n" + hidden, false},
		{"a chunk that is too long", post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n" + hidden, false},
		{"a chunk size beyond 64 bits", post + "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n" + hidden, false},
		{"a chunk size in 0x", post + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n" + hidden, false},
		{"a length in a trailer", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 60\r\n\r\n" + hidden, true},
		{"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", true},
		{"a body of GET", "GET / HTTP/1.1\r\nHost: x\r\n" + pass + "Content-Length: 5\r\n\r\nhello", true},
		{"spaces in the target", "GET / /hidden HTTP/1.1\r\nHost: x\r\n\r\n", false},
	} {
		path := fmt.Sprintf("/case%d", i)
		c, in := dial(t, visitors)
		io.WriteString(c, strings.Replace(x.send, " / ", " "+path+" ", 1)+
			"GET /robots.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		answer, err := io.ReadAll(in)
		if err != nil {
			t.Errorf("%s: %v", x.what, err)
		}
		got := o.of(path + " ")
		if len(got) > 1 || x.passes && len(got) != 1 {
			t.Errorf("%s: the origin reads %d requests: %q", x.what, len(got), got)
		}
		for _, m := range got {
			if bad := oneMessage(m); bad != "" {
				t.Errorf("%s: %s: %q", x.what, bad, m)
			}
		}
		if whole := bytes.HasPrefix(answer[min(8, len(answer)):], []byte(" 200")); whole != x.passes {
			t.Errorf("%s: passes %v, want %v: %.60q", x.what, whole, x.passes, answer)
		}
	}
	if got := o.of("/hidden"); len(got) > 0 {
		t.Errorf("past the room that is shut: %q", got)
	}
	for _, m := range o.of("") {
		_, target, _ := strings.Cut(m, " ")
		if !strings.HasPrefix(target, "/case") && !strings.HasPrefix(target, "/robots.txt ") &&
			!strings.HasPrefix(target, "/ ") {
			t.Errorf("a request that nobody sent: %q", m)
		}
	}
}

// A cache that stores an answer with a pass would admit everyone with that pass.
func TestAnAnswerWithOurCookieIsPrivate(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for pair := range strings.SplitSeq(r.Header.Get("X-Answer"), "|") {
			if name, value, ok := strings.Cut(pair, ": "); ok {
				w.Header().Add(name, value)
			}
		}
		fmt.Fprint(w, "origin")
	}))
	defer origin.Close()
	visitors, _, _ := start(t, origin.URL, strings.ReplaceAll(oneRoom, "users: 1,", "users: 100,"))
	for _, x := range []struct{ answer, control, vary, expires string }{
		{"", "private", "Cookie", ""},
		{"Cache-Control: public, max-age=60", "private, max-age=60", "Cookie", ""},
		{"Cache-Control: max-age=60, s-maxage=600, must-revalidate", "private, max-age=60, must-revalidate", "Cookie", ""},
		{"Cache-Control: public|Cache-Control: S-MaxAge=9|Vary: Accept", "private", "Accept|Cookie", ""},
		{`Cache-Control: private="x, public", max-age=5`, "private, max-age=5", "Cookie", ""},
		{"Cache-Control: no-store|Vary: cookie, Accept", "no-store", "cookie, Accept", ""},
		{"Cache-Control: private, max-age=5|Vary: *", "private, max-age=5", "*", ""},
		{"Expires: Fri, 01 Jan 2100 00:00:00 GMT", "private", "Cookie", "0"},
		{"Cdn-Cache-Control: max-age=9|Surrogate-Control: max-age=9", "private", "Cookie", ""},
	} {
		send := func(cookie string) *http.Response {
			r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("X-Answer", x.answer)
			if cookie != "" {
				r.Header.Set("Cookie", cookie)
			}
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
			return res
		}
		first := send("")
		if len(first.Cookies()) != 1 {
			t.Fatalf("%q: no pass", x.answer)
		}
		h := first.Header
		if got := strings.Join(h["Cache-Control"], "|"); got != x.control {
			t.Errorf("%q: Cache-Control %q, want %q", x.answer, got, x.control)
		}
		if got := strings.Join(h["Vary"], "|"); got != x.vary {
			t.Errorf("%q: Vary %q, want %q", x.answer, got, x.vary)
		}
		if h.Get("Expires") != x.expires || h["Cdn-Cache-Control"] != nil || h["Surrogate-Control"] != nil {
			t.Errorf("%q: %v", x.answer, h)
		}
		// A pass is sealed anew each time that a later end is confirmed, about once a second. An
		// answer in between has no cookie of ours.
		again := first
		for range 50 {
			if again.Header["Set-Cookie"] == nil {
				break
			}
			c := again.Cookies()[0]
			again = send(c.Name + "=" + c.Value)
		}
		if again.Header["Set-Cookie"] != nil {
			t.Fatalf("%q: a new pass with each of 50 answers", x.answer)
		}
		for pair := range strings.SplitSeq(x.answer, "|") {
			if name, value, ok := strings.Cut(pair, ": "); ok && !strings.Contains(
				strings.Join(again.Header.Values(name), "|"), value) {
				t.Errorf("%q: without a cookie of ours %s is %q", x.answer, name, again.Header.Values(name))
			}
		}
		if x.answer == "" && (again.Header["Cache-Control"] != nil || again.Header["Vary"] != nil) {
			t.Errorf("an answer without a cookie of ours is changed: %v", again.Header)
		}
	}
}

// Slow requests that pass uncounted must not take all connections to the origin.
func TestExcludedRequestsInFlightAreBounded(t *testing.T) {
	came, release := make(chan string, 9), make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- r.URL.Path
		<-release
	}))
	defer origin.Close()
	const room = "  - {name: shop, origin: ORIGIN, total_active_users: 9, new_users_per_minute: 9, " +
		"exclude: {max_in_flight: 3, max_in_flight_per_address: 2}}\ntrusted_proxies: [127.0.0.1]\n"
	visitors, operators, _ := start(t, origin.URL, room)
	statuses := make(chan int, 9)
	send := func(from, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("X-Forwarded-For", from)
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		res.Body.Close()
		return res.StatusCode
	}
	hold := func(from string) { go func() { statuses <- send(from, "/robots.txt") }(); <-came }
	refused := func(from, why string) {
		t.Helper()
		got := make(chan int, 1)
		go func() { got <- send(from, "/robots.txt") }()
		select {
		case code := <-got:
			if code != 503 {
				t.Errorf("%s: %d", why, code)
			}
		case <-came:
			t.Errorf("%s: it is at the origin", why)
		}
	}
	hold("2001:db8::1")
	hold("2001:db8::2") // of the same subscriber
	refused("2001:db8::3", "the third of one address")
	hold("192.0.2.1")
	refused("192.0.2.2", "the fourth of all")
	if got := roomStatus(t, operators).Totals.InFlightRejected; got != 2 {
		t.Errorf("%d are counted as refused", got)
	}
	go func() { statuses <- send("192.0.2.2", "/") }() // visitors are limited only by the room
	<-came
	close(release)
	for range 4 {
		if got := <-statuses; got != 200 {
			t.Errorf("one of those before: %d", got)
		}
	}
	if got := send("2001:db8::3", "/robots.txt"); got != 200 {
		t.Errorf("when they have ended: %d", got)
	}
}
