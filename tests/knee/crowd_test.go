//go:build crowd

package knee

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// These are the parameters of the crowd. Chosen.
const (
	thinkMin, thinkMax = 5 * time.Second, 7 * time.Second // between an answer and the next request
	arrive             = thinkMax                         // in which those of a step come: they are no burst
	seldom             = time.Hour                        // longer than a test
)

// A browser sends the requests of all visitors. Each has an address of its own, and asks for several
// pages: the crowd knows one.
type browser struct{ next http.RoundTripper }

func (b browser) RoundTrip(r *http.Request) (*http.Response, error) {
	id, err := strconv.Atoi(r.Header.Get(crowd.VisitorHeader))
	if err != nil {
		return nil, err
	}
	c := r.Clone(r.Context())
	c.Header.Set("X-Forwarded-For", fmt.Sprintf("%d.%d.%d.9", 11+id>>16, id>>8&255, id&255))
	if c.URL.Path == "/" && c.Header.Get("Headgate-Poll") == "" {
		switch x := rand.IntN(10); {
		case x < 5:
			c.URL.Path = fmt.Sprintf("/product/%d", 1+rand.IntN(999))
		case x < 7:
			c.URL.Path = "/cart"
		}
	}
	return b.next.RoundTrip(c)
}

func newBrowser() browser {
	return browser{&http.Transport{MaxIdleConns: 2000, MaxIdleConnsPerHost: 2000}}
}

// people visit the origin without headgate until ctx ends.
func (o *origin) people(ctx context.Context, n int, seed uint64) {
	_, err := crowd.Run(ctx, crowd.Config{
		URL: o.url + "/", N: n, Arrive: arrive, Seed: seed, Transport: newBrowser(),
		SessionMin: seldom, SessionMax: seldom, ThinkMin: thinkMin, ThinkMax: thinkMax,
	}, nil)
	if err != nil {
		o.t.Error(err)
	}
}
