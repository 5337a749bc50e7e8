package pages

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/headgate/headgate"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.html anew")

// limit is what one response may weigh: with its headers it fits in the first ten
// segments of a new TCP connection (RFC 6928), so the page needs one round trip.
const limit = 14 * 1024

func newPage(t testing.TB) *Page {
	t.Helper()
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func render(t testing.TB, p *Page, v *headgate.View) string {
	t.Helper()
	var b strings.Builder
	if err := p.Render(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func renderError(t testing.TB, p *Page, title string, code int, requestID string) string {
	t.Helper()
	var b strings.Builder
	f := &Failure{Title: title, Code: code, RequestID: requestID}
	if err := p.RenderFailure(&b, f); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// views has one View for each state, and for the moments between them.
func views() map[string]headgate.View {
	at := time.Date(2026, time.November, 21, 14, 3, 12, 0, time.UTC)
	base := headgate.View{
		Room: "Riverside Tickets", State: headgate.StateWaiting, Method: "fifo",
		Position: 1205, Ahead: 1204, Waiting: 3410, JoinedPosition: 2310,
		ETAKnown: true, ETA: 5 * time.Minute,
		ETALow: 4*time.Minute + 10*time.Second, ETAHigh: 5*time.Minute + 40*time.Second,
		PollAfter: 12300 * time.Millisecond, Ticket: "K7Q2-9F", Number: 48213, Served: 47009,
		ServedURL: "/.headgate/served/tickets", UpdatedAt: at, RoomPath: "/",
		LeaveURL: "/.headgate/leave", MoveURL: "/.headgate/move", MoveWithin: 10 * time.Minute,
	}
	with := func(change func(v *headgate.View)) headgate.View {
		v := base
		change(&v)
		return v
	}
	none := func(v *headgate.View) {
		v.Position, v.Ahead, v.JoinedPosition, v.Number, v.Ticket = 0, 0, 0, 0, ""
		v.ETAKnown = false
	}
	return map[string]headgate.View{
		"waiting": base,
		"waiting-near": with(func(v *headgate.View) {
			v.Position, v.Ahead, v.ETALow, v.ETAHigh = 3, 2, 0, 40*time.Second
			v.PollAfter = 2 * time.Second
		}),
		"waiting-slower": with(func(v *headgate.View) {
			v.SlowerReason = "The wait is longer than expected, because people ahead of you stay longer."
			v.Message = "Tickets for Saturday are sold out.\nThere are plenty for Sunday."
			v.ETALow, v.ETAHigh = 95*time.Minute, 130*time.Minute
		}),
		"next": with(func(v *headgate.View) {
			v.Position, v.Ahead, v.PollAfter = 1, 0, time.Second
			v.ETALow, v.ETAHigh = 0, 12*time.Second
		}),
		"full": with(func(v *headgate.View) {
			none(v)
			v.State, v.Full, v.Waiting = headgate.StateFull, true, 10000
		}),
		"queue_all": with(func(v *headgate.View) {
			v.State, v.QueueAll, v.ETAKnown = headgate.StateQueueAll, true, false
			v.Message = "We are fixing the checkout. About ten minutes."
		}),
		"closed": with(func(v *headgate.View) {
			none(v)
			v.State, v.PollAfter = headgate.StateClosed, 5*time.Minute
			v.Message = "Sold out. Thank you!"
		}),
		"closed-place": with(func(v *headgate.View) {
			v.State, v.PollAfter, v.ETAKnown = headgate.StateClosed, 5*time.Minute, false
			v.Message = "Sold out. Tickets that come back go to those in line."
		}),
		"opens_at": with(func(v *headgate.View) {
			none(v)
			v.State, v.OpensAt = headgate.StateOpensSoon, at.Add(2*time.Hour+4*time.Minute+9*time.Second)
		}),
		"down": with(func(v *headgate.View) { v.State, v.ETAKnown = headgate.StateDown, false }),
		"no_cookie": with(func(v *headgate.View) {
			none(v)
			v.State = headgate.StateNoCookie
		}),
		"limited": with(func(v *headgate.View) {
			none(v)
			v.State = headgate.StateLimited
		}),
		"left": with(func(v *headgate.View) {
			none(v)
			v.State = headgate.StateLeft
		}),
		"move": with(func(v *headgate.View) {
			v.MoveLink = "https://tickets.example/.headgate/move?place=AQHb3k"
		}),
		"moved": with(func(v *headgate.View) { none(v); v.State = headgate.StateMoved }),
		"move_here": with(func(v *headgate.View) {
			none(v)
			v.State, v.MoveLink = headgate.StateMoveHere, "AQHb3k"
		}),
		"move_again": with(func(v *headgate.View) {
			none(v)
			v.State, v.MoveLink = headgate.StateMoveAgain, "AQHb3k"
		}),
		"denied":    with(func(v *headgate.View) { none(v); v.State = headgate.StateDenied }),
		"move_over": with(func(v *headgate.View) { none(v); v.State = headgate.StateMoveOver }),
		"code":      with(func(v *headgate.View) { none(v); v.State = stateCode }),
		"code_wrong": with(func(v *headgate.View) {
			none(v)
			v.State, v.Notice, v.RoomPath = stateCode, "wrong", "/buy?a=1&b=2"
		}),
		"waiting-code": with(func(v *headgate.View) { v.SignInURL = "/.headgate/code?why=&to=%2Fbuy" }),
		"called": with(func(v *headgate.View) {
			v.State, v.Position, v.Ahead = headgate.StateCalled, 1, 0
			v.ETALow, v.ETAHigh = 0, 0
		}),
	}
}

// TestPictures keeps each state as a file to look at in a browser. It fails when the page
// changes; -rewrite accepts the change.
func TestPictures(t *testing.T) {
	p := newPage(t)
	pictures := map[string]string{
		"error-502": renderError(t, p, "Riverside Tickets", 502, "01JD8Y3V"),
		"error-504": renderError(t, p, "Riverside Tickets", 504, ""),
	}
	for name, v := range views() {
		pictures[name] = render(t, p, &v)
	}
	for _, name := range slices.Sorted(maps.Keys(pictures)) {
		file := filepath.Join("testdata", name+".html")
		if *rewrite {
			if err := os.WriteFile(file, []byte(pictures[name]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; run go test -rewrite", err)
		}
		if diff := cmp.Diff(string(want), pictures[name]); diff != "" {
			t.Errorf("%s differs, look at it and run go test -rewrite:\n%s", file, diff)
		}
	}
}

// TestClosedPageLetsGo: who looks at a shut room is told why and is not kept waiting. A
// place that stands is still shown, and nobody is asked to reload every few minutes.
func TestClosedPageLetsGo(t *testing.T) {
	p, all := newPage(t), views()
	hidden := regexp.MustCompile(`\[data-state=closed\][^{}]*noscript[^{}]*\{display:none\}`)
	for name, place := range map[string]bool{"closed": false, "closed-place": true} {
		v := all[name]
		html := render(t, p, &v)
		body := html[strings.Index(html, "<main"):strings.Index(html, "</main>")]
		for _, want := range []string{
			`data-state="closed"`, ">Closed<", ">" + v.Message + "<", "You can close this page",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %q", name, want)
			}
		}
		if got := strings.Contains(body, " data-place>"); got != place {
			t.Errorf("%s: shows a place: %v, want %v", name, got, place)
		}
		if strings.Contains(body, "ahead of you") || strings.Contains(body, "updates automatically") {
			t.Errorf("%s: asks to keep waiting", name)
		}
		if !strings.Contains(html, `http-equiv="refresh" content="300"`) {
			t.Errorf("%s: without JavaScript it asks again at another time than it is told", name)
		}
		if !hidden.MatchString(html) {
			t.Errorf("%s: speaks of reloading", name)
		}
	}
}

// TestPolicy reads the pages as a browser does: each inline style and script must be
// named in the policy, and there is nothing that the policy would block.
func TestPolicy(t *testing.T) {
	p := newPage(t)
	policy := p.Header(&headgate.View{}).Get("Content-Security-Policy")
	if strings.Contains(policy, "unsafe") {
		t.Errorf("unsafe policy: %s", policy)
	}
	inline := regexp.MustCompile(`(?s)<(style|script type="module")>(.*?)</(?:style|script)>`)
	v, move := views()["waiting"], views()["move"]
	for name, html := range map[string]string{
		"waiting": render(t, p, &v),
		"move":    render(t, p, &move),
		"error":   renderError(t, p, "Riverside", 502, "id"),
	} {
		found := inline.FindAllStringSubmatch(html, -1)
		if len(found) != 2 {
			t.Errorf("%s: %d inline elements, want 2", name, len(found))
		}
		for _, m := range found {
			if !strings.Contains(policy, hashSource(m[2])) {
				t.Errorf("%s: %s is not in the policy", name, m[1])
			}
		}
		if m := regexp.MustCompile(`(?i)<[^>]*\s(style|on\w+)=`).FindString(
			inline.ReplaceAllString(html, "")); m != "" {
			t.Errorf("%s: attribute %q is blocked by the policy", name, m)
		}
		if m := regexp.MustCompile(`(?i)(src|href)="?(https?:)?//`).FindString(html); m != "" {
			t.Errorf("%s: %q loads from elsewhere", name, m)
		}
	}
}

// TestFrames: another site may have a page in a frame where the room says so, and nothing else changes.
func TestFrames(t *testing.T) {
	own, err := ParseCustom([]byte("<p>wait"))
	if err != nil {
		t.Fatal(err)
	}
	const policy = "Content-Security-Policy"
	all := func(c Config) (got []string) {
		p, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got = append(got, p.Header(&headgate.View{}).Get(policy))
		}
		return append(got, p.FailureHeader(&Failure{}).Get(policy))
	}
	for _, c := range []Config{{}, {Custom: own}, {Custom: own, Policy: "default-src 'none'"},
		{Custom: own, Policy: "frame-ancestors *; default-src 'none'; FRAME-ANCESTORS *"}} {
		shut := all(c)
		c.Framed = true
		for i, framed := range all(c) {
			want := strings.ReplaceAll(shut[i], "; frame-ancestors 'none'", "")
			if framed != want || strings.Contains(framed, "rame-ancestors") ||
				strings.Count(strings.ToLower(shut[i]), "frame-ancestors") != 1 ||
				!strings.Contains(shut[i], "frame-ancestors 'none'") {
				t.Errorf("framed %q, else %q", framed, shut[i])
			}
		}
	}
}

// TestElementsAreClosed checks that the tags nest, that ids are unique, and that labels
// and the script name ids that exist.
func TestElementsAreClosed(t *testing.T) {
	p := newPage(t)
	for name, v := range views() {
		html := render(t, p, &v)
		var open []string
		for _, tag := range tags(html) {
			element := strings.TrimPrefix(tag, "/")
			switch {
			case slices.Contains([]string{"meta", "link", "input", "img"}, tag):
			case tag == element:
				open = append(open, tag)
			case len(open) == 0 || open[len(open)-1] != element:
				t.Fatalf("%s: </%s> closes %v", name, element, open)
			default:
				open = open[:len(open)-1]
			}
		}
		if len(open) > 0 {
			t.Errorf("%s: not closed: %v", name, open)
		}
		ids := map[string]bool{}
		for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(html, -1) {
			if ids[m[1]] {
				t.Errorf("%s: id %q is there twice", name, m[1])
			}
			ids[m[1]] = true
		}
		used := regexp.MustCompile(` for="(\w+)"|(?:\$|read|put)\('(\w+)'`)
		for _, m := range used.FindAllStringSubmatch(html, -1) {
			if id := m[1] + m[2]; !ids[id] {
				t.Errorf("%s: no element has id %q", name, id)
			}
		}
	}
}

// tags returns the names of the tags of a page in order, "/p" for an end tag, as a browser finds
// them.
func tags(page string) []string {
	var out []string
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		kind := z.Next()
		if kind == html.ErrorToken {
			return out
		}
		name, _ := z.TagName()
		if kind == html.StartTagToken || kind == html.SelfClosingTagToken {
			out = append(out, string(name))
		}
		if kind == html.EndTagToken || kind == html.SelfClosingTagToken {
			out = append(out, "/"+string(name))
		}
	}
}

// FuzzRender tries to break out of the page with each text a View holds.
func FuzzRender(f *testing.F) {
	for _, s := range []string{
		"plain", `"><script>alert(1)</script>`, "</title><b>", "</script><script>", "<!--", "-->",
		"<!--<script>", `' onload='x`, "\xff\xfe", "\x00", "\u2028", "{{v:view}}", "&lt;", "\\u003c",
		"Ⱥ", "İ", // lowercase is longer, and shorter
	} {
		f.Add(s, s, int64(3), int64(9), s)
	}
	p, err := New(Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, state string, n, wait int64, other string) {
		v := views()["waiting"]
		v.State = headgate.State(state)
		v.Position, v.Ahead, v.Waiting, v.JoinedPosition = n, n-1, wait, wait
		v.ETALow, v.ETAHigh, v.PollAfter = time.Duration(n), time.Duration(wait), time.Duration(n)
		v.OpensAt = v.UpdatedAt.Add(time.Duration(wait))
		v.Room, v.Message, v.SlowerReason, v.Ticket, v.ServedURL = "x", "x", "x", "x", "x"
		v.LeaveURL = "x"
		v.Method = text
		want := tags(render(t, p, &v))
		v.Room, v.Message, v.SlowerReason, v.Ticket, v.ServedURL = text, other, text, other, text
		v.LeaveURL = text
		html := render(t, p, &v)
		if diff := cmp.Diff(want, tags(html)); diff != "" {
			t.Errorf("the texts changed the elements:\n%s", diff)
		}
		checkData(t, html, &v)

		want = tags(renderError(t, p, "x", 502, "x"))
		if diff := cmp.Diff(want, tags(renderError(t, p, text, 502, other+"x"))); diff != "" {
			t.Errorf("the texts changed the elements of the error page:\n%s", diff)
		}
	})
}

// checkData reads the data block as the script does.
func checkData(t *testing.T, html string, v *headgate.View) {
	t.Helper()
	_, data, _ := strings.Cut(html, `id="view">`)
	data, _, _ = strings.Cut(data, "</script>")
	var got struct {
		State, Slower, Ticket string
		Position              int64
	}
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		t.Fatalf("data block: %v\n%s", err, data)
	}
	if strings.ContainsAny(data, "<>&") {
		t.Errorf("data block has markup: %s", data)
	}
	valid := func(s string) string { return string([]rune(s)) } // as JSON has it
	if got.Position != v.Position || got.Slower != valid(v.SlowerReason) || got.Ticket != valid(v.Ticket) {
		t.Errorf("data block %s, want %d, %q and %q", data, v.Position, v.SlowerReason, v.Ticket)
	}
}

func TestUnknownLanguage(t *testing.T) {
	if _, err := New(Config{Language: "xx"}); err == nil {
		t.Error("New accepts a language without words")
	}
}

// TestRenderAllocates holds the budget: the buffer comes from a pool.
func TestRenderAllocates(t *testing.T) {
	p, v := newPage(t), views()["waiting-slower"]
	allocs := testing.AllocsPerRun(1000, func() {
		if err := p.Render(io.Discard, &v); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 2 {
		t.Errorf("Render allocates %v times, want at most 2", allocs)
	}
}

// BenchmarkRender compares with writing the same bytes, to memory and to a connection.
func BenchmarkRender(b *testing.B) {
	p, v := newPage(b), views()["waiting-slower"]
	body := []byte(render(b, p, &v))
	memory := bytes.NewBuffer(make([]byte, 0, 2*limit))
	conn := connection(b)
	for name, w := range map[string]io.Writer{"memory": memory, "connection": conn} {
		b.Run("write/"+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				memory.Reset()
				if _, err := w.Write(body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("render/"+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				memory.Reset()
				if err := p.Render(w, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// connection gives one end of a loopback connection whose other end is read.
func connection(b *testing.B) io.Writer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Close()
		<-done
		_ = l.Close()
	})
	return c
}
