package rules

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Crawler is a robot that names itself and can be verified by the DNS names of its addresses.
type Crawler struct {
	Name    string
	Agents  []string // parts of its User-Agent; one suffices; case matters
	Domains []string // its addresses have names in one of these
}

// KnownCrawlers returns the search engines that publish how to verify them by DNS. It leaves out
// googleusercontent.com, because anyone who rents a machine from Google has a name in it.
func KnownCrawlers() []Crawler {
	return []Crawler{
		{"google", []string{"Googlebot", "Google-InspectionTool", "GoogleOther", "Storebot-Google",
			"AdsBot-Google", "Mediapartners-Google"}, []string{"googlebot.com", "google.com"}},
		{"bing", []string{"bingbot", "BingPreview", "msnbot", "adidxbot"}, []string{"search.msn.com"}},
		{"apple", []string{"Applebot"}, []string{"applebot.apple.com"}},
		{"yandex", []string{"yandex.com/bots"}, []string{"yandex.ru", "yandex.net", "yandex.com"}},
		{"baidu", []string{"Baiduspider"}, []string{"baidu.com", "baidu.jp"}},
		{"yahoo", []string{"Yahoo! Slurp"}, []string{"crawl.yahoo.net"}},
		{"seznam", []string{"SeznamBot"}, []string{"seznam.cz"}},
		{"petal", []string{"PetalBot"}, []string{"petalsearch.com"}},
	}
}

// A Resolver resolves names. *net.Resolver is one. Both methods block.
type Resolver interface {
	LookupAddr(ctx context.Context, addr string) (names []string, err error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	verifiedFor = 24 * time.Hour  // chosen: addresses of crawlers change within weeks
	renewBefore = 12 * time.Hour  // time left when it is looked up again
	refusedFor  = time.Hour       // chosen: the longest a new crawler waits in line
	unknownFor  = time.Minute     // when DNS has not answered
	lookupFor   = 5 * time.Second // one verification; chosen: as in libc's resolver
	lookups     = 8               // at once
	maxPending  = 256             // waiting for a lookup; later claims are ignored for now
	maxNames    = 4               // names checked per address; real crawlers have one
	maxKnown    = 10_000          // verified, and rejected: 1 MB each
)

// A Crawlers verifies crawlers. The address of a visitor that claims to be a crawler must have a
// name of that crawler, and that name must have that address. Results are cached in bounded memory.
// Its methods may be called by many goroutines.
type Crawlers struct {
	known    []Crawler
	begins   [256][]agent // by first byte
	resolver Resolver
	asked    chan claim

	mu       sync.Mutex
	pending  map[claim]bool
	verified generations // until when
	refused  generations // separate, so that a flood of false claims evicts no verified one
}

// A claim is an address that claims to be known[crawler].
type claim struct {
	from    netip.Addr
	crawler int
}

// An agent is a part of the User-Agent of known[crawler].
type agent struct {
	part    string
	crawler int
}

// NewCrawlers returns a Crawlers for these crawlers. A nil resolver is that of this machine.
func NewCrawlers(known []Crawler, resolver Resolver) (*Crawlers, error) {
	if resolver == nil {
		resolver = &net.Resolver{PreferGo: true}
	}
	c := &Crawlers{
		known: known, resolver: resolver,
		asked: make(chan claim, maxPending), pending: map[claim]bool{},
		verified: generations{size: maxKnown}, refused: generations{size: maxKnown},
	}
	var errs []error
	for i := range known {
		if err := known[i].check(); err != nil {
			errs = append(errs, fmt.Errorf("crawler %q: %w", known[i].Name, err))
			continue
		}
		for _, part := range known[i].Agents {
			c.begins[part[0]] = append(c.begins[part[0]], agent{part, i})
		}
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// minAgent is the shortest part of a User-Agent. A shorter one could match every visitor. Chosen.
const minAgent = 4

func (c *Crawler) check() error {
	if len(c.Agents) == 0 || len(c.Domains) == 0 {
		return errors.New("agents and domains are needed")
	}
	for _, a := range c.Agents {
		if len(a) < minAgent {
			return fmt.Errorf("agent %q has less than %d characters: it would be in too many", a, minAgent)
		}
	}
	for _, d := range c.Domains {
		if d != lower(d) || !strings.Contains(strings.Trim(d, "."), ".") || strings.Trim(d, ".") != d {
			return fmt.Errorf("domain %q: write it as search.example.com", d)
		}
	}
	return nil
}

// Verified reports whether a visitor with this address and User-Agent is a verified crawler. It
// does not block: Run looks up a new claim, and the visitor does not count as a crawler until then.
func (c *Crawlers) Verified(from netip.Addr, userAgent string) bool {
	i := c.claimed(userAgent)
	if i < 0 || !from.IsValid() {
		return false
	}
	who, now := claim{from, i}, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.verified.get(who)
	if left := until.Sub(now); ok && left > 0 {
		if left < renewBefore {
			c.ask(who, now)
		}
		return true
	}
	c.ask(who, now)
	return false
}

// claimed returns the index of the crawler that a User-Agent claims to be, or -1. It reads the text
// once.
func (c *Crawlers) claimed(text string) int {
	for i := range len(text) {
		for _, a := range c.begins[text[i]] {
			if strings.HasPrefix(text[i:], a.part) {
				return a.crawler
			}
		}
	}
	return -1
}

// ask queues a claim for a lookup, unless that happened recently or too many wait. c.mu is held.
func (c *Crawlers) ask(who claim, now time.Time) {
	if until, ok := c.refused.get(who); ok && now.Before(until) || c.pending[who] {
		return
	}
	select {
	case c.asked <- who:
		c.pending[who] = true
	default:
	}
}

// Run looks up the claims that Verified could not decide, until ctx is done.
func (c *Crawlers) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for range lookups {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case who := <-c.asked:
					c.settle(ctx, who)
				}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// settle looks a claim up and caches the result.
func (c *Crawlers) settle(ctx context.Context, who claim) {
	within, cancel := context.WithTimeout(ctx, lookupFor)
	defer cancel()
	proven, err := c.prove(within, who)
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, who)
	switch {
	case err != nil:
		c.refused.put(who, now.Add(unknownFor)) // a verified crawler stays verified until it expires
	case proven:
		c.verified.put(who, now.Add(verifiedFor))
	default:
		if _, ok := c.verified.get(who); ok { // no longer verified
			c.verified.put(who, now)
		}
		c.refused.put(who, now.Add(refusedFor))
	}
}

// prove looks up the names of an address, and the addresses of those names that belong to the
// crawler. It returns an error if DNS did not answer.
func (c *Crawlers) prove(ctx context.Context, who claim) (bool, error) {
	names, err := c.resolver.LookupAddr(ctx, who.from.String())
	if len(names) == 0 {
		return false, unanswered(err)
	}
	network := "ip6"
	if who.from.Is4() {
		network = "ip4"
	}
	var failed error
	for _, name := range names[:min(len(names), maxNames)] {
		if !c.known[who.crawler].owns(name) {
			continue
		}
		// The dot at the end makes the name absolute, so that no search domain of this machine is
		// added.
		found, err := c.resolver.LookupNetIP(ctx, network, strings.TrimSuffix(name, ".")+".")
		for _, a := range found {
			if a.Unmap() == who.from {
				return true, nil
			}
		}
		if err := unanswered(err); err != nil {
			failed = err
		}
	}
	return false, failed
}

// unanswered returns err, or nil if err says that the name does not exist.
func unanswered(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return nil
	}
	return err
}

// owns reports whether a name is in one of the crawler's domains. evilgooglebot.com is in none.
func (c *Crawler) owns(name string) bool {
	name = lower(strings.TrimSuffix(name, "."))
	return slices.ContainsFunc(c.Domains, func(domain string) bool { return strings.HasSuffix(name, "."+domain) })
}

// A generations is a map of at most 2 × size entries. When the young generation has size entries,
// the old one is dropped and the young one becomes the old one. An entry that is read moves to the
// young generation.
type generations struct {
	size       int
	young, old map[claim]time.Time
}

func (g *generations) get(who claim) (time.Time, bool) {
	if t, ok := g.young[who]; ok {
		return t, true
	}
	t, ok := g.old[who]
	if ok {
		g.put(who, t)
	}
	return t, ok
}

func (g *generations) put(who claim, t time.Time) {
	if _, ok := g.young[who]; !ok && len(g.young) >= g.size || g.young == nil {
		g.young, g.old = map[claim]time.Time{}, g.young
	}
	g.young[who] = t
}
