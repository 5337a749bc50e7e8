//go:build unix

package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/tests/yardstick"
)

// A peer is a server that does exactly what a test says, on real connections.
type peer struct {
	t    *testing.T
	ln   net.Listener
	seen atomic.Int64 // connections
	wg   sync.WaitGroup
}

// newPeer runs play for each connection, with its number from 1.
func newPeer(t *testing.T, play func(c *script, n int64)) *peer {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, ln: ln}
	p.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			n := p.seen.Add(1)
			p.wg.Go(func() {
				defer conn.Close()
				play(&script{conn, bufio.NewReader(conn)}, n)
			})
		}
	})
	return p
}

// transport returns a Transport to the peer. Its connections end before the peer does.
func (p *peer) transport() *Transport {
	t := New(config(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", p.ln.Addr().String())
	}))
	t.pool.lastWrite = time.Minute // on a busy machine, a goroutine that has sent its body runs on late
	p.t.Cleanup(func() {
		p.ln.Close()
		t.CloseIdleConnections()
		p.wg.Wait()
	})
	return t
}

func config(dial func(ctx context.Context) (net.Conn, error)) Config {
	return Config{
		Dial: dial, AnswerTimeout: time.Minute, IdleTimeout: time.Minute, MaxIdle: 8, MaxHeader: 64 << 10,
	}
}

// A script is the peer's side of a connection.
type script struct {
	net.Conn
	br *bufio.Reader
}

// request reads one request with its body. Nil: the client is gone.
func (s *script) request() *http.Request {
	r, err := http.ReadRequest(s.br)
	if err != nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

func (s *script) say(text string) { io.WriteString(s, text) }

// rest waits until the client closes the connection, and returns what it has sent before.
func (s *script) rest() string {
	b, _ := io.ReadAll(s.br)
	return string(b)
}

// sayHello answers each request.
func sayHello(c *script, _ int64) {
	for c.request() != nil {
		c.say(hello)
	}
}

const hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

func newRequest(t *testing.T, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://origin.test"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask sends r and reads its answer whole.
func ask(t *testing.T, tr *Transport, r *http.Request) (*http.Response, string) {
	t.Helper()
	if !Carries(r) {
		t.Fatalf("%s %s is not carried", r.Method, r.URL)
	}
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res, string(body)
}

// await waits until something can be read from a connection, without reading it: bytes or its end.
func await(t *testing.T, c *conn) {
	t.Helper()
	yardstick.Await(t, "something to read", func() bool {
		var err error
		c.raw.Control(func(fd uintptr) {
			_, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
		return !errors.Is(err, syscall.EAGAIN)
	})
}

func TestAConnectionIsUsedAgain(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		for r := c.request(); r != nil; r = c.request() {
			body, _ := io.ReadAll(r.Body)
			said := r.Method + " " + r.RequestURI + " " + string(body)
			switch r.URL.Path {
			case "/chunked":
				c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n" +
					fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Sum: 7\r\n\r\n", len(said), said))
			case "/none":
				c.say("HTTP/1.1 204 No Content\r\n\r\n")
			case "/head":
				c.say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			default:
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said), said))
			}
		}
	})
	tr := p.transport()
	for range 3 {
		if _, body := ask(t, tr, newRequest(t, "GET", "/a?b=%2f", nil)); body != "GET /a?b=%2f " {
			t.Errorf("%q", body)
		}
		if _, body := ask(t, tr, newRequest(t, "POST", "/", strings.NewReader("12"))); body != "POST / 12" {
			t.Errorf("%q", body)
		}
		if _, body := ask(t, tr, newRequest(t, "POST", "/", nil)); body != "POST / " {
			t.Errorf("%q", body)
		}
		pieces := io.MultiReader(strings.NewReader("34"), strings.NewReader("5"))
		res, body := ask(t, tr, newRequest(t, "PUT", "/chunked", pieces))
		if body != "PUT /chunked 345" || res.Trailer.Get("X-Sum") != "7" {
			t.Errorf("%q %v", body, res.Trailer)
		}
		ask(t, tr, newRequest(t, "GET", "/none", nil))
		ask(t, tr, newRequest(t, "HEAD", "/head", nil))
	}
	if n := p.seen.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A connection that the server has closed while it was kept costs no request.
func TestAStaleConnectionIsNotUsed(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		c.request()
		c.say(hello)
	})
	tr := p.transport()
	for range 20 {
		if _, body := ask(t, tr, newRequest(t, "POST", "/", strings.NewReader("once"))); body != "hello" {
			t.Fatalf("%q", body)
		}
		await(t, tr.pool.idle[0])
	}
}

// Nothing that the server says unasked is taken for an answer.
func TestUnaskedBytesAnswerNothing(t *testing.T) {
	for name, unasked := range map[string]string{
		"with the answer":  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong",
		"after the answer": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong",
		"one byte":         "H",
		"a line":           "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			idle := make(chan struct{})
			p := newPeer(t, func(c *script, n int64) {
				c.request()
				switch {
				case n > 1:
					c.say(hello)
				case name == "with the answer":
					c.say(hello + unasked)
				default:
					c.say(hello)
					<-idle
					c.say(unasked)
				}
				c.rest()
			})
			tr := p.transport()
			ask(t, tr, newRequest(t, "GET", "/", nil))
			close(idle)
			if name != "with the answer" {
				await(t, tr.pool.idle[0])
			}
			if _, body := ask(t, tr, newRequest(t, "GET", "/", nil)); body != "hello" || p.seen.Load() != 2 {
				t.Errorf("%q on connection %d", body, p.seen.Load())
			}
		})
	}
}

// The server closes a kept connection just when a request comes: only what is safe is sent again.
func TestWhatIsRepeated(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		body   string
		key    string
		says   string // before it closes
		sent   int64
	}{
		{"GET", "GET", "", "", "", 2},
		{"HEAD", "HEAD", "", "", "", 2},
		{"with a key", "POST", "", "7", "", 2},
		{"POST", "POST", "", "", "", 1},
		{"DELETE", "DELETE", "", "", "", 1},
		{"a body", "PUT", "x", "7", "", 1},
		{"after a byte", "GET", "", "", "H", 1},
		{"after a 1xx", "GET", "", "", "HTTP/1.1 103 Early Hints\r\n\r\n", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sent atomic.Int64
			p := newPeer(t, func(s *script, n int64) {
				if s.request() == nil {
					return
				}
				if n > 1 {
					sent.Add(1)
				}
				s.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				if n == 1 && s.request() != nil {
					sent.Add(1)
					s.say(c.says)
					return
				}
				s.rest()
			})
			tr := p.transport()
			ask(t, tr, newRequest(t, "GET", "/", nil))
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			r := newRequest(t, c.method, "/", body)
			if c.key != "" {
				r.Header.Set("Idempotency-Key", c.key)
			}
			res, err := tr.RoundTrip(r)
			if (err == nil) != (c.sent == 2) || sent.Load() != c.sent {
				t.Errorf("sent %d times, want %d: %v %v", sent.Load(), c.sent, res, err)
			}
		})
	}
}

// If a kept connection takes no byte of a request, nothing was sent, and any request without a body
// may be sent again.
func TestWhatWasNotSentIsSentAgain(t *testing.T) {
	reset := make(chan struct{})
	p := newPeer(t, func(s *script, n int64) {
		s.request()
		s.say(hello)
		if n == 1 {
			<-reset
			s.Conn.(*net.TCPConn).SetLinger(0)
			return
		}
		s.rest()
	})
	tr := p.transport()
	dial := tr.cfg.Dial
	tr.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		raw, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &late{TCPConn: raw.(*net.TCPConn), second: func() { close(reset) }}, nil
	}
	ask(t, tr, newRequest(t, "GET", "/", nil))
	if _, body := ask(t, tr, newRequest(t, "POST", "/", nil)); body != "hello" || p.seen.Load() != 2 {
		t.Errorf("%q on connection %d", body, p.seen.Load())
	}
}

// A late connection breaks just when its second request is sent.
type late struct {
	*net.TCPConn
	writes int
	second func()
}

func (l *late) Write(b []byte) (int, error) {
	if l.writes++; l.writes == 2 {
		l.second()
		l.TCPConn.Read(make([]byte, 1)) // it waits for the reset
	}
	return l.TCPConn.Write(b)
}

func TestANewConnectionIsNotRepeated(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) { c.request() })
	if _, err := p.transport().RoundTrip(newRequest(t, "GET", "/", nil)); err == nil || p.seen.Load() != 1 {
		t.Errorf("%v after %d connections", err, p.seen.Load())
	}
}

// Each is an answer that must not end in another one.
func TestConnectionsThatAreNotKept(t *testing.T) {
	for name, answer := range map[string]string{
		"Connection: close":    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
		"until the end":        "HTTP/1.1 200 OK\r\n\r\nhello",
		"HTTP/1.0":             "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"unasked 101":          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"more than its length": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello more",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(c *script, _ int64) {
				c.request()
				c.say(answer)
				if name != "until the end" {
					c.rest()
				}
			})
			tr := p.transport()
			for range 2 {
				res, body := ask(t, tr, newRequest(t, "GET", "/", nil))
				if body != "hello" && res.StatusCode != 101 {
					t.Errorf("%q", body)
				}
			}
			if n := p.seen.Load(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
		})
	}
}

func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct{ says, want string }{
		"nothing":           {"", "EOF"},
		"half a header":     {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", "unexpected EOF"},
		"not HTTP":          {"SSH-2.0-x\r\n\r\n", "malformed"},
		"header too long":   {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", "too long"},
		"1xx without end":   {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 2000), "too long"},
		"two lengths":       {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "Content-Length"},
		"a negative length": {"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", "Content-Length"},
		"no status":         {"HTTP/1.1 099 Low\r\n\r\n" + hello, "malformed"},
		"unknown encoding":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", "transfer encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(s *script, _ int64) {
				s.request()
				s.say(c.says)
			})
			tr := p.transport()
			_, err := tr.RoundTrip(newRequest(t, "GET", "/", nil))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if len(tr.pool.idle) != 0 {
				t.Error("the connection was kept")
			}
		})
	}
}

// Bodies that break off are errors, and never look complete.
func TestBrokenBodies(t *testing.T) {
	for name, answer := range map[string]string{
		"length":   "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
		"chunk":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
		"no end":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"no chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(c *script, _ int64) {
				c.request()
				c.say(answer)
			})
			tr := p.transport()
			res, err := tr.RoundTrip(newRequest(t, "GET", "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(res.Body); err == nil {
				t.Error("no error")
			}
			if _, err := res.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
				t.Errorf("the next read: %v", err)
			}
			if len(tr.pool.idle) != 0 {
				t.Error("the connection was kept")
			}
		})
	}
}

func TestInformationalAnswers(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		c.request()
		c.say("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + hello)
		c.rest()
	})
	var got []string
	r := newRequest(t, "GET", "/", nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got = append(got, fmt.Sprint(code, h.Get("Link")))
			return nil
		},
	}))
	if _, body := ask(t, p.transport(), r); body != "hello" {
		t.Errorf("%q", body)
	}
	if want := []string{"100", "103</a>"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAnAnswerThatDoesNotCome(t *testing.T) {
	for _, says := range []string{"", "HTT", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nCont", "HTTP/1.1 103 Early Hints\r\n\r\n"} {
		p := newPeer(t, func(c *script, _ int64) {
			c.say(says)
			c.rest()
		})
		for _, body := range []string{"", "body"} {
			tr := p.transport()
			tr.cfg.AnswerTimeout = 20 * time.Millisecond
			var src io.Reader
			if body != "" {
				src = strings.NewReader(body)
			}
			if _, err := tr.RoundTrip(newRequest(t, "POST", "/", src)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q, %q: %v", says, body, err)
			}
		}
	}
}

// The head of a request does not wait for its body: a server closes a kept connection that stays
// silent, and may answer without the body.
func TestTheHeadIsSentAtOnce(t *testing.T) {
	for _, length := range []int64{4, -1} {
		come := make(chan struct{})
		p := newPeer(t, func(c *script, _ int64) {
			r, err := http.ReadRequest(c.br)
			close(come)
			if err == nil {
				io.Copy(io.Discard, r.Body)
				c.say(hello)
			}
			c.rest()
		})
		pr, pw := io.Pipe()
		go func() {
			<-come
			io.WriteString(pw, "body")
			pw.Close()
		}()
		r := newRequest(t, "POST", "/", pr)
		r.ContentLength = length
		if _, body := ask(t, p.transport(), r); body != "hello" {
			t.Errorf("%q", body)
		}
	}
}

// The time for an answer is not one for its body, nor for the request's.
func TestBodiesTakeAsLongAsTheyTake(t *testing.T) {
	goOn, sent := make(chan struct{}), make(chan struct{})
	p := newPeer(t, func(c *script, _ int64) {
		for r := c.request(); r != nil; r = c.request() {
			sent <- struct{}{}
			<-goOn
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
			<-goOn
			c.say("llo")
		}
	})
	tr := p.transport()
	dial := tr.cfg.Dial
	var kept *clock
	tr.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err == nil {
			kept = &clock{TCPConn: conn.(*net.TCPConn)}
		}
		return kept, err
	}
	for _, withBody := range []bool{true, false} {
		var src io.Reader
		pr, pw := io.Pipe()
		if withBody {
			src = pr
		}
		go func() {
			if withBody {
				io.WriteString(pw, "a part")
				if kept.runs() {
					t.Error("the time runs before the request has been sent")
				}
				pw.Close()
			}
			<-sent
			yardstick.Await(t, "the time for the answer", kept.runs)
			goOn <- struct{}{}
		}()
		res, err := tr.RoundTrip(newRequest(t, "POST", "/", src))
		if err != nil {
			t.Fatal(err)
		}
		if kept.runs() {
			t.Error("the time runs after the header of the answer")
		}
		goOn <- struct{}{}
		if got, err := io.ReadAll(res.Body); string(got) != "hello" {
			t.Errorf("%q %v", got, err)
		}
	}
}

// A clock records the time that is set for reading.
type clock struct {
	*net.TCPConn
	mu    sync.Mutex
	until time.Time
}

func (c *clock) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = at
	return c.TCPConn.SetReadDeadline(at)
}

func (c *clock) runs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.until.IsZero()
}

// An answer before the end of the request: it passes, and the connection is not used again.
func TestAnEarlyAnswer(t *testing.T) {
	over := make(chan struct{})
	p := newPeer(t, func(c *script, n int64) {
		if n > 1 {
			c.request()
			c.say(hello)
			c.rest()
			return
		}
		http.ReadRequest(c.br) // the header only
		c.say("HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-over
	})
	tr := p.transport()
	tr.pool.lastWrite = time.Millisecond // the body never ends
	pr, pw := io.Pipe()
	r := newRequest(t, "POST", "/", pr)
	res, body := ask(t, tr, r)
	if res.StatusCode != 413 || body != "no" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	close(over)
	if _, body := ask(t, tr, newRequest(t, "GET", "/", nil)); body != "hello" || p.seen.Load() != 2 {
		t.Errorf("%q on connection %d", body, p.seen.Load())
	}
	pw.CloseWithError(io.ErrClosedPipe)
}

// Both sides speak at once, each piece as it comes.
func TestBodiesBothWays(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		r, err := http.ReadRequest(c.br)
		if err != nil {
			return
		}
		c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		b := make([]byte, 16)
		for {
			n, err := r.Body.Read(b)
			if n > 0 {
				c.say(fmt.Sprintf("%x\r\n%s\r\n", n, b[:n]))
			}
			if err != nil {
				c.say("0\r\n\r\n")
				break
			}
		}
		c.rest()
	})
	tr := p.transport()
	pr, pw := io.Pipe()
	res, err := tr.RoundTrip(newRequest(t, "POST", "/", pr))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		said := fmt.Sprint("piece ", i)
		io.WriteString(pw, said)
		got := make([]byte, len(said))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != said {
			t.Fatalf("%q %v", got, err)
		}
	}
	pw.Close()
	if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
		t.Errorf("%q %v", rest, err)
	}
	if len(tr.pool.idle) != 1 {
		t.Error("the connection was not kept")
	}
}

// What a client's body ends with is what RoundTrip returns, and the server does not see a complete
// request.
func TestABrokenRequest(t *testing.T) {
	gone := errors.New("the client is gone")
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		want   error
	}{
		"broken":         {io.MultiReader(strings.NewReader("12"), broken{gone}), 9, gone},
		"broken chunks":  {io.MultiReader(strings.NewReader("12"), broken{gone}), -1, gone},
		"too short":      {strings.NewReader("12"), 9, errShort},
		"broken at once": {broken{gone}, 9, gone},
	} {
		t.Run(name, func(t *testing.T) {
			whole := make(chan bool, 1)
			p := newPeer(t, func(s *script, _ int64) {
				whole <- s.request() != nil
				s.say(hello)
			})
			r := newRequest(t, "POST", "/", c.body)
			r.ContentLength = c.length
			if _, err := p.transport().RoundTrip(r); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if <-whole {
				t.Error("the request looked complete")
			}
		})
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func TestABodyIsNotLongerThanItsLength(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		for r := c.request(); r != nil; r = c.request() {
			b, _ := io.ReadAll(r.Body)
			c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(b), b))
		}
	})
	tr := p.transport()
	for range 2 {
		r := newRequest(t, "POST", "/", strings.NewReader("12GET /smuggled HTTP/1.1\r\n\r\n"))
		r.ContentLength = 2
		if _, body := ask(t, tr, r); body != "12" {
			t.Errorf("%q", body)
		}
	}
	if p.seen.Load() != 1 {
		t.Error("the connection was not kept")
	}
}

// A client may announce as much as an int64 holds.
func TestTheLongestBody(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		if r, err := http.ReadRequest(c.br); err != nil || r.ContentLength != math.MaxInt64 {
			t.Errorf("%v %v", r, err)
		}
		c.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
		c.rest()
	})
	pr, pw := io.Pipe()
	defer pw.Close()
	go pw.Write([]byte("x"))
	r := newRequest(t, "POST", "/", pr)
	r.ContentLength = math.MaxInt64
	tr := p.transport()
	tr.pool.lastWrite = time.Millisecond // the body never ends
	if res, _ := ask(t, tr, r); res.StatusCode != 413 {
		t.Error(res.Status)
	}
}

// A context that ends takes its connection along, wherever its request is.
func TestCanceled(t *testing.T) {
	cause := errors.New("the visitor left")
	for name, says := range map[string]string{
		"before the answer": "",
		"in the header":     "HTTP/1.1 200 OK\r\nCon",
		"in the body":       "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan string, 1)
			p := newPeer(t, func(c *script, _ int64) {
				c.request()
				c.say(says)
				if name != "in the body" {
					cancel(cause)
				}
				ended <- c.rest()
			})
			tr := p.transport()
			res, err := tr.RoundTrip(newRequest(t, "GET", "/", nil).WithContext(ctx))
			if name == "in the body" {
				if err != nil {
					t.Fatal(err)
				}
				io.ReadFull(res.Body, make([]byte, 5))
				cancel(cause)
				_, err = io.ReadAll(res.Body)
			}
			if !errors.Is(err, cause) {
				t.Errorf("%v, want %v", err, cause)
			}
			<-ended
			if len(tr.pool.idle) != 0 {
				t.Error("the connection was kept")
			}
		})
	}
}

func TestCanceledWhileSending(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	p := newPeer(t, func(c *script, _ int64) {
		http.ReadRequest(c.br)
		cancel()
		ended <- c.rest()
	})
	pr, pw := io.Pipe()
	defer pw.Close()
	if _, err := p.transport().RoundTrip(newRequest(t, "POST", "/", pr).WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
}

// Close in the middle of an answer ends the connection.
func TestClosedInTheMiddle(t *testing.T) {
	ended := make(chan string, 1)
	p := newPeer(t, func(c *script, _ int64) {
		c.request()
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		ended <- c.rest()
	})
	tr := p.transport()
	res, err := tr.RoundTrip(newRequest(t, "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	<-ended
	if _, err := res.Body.Read(make([]byte, 1)); err != errClosed {
		t.Error(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Error(err)
	}
}

// An old body reads nothing of the answers that come after it.
func TestAnOldBody(t *testing.T) {
	p := newPeer(t, sayHello)
	tr := p.transport()
	old, _ := ask(t, tr, newRequest(t, "GET", "/", nil))
	res, err := tr.RoundTrip(newRequest(t, "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := old.Body.Read(make([]byte, 9)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	old.Body.Close()
	if b, err := io.ReadAll(res.Body); string(b) != "hello" || p.seen.Load() != 1 {
		t.Errorf("%q %v on connection %d", b, err, p.seen.Load())
	}
}

// Half an hour of visitors in a second: no answer may reach another request, whatever breaks.
func TestNoAnswerIsMixedUp(t *testing.T) {
	p := newPeer(t, func(c *script, n int64) {
		for i := int64(1); ; i++ {
			r := c.request()
			if r == nil {
				return
			}
			b, _ := io.ReadAll(r.Body)
			said := r.RequestURI + string(b)
			switch (n*7 + i) % 13 {
			case 3: // the connection ends without an answer
				return
			case 5: // in the middle of one
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said)+5, said))
				return
			case 7: // after one, announced
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(said), said))
				return
			case 8: // after one, unannounced
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said), said))
				return
			case 9: // with an answer to nobody; a later one cannot be told from the next answer
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said), said) +
					"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
			case 11:
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(said), said))
			default:
				c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(said), said))
			}
		}
	})
	tr := p.transport()
	var wg sync.WaitGroup
	var whole, failed atomic.Int64
	for v := range 16 {
		wg.Go(func() {
			for i := range 100 {
				path, body := fmt.Sprintf("/%d/%d/", v, i), ""
				method, src := "GET", io.Reader(nil)
				if i%3 == 0 {
					method, body = "POST", fmt.Sprint("body ", v, i)
					src = strings.NewReader(body)
				}
				ctx, cancel := context.WithCancel(t.Context())
				r, err := http.NewRequestWithContext(ctx, method, "http://origin.test"+path, src)
				if err != nil {
					t.Error(err)
				}
				if i%17 == 0 {
					go cancel()
				}
				res, err := tr.RoundTrip(r)
				if err != nil {
					failed.Add(1)
					cancel()
					continue
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				cancel()
				if err != nil {
					failed.Add(1)
				} else if whole.Add(1); string(got) != path+body {
					t.Errorf("%q, want %q", got, path+body)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d answers, %d failures, %d connections", whole.Load(), failed.Load(), p.seen.Load())
	if whole.Load() == 0 || failed.Load() == 0 {
		t.Error("both must happen")
	}
}
