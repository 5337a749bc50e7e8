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
)

// patience passes only when a test fails.
const patience = 20 * time.Second

// One address takes all connections; the key is in the file, so that it holds for loopback too.
func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer origin.Close()
	visitors, operators, _ := start(t, origin.URL, oneRoom+"max_connections_per_address: 3\n")
	served := func(c net.Conn, in *bufio.Reader) bool {
		io.WriteString(c, "GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(in, nil)
		return err == nil && res.StatusCode == 200
	}
	var open []net.Conn
	for range 3 {
		c, in := dial(t, visitors)
		if !served(c, in) {
			t.Fatal("one of the first three is refused")
		}
		open = append(open, c)
	}
	for range 5 {
		c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
		if err == nil && served(c, bufio.NewReader(c)) {
			t.Error("one more than three is served")
		}
		if err == nil {
			c.Close()
		}
	}
	const metric = "headgate_refused_connections_total"
	if got := get(t, operators+"/metrics", "").body; !strings.Contains(got, "\n"+metric+" 5\n") {
		_, got, _ = strings.Cut(got, "\n"+metric)
		t.Errorf("%s%.9s", metric, got)
	}
	open[0].Close()
	eventually(t, "let in when one has gone", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(visitors, "http://"))
		if err != nil {
			return false
		}
		defer c.Close()
		return served(c, bufio.NewReader(c))
	})
}

// A proxy brings everybody's connections: one that is trusted has no bound, and neither has this
// machine unless the file says so.
func TestProxiesHaveAnyNumberOfConnections(t *testing.T) {
	for _, more := range []string{"", "max_connections_per_address: 3\ntrusted_proxies: [127.0.0.1]\n"} {
		visitors, _, _ := start(t, "http://127.0.0.1:1", oneRoom+more)
		for i := range 300 {
			c, in := dial(t, visitors)
			fmt.Fprint(c, "GET /none HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := http.ReadResponse(in, nil); err != nil {
				t.Fatalf("%q: connection %d: %v", more, i, err)
			}
		}
	}
}
