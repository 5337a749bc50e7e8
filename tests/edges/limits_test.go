//go:build edges

package edges

import (
	"fmt"
	"net/http"
	"testing"
)

// TestLimits: a visitor inside gets 429 and the headers of the limit, also where the proxy relays no answers,
// and the origin gets no more than the limit allows. Others are not held back.
func TestLimits(t *testing.T) {
	each(t, func(t *testing.T, e *edge) {
		o := serveOrigin(t)
		w := e.openRooms(t, o.addr(), "  - {name: shop, host: shop.example, origin: \"http://"+o.addr()+
			"\", total_active_users: 10, new_users_per_minute: 10, limits: [api]}\nlimits:\n"+
			"  - {name: api, algorithm: sliding_log, amount: 3, window: 24h, key: [session]}\n")
		for _, b := range []*browser{{w: w}, {w: w}} {
			for i := range 6 {
				method := []string{"GET", "POST"}[i%2]
				res, body := b.ask(t, method, "/checkout")
				if got := len(o.take()); res.StatusCode == http.StatusOK != (i < 3) || got == 1 != (i < 3) {
					t.Errorf("request %d: %d %.80q, and the origin got %d", i+1, res.StatusCode, body, got)
				}
				if held := fmt.Sprint(res.StatusCode, len(res.Header["Ratelimit"]), len(res.Header["Retry-After"])); i > 2 &&
					held != "429 1 1" {
					t.Errorf("request %d: %s of status and headers: %v", i+1, held, res.Header)
				}
			}
		}
	})
}
