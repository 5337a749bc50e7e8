//go:build edges

package edges

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const (
	uploadSize   = 20 << 20
	downloadSize = 1 << 30
)

// A stream repeats random bytes. To read from it and to compare with it costs less than a proxy.
type stream struct {
	twice []byte // the bytes, two times
	at    int
}

// newStream returns a stream whose period is a multiple of no buffer.
func newStream() *stream {
	once := make([]byte, 1<<20-3)
	rand.NewChaCha8([32]byte{1}).Read(once)
	return &stream{twice: append(once, once...)}
}

// next returns up to n bytes.
func (s *stream) next(n int) []byte {
	p := s.twice[s.at:][:min(n, len(s.twice)/2)]
	s.at = (s.at + len(p)) % (len(s.twice) / 2)
	return p
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) { return copy(p, s.next(len(p))), nil }

// Write fails when p is not what comes next.
func (s *stream) Write(p []byte) (int, error) {
	for left := p; len(left) > 0; {
		want := s.next(len(left))
		if !bytes.Equal(left[:len(want)], want) {
			return 0, errors.New("other bytes")
		}
		left = left[len(want):]
	}
	return len(p), nil
}

// randomBytes are the first n bytes of a stream.
func randomBytes(n int64) io.Reader { return io.LimitReader(newStream(), n) }

// whole returns how many bytes of a stream r has, and what came instead.
func whole(r io.Reader) string {
	n, err := io.Copy(newStream(), r)
	return fmt.Sprint(n, err)
}

// serveBodies is an origin with an upload, a download, events and a WebSocket that echoes lines.
// The second event comes when release is closed.
func serveBodies(t *testing.T, release chan struct{}) string {
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/upload":
			fmt.Fprint(w, whole(r.Body))
		case "/download":
			w.Header().Set("Content-Length", fmt.Sprint(downloadSize))
			io.Copy(w, randomBytes(downloadSize))
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			http.NewResponseController(w).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
			fmt.Fprint(w, "data: 2\n\n")
		case "/socket":
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
				"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n") // RFC 6455, section 1.3
			io.Copy(c, rw)
		}
	}))
	t.Cleanup(o.Close)
	return strings.TrimPrefix(o.URL, "http://")
}

// TestBodies: what visitors inside send and get passes whole and at once.
func TestBodies(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		release := make(chan struct{})
		w := e.open(t, serveBodies(t, release), "total_active_users: 10, new_users_per_minute: 10")
		b := browser{w: w}
		b.ask(t, "GET", "/")
		send := func(method, path string, body io.Reader, length int64) *http.Response {
			t.Helper()
			r, err := http.NewRequest(method, "http://"+w.addr+path, body)
			if err != nil {
				t.Fatal(err)
			}
			r.Host, r.ContentLength = "shop.example", length
			r.Header.Set("Cookie", b.jar.String())
			if method == "PUT" { // as curl, of a large body
				r.Header.Set("Expect", "100-continue")
			}
			res, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { res.Body.Close() })
			return res
		}
		for _, method := range []string{"POST", "PUT"} {
			got, err := io.ReadAll(send(method, "/upload", randomBytes(uploadSize), uploadSize).Body)
			if string(got) != fmt.Sprint(uploadSize, nil) {
				t.Errorf("upload by %s: %s, %v", method, got, err)
			}
		}
		if got := whole(send("GET", "/download", nil, 0).Body); got != fmt.Sprint(downloadSize, nil) {
			t.Errorf("download: %s", got)
		}
		events := bufio.NewReader(send("GET", "/events", nil, 0).Body)
		if line, err := events.ReadString('\n'); line != "data: 1\n" { // before the second is sent
			t.Errorf("events: %q, %v", line, err)
		}
		close(release)
		if rest, err := io.ReadAll(events); !strings.Contains(string(rest), "data: 2") {
			t.Errorf("events: %q, %v", rest, err)
		}
		c, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /socket HTTP/1.1\r\nHost: shop.example\r\nCookie: %s\r\nConnection: Upgrade\r\n"+
			"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", b.jar.String())
		socket := bufio.NewReader(c)
		res, err := http.ReadResponse(socket, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("socket: %v, %v", res, err)
		}
		fmt.Fprint(c, "hello\n")
		if line, err := socket.ReadString('\n'); line != "hello\n" {
			t.Errorf("socket: %q, %v", line, err)
		}
	})
}

// TestHeadgateIsDown: without headgate nobody gets in. When it is back, visitors are still inside.
func TestHeadgateIsDown(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.open(t, o.addr(), "total_active_users: 1, new_users_per_minute: 10, session_duration: 1h")
		inside := browser{w: w}
		inside.ask(t, "GET", "/")
		o.take()
		w.headgate.Stop()
		for _, b := range []*browser{{w: w}, &inside} {
			if res, _ := b.ask(t, "GET", "/checkout"); res.StatusCode < 500 || len(o.take()) > 0 {
				t.Errorf("without headgate: %d", res.StatusCode)
			}
		}
		w.startHeadgate(t)
		if res, _ := inside.ask(t, "GET", "/checkout"); res.StatusCode != http.StatusOK {
			t.Errorf("inside: %d", res.StatusCode)
		}
		other := browser{w: w}
		res, body := other.ask(t, "GET", "/checkout")
		if res.StatusCode != e.waits() || !strings.Contains(body, "<html") ||
			len(res.Header["Set-Cookie"]) == 0 { // also where a proxy takes a server for dead for a time
			t.Errorf("a newcomer: %d %.80q", res.StatusCode, body)
		}
	})
}
