//go:build real

package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/loopback"
)

func TestServerOriginDownKeepsPlaces(t *testing.T) {
	t.Run("refuses", func(t *testing.T) { originDown(t, func(string) (end func()) { return func() {} }) })
	t.Run("resets", func(t *testing.T) {
		originDown(t, func(addr string) (end func()) {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
			}()
			return func() { l.Close(); <-ended }
		})
	})
}

// originDown lets dead stand in for an origin for a while.
func originDown(t *testing.T, dead func(addr string) (end func())) {
	addr := loopback.Free(t) // of ours alone: the origin comes back there
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	origin := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "origin") })}}
	origin.Start()
	visitors, operators, _ := start(t, origin.URL, oneRoom)
	a := get(t, visitors+"/", "")
	b := get(t, visitors+"/", "")
	origin.Close()
	end := dead(addr)
	down := get(t, visitors+"/", a.cookie)
	if down.StatusCode != 502 || !strings.Contains(down.body, "<!doctype html>") ||
		down.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %q", down.StatusCode, down.body)
	}
	eventually(t, "down", func() bool { return !status(t, operators).OriginUp })
	if m := get(t, operators+"/metrics", "").body; !strings.Contains(m, `headgate_origin_up{room="shop"} 0`) {
		t.Error("the metric says that it is up")
	}
	if w := get(t, visitors+"/", b.cookie); w.Header.Get(headgate.StateHeader) != "down" {
		t.Errorf("the one who waits is told %q", w.Header.Get(headgate.StateHeader))
	}
	end()
	if l, err = net.Listen("tcp", addr); err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: origin.Config.Handler}
	go back.Serve(l)
	defer back.Close()
	eventually(t, "up again", func() bool { return status(t, operators).OriginUp })
	eventually(t, "let in", func() bool { return get(t, visitors+"/", b.cookie).StatusCode == 200 })
}

func TestServerWebSocketHoldsTheStay(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprint(w, "origin")
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		rw.Flush()
		io.Copy(c, rw)
	}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, oneRoom)
	a := get(t, visitors+"/", "")
	c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: %s\r\n\r\n", a.cookie)
	r := bufio.NewReader(c)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 101 {
		t.Fatal(res, err)
	}
	b := get(t, visitors+"/", "")
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range 8 { // 4 s: twice the session
		<-tick.C
		fmt.Fprint(c, "x")
		if _, err := r.ReadByte(); err != nil {
			t.Fatal(err)
		}
		if get(t, visitors+"/", b.cookie).StatusCode == 200 || status(t, operators).ActiveUsers != 1 {
			t.Fatal("the slot of an open WebSocket was given away")
		}
	}
	c.Close()
	eventually(t, "let in", func() bool { return get(t, visitors+"/", b.cookie).StatusCode == 200 })
}
