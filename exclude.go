package headgate

import (
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
	"time"
)

// Exclude names requests that pass and are not counted: probes, payment
// webhooks, preflights. The zero value is the defaults: OPTIONS, HEAD,
// /robots.txt, /favicon.ico and /.well-known/.
type Exclude struct {
	NoDefaults bool
	Paths      []string // ending with / or *: a prefix
	Methods    []string
	CIDRs      []netip.Prefix
	Headers    []string // "Name", or "Name: value"
}

type excluder struct {
	exact    map[string]bool
	prefixes []string
	methods  map[string]bool
	cidrs    []netip.Prefix
	headers  [][2]string
}

func newExcluder(x Exclude) excluder {
	e := excluder{exact: map[string]bool{}, methods: map[string]bool{}, cidrs: x.CIDRs}
	paths, methods := x.Paths, x.Methods
	if !x.NoDefaults {
		paths = append([]string{"/robots.txt", "/favicon.ico", "/.well-known/"}, paths...)
		methods = append([]string{http.MethodOptions, http.MethodHead}, methods...)
	}
	for _, p := range paths {
		switch {
		case strings.HasSuffix(p, "*"):
			e.prefixes = append(e.prefixes, strings.TrimSuffix(p, "*"))
		case strings.HasSuffix(p, "/"):
			e.prefixes = append(e.prefixes, p)
		default:
			e.exact[p] = true
		}
	}
	for _, m := range methods {
		e.methods[strings.ToUpper(m)] = true
	}
	for _, h := range x.Headers {
		name, value, _ := strings.Cut(h, ":")
		e.headers = append(e.headers, [2]string{
			http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value),
		})
	}
	return e
}

func (e *excluder) match(r *http.Request, addr func(*http.Request) netip.Addr) bool {
	at := cleanPath(r.URL.Path)
	if e.methods[r.Method] || e.exact[at] {
		return true
	}
	for _, p := range e.prefixes {
		if strings.HasPrefix(at, p) {
			return true
		}
	}
	for _, h := range e.headers {
		if got := r.Header.Get(h[0]); got != "" && (h[1] == "" || got == h[1]) {
			return true
		}
	}
	if len(e.cidrs) > 0 {
		a := addr(r)
		for _, p := range e.cidrs {
			if p.Contains(a) {
				return true
			}
		}
	}
	return false
}

// cleanPath is the path as an origin may read it: without //, /./ and /../, so
// that no spelling of a path walks around a room or into an exclusion.
func cleanPath(p string) string {
	if strings.ContainsAny(p, `\;`) { // some origins read \ as / and drop what follows a ;
		parts := strings.Split(strings.ReplaceAll(p, `\`, "/"), "/")
		for i := range parts {
			parts[i], _, _ = strings.Cut(parts[i], ";")
		}
		p = strings.Join(parts, "/")
	}
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	c := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && c != "/" {
		c += "/"
	}
	return c
}

// JoinLimit bounds how many tickets one address prefix may draw. Off by default:
// a whole office or a mobile network may share one address.
type JoinLimit struct {
	Amount   int           // 0 is off
	Window   time.Duration // 1 m
	PrefixV4 int           // 24
	PrefixV6 int           // 56
}

// maxPrefixes bounds the limiter's memory; beyond it the oldest window is
// forgotten whole, so a flood of addresses cannot fill memory. Chosen: ~10 MB.
const maxPrefixes = 100_000

// joinLimiter counts joins in windows from the first join of each.
type joinLimiter struct {
	cfg   JoinLimit
	mu    sync.Mutex
	since time.Duration
	seen  map[netip.Prefix]int
}

func newJoinLimiter(c JoinLimit) *joinLimiter {
	if c.Window == 0 {
		c.Window = time.Minute
	}
	if c.PrefixV4 == 0 {
		c.PrefixV4 = 24
	}
	if c.PrefixV6 == 0 {
		c.PrefixV6 = 56
	}
	return &joinLimiter{cfg: c}
}

// allow notes a join and reports whether it is within the limit.
func (j *joinLimiter) allow(a netip.Addr, clk time.Duration) bool {
	if j.cfg.Amount <= 0 || !a.IsValid() {
		return true
	}
	bits := j.cfg.PrefixV4
	if a = a.Unmap(); a.Is6() {
		bits = j.cfg.PrefixV6
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil || clk-j.since >= j.cfg.Window || len(j.seen) >= maxPrefixes {
		j.seen, j.since = map[netip.Prefix]int{}, clk
	}
	if j.seen[p] >= j.cfg.Amount {
		return false
	}
	j.seen[p]++
	return true
}

// remoteAddr is the address the connection comes from.
func remoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
