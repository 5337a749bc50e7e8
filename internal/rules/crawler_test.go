package rules

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	googlebot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
	bingbot   = "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)"
	firefox   = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// crawlers is a zone with the addresses of two crawlers, and with what liars can set up.
func crawlers() *zone {
	return &zone{
		names: map[netip.Addr][]string{
			addr("66.249.66.1"):   {"crawl-66-249-66-1.GoogleBot.com."},
			addr("2001:4860::1"):  {"crawl.googlebot.com."},
			addr("157.55.39.150"): {"msnbot-157-55-39-150.search.msn.com."},
			addr("203.0.113.1"):   {"crawl-66-249-66-1.googlebot.com."}, // the liar's own PTR
			addr("203.0.113.2"):   {"crawl.evilgooglebot.com."},         // no dot before it
			addr("203.0.113.3"):   {"googlebot.com.evil.example."},      // not at the end
			addr("203.0.113.4"):   {"1.bc.googleusercontent.com."},      // rented from Google
			addr("203.0.113.5"):   {"nowhere.googlebot.com."},           // a name without address
			addr("203.0.113.6"):   many(50, "x%d.example.", "crawl6.googlebot.com."),
			addr("203.0.113.7"):   {"www.example.", "crawl7.googlebot.com."}, // two names
		},
		addrs: map[string][]netip.Addr{
			"crawl-66-249-66-1.googlebot.com.":     {addr("66.249.66.1")},
			"crawl.googlebot.com.":                 {addr("66.249.66.9"), addr("2001:4860::1")},
			"msnbot-157-55-39-150.search.msn.com.": {addr("157.55.39.150")},
			"crawl.evilgooglebot.com.":             {addr("203.0.113.2")},
			"googlebot.com.evil.example.":          {addr("203.0.113.3")},
			"1.bc.googleusercontent.com.":          {addr("203.0.113.4")},
			"crawl6.googlebot.com.":                {addr("203.0.113.6")},
			"crawl7.googlebot.com.":                {addr("203.0.113.7")},
		},
	}
}

func many(n int, format, last string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return append(all, last)
}

// TestProof asks a real DNS server on loopback, by UDP.
func TestProof(t *testing.T) {
	z := crawlers()
	c := newCrawlers(t, z.onLoopback(t))
	for _, tt := range []struct {
		from, agent string
		want        bool
	}{
		{"66.249.66.1", googlebot, true},
		{"2001:4860::1", googlebot, true},
		{"157.55.39.150", bingbot, true},
		{"203.0.113.7", googlebot, true},
		{"66.249.66.1", bingbot, false}, // one crawler is not another
		{"66.249.66.2", googlebot, false},
		{"203.0.113.1", googlebot, false},
		{"203.0.113.2", googlebot, false},
		{"203.0.113.3", googlebot, false},
		{"203.0.113.4", googlebot, false},
		{"203.0.113.5", googlebot, false},
		{"203.0.113.6", googlebot, false},
		{"2001:db8::1", googlebot, false},
	} {
		got, err := c.prove(t.Context(), claim{addr(tt.from), c.claimed(tt.agent)})
		if got != tt.want || err != nil {
			t.Errorf("%s as %.40s: %v, %v", tt.from, tt.agent, got, err)
		}
	}
	z.set(func() { z.silent = true })
	if got, err := c.prove(t.Context(), claim{addr("66.249.66.1"), 0}); got || err == nil {
		t.Errorf("without an answer: %v, %v", got, err)
	}
}

// crawlBubble runs f in a bubble with Crawlers that ask z.
func crawlBubble(t *testing.T, z *zone, f func(t *testing.T, c *Crawlers)) {
	t.Helper()
	// The resolver keeps a channel for good, which must not be of a bubble.
	_, _ = newCrawlers(t, nil).resolver.LookupNetIP(t.Context(), "ip", "localhost")
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		c := newCrawlers(t, z.inBubble(&all))
		all.Go(func() {
			if err := c.Run(ctx); err != context.Canceled {
				t.Error(err)
			}
		})
		f(t, c)
		stop()
		all.Wait()
	})
}

func TestVerifiedIsKeptAndRenewed(t *testing.T) {
	z := crawlers()
	crawlBubble(t, z, func(t *testing.T, c *Crawlers) {
		from := addr("66.249.66.1")
		is := func(want bool) {
			t.Helper()
			if got := c.Verified(from, googlebot); got != want {
				t.Errorf("verified: %v", got)
			}
			synctest.Wait()
		}
		is(false) // the lookup is under way
		is(true)
		n := z.questions()
		for range 100 {
			is(true)
		}
		if z.questions() != n {
			t.Error("asked again at once")
		}
		time.Sleep(13 * time.Hour)
		is(true) // and is asked again behind it
		if z.questions() == n {
			t.Error("not renewed")
		}
		time.Sleep(20 * time.Hour)
		z.set(func() { z.silent = true })
		is(true) // DNS is down: what is known stands
		is(true)
		n = z.questions()
		is(true)
		if z.questions() != n {
			t.Error("DNS that is down is asked all the time")
		}
		time.Sleep(5 * time.Hour)
		is(false) // but not for ever
		is(false)
		z.set(func() { z.silent = false })
		time.Sleep(2 * time.Minute)
		is(false)
		is(true)
		z.set(func() { delete(z.names, from) })
		time.Sleep(13 * time.Hour)
		is(true)  // the last time
		is(false) // the renewal said no
	})
}

func TestRefusedIsKept(t *testing.T) {
	z := crawlers()
	crawlBubble(t, z, func(t *testing.T, c *Crawlers) {
		liar := addr("203.0.113.1")
		for range 50 {
			if c.Verified(liar, googlebot) {
				t.Error("a liar is verified")
			}
			synctest.Wait()
			time.Sleep(time.Minute)
		}
		if n := z.questions(); n != 2 {
			t.Errorf("%d questions about a liar in 50 minutes; want 2", n)
		}
		z.set(func() { z.addrs["crawl-66-249-66-1.googlebot.com."] = []netip.Addr{liar} })
		time.Sleep(11 * time.Minute)
		c.Verified(liar, googlebot)
		synctest.Wait()
		if !c.Verified(liar, googlebot) {
			t.Error("refused for ever")
		}
	})
}

func TestOrdinaryVisitorsAreNotLookedUp(t *testing.T) {
	z := crawlers()
	crawlBubble(t, z, func(t *testing.T, c *Crawlers) {
		for i := range 1000 {
			if c.Verified(addr(fmt.Sprintf("192.0.2.%d", i%250)), firefox) {
				t.Error("a browser is a crawler")
			}
		}
		c.Verified(netip.Addr{}, googlebot)
		synctest.Wait()
		if n := z.questions(); n != 0 {
			t.Errorf("%d questions", n)
		}
	})
}

// TestAFloodOfLiars: it asks DNS a bounded number of times at once, fills no memory, and those
// who were verified stay so.
func TestAFloodOfLiars(t *testing.T) {
	z := crawlers()
	crawlBubble(t, z, func(t *testing.T, c *Crawlers) {
		good := addr("66.249.66.1")
		c.Verified(good, googlebot)
		synctest.Wait()
		z.hold = make(chan struct{})
		for i := range 5 * maxPending {
			c.Verified(netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}), googlebot)
		}
		synctest.Wait()
		if n := len(c.pending); n > maxPending+lookups {
			t.Errorf("%d pending", n)
		}
		if !c.Verified(good, googlebot) {
			t.Error("the verified one is forgotten")
		}
		z.set(func() {
			close(z.hold)
			z.hold = nil
		})
		const kept = 500
		c.refused.size = kept
		for i := range 3 * kept {
			c.Verified(netip.AddrFrom4([4]byte{100, 65, byte(i >> 8), byte(i)}), googlebot)
			if i%maxPending == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if n := len(c.refused.young) + len(c.refused.old); n > 2*kept || n < kept {
			t.Errorf("%d refused are kept", n)
		}
		if len(c.pending) != 0 || !c.Verified(good, googlebot) {
			t.Errorf("%d pending, verified %v", len(c.pending), c.Verified(good, googlebot))
		}
	})
}

func TestNoAnswerAtAll(t *testing.T) {
	z := crawlers()
	crawlBubble(t, z, func(t *testing.T, c *Crawlers) {
		z.hold = make(chan struct{}) // of the bubble
		c.Verified(addr("66.249.66.1"), googlebot)
		time.Sleep(lookupFor + time.Second)
		synctest.Wait()
		if len(c.pending) != 0 {
			t.Error("a lookup without answer has no end")
		}
		z.set(func() {
			close(z.hold)
			z.hold = nil
		})
		time.Sleep(unknownFor)
		c.Verified(addr("66.249.66.1"), googlebot)
		synctest.Wait()
		if !c.Verified(addr("66.249.66.1"), googlebot) {
			t.Error("not verified once DNS answers")
		}
	})
}

func TestCrawlerInAnExpression(t *testing.T) {
	z := crawlers()
	crawlBubble(t, z, func(t *testing.T, c *Crawlers) {
		e, err := Compile(`headgate.verified_crawler and http.request.uri.path != "/cart/1"`,
			Env{Crawlers: c})
		if err != nil {
			t.Fatal(err)
		}
		r := ask("GET http://x/", "User-Agent: "+googlebot)
		r.From = addr("::ffff:66.249.66.1")
		e.Match(r)
		synctest.Wait()
		if !e.Match(r) {
			t.Error("not verified")
		}
		if r.Path = "/cart/1"; e.Match(r) {
			t.Error("in the cart")
		}
	})
}

func newCrawlers(t testing.TB, r Resolver) *Crawlers {
	t.Helper()
	c, err := NewCrawlers(KnownCrawlers(), r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClaims(t *testing.T) {
	c := newCrawlers(t, nil)
	names := map[string]bool{}
	for i, k := range c.known {
		if k.Name == "" || names[k.Name] {
			t.Errorf("name %q", k.Name)
		}
		names[k.Name] = true
		for _, part := range k.Agents {
			for _, text := range []string{part, "x" + part + "/2.1", "Mozilla/5.0 (compatible; " + part} {
				if got := c.claimed(text); got != i {
					t.Errorf("%q: got %d, want %d", text, got, i)
				}
			}
			if cut := part[:len(part)-1]; c.claimed(cut) != -1 {
				t.Errorf("%q is claimed", cut)
			}
		}
	}
	if got := c.claimed(firefox); got != -1 {
		t.Errorf("a browser is %d", got)
	}
}

func TestCrawlersThatCannotBe(t *testing.T) {
	bot, domain := []string{"Ownbot"}, []string{"bot.example.com"}
	for name, k := range map[string]Crawler{
		"no agent":     {"a", nil, domain},
		"no domain":    {"a", bot, nil},
		"short agent":  {"a", []string{"bot"}, domain},
		"top level":    {"a", bot, []string{"com"}},
		"leading dot":  {"a", bot, []string{".example.com"}},
		"upper case":   {"a", bot, []string{"Example.com"}},
		"empty domain": {"a", bot, []string{""}},
	} {
		_, err := NewCrawlers([]Crawler{k}, nil)
		if err == nil || !strings.Contains(err.Error(), `crawler "a": `) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewCrawlers([]Crawler{{"a", bot, domain}}, nil); err != nil {
		t.Error(err)
	}
}
