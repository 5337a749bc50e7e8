package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A stay takes the place of the Room: it can end the requests that it has admitted.
type stay struct {
	began chan context.CancelCauseFunc // one for each request
	ended chan any                     // what the handler panicked with, or nil
}

func newStay() *stay {
	return &stay{began: make(chan context.CancelCauseFunc, 8), ended: make(chan any, 8)}
}

func (s *stay) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		until, stop := context.WithTimeout(r.Context(), time.Hour)
		defer stop()
		ctx, cancel := context.WithCancelCause(until)
		defer cancel(nil)
		defer func() {
			p := recover()
			s.ended <- p
			if p != nil {
				panic(p)
			}
		}()
		s.began <- cancel
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// echoOrigin accepts an upgrade and sends back what it receives, until it closes gone.
func echoOrigin(t testing.TB, gone chan struct{}) *url.URL {
	return newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(w, "no upgrade", http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer close(gone)
		defer conn.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: websocket\r\nHeadgate-Command: revoke\r\n\r\n")
		rw.Flush()
		io.Copy(conn, rw)
	})
}

// upgrade opens a WebSocket and returns the connection after the handshake.
func upgrade(t testing.TB, gate string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", parseURL(t, gate).Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"+
		"Sec-WebSocket-Version: 13\r\n\r\n")
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Headgate-Command") != "" {
		t.Fatalf("handshake: %s %v", res.Status, res.Header)
	}
	return conn, in
}

func TestWebSocket(t *testing.T) {
	gone := make(chan struct{})
	s := newStay()
	_, gate := newGate(t, Config{Origin: echoOrigin(t, gone)}, s.wrap)
	conn, in := upgrade(t, gate)
	for _, msg := range []string{"\x81\x05hello", "\x00\xff\n", strings.Repeat("x", 1<<20)} {
		go io.WriteString(conn, msg)
		got := make([]byte, len(msg))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != msg {
			t.Fatalf("echo of %d bytes: %v", len(msg), err)
		}
	}
	conn.Close()
	wait(t, "the origin to see the close", gone)
	wait(t, "the handler", s.ended)
}

func TestEndOfStayClosesWebSocket(t *testing.T) {
	gone := make(chan struct{})
	s := newStay()
	_, gate := newGate(t, Config{Origin: echoOrigin(t, gone)}, s.wrap)
	conn, in := upgrade(t, gate)
	io.WriteString(conn, "x")
	if b, err := in.ReadByte(); b != 'x' {
		t.Fatal(err)
	}
	wait(t, "the request", s.began)(ErrEnded)
	if _, err := in.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the client's connection is still open: %v", err)
	}
	wait(t, "the origin's connection to close", gone)
	if p := wait(t, "the handler", s.ended); p != nil {
		t.Errorf("panic %v", p)
	}
}

// flood writes until the reader has stopped for a while, and then signals stuck.
func flood(conn net.Conn, stuck chan<- struct{}) {
	block := make([]byte, 1<<20)
	for {
		conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := conn.Write(block); err != nil {
			close(stuck)
			return
		}
	}
}

// The attack: a client requests much data, and then neither reads nor writes. All buffers fill and
// the proxy blocks in a write, where it does not check the context.
func TestEndOfStayFreesStalledClient(t *testing.T) {
	for name, head := range map[string]string{
		"websocket": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n" +
			"Upgrade: websocket\r\n\r\n",
		"download": "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			stuck := make(chan struct{})
			origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, head)
				flood(conn, stuck)
				// Kept open, so that only the end of the session can free the proxy.
				conn.SetReadDeadline(time.Now().Add(patience))
				io.Copy(io.Discard, conn)
			})
			s := newStay()
			_, gate := newGate(t, Config{Origin: origin}, s.wrap)
			conn, err := net.Dial("tcp", parseURL(t, gate).Host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"+
				"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			wait(t, "the buffers to fill", stuck)
			wait(t, "the request", s.began)(ErrEnded)
			wait(t, "the handler", s.ended)
		})
	}
}

func TestEndOfStayDuringAnswer(t *testing.T) {
	gone := make(chan struct{})
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	})
	s := newStay()
	p, gate := newGate(t, Config{Origin: origin}, s.wrap)
	res, err := newClient(t).Get(gate)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	wait(t, "the request", s.began)(ErrEnded)
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("read %q as if it were complete", body)
	}
	wait(t, "the origin's request to end", gone)
	if p := wait(t, "the handler", s.ended); p != http.ErrAbortHandler {
		t.Errorf("panic %v, want http.ErrAbortHandler for the server", p)
	}
	if !p.Healthy() {
		t.Error("the end of a stay marked the origin down")
	}
}

// onError records the error of OnError and answers with only the status.
func onError(errs chan<- error) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, _ *http.Request, err error) {
		errs <- err
		e, _ := errors.AsType[*Error](err)
		w.WriteHeader(e.Status)
	}
}

func TestEndOfStayBeforeAnswer(t *testing.T) {
	for name, cause := range map[string]error{
		"ended": ErrEnded, "wrapped": errors.Join(errors.New("revoked"), ErrEnded),
		"another cause": context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 1)
			origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
			})
			s, errs := newStay(), make(chan error, 1)
			p, gate := newGate(t, Config{Origin: origin, OnError: onError(errs)}, s.wrap)
			go func() {
				<-asked
				(<-s.began)(cause)
			}()
			res, _ := get(t, gate)
			err := wait(t, "OnError", errs)
			if res.StatusCode != 503 || !errors.Is(err, ErrEnded) || !errors.Is(err, cause) {
				t.Errorf("status %d, error %v", res.StatusCode, err)
			}
			if !p.Healthy() {
				t.Error("the end of a stay marked the origin down")
			}
		})
	}
}

func TestClientGone(t *testing.T) {
	asked, gone := make(chan struct{}), make(chan struct{})
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
		close(gone)
	})
	s, errs := newStay(), make(chan error, 1)
	p, gate := newGate(t, Config{Origin: origin, OnError: onError(errs)}, s.wrap)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := newClient(t).Do(request(t, "GET", gate, nil).WithContext(ctx)); err == nil {
		t.Fatal("no error")
	}
	wait(t, "the origin's request to end", gone)
	wait(t, "the handler", s.ended)
	if len(errs) != 0 || !p.Healthy() {
		t.Errorf("a client that left: OnError %d times, healthy %v", len(errs), p.Healthy())
	}
}

func TestClientBreaksUpload(t *testing.T) {
	began := make(chan struct{})
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		close(began)
		io.Copy(io.Discard, r.Body)
	})
	s, errs := newStay(), make(chan error, 1)
	p, gate := newGate(t, Config{Origin: origin, OnError: onError(errs)}, s.wrap)
	conn, err := net.Dial("tcp", parseURL(t, gate).Host)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"+
		strings.Repeat("x", 50000))
	wait(t, "the origin", began)
	conn.Close()
	wait(t, "the handler", s.ended)
	if len(errs) != 0 || !p.Healthy() {
		t.Errorf("a broken upload: OnError %d times, healthy %v", len(errs), p.Healthy())
	}
}

func TestUploadFaultsAreTheClients(t *testing.T) {
	origin := newOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	})
	for _, tt := range []struct {
		name string
		want int
		body func(w http.ResponseWriter, r *http.Request)
	}{
		{"too large", 413, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1000)
		}},
		// Only over HTTP/2: over HTTP/1 net/http treats the connection as dead.
		{"too slow", 408, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, gate := newGate(t, Config{Origin: origin}, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tt.body(w, r)
					next.ServeHTTP(w, r)
				})
			})
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetUnencryptedHTTP2(true)
			defer tr.CloseIdleConnections()
			pr, pw := io.Pipe()
			defer pw.Close()
			go io.WriteString(pw, strings.Repeat("x", 5000)) // without end
			res, err := tr.RoundTrip(request(t, "POST", gate, pr))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != tt.want || !p.Healthy() {
				t.Errorf("status %d, want %d; healthy %v", res.StatusCode, tt.want, p.Healthy())
			}
		})
	}
}

// A deadlineWriter counts the attempts to stop its writes.
type deadlineWriter struct {
	silentWriter
	deadlines atomic.Int32
}

func (w *deadlineWriter) SetWriteDeadline(time.Time) error {
	w.deadlines.Add(1)
	return nil
}

// After a handler has returned, the server may give its writer to the next request: a late end of
// the session must not touch it.
func TestLateEndOfStayIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Config{Origin: parseURL(t, "http://origin.invalid")})
		if err != nil {
			t.Fatal(err)
		}
		p.carrier = instant{}
		until, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		ctx, cancel := context.WithCancelCause(until)
		w := &deadlineWriter{silentWriter: silentWriter{h: make(http.Header)}}
		p.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		cancel(ErrEnded)
		synctest.Wait()
		if n := w.deadlines.Load(); n != 0 {
			t.Errorf("%d deadlines on a writer that was given back", n)
		}
	})
}

// If the session ends after the last byte was written, while the server still buffers some of it,
// the connection is aborted: the answer must not look complete.
func TestEndOfStayRacesWithEndOfAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		ctx, cancel := context.WithCancelCause(
			context.WithValue(until, http.ServerContextKey, new(http.Server)))
		p, err := New(Config{
			Origin: parseURL(t, "http://origin.invalid"),
			OnResponse: func(res *http.Response) error {
				res.Body = io.NopCloser(readerFunc(func([]byte) (int, error) {
					cancel(ErrEnded)
					synctest.Wait()
					return 0, io.EOF
				}))
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.carrier = instant{}
		w := &deadlineWriter{silentWriter: silentWriter{h: make(http.Header)}}
		defer func() {
			if p := recover(); p != http.ErrAbortHandler || w.deadlines.Load() != 1 {
				t.Errorf("panic %v, %d deadlines", p, w.deadlines.Load())
			}
		}()
		p.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	})
}

// silentWriter is a client that accepts everything.
type silentWriter struct{ h http.Header }

func (w *silentWriter) Header() http.Header         { return w.h }
func (w *silentWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *silentWriter) WriteHeader(int)             {}

// instant answers without a network.
type instant struct{}

func (instant) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Request: r, ContentLength: 2,
		Header: http.Header{"Content-Type": {"text/plain"}},
		Body:   io.NopCloser(strings.NewReader("ok")),
	}, nil
}

func (instant) CloseIdleConnections() {}
