// Package setup writes the first configuration of a site. It asks five questions, looks at the site, proposes
// which requests should bypass the room, and writes a file that headgate check accepts.
//
// # Bounds
//
// A look takes at most 40 requests, one after the other, and 20 seconds. It reads at most 512 KB of an
// answer, follows at most 5 redirects, and never leaves the site. It sends GET only, and no cookie. What it
// finds is used only if it is a plain path.
package setup

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Bounds of a look. Chosen.
const (
	mostTime     = 20 * time.Second
	mostWait     = 5 * time.Second // for one answer
	mostBody     = 512 << 10
	mostHops     = 5
	mostRequests = 40
	mostScripts  = 4
	mostPaths    = 2000 // paths that are kept from all pages
	mostProposed = 20   // of each kind
	samples      = 3    // requests whose median is shown
)

// A Kind says what happens to the requests of a path, and why.
type Kind string

// The kinds of paths.
const (
	Asset    Kind = "asset"    // bypasses the room: parts of pages
	Webhook  Kind = "webhook"  // bypasses the room: other machines call it
	Probe    Kind = "probe"    // bypasses the room: monitors call it
	API      Kind = "api"      // stays in the room
	Checkout Kind = "checkout" // stays, and a session does not end there
)

// Findings are what a look found.
type Findings struct {
	Err    error // why there is no answer to the first request; then the rest is empty
	Status int
	Median time.Duration // until the head of the answer
	Away   string        // where the home page redirects to, if that is another site
	Cut    bool          // the time was over before all was seen

	Paths map[Kind][]Path // sorted
}

// A Path is one path, or all below it if it ends with a slash.
type Path struct {
	Path  string
	Found int // how many different addresses were seen there; 0: it was only asked for
}

// Excluded returns the paths that should bypass the room.
func (s *Findings) Excluded() (all []Path) {
	for _, kind := range []Kind{Asset, Webhook, Probe} {
		all = append(all, s.Paths[kind]...)
	}
	return all
}

type looker struct {
	client *http.Client
	origin *url.URL
	host   string
	site   *Findings

	sent  int             // requests, redirects too
	seen  map[string]bool // paths of the site that pages name
	queue []string        // scripts to read
	mixed map[string]bool // folders that have more than assets
}

// Look asks the origin, with the host name that visitors use if that is not "".
func Look(ctx context.Context, through http.RoundTripper, origin *url.URL, host string) *Findings {
	ctx, cancel := context.WithTimeout(ctx, mostTime)
	defer cancel()
	l := &looker{origin: origin, host: host, seen: map[string]bool{},
		site: &Findings{Paths: map[Kind][]Path{}}}
	l.client = &http.Client{Transport: through, Timeout: mostWait,
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			if len(before) >= mostHops || l.sent >= mostRequests || !l.isHere(next.URL) {
				return http.ErrUseLastResponse
			}
			l.sent++
			next.Host = host
			return nil
		}}
	if l.home(ctx); l.site.Err == nil {
		l.read(ctx)
		l.probe(ctx)
	}
	l.sort()
	l.site.Cut = l.site.Err == nil && ctx.Err() != nil
	return l.site
}

// isHere reports whether a URL is of the origin, or of the host of its visitors. Another port of it is
// another program.
func (l *looker) isHere(u *url.URL) bool {
	return u.Host == l.origin.Host && u.Scheme == l.origin.Scheme ||
		l.host != "" && strings.EqualFold(u.Host, l.host) && (u.Scheme == "http" || u.Scheme == "https")
}

// get requests a path. The body is cut at mostBody.
func (l *looker) get(ctx context.Context, at string) (res *http.Response, body []byte, err error) {
	if l.sent++; l.sent > mostRequests {
		return nil, nil, errors.New("too many requests")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, l.origin.JoinPath(at).String(), nil)
	if err != nil {
		return nil, nil, err
	}
	r.Host = l.host
	r.Header.Set("User-Agent", "headgate-init")
	r.Header.Set("Accept", "text/html,*/*;q=0.8")
	res, err = l.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, mostBody))
	return res, body, err
}

// home requests the home page a few times.
func (l *looker) home(ctx context.Context) {
	var took []time.Duration
	for range samples {
		begun := time.Now()
		res, body, err := l.get(ctx, "/")
		if err != nil && len(took) > 0 {
			break
		} else if err != nil {
			l.site.Err = err
			return
		}
		if took = append(took, time.Since(begun)); len(took) > 1 {
			continue
		}
		l.site.Status = res.StatusCode
		if to, err := res.Location(); err == nil && res.StatusCode/100 == 3 {
			l.site.Away = oneLine(to.Scheme + "://" + to.Host)
		}
		l.links(string(body), true)
	}
	slices.Sort(took)
	l.site.Median = took[len(took)/2]
}

var (
	attribute = regexp.MustCompile(`(?i)\b(?:src|href|action|data-src)\s*=\s*["']?([^"'\s>]+)`)
	quoted    = regexp.MustCompile("[\"'`](/[A-Za-z0-9][A-Za-z0-9_./-]*)[\"'`$?]")
	robotRule = regexp.MustCompile(`(?im)^\s*(?:allow|disallow)\s*:\s*(/\S*)`)
	usable    = regexp.MustCompile(`^/[A-Za-z0-9_~.@/-]{0,200}$`)
	asset     = regexp.MustCompile(`(?i)\.(css|m?js|map|png|jpe?g|gif|svg|webp|avif|ico|woff2?|ttf|otf|eot|` +
		`mp4|webm|webmanifest|wasm)$`)
)

// patterns returns what the paths of each kind look like. The first that matches counts.
func patterns() []pattern {
	return []pattern{
		{Asset, asset},
		{Webhook, regexp.MustCompile(`(?i)/(webhooks?|ipn|wc-api)(/|$)`)},
		{API, regexp.MustCompile(`(?i)/(api|graphql|wp-json|rest|rpc|ajax)(/|$)`)},
		{Checkout, regexp.MustCompile(`(?i)/(checkout|payment|pay)(\.[a-z]{1,5})?(/|$)`)},
	}
}

type pattern struct {
	kind Kind
	re   *regexp.Regexp
}

// links takes the addresses of a page or script.
func (l *looker) links(text string, page bool) {
	var found []string
	if page {
		for _, m := range attribute.FindAllStringSubmatch(text, mostPaths) {
			found = append(found, m[1])
		}
	}
	for _, m := range quoted.FindAllStringSubmatch(text, mostPaths) {
		found = append(found, m[1])
	}
	base := l.origin.JoinPath("/")
	for _, s := range found {
		u, err := base.Parse(s)
		if err != nil || !l.isHere(u) || len(l.seen) >= mostPaths {
			continue
		}
		p, ok := l.within(u.Path)
		if !ok || l.seen[p] {
			continue
		}
		l.seen[p] = true
		if page && strings.HasSuffix(p, "js") && len(l.queue) < mostScripts {
			l.queue = append(l.queue, p)
		}
	}
}

// within returns the path that visitors use: headgate puts that of the origin in front.
func (l *looker) within(p string) (string, bool) {
	p, ok := strings.CutPrefix(p, strings.TrimSuffix(l.origin.Path, "/"))
	byDefault := p == "/favicon.ico" || p == "/robots.txt" || strings.HasPrefix(p, "/.well-known/")
	return p, ok && p != "/" && !byDefault && usable.MatchString(p) && path.Clean(p) == strings.TrimSuffix(p, "/")
}

// read reads the scripts of the home page, and robots.txt.
func (l *looker) read(ctx context.Context) {
	for _, script := range l.queue {
		if res, body, err := l.get(ctx, script); err == nil && res.StatusCode == http.StatusOK {
			l.links(string(body), false)
		}
	}
	res, body, err := l.get(ctx, "/robots.txt")
	if err != nil || res.StatusCode != http.StatusOK ||
		strings.Contains(res.Header.Get("Content-Type"), "html") {
		return
	}
	for _, m := range robotRule.FindAllStringSubmatch(string(body), 200) {
		if p, ok := l.within(strings.TrimRight(m[1], "*$")); ok {
			l.seen[p] = true
		}
	}
}

// probe asks for paths that many sites have and no page names. A site that answers any path is not believed.
func (l *looker) probe(ctx context.Context) {
	none, _, err := l.get(ctx, "/headgate-init-no-such-path")
	if err != nil || none.StatusCode != http.StatusNotFound {
		return
	}
	for _, x := range []struct {
		kind Kind
		path string
	}{
		{Probe, "/healthz"}, {Probe, "/health"}, {Probe, "/ping"},
		{Webhook, "/webhooks"}, {Webhook, "/webhook"}, {Webhook, "/api/webhooks"}, {Webhook, "/stripe/webhook"},
		{API, "/api/"}, {API, "/wp-json/"}, {API, "/graphql"},
	} {
		kind, p := x.kind, x.path
		res, _, err := l.get(ctx, p)
		// A webhook takes POST: it answers GET with 400, 401 or 405.
		if err != nil || res.StatusCode == http.StatusNotFound || res.StatusCode >= 500 ||
			kind == Probe && res.StatusCode != http.StatusOK {
			continue
		}
		l.add(kind, p)
		if kind == Webhook {
			l.add(kind, p+"/")
		}
	}
}

func (l *looker) add(kind Kind, p string) {
	all := l.site.Paths[kind]
	if !slices.ContainsFunc(all, func(x Path) bool { return x.Path == p }) {
		l.site.Paths[kind] = append(all, Path{Path: p})
	}
}

// sort puts each path that was seen into its kind, and counts them.
func (l *looker) sort() {
	l.mix()
	for _, p := range slices.Sorted(maps.Keys(l.seen)) {
		for _, x := range patterns() {
			m := x.re.FindStringIndex(p)
			if m == nil {
				continue
			}
			at := p[:m[1]] // up to its word: /api/ of /api/cart/4
			if x.kind == Asset {
				at = l.folder(p)
			}
			l.add(x.kind, at)
			i := slices.IndexFunc(l.site.Paths[x.kind], func(y Path) bool { return y.Path == at })
			l.site.Paths[x.kind][i].Found++
			break
		}
	}
	for kind, all := range l.site.Paths {
		slices.SortFunc(all, func(a, b Path) int { return cmp.Compare(a.Path, b.Path) })
		l.site.Paths[kind] = all[:min(len(all), mostProposed)]
	}
}

// folder returns the highest folder of an asset in which pages name only assets, or the asset itself: images
// and data of /_next/ are made for each visitor, and those of /_next/static/ are files.
func (l *looker) folder(p string) string {
	for i := 1; i < len(p); i++ {
		if p[i] == '/' && p[:i+1] != "/_next/" && !l.mixed[p[:i+1]] {
			return p[:i+1]
		}
	}
	return p
}

// mix finds the folders that have more than assets.
func (l *looker) mix() {
	l.mixed = map[string]bool{}
	for p := range l.seen {
		if asset.MatchString(p) {
			continue
		}
		for i := range len(p) {
			if p[i] == '/' {
				l.mixed[p[:i+1]] = true
			}
		}
	}
}

// oneLine drops from a text of the site what a terminal takes for a command, or for another line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}

// Explain says why an origin did not answer, and what to do.
func Explain(err error) (problem, do string) {
	cert, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case untrusted:
		return "its certificate is not valid here: " + oneLine(cert.Err.Error()),
			"headgate run refuses it too; add its CA to this machine, or reach the site by http://"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it does not speak https", "write http:// if the site has no certificate"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return fmt.Sprintf("it did not answer within %v", mostWait), "check that the site is up and not overloaded"
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	return oneLine(err.Error()), "start the site, or check the address"
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
