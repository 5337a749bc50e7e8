package forwardauth

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tells answers with what it gets.
var tells = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Note", "one\r\nInjected: two")
	io.WriteString(w, r.Method+" "+r.RequestURI+" "+r.Host+" "+r.Header.Get("X-A")+" "+string(body))
})

func all(*http.Request) bool { return true }

// served starts Serve and returns its address and a function that ends it and waits.
func served(t *testing.T, h http.Handler, trusts func(*http.Request) bool) (addr string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, h, trusts, slog.New(slog.DiscardHandler)) }()
	return l.Addr().String(), func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// send sends bytes and returns the status and body of each answer, and "end" if the connection is
// closed after them.
func send(t *testing.T, addr, raw, method string, n int) (got []string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go io.WriteString(c, raw)
	r := bufio.NewReader(c)
	for range n {
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return append(got, "end")
		}
		if len(res.Header["Injected"]) > 0 {
			t.Error("a header was injected")
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, res.Status[:3]+" "+strings.TrimSuffix(string(body), "\n"))
	}
	return got
}

// TestQuestionsAsBytes: each request has one reading, or none.
func TestQuestionsAsBytes(t *testing.T) {
	addr, end := served(t, tells, all)
	defer end()
	const host = "Host: shop.example\r\n"
	for name, x := range map[string]struct {
		raw  string
		want []string
	}{
		"one":        {"GET /a?b HTTP/1.1\r\n" + host + "X-A: 1\r\n\r\n", []string{"200 GET /a?b shop.example 1 "}},
		"pipelined":  {"GET /a HTTP/1.1\r\n" + host + "\r\nGET /b HTTP/1.1\r\n" + host + "\r\n", []string{"200 GET /a shop.example  ", "200 GET /b shop.example  "}},
		"body":       {"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n" + host + "\r\n", []string{"200 POST /a shop.example  abc", "200 GET /b shop.example  "}},
		"chunks":     {"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\nGET /b HTTP/1.1\r\n" + host + "\r\n", []string{"200 POST /a shop.example  abc", "200 GET /b shop.example  "}},
		"close":      {"GET /a HTTP/1.1\r\n" + host + "Connection: keep-alive, close\r\n\r\nGET /b HTTP/1.1\r\n" + host + "\r\n", []string{"200 GET /a shop.example  ", "end"}},
		"old":        {"GET /a HTTP/1.0\r\n" + host + "\r\nGET /b HTTP/1.1\r\n" + host + "\r\n", []string{"200 GET /a shop.example  ", "end"}},
		"two hosts":  {"GET /a HTTP/1.1\r\n" + host + "Host: other.example\r\n\r\n", []string{"400 send one Host", "end"}},
		"no host":    {"GET /a HTTP/1.1\r\n\r\n", []string{"400 send one Host", "end"}},
		"two bodies": {"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []string{"400 send one Content-Length, or Transfer-Encoding: chunked", "end"}},
		"lengths":    {"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", []string{"400 send one Content-Length, or Transfer-Encoding: chunked", "end"}},
		"signed":     {"POST /a HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc", []string{"400 Content-Length is no number", "end"}},
		"coding":     {"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", []string{"400 send one Content-Length, or Transfer-Encoding: chunked", "end"}},
		"large":      {"POST /a HTTP/1.1\r\n" + host + "Content-Length: 1048577\r\n\r\n" + strings.Repeat("a", mostBody+1), []string{"413 the body is too large", "end"}},
		"long chunk": {"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n100001\r\n" + strings.Repeat("a", mostBody+1), []string{"413 the body is too large", "end"}},
		"expect":     {"POST /a HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", []string{"417 send the body without Expect", "end"}},
		"expected":   {"GET /a HTTP/1.1\r\n" + host + "Expect: 100-continue\r\n\r\nGET /b HTTP/1.1\r\n" + host + "\r\n", []string{"200 GET /a shop.example  ", "200 GET /b shop.example  "}},
		"long head":  {"GET /a HTTP/1.1\r\n" + host + "X-A: " + strings.Repeat("a", mostHead) + "\r\n\r\n", []string{"431 the headers are too large", "end"}},
		"long line":  {"GET /" + strings.Repeat("a", mostHead), []string{"431 the headers are too large", "end"}},
		"name":       {"GET /a HTTP/1.1\r\n" + host + "X A: 1\r\n\r\n", []string{"400 a header cannot be read", "end"}},
		"value":      {"GET /a HTTP/1.1\r\n" + host + "X-A: 1\x002\r\n\r\n", []string{"400 a header cannot be read", "end"}},
		"method":     {"GE(T /a HTTP/1.1\r\n" + host + "\r\n", []string{"400 the request line cannot be read", "end"}},
		"trailers":   {"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\nX-T: 1\r\n\r\n", []string{"400 send no trailers", "end"}},
		"trailer":    {"POST /a HTTP/1.1\r\n" + host + "Trailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []string{"400 send one Content-Length, or Transfer-Encoding: chunked", "end"}},
		"old chunks": {"POST /a HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", []string{"400 send one Content-Length, or Transfer-Encoding: chunked", "end"}},
		"escape":     {"GET /% HTTP/1.1\r\n" + host + "\r\n", []string{"400 the request line cannot be read", "end"}},
		"absolute":   {"GET http://shop.example/a HTTP/1.1\r\n" + host + "\r\n", []string{"400 the request line cannot be read", "end"}},
		"http2":      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []string{"505 ask with HTTP/1.1", "end"}},
		"tls":        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []string{"505 ask with HTTP/1.1", "end"}},
	} {
		if got := send(t, addr, x.raw, "GET", len(x.want)); !cmp.Equal(got, x.want) {
			t.Errorf("%s: %s", name, cmp.Diff(x.want, got))
		}
	}
	head := "HEAD /a HTTP/1.1\r\n" + host + "\r\n"
	if got := send(t, addr, head+head, "HEAD", 2); !cmp.Equal(got, []string{"200 ", "200 "}) {
		t.Error(got)
	}
}

// TestBodiesOfStrangers: a peer that is not trusted does not fill the memory with bodies.
func TestBodiesOfStrangers(t *testing.T) {
	addr, end := served(t, tells, func(r *http.Request) bool { return r.RemoteAddr == "" })
	defer end()
	for _, body := range []string{"Content-Length: 1048576\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n100000\r\n"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second)) // an error shows in what follows
		io.WriteString(c, "POST /batch HTTP/1.1\r\nHost: shop.example\r\n"+body)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("the body is awaited: %v", err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusForbidden || !res.Close {
			t.Errorf("%q: %s, close %v", body, res.Status, res.Close)
		}
	}
	want := []string{"200 GET /a shop.example  "} // the handler decides
	if got := send(t, addr, "GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n", "GET", 1); !cmp.Equal(got, want) {
		t.Error(got)
	}
}

// TestTheEndWaitsForAnswers: a question in progress is answered, an idle connection is closed, and a
// panic ends its own connection.
func TestTheEndWaitsForAnswers(t *testing.T) {
	asked, answer := make(chan bool), make(chan bool)
	addr, end := served(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.RequestURI {
		case "/panic":
			panic("as told")
		case "/slow":
			asked <- true
			<-answer
		}
	}), all)
	const rest = " HTTP/1.1\r\nHost: a\r\n\r\n"
	if got := send(t, addr, "GET /panic"+rest, "GET", 1); !cmp.Equal(got, []string{"end"}) {
		t.Error(got)
	}
	idle, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	slow := make(chan []string, 1)
	go func() { slow <- send(t, addr, "GET /slow"+rest, "GET", 2) }()
	<-asked
	go func() {
		io.Copy(io.Discard, idle) // it is closed while the answer is open
		answer <- true
	}()
	end()
	if got := <-slow; !cmp.Equal(got, []string{"200 ", "end"}) {
		t.Error(got)
	}
}

// FuzzQuestion: what is accepted has the meaning that net/http gives it.
func FuzzQuestion(f *testing.F) {
	f.Add([]byte("GET /original HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n"))
	f.Add([]byte("POST /batch HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\nTrailer: x\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\n"))
	f.Add([]byte("GET / HTTP/1.0\r\nHost: a\r\n b\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nx-a: 1\r\nX-B: 2\r\nX-A:\t3 \r\n\r\nGET"))
	f.Add([]byte("GET / HTTP/1.1\nHost: a\r\nX-A: 1\nX-B: 2\r\n\r\n"))
	base := (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(f.Context())
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := &conn{base: base, trusts: all, head: io.LimitedReader{R: bytes.NewReader(raw), N: mostHead}}
		c.read = bufio.NewReader(&c.head)
		r, err := c.question()
		if err != nil {
			return
		}
		want, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			t.Fatalf("net/http refuses it: %v", err)
		}
		b, _ := io.ReadAll(r.Body)
		wb, err := io.ReadAll(want.Body)
		if err != nil || !bytes.Equal(b, wb) {
			t.Fatalf("body %q, net/http reads %q, %v", b, wb, err)
		}
		if want.Header.Get("Pragma") == "no-cache" { // net/http adds the newer header
			delete(r.Header, "Cache-Control")
			delete(want.Header, "Cache-Control")
		}
		delete(want.Header, "Transfer-Encoding")
		delete(r.Header, "Content-Length")
		delete(want.Header, "Content-Length")
		if r.Method != want.Method || r.RequestURI != want.RequestURI || r.Host != want.Host ||
			!cmp.Equal(r.Header, want.Header) {
			t.Fatalf("%s %s %s %v, net/http reads %s %s %s %v", r.Method, r.RequestURI, r.Host, r.Header,
				want.Method, want.RequestURI, want.Host, want.Header)
		}
	})
}

// TestADeadlineIsRenewed: a connection on which questions come lives on.
func TestADeadlineIsRenewed(t *testing.T) {
	base := (&http.Request{}).WithContext(t.Context())
	c := &conn{Conn: deadlines{}, soft: t.Context(), base: base, handler: tells}
	var all bytes.Buffer
	c.head = io.LimitedReader{R: strings.NewReader(strings.Repeat("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 2))}
	c.read, c.write = bufio.NewReader(&c.head), bufio.NewWriter(&all)
	c.until = time.Now().Add(waitNext - 2*stale)
	if old := c.until; !c.next() || !c.until.After(old) {
		t.Error("the deadline stayed")
	}
	if old := c.until; !c.next() || c.until != old {
		t.Error("each question sets a deadline")
	}
}

type deadlines struct{ net.Conn }

func (deadlines) SetDeadline(time.Time) error { return nil }
