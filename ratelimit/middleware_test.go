package ratelimit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/limit"
)

// left returns what a key has left.
func left(t *testing.T, l *Limiter, name, key string) int64 {
	t.Helper()
	v, err := l.Explain(name, key)
	if err != nil {
		t.Fatal(err)
	}
	return v.Remaining
}

func served(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func get(pairs ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}
	return r
}

var (
	byClient = []KeyPart{{Kind: KeyHeader, Name: "X-Client"}}
	hello    = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
)

func TestARequestMeetsAllItsLimitsOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, perMinute("client", 3), perMinute("all", 4))
		h := Middleware(l, []RequestLimit{{Name: "client", Key: byClient}, {Name: "all"}}, hello)
		for i, want := range []struct {
			client  string
			code    int
			headers string
		}{
			{"a", 200, `"client";r=2;t=60, "all";r=3;t=60`},
			{"a", 200, `"client";r=1;t=60, "all";r=2;t=60`},
			{"a", 200, `"client";r=0;t=60, "all";r=1;t=60`},
			{"a", 429, `"client";r=0;t=60, "all";r=1;t=60`},
			{"b", 200, `"client";r=2;t=60, "all";r=0;t=60`},
			{"b", 429, `"client";r=2;t=60, "all";r=0;t=60`},
		} {
			w := served(h, get("X-Client", want.client))
			if w.Code != want.code || w.Header().Get("RateLimit") != want.headers {
				t.Errorf("%d: %d %v", i, w.Code, w.Header())
			}
			if after := w.Header().Get("Retry-After"); (after == "60") != (w.Code == 429) {
				t.Errorf("%d: Retry-After %q", i, after)
			}
		}
		if n := left(t, l, "client", "b"); n != 2 {
			t.Errorf("b has %d left: it paid for a request that was refused", n)
		}
		time.Sleep(time.Minute)
		if w := served(h, get("X-Client", "a")); w.Code != 200 || w.Body.String() != "hello" {
			t.Errorf("a minute later: %d %s", w.Code, w.Body)
		}
	})
}

func TestNoLimitsAreNoMiddleware(t *testing.T) {
	if w := served(Middleware(nil, nil, hello), get()); w.Code != 200 || len(w.Header()) > 1 {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestEachLimitIsToldInItsOwnStyle(t *testing.T) {
	l := newLimiter(t, perMinute("a", 3), perMinute("b", 1))
	h := Middleware(l, []RequestLimit{
		{Name: "a"}, {Name: "b", Headers: HeadersDraft06},
	}, hello)
	for _, code := range []int{200, 429} {
		w := served(h, get())
		if w.Code != code || !strings.HasPrefix(w.Header().Get("RateLimit"), `"a";r=2;t=`) ||
			strings.Contains(w.Header().Get("RateLimit"), `"b"`) ||
			w.Header().Get("RateLimit-Limit") != "1" || w.Header().Get("RateLimit-Remaining") != "0" ||
			(w.Header().Get("Retry-After") != "") != (code == 429) {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
}

func TestCostHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, perMinute("api", 100))
		h := Middleware(l, []RequestLimit{
			{Name: "api", Cost: 2, CostHeader: "x-cost", Unit: CostUnits},
		}, hello)
		for _, tt := range []struct {
			costs []string
			code  int
			took  int64
		}{
			{nil, 200, 2},
			{[]string{"40"}, 200, 40},
			{[]string{"0"}, 200, 0},
			{[]string{"-1"}, 400, 0},
			{[]string{"-0"}, 200, 0},
			{[]string{"+1"}, 400, 0},
			{[]string{"1.5"}, 400, 0},
			{[]string{"1e3"}, 400, 0},
			{[]string{" 1"}, 400, 0},
			{[]string{""}, 400, 0},
			{[]string{"much"}, 400, 0},
			{[]string{"1", "2"}, 400, 0},
			{[]string{"1125899906842624"}, 429, 0},
			{[]string{"1125899906842625"}, 400, 0},
			{[]string{"99999999999999999999"}, 400, 0},
			{[]string{"59"}, 429, 0},
			{[]string{"58"}, 200, 58},
		} {
			before := left(t, l, "api", "")
			r := get()
			r.Header["X-Cost"] = tt.costs
			w := served(h, r)
			if took := before - left(t, l, "api", ""); w.Code != tt.code || took != tt.took {
				t.Errorf("%q: %d took %d, want %d and %d", tt.costs, w.Code, took, tt.code, tt.took)
			}
			if w.Code != 200 && w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%q: %v", tt.costs, w.Header())
			}
			never := tt.costs != nil && len(tt.costs[0]) > 9
			if never && w.Header().Get("Retry-After") != "" {
				t.Errorf("%q: come again: %v", tt.costs, w.Header())
			}
		}
	})
}

func TestBytesOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := perMinute("up", 100)
		c.Unit = RequestBytes
		l := newLimiter(t, c, perMinute("calls", 3))
		h := Middleware(l, []RequestLimit{{Name: "up", Unit: RequestBytes}, {Name: "calls"}},
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
		post := func(n int, chunked bool) int {
			var body io.Reader = strings.NewReader(strings.Repeat("x", n))
			if chunked {
				body = iotest.OneByteReader(body)
			}
			return served(h, httptest.NewRequest("POST", "/", body)).Code
		}
		for i, tt := range []struct {
			n       int
			chunked bool
			code    int
			left    int64
		}{
			{60, false, 200, 40},
			{41, false, 429, 40},
			{30, true, 200, 10},
			{15, true, 200, 0}, // 5 are owed
			{1, true, 429, 0},  // the fourth call
		} {
			if code := post(tt.n, tt.chunked); code != tt.code || left(t, l, "up", "") != tt.left {
				t.Errorf("%d: %d, %d left", i, code, left(t, l, "up", ""))
			}
		}
		time.Sleep(time.Minute)
		if code := post(95, false); code != 200 {
			t.Errorf("a minute later: %d", code)
		}
	})
}

// A limit in bytes is checked before the others, and gets its reservation back.
func TestARefusalGivesReservationsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := perMinute("down", 100)
		down.Unit = ResponseBytes
		l := newLimiter(t, down, perMinute("calls", 1), perMinute("more", 1))
		h := Middleware(l, []RequestLimit{
			{Name: "down", Unit: ResponseBytes}, {Name: "calls"}, {Name: "more"},
		}, hello)
		for i, code := range []int{200, 429, 429} {
			if w := served(h, get()); w.Code != code || left(t, l, "down", "") != 95 {
				t.Errorf("%d: %d, %d left", i, w.Code, left(t, l, "down", ""))
			}
		}
	})
}

func TestBytesOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := perMinute("down", 8)
		down.Unit = ResponseBytes
		l := newLimiter(t, down)
		h := Middleware(l, []RequestLimit{{Name: "down", Unit: ResponseBytes}}, hello)
		for i, code := range []int{200, 200, 429} { // 5, then 2 more than there were
			if w := served(h, get()); w.Code != code {
				t.Errorf("%d: %d %s", i, w.Code, w.Body)
			}
		}
		time.Sleep(time.Minute)
		if w := served(h, get()); w.Code != 200 {
			t.Errorf("a minute later: %d", w.Code)
		}
	})
}

func TestWhatIsUnderWayEndsWithTheHandler(t *testing.T) {
	l := newLimiter(t, Limit{
		Name: "calls", Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 1},
	}, perMinute("many", 1000))
	for _, limits := range [][]RequestLimit{{{Name: "calls"}}, {{Name: "calls"}, {Name: "many"}}} {
		var inner http.Handler
		fails := false
		h := Middleware(l, limits, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if code := served(inner, get()).Code; code != 429 {
				t.Errorf("a second one meanwhile: %d", code)
			}
			if fails {
				panic(http.ErrAbortHandler)
			}
		}))
		inner = h
		for range 3 {
			if w := served(h, get()); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			fails = true
			func() {
				defer func() { recover() }()
				served(h, get())
			}()
			fails = false
		}
	}
}

// A call longer than its lease is counted to its end, and taken again if the limit forgot it.
func TestWhatIsUnderWayIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Limit{Name: "calls",
			Rule: limit.Rule{Algorithm: limit.Concurrency, Amount: 2, Lease: time.Minute}})
		end, entered := make(chan struct{}), 0
		h := Middleware(l, []RequestLimit{{Name: "calls"}},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				entered++
				<-end
			}))
		var wg sync.WaitGroup
		gone, leave := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{t.Context(), gone} {
			wg.Go(func() { served(h, get().WithContext(ctx)) })
			synctest.Wait()
		}
		leave() // the handler is still at it
		for minute := range 60 {
			time.Sleep(time.Minute)
			if minute == 30 {
				if err := l.Reset("calls", ""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Second)
			}
			if n := left(t, l, "calls", ""); n != 0 || entered != 2 {
				t.Fatalf("minute %d: %d left of 2 while %d are under way", minute, n, entered)
			}
		}
		close(end)
		wg.Wait()
		if n := left(t, l, "calls", ""); n != 2 {
			t.Errorf("%d left of 2 when all have ended", n)
		}
		time.Sleep(time.Hour) // and nobody renews them
		if n := left(t, l, "calls", ""); n != 2 {
			t.Errorf("%d left of 2 an hour later", n)
		}
	})
}

func TestPacedRequestsWaitTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Limit{Name: "slow", Rule: limit.Rule{
			Algorithm: limit.LeakyBucket, Amount: 60, Window: time.Minute, Burst: 3, Paced: true,
		}})
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		h := Middleware(l, []RequestLimit{{Name: "slow"}},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(start))
			}))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { served(h, get()) })
			synctest.Wait()
		}
		if w := served(h, get()); w.Code != 429 {
			t.Errorf("a fourth: %d", w.Code)
		}
		wg.Wait()
		if fmt.Sprint(at) != "[0s 1s 2s]" {
			t.Errorf("they went at %v", at)
		}
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		if w := served(h, get().WithContext(ctx)); w.Code != 503 || len(at) != 3 {
			t.Errorf("whose context ended: %d, %d went", w.Code, len(at))
		}
		if took := time.Since(start); took != 2100*time.Millisecond {
			t.Errorf("it was waited for until %v", took)
		}
	})
}

// A broken is a Limiter that cannot take from several limits at once.
type broken struct{ *Limiter }

func (broken) AllowAll(context.Context, []Check, bool) ([]Result, error) {
	return nil, context.DeadlineExceeded
}

func TestWhenLimitsCannotBeAsked(t *testing.T) {
	l := broken{newLimiter(t, perMinute("api", 1))}
	var told error
	pass := func(_ *http.Request, err error) bool { told = err; return true }
	for name, tt := range map[string]struct {
		limits []RequestLimit
		code   int
	}{
		"refuses":         {[]RequestLimit{{Name: "none"}}, 503},
		"passes":          {[]RequestLimit{{Name: "none", OnError: pass}}, 200},
		"all must pass":   {[]RequestLimit{{Name: "api", OnError: pass}, {Name: "api"}}, 503},
		"all pass":        {[]RequestLimit{{Name: "api", OnError: pass}, {Name: "api", OnError: pass}}, 200},
		"bytes":           {[]RequestLimit{{Name: "none", Unit: ResponseBytes}}, 503},
		"bytes that pass": {[]RequestLimit{{Name: "none", Unit: ResponseBytes, OnError: pass}}, 200},
	} {
		w := served(Middleware(l, tt.limits, hello), get())
		if w.Code != tt.code || w.Header().Get("RateLimit") != "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	if told == nil {
		t.Error("nobody was told why")
	}
}

// A limit that a reload has just removed leaves the others in force, and nothing is taken twice.
func TestARemovedLimitLeavesTheOthersInForce(t *testing.T) {
	pass := func(_ *http.Request, err error) bool { return errors.Is(err, ErrNoLimit) }
	gone, shut := RequestLimit{Name: "gone", OnError: pass}, RequestLimit{Name: "gone"}
	for name, tt := range map[string]struct {
		limits []RequestLimit
		want   string
	}{
		"first": {[]RequestLimit{gone, {Name: "a"}}, "[200 200 429]"},
		"last":  {[]RequestLimit{{Name: "a"}, gone}, "[200 200 429]"},
		"two":   {[]RequestLimit{gone, {Name: "a"}, {Name: "b"}, gone}, "[200 200 429]"},
		"with bytes": {[]RequestLimit{gone, {Name: "down", Unit: ResponseBytes}, {Name: "a"}},
			"[200 200 429]"},
		"not let": {[]RequestLimit{shut, {Name: "a", OnError: pass}}, "[503 503 503]"},
		"all":     {[]RequestLimit{gone, gone}, "[200 200 200]"},
	} {
		down := perMinute("down", 100)
		down.Unit = ResponseBytes
		l, codes := newLimiter(t, perMinute("a", 2), perMinute("b", 2), down), []int{}
		for range 3 {
			codes = append(codes, served(Middleware(l, tt.limits, hello), get()).Code)
		}
		if fmt.Sprint(codes) != tt.want {
			t.Errorf("%s: %v, want %s", name, codes, tt.want)
		}
		if n := left(t, l, "down", ""); name == "with bytes" && n != 90 {
			t.Errorf("%d bytes are left of 100 after two answers of 5", n)
		}
	}
}

func TestShadowModeMakesNobodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, Limit{Name: "a", Shadow: true,
			Rule: limit.Rule{Algorithm: limit.LeakyBucket, Amount: 60, Window: time.Hour, Paced: true}})
		h := Middleware(l, []RequestLimit{{Name: "a"}}, hello)
		began := time.Now()
		for range 100 {
			served(h, get())
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("a hundred requests waited %v for a limit in shadow mode", d)
		}
	})
}

// A call beyond a soft limit passes, and the handler and the client learn of which. It takes nothing of the
// hard limits if one of them refuses it, and nobody learns of a limit in shadow mode.
func TestSoftLimitsMark(t *testing.T) {
	soft, tokens, trial, hard := perMinute("soft", 2), perMinute("tokens", 50), perMinute("trial", 1), perMinute("hard", 5)
	soft.Soft, tokens.Soft, tokens.Unit, trial.Shadow = true, true, CostUnits, true
	l := newLimiter(t, soft, tokens, trial, hard)
	var told []string
	h := Middleware(l, []RequestLimit{{Name: "soft"}, {Name: "trial"}, {Name: "hard"},
		{Name: "tokens", Cost: 20, Settle: &Settle{Header: "X-Cost"}}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			told = append(told, r.Header.Get(ExceededHeader))
			w.Header().Set("X-Cost", "15")
		}))
	var codes []int
	var answers []string
	for range 7 {
		r := get()
		r.Header[ExceededHeader] = []string{"made-up"}
		w := served(h, r)
		codes, answers = append(codes, w.Code), append(answers, w.Header().Get(ExceededHeader))
	}
	// Two calls of soft; three of tokens, 20 at first and 15 in the end, leave 5.
	want := []string{"", "", "soft", "soft, tokens", "soft, tokens"}
	if !slices.Equal(told, want) {
		t.Errorf("the handler: %q, want %q", told, want)
	}
	if want := append(want, "", ""); !slices.Equal(answers, want) {
		t.Errorf("the client: %q, want %q", answers, want)
	}
	if fmt.Sprint(codes) != "[200 200 200 200 200 429 429]" {
		t.Error(codes)
	}
	for name, want := range map[string]Counts{"soft": {Passed: 2, Exceeded: 3, Keys: 1}, "trial": {Passed: 1, Exceeded: 4, Keys: 1},
		"hard": {Passed: 5, Refused: 2, Keys: 1}} {
		if got, err := l.Totals(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// What a soft limit cannot be.
func TestSoftAndSomethingElse(t *testing.T) {
	for _, change := range []func(*Limit){
		func(c *Limit) { c.Shadow = true },
		func(c *Limit) { c.Usage = true },
		func(c *Limit) { c.OnUnreachable = UnreachableDeny },
		func(c *Limit) {
			c.Rule = limit.Rule{Algorithm: limit.LeakyBucket, Amount: 5, Window: time.Minute, Paced: true}
		},
		func(c *Limit) {
			c.Rule = limit.Rule{Algorithm: limit.Concurrency, Amount: 5}
			c.Auto = limit.Auto{Mode: limit.AutoOn, Min: 1, Max: 9}
		},
	} {
		c := perMinute("soft", 5)
		change(&c)
		if _, err := New(Config{Limits: []Limit{c}}); err != nil {
			t.Fatal("not by itself:", err)
		}
		c.Soft = true
		if _, err := New(Config{Limits: []Limit{c}}); err == nil || !strings.Contains(err.Error(), "soft") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// What a handler writes where no body is allowed is not sent, and not counted.
func TestAnswersWithoutABodyCostNothing(t *testing.T) {
	l := newLimiter(t, Limit{Name: "a", Unit: ResponseBytes,
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 1000, Window: time.Hour}})
	for _, tt := range []struct {
		method string
		status int
	}{{"HEAD", 200}, {"GET", 204}, {"GET", 304}} {
		s := httptest.NewServer(Middleware(l, []RequestLimit{{Name: "a", Unit: ResponseBytes}},
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				w.Write(make([]byte, 5000))
			})))
		r, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		s.Close() // the handler has returned
		if n := left(t, l, "a", ""); n != 1000 {
			t.Errorf("%s %d: %d remain of 1000", tt.method, tt.status, n)
		}
	}
}

// net/http removes the files of a form when its own request is done.
func TestFilesOfFormsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	l := newLimiter(t, Limit{Name: "a", Unit: RequestBytes,
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 1 << 30, Window: time.Hour}})
	s := httptest.NewServer(Middleware(l, []RequestLimit{{Name: "a", Unit: RequestBytes}},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(0); err != nil {
				t.Error(err)
			}
			if made, err := os.ReadDir(dir); err != nil || len(made) != 1 {
				t.Errorf("%d files of the form %v", len(made), err)
			}
		})))
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	f, err := form.CreateFormFile("f", "f")
	if err != nil {
		t.Fatal(err)
	}
	f.Write(make([]byte, 100_000))
	form.Close()
	res, err := http.Post(s.URL, form.FormDataContentType(), &b)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	s.Close()
	if stay, err := os.ReadDir(dir); err != nil || len(stay) > 0 {
		t.Errorf("%d files stay %v", len(stay), err)
	}
}

// A declared length is taken in advance, and what did not arrive is given back.
func TestALengthThatIsOnlySaidIsGivenBack(t *testing.T) {
	l := newLimiter(t, Limit{Name: "a", Unit: RequestBytes,
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 1000, Window: time.Hour}})
	h := Middleware(l, []RequestLimit{{Name: "a", Unit: RequestBytes}},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if n := left(t, l, "a", ""); n != 0 {
				t.Errorf("%d remain meanwhile", n)
			}
			io.Copy(io.Discard, r.Body)
		}))
	r := httptest.NewRequest("POST", "/", strings.NewReader("x"))
	r.ContentLength = 1000
	body := r.Body
	if served(h, r); left(t, l, "a", "") != 999 || r.Body != body {
		t.Errorf("one byte came, and %d remain of 1000", left(t, l, "a", ""))
	}
}

// Streams and upgrades work through the middleware as without it.
func TestFlushAndHijackThroughLimits(t *testing.T) {
	down := perMinute("down", 1000)
	down.Unit = ResponseBytes
	l := newLimiter(t, down)
	srv := httptest.NewServer(Middleware(l, []RequestLimit{{Name: "down", Unit: ResponseBytes}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/flush" {
				io.WriteString(w, "one\n")
				w.(http.Flusher).Flush()
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				<-r.Context().Done()
				return
			}
			rc := http.NewResponseController(w)
			if err := rc.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			conn, buf, err := rc.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			buf.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\nraw\n")
			buf.Flush()
		})))
	defer srv.Close()
	res, err := http.Get(srv.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || line != "one\n" || res.Header.Get("RateLimit") == "" {
		t.Errorf("%q %v %v", line, err, res.Header)
	}
	res.Body.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /hijack HTTP/1.1\r\nHost: a\r\n\r\n")
	if raw, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(raw), "raw\n") {
		t.Errorf("%q %v", raw, err)
	}
}

func TestManyAtOnceAreNeverOver(t *testing.T) {
	l := newLimiter(t, perMinute("api", 100), perMinute("all", 1000))
	var passed atomic.Int64
	h := Middleware(l, []RequestLimit{{Name: "api", Key: byClient}, {Name: "all"}},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed.Add(1) }))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				served(h, get("X-Client", "a"))
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n > 100 || n < 90 || int64(1000)-left(t, l, "all", "") != n {
		t.Errorf("%d passed, %d are left of all", n, left(t, l, "all", ""))
	}
}

func BenchmarkLimitMiddleware(b *testing.B) {
	l := newLimiter(b, perMinute("api", limit.MaxAmount))
	for name, style := range map[string]HeaderStyle{"ietf": HeadersIETF, "none": HeadersNone} {
		b.Run(name, func(b *testing.B) {
			h := Middleware(l, []RequestLimit{{Name: "api", Key: byClient, Headers: style}},
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r, w := get("X-Client", "a"), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
