package guard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

var usual = Pace{Body: 30 * time.Second, Rate: 1024, Write: time.Minute}

// pipes is a listener of connections within a bubble.
type pipes struct {
	in   chan net.Conn
	done chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// serve runs net/http's own server with a guarded handler in a bubble and returns a function that
// dials it.
func serve(t *testing.T, h http.HandlerFunc) (dial func() net.Conn) {
	return serveUnguarded(t, Handler(h, func() Pace { return usual }))
}

func serveUnguarded(t *testing.T, h http.Handler) (dial func() net.Conn) {
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: protocols,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	done := make(chan struct{})
	go func() { s.Serve(p); close(done) }()
	t.Cleanup(func() { s.Close(); <-done; synctest.Wait() })
	return func() net.Conn {
		ours, theirs := net.Pipe()
		p.in <- theirs
		t.Cleanup(func() { ours.Close() })
		return ours
	}
}

// An upload is the data that a client sends, as pairs of a pause and a number of bytes.
type upload []struct {
	pause time.Duration
	bytes int
}

func repeat(n int, pause time.Duration, bytes int) (u upload) {
	for range n {
		u = append(u, struct {
			pause time.Duration
			bytes int
		}{pause, bytes})
	}
	return u
}

// A client that sends a byte now and then must not occupy a connection to the origin, but the
// upload of a slow phone must succeed.
func TestSlowBodies(t *testing.T) {
	for _, x := range []struct {
		what string
		send upload
		ends bool
	}{
		{"a byte every 29 s", repeat(20, 29*time.Second, 1), true},
		{"a byte a second", repeat(60, time.Second, 1), true},
		{"fast, then a byte every 29 s", append(repeat(1, 0, 1<<20), repeat(20, 29*time.Second, 1)...), true},
		{"silence", repeat(1, 31*time.Second, 1), true},
		{"just too slow", repeat(400, time.Second, 900), true},
		{"a slow phone", repeat(600, time.Second, 1100), false},
		{"a phone in tunnels", repeat(40, 25*time.Second, 40<<10), false},
		{"at once", repeat(3, 0, 1<<20), false},
	} {
		for _, two := range []bool{false, true} {
			name := x.what + " by HTTP/1.1"
			if two {
				name = x.what + " by HTTP/2"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := make(chan error, 1)
					dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
						_, err := io.Copy(io.Discard, r.Body)
						got <- err
					})
					send(t, dial, two, x.send)
					err := <-got
					if (err != nil) != x.ends || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the body ends with %v", err)
					}
				})
			})
		}
	}
}

// If the origin reads slowly, the client must not lose its upload or its answer.
func TestASlowReaderIsNotTheClientsFault(t *testing.T) {
	for _, two := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan error, 2)
			dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
				buf := make([]byte, 8)
				for range 5 {
					time.Sleep(10 * time.Minute)
					_, err := io.ReadFull(r.Body, buf)
					if err != nil {
						got <- err
						return
					}
				}
				time.Sleep(10 * time.Minute)
				_, err := io.WriteString(w, "late")
				got <- errors.Join(err, r.Context().Err())
			})
			send(t, dial, two, repeat(1, 0, 40))
			if err := <-got; err != nil {
				t.Errorf("HTTP/2 %v: %v", two, err)
			}
		})
	}
}

// A client that waits for "100 Continue" before it sends its body must at once get an answer that
// needs no body, without a 100. With EndBody this must also hold for a server without Handler.
func TestAClientThatWaitsToSendItsBody(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, stop := EndBody(w, r, time.Minute, func() bool { return false })
		defer stop()
		w.WriteHeader(503)
	})
	for _, serve := range []func(*testing.T) func() net.Conn{
		func(t *testing.T) func() net.Conn { return serve(t, h) },
		func(t *testing.T) func() net.Conn { return serveUnguarded(t, h) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, began := serve(t)(), time.Now()
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 50\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || res.StatusCode != 503 || !res.Close || time.Since(began) > 0 {
				t.Errorf("%+v, %v, after %v", res, err, time.Since(began))
			}
		})
	}
}

// send sends an upload and reads the answer.
func send(t *testing.T, dial func() net.Conn, two bool, u upload) {
	body, out := io.Pipe()
	var all sync.WaitGroup
	all.Go(func() {
		for _, x := range u {
			time.Sleep(x.pause)
			if _, err := out.Write(make([]byte, x.bytes)); err != nil {
				return
			}
		}
		out.Close()
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!two)
	protocols.SetUnencryptedHTTP2(two)
	tr := &http.Transport{Protocols: protocols,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/", body)
	if err != nil {
		t.Fatal(err)
	}
	all.Go(func() {
		if res, err := tr.RoundTrip(r); err == nil {
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		body.Close()
	})
	t.Cleanup(func() { all.Wait(); tr.CloseIdleConnections() })
}

// A client that stops reading its answer must not occupy a handler and its request to the origin.
func TestAnAnswerThatNobodyTakes(t *testing.T) {
	t.Run("HTTP/1.1", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan error, 1)
			dial := serve(t, func(w http.ResponseWriter, r *http.Request) { got <- writeMuch(w) })
			io.WriteString(dial(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the answer ends with %v", err)
			}
		})
	})
	t.Run("HTTP/2, a window that stays shut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan error, 1)
			dial := serve(t, func(w http.ResponseWriter, r *http.Request) { got <- writeMuch(w) })
			c := dial()
			go io.Copy(io.Discard, c)
			shutWindow(t, c)
			if err := <-got; err == nil {
				t.Error("it was written")
			}
		})
	})
	t.Run("HTTP/2, less than a buffer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dial := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "small") })
			c := dial()
			reset := make(chan bool, 1)
			go func() {
				for f := http2.NewFramer(io.Discard, c); ; {
					fr, err := f.ReadFrame()
					if _, ok := fr.(*http2.RSTStreamFrame); ok || err != nil {
						reset <- ok
						return
					}
				}
			}()
			shutWindow(t, c)
			if !<-reset {
				t.Error("the stream is not reset")
			}
		})
	})
}

func writeMuch(w io.Writer) error {
	for range 1000 {
		if _, err := w.Write(make([]byte, 32<<10)); err != nil {
			return err
		}
	}
	return nil
}

// shutWindow requests a page, and reads nothing of it.
func shutWindow(t *testing.T, c net.Conn) {
	t.Helper()
	w := bufio.NewWriter(c)
	io.WriteString(w, http2.ClientPreface)
	f := http2.NewFramer(w, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	for _, name := range []string{":method GET", ":scheme http", ":authority x", ":path /"} {
		name, value, _ := strings.Cut(name, " ")
		e.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true,
	})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
}

// Events that are an hour apart, and an answer that takes long to begin, are not slow clients.
func TestALongSilenceOfTheHandler(t *testing.T) {
	for _, two := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan error, 1)
			dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
				var err error
				for range 3 {
					time.Sleep(time.Hour)
					_, werr := io.WriteString(w, strings.Repeat("x", 9000))
					err = errors.Join(err, werr, http.NewResponseController(w).Flush(), r.Context().Err())
				}
				time.Sleep(time.Hour)
				got <- errors.Join(err, r.Context().Err())
			})
			send(t, dial, two, repeat(1, 0, 1))
			if err := <-got; err != nil {
				t.Errorf("HTTP/2 %v: %v", two, err)
			}
		})
	}
}

// The body has come whole, and the origin works on its answer for longer than a body may pause.
func TestALongAnswerToAWholeBody(t *testing.T) {
	for _, two := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			got := make(chan error, 1)
			dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				if n, again := r.Body.Read(make([]byte, 1)); n != 0 || again != io.EOF {
					err = errors.Join(err, again)
				}
				time.Sleep(time.Hour)
				got <- errors.Join(err, r.Context().Err())
			})
			send(t, dial, two, repeat(1, 0, 40))
			if err := <-got; err != nil {
				t.Errorf("HTTP/2 %v: %v", two, err)
			}
		})
	}
}

// Before net/http sends an answer, it reads the rest of the body. A client that does not send it
// must not occupy its connection for ever, however long the answer is.
func TestBodiesThatNobodyReads(t *testing.T) {
	for _, size := range []int{0, 10, 100_000} {
		for _, head := range []string{"Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: never ends\r\n"} {
			synctest.Test(t, func(t *testing.T) {
				c, began := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Write(make([]byte, size))
				})(), time.Now()
				go io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+head)
				io.Copy(io.Discard, c)
				// Twice: before the first write, and after the last.
				if took := time.Since(began); took > 2*usual.Body {
					t.Errorf("%d bytes of answer, %q: the connection ends after %v", size, head, took)
				}
			})
		}
	}
}

// When the handler itself ends an answer, a later write does not undo that.
func TestACutStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		dial := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
			got <- writeMuch(w)
		})
		c := dial()
		go io.Copy(io.Discard, c)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if <-got == nil {
			t.Error("written")
		}
	})
}

func TestSubscribersAreCounted(t *testing.T) {
	var log bytes.Buffer
	c := &Connections{Max: func(a netip.Addr) int { return 2 },
		Log: slog.New(slog.NewTextHandler(&log, nil))}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	both := c.Listen(l)
	kept := make(chan net.Conn, 9)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			x, err := both.Accept()
			if err != nil {
				return
			}
			kept <- x
		}
	}()
	dial := func() net.Conn {
		x, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { x.Close() })
		return x
	}
	refused := func() bool { // possibly before Dial returns
		x, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			defer x.Close()
			_, err = x.Read(make([]byte, 1))
		}
		return err != nil
	}
	dial()
	dial()
	first := <-kept
	<-kept
	for range 3 {
		if !refused() {
			t.Error("the third is kept")
		}
	}
	if c.Refused() != 3 {
		t.Errorf("%d are refused", c.Refused())
	}
	first.Close()
	first.Close() // counts once
	dial()
	<-kept
	if !refused() {
		t.Error("one that was closed twice counts twice")
	}
	if _, ok := first.(interface{ CloseWrite() error }); !ok {
		t.Error("net/http looks for CloseWrite")
	}
	l.Close()
	<-done
	if got := strings.Count(log.String(), "connections refused"); got != 1 {
		t.Errorf("%d lines in the log", got)
	}
}
