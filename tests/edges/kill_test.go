//go:build edges

package edges

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	visitors "github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/tests/crowd"
	"github.com/headgate/headgate/tests/yardstick"
)

// A reloader is a browser whose user reloads an error page of the proxy: for the crowd, such an answer is
// a lost connection.
type reloader struct{ http.RoundTripper }

func (b reloader) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil && res.StatusCode >= 500 && res.Header["Headgate-State"] == nil {
		res.Body.Close()
		return nil, fmt.Errorf("%s: %w", res.Status, io.ErrUnexpectedEOF)
	}
	return res, err
}

// TestHeadgateIsKilled: headgate is killed twice in the middle of a crowd, and started again. At the
// origin there are never more visitors than the limits allow, nobody loses a place or a session, and
// nobody is overtaken.
func TestHeadgateIsKilled(t *testing.T) {
	const total, fresh = 40, 120
	eachOf(t, named("nginx", "envoy"), func(t *testing.T, e *edge) {
		o, err := crowd.StartOrigin()
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		w := e.open(t, strings.TrimPrefix(o.URL, "http://"), fmt.Sprintf("total_active_users: %d, "+
			"new_users_per_minute: %d, session_duration: 10s, join_limit: {amount: 0}", total, fresh))
		transport := &http.Transport{MaxConnsPerHost: 200, MaxIdleConnsPerHost: 200}
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var got *visitors.Result
		done := make(chan error, 1)
		go func() {
			var err error
			got, err = visitors.Run(ctx, visitors.Config{URL: "http://" + w.addr + "/", Host: "shop.example", N: 200,
				Arrive: 5 * time.Second, Duration: 40 * time.Second, Seed: 1,
				Transport: reloader{transport}}, nil)
			done <- err
		}()
		var down time.Duration
		for _, in := range []int{total / 2, total + 10} {
			yardstick.Await(t, fmt.Sprint(in, " visitors came in"), func() bool {
				return len(crowd.Arrivals(o.Requests())) >= in
			})
			killed := time.Now()
			w.headgate.Kill()
			w.startHeadgate(t)
			down = max(down, time.Since(killed))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s := got.Summary()
		in := crowd.Arrivals(o.Requests())
		t.Logf("%d came in, %d overtaken of %d, errors %v, %v; %s", len(in), s.Order.Overtaken, s.Order.Judged, s.Errors,
			s.Outcomes, s.Order.Example)
		if n := crowd.MaxInside(o.Requests()); n > total {
			t.Errorf("%d inside at once, limit %d", n, total)
		}
		if n := crowd.MaxInWindow(in, time.Minute); n > fresh {
			t.Errorf("%d new ones within a minute, limit %d", n, fresh)
		}
		if delete(s.Errors, "connection closed"); len(s.Errors) > 0 { // the proxy said so
			t.Errorf("faults: %v", s.Errors)
		}
		// Whoever was called just before the kill may hear of it only after it, at the next poll; whoever was
		// called with it may have heard of it before.
		overtaken := s.Order.Overtaken > 0 && s.Order.Worst > down+time.Second
		if overtaken || s.RisenPlace > 0 || s.Order.Judged == 0 || len(in) < total+20 {
			t.Errorf("overtaken %d of %d by %v, down for %v, places risen %d, came in %d", s.Order.Overtaken,
				s.Order.Judged, s.Order.Worst, down, s.RisenPlace, len(in))
		}
	})
}
