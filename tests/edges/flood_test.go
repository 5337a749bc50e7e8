//go:build edges

package edges

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/loopback"
	"github.com/headgate/headgate/tests/yardstick"
)

// TestAFloodLetsNobodyIn: an Envoy that lets everybody in while headgate is down has more questions in flight
// than its own circuit breakers would allow. headgate is slow, and then answers them all.
func TestAFloodLetsNobodyIn(t *testing.T) {
	const visitors = 1200 // Envoy's default is 1,024
	type text func(t *testing.T, addr string, to places) string
	byGRPC := func(t *testing.T, addr string, to places) string { return recipe(t, "envoy", addr, to) }
	for name, text := range map[string]text{"grpc": byGRPC, "http": envoyByHTTP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, admin := serveOrigin(t), loopback.Free(t)
			e := edge{"envoy-" + name, func(t *testing.T, addr string, to places) {
				open := strings.NewReplacer("failure_mode_allow: false", "failure_mode_allow: true", "timeout: 5s", "timeout: 600s")
				runEnvoy(t, addr, to, open.Replace(text(t, addr, to))+"admin: {address: {socket_address: {address: 127.0.0.1, "+
					"port_value: "+portOf(t, admin)+"}}}\n")
			}}
			w := e.open(t, o.addr(), "total_active_users: 10, new_users_per_minute: 10, closed: true")
			w.freeze(t)
			answers := make(chan string, visitors)
			for range visitors {
				c, err := net.Dial("tcp", w.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				io.WriteString(c, "GET /checkout HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")
				go func() {
					all, _ := io.ReadAll(c)
					status, _, _ := strings.Cut(string(all), "\r\n")
					answers <- status
				}()
			}
			got := 0 // by the origin
			yardstick.Await(t, "each question is asked, or not", func() bool {
				got += len(o.take())
				return asking(t, admin)+got >= visitors
			})
			w.thaw(t)
			counts := map[string]int{}
			for range visitors {
				counts[<-answers]++
			}
			got += len(o.take())
			want := fmt.Sprintf("map[HTTP/1.1 %d ", e.waits())
			if got > 0 || len(counts) != 1 || !strings.HasPrefix(fmt.Sprint(counts), want) {
				t.Errorf("of %d visitors of a closed room, the origin got %d: %v", visitors, got, counts)
			}
		})
	}
}

// asking returns how many questions Envoy has asked, or is about to ask, without an answer.
func asking(t *testing.T, admin string) (n int) {
	t.Helper()
	res, err := http.Get("http://" + admin + "/stats?filter=^cluster.headgate.upstream_rq_(pending_)?active$")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		x, err := strconv.Atoi(value)
		if err != nil {
			t.Fatalf("Envoy says %q", line)
		}
		n += x
	}
	return n
}
