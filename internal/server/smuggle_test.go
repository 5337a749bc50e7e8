package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A recorder is an origin that keeps the bytes of each request that it reads.
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

// of returns the requests for a path, or for what is below it.
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

// record starts an origin that reads on after each request.
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

// oneMessage says what is wrong with the bytes of one request, "" if nothing.
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

// What headgate takes for one request must be one request to the origin, byte by byte: a second one
// inside it would be seen by no room. /hidden is in a room that is shut.
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
