package ratelimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/limit"
)

func budget(name string, amount int64) Limit {
	return Limit{Name: name, Unit: CostUnits,
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: amount, Window: time.Hour}}
}

func post(body string) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
}

// says is a handler that answers with a type and a text, and then does the last.
func says(status int, kind, text string, last func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("X-Cost", "33")
		w.WriteHeader(status)
		for part := range strings.SplitAfterSeq(text, "\n") {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
		if last != nil {
			last()
		}
	})
}

func aborts() { panic(http.ErrAbortHandler) }

const (
	chat      = `{"choices": [{"message": {"content": "usage"}}], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}`
	responses = `{"id": "r", "usage": {"input_tokens": 10, "output_tokens": 5}}`
	chatSSE   = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n" +
		"data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}],\"usage\":null}\n\n"
	chatEnd  = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5}}\n\ndata: [DONE]\n\n"
	messages = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7," +
		"\"cache_creation_input_tokens\":2,\"cache_read_input_tokens\":1,\"output_tokens\":1}}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"b\"}}\n\n"
	messagesEnd = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":5}}\n\n"
	events      = "text/event-stream; charset=utf-8"
)

// TestTheCostIsInTheAnswer: each way of an answer to say what a call has cost, and each way not to.
func TestTheCostIsInTheAnswer(t *testing.T) {
	tokens := &Settle{Input: 1, Output: 4}
	for name, c := range map[string]struct {
		settle *Settle
		next   http.Handler
		want   int64 // 100 is the estimate
	}{
		"a chat":               {tokens, says(200, "application/json", chat, nil), 30},
		"a response":           {tokens, says(200, "application/json", responses, nil), 30},
		"a stream of a chat":   {tokens, says(200, events, chatSSE+chatEnd, nil), 30},
		"a stream of messages": {tokens, says(200, events, messages+messagesEnd, nil), 30},
		"a stream, CR LF":      {tokens, says(200, events, strings.ReplaceAll(messages+messagesEnd, "\n", "\r\n"), nil), 30},
		"output only":          {&Settle{Output: 2}, says(200, "application/json", chat, nil), 10},
		"a field":              {&Settle{Field: "usage.total_tokens"}, says(200, "application/json", chat, nil), 15},
		"both formats": {tokens, says(200, "application/json", `{"usage": {"prompt_tokens": 10, "completion_tokens": 5,
			"cache_read_input_tokens": 7, "cache_creation_input_tokens": 2}}`, nil), 30},
		"a stream with a byte order mark":      {tokens, says(200, events, "\ufeff"+messages+messagesEnd, nil), 30},
		"a header":                             {&Settle{Header: "x-cost"}, says(200, "text/html", "", nil), 33},
		"a header of an error":                 {&Settle{Header: "x-cost"}, says(500, "text/html", "", nil), 33},
		"no header":                            {&Settle{Header: "x-other"}, says(200, "text/html", "", nil), 100},
		"no usage":                             {tokens, says(200, "application/json", `{}`, nil), 100},
		"no field":                             {&Settle{Field: "usage.credits"}, says(200, "application/json", chat, nil), 100},
		"a stream without usage":               {tokens, says(200, events, chatSSE+"data: [DONE]\n\n", nil), 100},
		"an error without usage":               {tokens, says(503, "application/json", `{"error": {}}`, nil), 0},
		"an error with usage":                  {tokens, says(400, "application/json", chat, nil), 30},
		"negative":                             {tokens, says(200, "application/json", strings.Replace(chat, "10", "-10", 1), nil), 100},
		"huge":                                 {tokens, says(200, "application/json", strings.Replace(chat, "10", "99999999999999999999", 1), nil), 100},
		"a text":                               {tokens, says(200, "text/plain", chat, nil), 100},
		"no JSON":                              {tokens, says(200, "application/json", "<html>", nil), 100},
		"a client that left before the answer": {tokens, says(499, "", "", nil), 100},
		"an answer that took too long":         {tokens, says(504, "", "", nil), 100},
		"an origin that cannot be reached":     {tokens, says(502, "", "", nil), 0},
		"a client that leaves at the end mark": {tokens, says(200, events, chatSSE+chatSSE+chatSSE+chatEnd, aborts), 30},
		"the same, at the end of a message": {tokens, says(200, events, messages+strings.Repeat(messages[strings.Index(messages, "event: content"):], 3)+
			messagesEnd+"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", aborts), 30},
		"a deep answer": {tokens, says(200, "application/json", `{"input": `+strings.Repeat(`{"a":`, 500)+"1"+
			strings.Repeat("}", 500)+","+chat[1:], nil), 30},
		"a stream that breaks off in a number": {tokens, says(200, events, chatSSE+"data: {\"usage\":{\"prompt_tokens\":1",
			aborts), 20 + 3*4},
		"a stream that breaks off":    {tokens, says(200, events, messages, aborts), 10 + 3*4},
		"the same, without usage":     {tokens, says(200, events, chatSSE, aborts), 20 + 2*4},
		"the same, in its first line": {tokens, says(200, events, "data: {", aborts), 20 + 4},
		"the same, before it":         {tokens, says(200, events, ": hello\n\n", aborts), 100},
		"JSON that breaks off":        {tokens, says(200, "application/json", chat[:40], aborts), 100},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t, budget("tokens", 1000))
			h := Middleware(l, []RequestLimit{{Name: "tokens", Cost: 20, CostField: "max_tokens", Settle: c.settle}}, c.next)
			each := max(1, c.settle.Output)
			func() {
				defer func() { _ = recover() }()
				served(h, post(fmt.Sprintf(`{"max_tokens": %d}`, 80/each)))
			}()
			if used := 1000 - left(t, l, "tokens", ""); used != c.want {
				t.Errorf("%d used, want %d", used, c.want)
			}
		})
	}
}

// TestAnEndedCallIsNotFree: a call that ends with its session costs the estimate, whatever the status is.
func TestAnEndedCallIsNotFree(t *testing.T) {
	l := newLimiter(t, budget("tokens", 1000))
	ctx, end := context.WithCancel(t.Context())
	h := Middleware(l, []RequestLimit{{Name: "tokens", Cost: 20, Settle: &Settle{Output: 1}}},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			end()
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
	served(h, post("").WithContext(ctx))
	if used := 1000 - left(t, l, "tokens", ""); used != 20 {
		t.Errorf("%d used, want the estimate of 20", used)
	}
}

// TestTheEstimateHolds: while calls are under way, their estimates are taken, so that all of them together
// never cost more than the amount.
func TestTheEstimateHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, budget("tokens", 100))
		over := make(chan struct{})
		h := Middleware(l, []RequestLimit{{Name: "tokens", Cost: 10, CostField: "max_tokens", Settle: &Settle{Output: 1}}},
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				<-over
				says(200, "application/json", `{"usage": {"completion_tokens": 1}}`, nil).ServeHTTP(w, r)
			}))
		for range 3 { // 40 each
			go served(h, post(`{"max_tokens": 30}`))
		}
		synctest.Wait()
		if n := left(t, l, "tokens", ""); n != 20 {
			t.Errorf("%d left beside two calls, want 20", n)
		}
		if w := served(h, post(`{"max_tokens": 11}`)); w.Code != http.StatusTooManyRequests {
			t.Errorf("%d, want 429", w.Code)
		}
		close(over)
		synctest.Wait()
		if n := left(t, l, "tokens", ""); n != 98 {
			t.Errorf("%d left after the calls, want 98", n)
		}
	})
}

// TestAllOrNothingWithEstimates: a call that one of its limits refuses costs nothing at the others.
func TestAllOrNothingWithEstimates(t *testing.T) {
	l := newLimiter(t, perMinute("calls", 3), budget("tokens", 1000), budget("money", 50))
	var limits []RequestLimit
	for _, name := range []string{"tokens", "calls", "money"} {
		r := RequestLimit{Name: name}
		if name != "calls" {
			r.Cost, r.Settle = 20, &Settle{Input: 1, Output: 1}
		}
		limits = append(limits, r)
	}
	h := Middleware(l, limits, says(200, "application/json", chat, nil))
	var codes strings.Builder
	for range 4 {
		codes.WriteString(fmt.Sprint(served(h, post("{}")).Code, " "))
	}
	if codes.String() != "200 200 200 429 " { // 15 each: the fourth has no call left, and no money for an estimate of 20
		t.Error(codes.String())
	}
	for name, want := range map[string]int64{"calls": 0, "tokens": 955, "money": 5} {
		if n := left(t, l, name, ""); n != want {
			t.Errorf("%s: %d left, want %d", name, n, want)
		}
	}
}

// TestTheFieldOfTheBody: what a body can do to hide its field, and how it comes to the handler.
func TestTheFieldOfTheBody(t *testing.T) {
	var got string
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = string(b)
	})
	for body, c := range map[string]struct {
		code int
		used int64
	}{
		`{"max_tokens": 30}`:                  {200, 40},
		`{"max_tokens": 1, "max_tokens": 30}`: {200, 40},
		`{"max_tokens": 30, "MAX_TOKENS": 1}`: {200, 40},
		`{"max_to\u006bens": 30}`:             {200, 40},
		`{"messages": [{"max_tokens": 99}]}`:  {200, 10},
		`{}`:                                  {200, 10},
		``:                                    {200, 10},
		`{"max_tokens": null}`:                {200, 10},
		`{"max_tokens": "30"}`:                {400, 0},
		`{"max_tokens": [30]}`:                {400, 0},
		`{max: 1, "max_tokens": 30}`:          {400, 0},
		`{"a": 1 "max_tokens": 30}`:           {400, 0},
		`{} {"max_tokens": 30}`:               {400, 0},
		"{\"max_\xc1\xb4okens\": 30}":         {400, 0}, // t in too many bytes
		`{"max_tokens": -30}`:                 {400, 0},
		`{"max_tokens": 1e30}`:                {400, 0},
		`{"max_tokens": 3.5}`:                 {400, 0},
		`{"max_tokens": 91}`:                  {429, 0},
		`{"max_tokens": 30`:                   {400, 0},
		`max_tokens=30`:                       {400, 0},
		strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat("}", 70): {200, 10},
		`{"x": "` + strings.Repeat("x", mostBody) + `"}`:            {413, 0},
	} {
		for _, known := range []bool{true, false} {
			l := newLimiter(t, budget("tokens", 100))
			h := Middleware(l, []RequestLimit{{Name: "tokens", Cost: 10, CostField: "max_tokens"}}, next)
			r := post(body)
			if !known {
				r.ContentLength = -1
			}
			own := r.Body
			got = ""
			w := served(h, r)
			if used := 100 - left(t, l, "tokens", ""); w.Code != c.code || used != c.used {
				t.Errorf("%.40s: %d, %d used; want %d, %d", body, w.Code, used, c.code, c.used)
			}
			if c.code == 200 && got != body || r.Body != own {
				t.Errorf("%.40s came as %.40s", body, got)
			}
			if n := h.(*gate).bodies.held; n != 0 {
				t.Errorf("%.40s: %d bytes held", body, n)
			}
		}
	}
	h := Middleware(newLimiter(t, budget("tokens", 100)), []RequestLimit{{Name: "tokens", CostField: "max_tokens"}}, next)
	r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(errors.New("reset")))
	if w := served(h, r); w.Code != http.StatusBadRequest {
		t.Errorf("a body that breaks off: %d", w.Code)
	}
	h.(*gate).bodies.held = mostBodies
	if w := served(h, post(`{"max_tokens": 1}`)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("above all bodies: %d", w.Code)
	}
}

// TestACompressedBodyIsRefused: its bytes could be made to look like JSON without the field.
func TestACompressedBodyIsRefused(t *testing.T) {
	l := newLimiter(t, budget("tokens", 100))
	h := Middleware(l, []RequestLimit{{Name: "tokens", CostField: "max_tokens"}}, says(200, "text/plain", "", nil))
	for name, code := range map[string]int{"Content-Encoding: br": 415, "Content_Encoding: gzip": 415,
		"Content-Encoding: identity": 200} {
		r := post(`{"max_tokens": 1}`)
		name, value, _ := strings.Cut(name, ": ")
		r.Header[name] = []string{value}
		if w := served(h, r); w.Code != code {
			t.Errorf("%s: %s is answered with %d, want %d", name, value, w.Code, code)
		}
	}
}

// TestSlowBodiesKeepNobodyOut: bodies take what has come of them, not what their headers announce.
func TestSlowBodiesKeepNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, budget("tokens", 1000))
		h := Middleware(l, []RequestLimit{{Name: "tokens", CostField: "max_tokens"}}, says(200, "text/plain", "", nil))
		slow, end := io.Pipe()
		for i := range 2 * mostBodies / mostBody {
			r := httptest.NewRequest(http.MethodPost, "/", slow)
			r.ContentLength = int64(mostBody*(i%2+1) - i%2*(mostBody+1)) // announced, or not
			go served(h, r)
		}
		synctest.Wait()
		if w := served(h, post(`{"max_tokens": 1}`)); w.Code != http.StatusOK {
			t.Errorf("beside slow bodies: %d %s", w.Code, w.Body)
		}
		end.Close()
		synctest.Wait()
		if n := h.(*gate).bodies.held; n != 0 {
			t.Errorf("%d bytes held", n)
		}
	})
}

// TestOneNetworkLeavesRoom: large bodies of one network leave room for those of others.
func TestOneNetworkLeavesRoom(t *testing.T) {
	for _, addr := range []string{"192.0.2.%d:1", "[2001:db8:1:%x::1]:1"} {
		t.Run(addr, func(t *testing.T) { testOneNetworkLeavesRoom(t, addr) })
	}
}

func testOneNetworkLeavesRoom(t *testing.T, addr string) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, budget("tokens", 1000))
		over := make(chan struct{})
		h := Middleware(l, []RequestLimit{{Name: "tokens", CostField: "max_tokens"}},
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					<-over
				}
			}))
		large := `{"x": "` + strings.Repeat("x", 3<<20) + `"}`
		from := func(addr, path string) int {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(large))
			r.RemoteAddr = addr
			return served(h, r).Code
		}
		var mu sync.Mutex
		codes := map[int]int{}
		for i := range 22 { // as many as the room has
			go func() {
				code := from(fmt.Sprintf(addr, i), "/slow")
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
			}()
			synctest.Wait()
		}
		if codes[http.StatusServiceUnavailable] != 12 {
			t.Errorf("%v, want 12 refused: ten take half of the room", codes)
		}
		if code := from("198.51.100.7:1", "/"); code != http.StatusOK {
			t.Errorf("%d for another network", code)
		}
		close(over)
		synctest.Wait()
		if b := h.(*gate).bodies; b.held != 0 || len(b.by) != 0 {
			t.Errorf("%d bytes held, of %d networks", b.held, len(b.by))
		}
	})
}

// TestAHeldConnectionEndsInTime: a client that never sends the end of its body is answered.
func TestAHeldConnectionEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, budget("tokens", 1000))
		h := Middleware(l, []RequestLimit{{Name: "tokens", CostField: "max_tokens"}}, says(200, "text/plain", "", nil))
		here, there := net.Pipe()
		server := http.Server{Handler: h}
		go server.Serve(&oneConn{conn: there, closed: make(chan struct{})})
		defer server.Close()
		began := time.Now()
		fmt.Fprint(here, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
		answer, err := http.ReadResponse(bufio.NewReader(here), nil)
		if err != nil || answer.StatusCode != http.StatusRequestTimeout || time.Since(began) > 2*bodyTime {
			t.Errorf("%v, %v after %v", answer, err, time.Since(began))
		}
		here.Close()
	})
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// TestABodyOfAnEndedCall: a transport that reads on after the handler has ended gets an error, not the end of
// a shorter body, and what the bodies take stays right.
func TestABodyOfAnEndedCall(t *testing.T) {
	l := newLimiter(t, budget("tokens", 1_000_000))
	var body io.Reader
	var reads sync.WaitGroup
	h := Middleware(l, []RequestLimit{{Name: "tokens", CostField: "max_tokens"}},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body = r.Body
			own := r.Body
			reads.Go(func() { _, _ = io.Copy(io.Discard, io.LimitReader(own, 1<<20)) })
		}))
	for range 100 {
		served(h, post(`{"max_tokens": 1, "x": "`+strings.Repeat("x", 1000)+`"}`))
		if n, err := body.Read(make([]byte, 10)); n > 0 || err == nil || errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	reads.Wait()
	if n := h.(*gate).bodies.held; n != 0 {
		t.Errorf("%d bytes held", n)
	}
}

// TestAnEstimateOfNothingIsSettled: a client that says that its call costs nothing pays what it has cost.
func TestAnEstimateOfNothingIsSettled(t *testing.T) {
	l := newLimiter(t, budget("tokens", 100))
	h := Middleware(l, []RequestLimit{{Name: "tokens", CostHeader: "X-Max", Settle: &Settle{Input: 1, Output: 1}}},
		says(200, "application/json", chat, nil))
	r := post("{}")
	r.Header.Set("X-Max", "0")
	if w, n := served(h, r), left(t, l, "tokens", ""); w.Code != 200 || n != 85 {
		t.Errorf("%d, %d left", w.Code, n)
	}
}

// TestAStreamIsNotBuffered: each event is with the client before the next one is written.
func TestAStreamIsNotBuffered(t *testing.T) {
	l := newLimiter(t, budget("tokens", 1000))
	step := make(chan struct{})
	h := Middleware(l, []RequestLimit{{Name: "tokens", Cost: 100, Settle: &Settle{Input: 1, Output: 1}}},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header["Accept-Encoding"]; len(got) != 1 || got[0] != "identity" {
				t.Errorf("the handler may answer in %v", got)
			}
			w.Header().Set("Content-Type", events)
			for part := range strings.SplitAfterSeq(chatSSE+chatEnd, "\n\n") {
				io.WriteString(w, part)
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Error(err)
				}
				<-step
			}
		}))
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for part := range strings.SplitAfterSeq(chatSSE+chatEnd, "\n\n") {
		b := make([]byte, len(part))
		if _, err := io.ReadFull(answer.Body, b); err != nil || string(b) != part {
			t.Fatalf("%q, %v", b, err)
		}
		step <- struct{}{}
	}
}

func BenchmarkSettled(b *testing.B) {
	l, err := New(Config{Limits: []Limit{budget("tokens", limit.MaxAmount)}})
	if err != nil {
		b.Fatal(err)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, chat)
	})
	for name, r := range map[string]RequestLimit{"fixed": {Name: "tokens"},
		"settled": {Name: "tokens", Cost: 10, CostField: "max_tokens", Settle: &Settle{Input: 1, Output: 4}}} {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(Middleware(l, []RequestLimit{r}, next))
			defer server.Close()
			for b.Loop() {
				answer, err := http.Post(server.URL, "application/json", strings.NewReader(`{"max_tokens": 30}`))
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
}
