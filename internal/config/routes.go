package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/publicsuffix"

	"github.com/headgate/headgate/internal/route"
)

// CookieDomain returns the domain that the hosts of a room have in common, or "" if there is only
// one host.
func (r *Room) CookieDomain() string {
	domain, _ := r.domain(len(r.AdditionalRoutes))
	return domain
}

// domain returns the domain that the first n additional routes have in common with the main one. ok
// reports whether a browser accepts a cookie for it.
func (r *Room) domain(n int) (domain string, ok bool) {
	all, alone := r.Host, true
	for _, x := range r.AdditionalRoutes[:n] {
		if x.Host == r.Host {
			continue
		}
		alone = false
		if _, err := netip.ParseAddr(x.Host); err == nil || x.Host == "" || r.Host == "" {
			return "", false
		}
		all = commonDomain(all, x.Host)
	}
	if alone {
		return "", true
	}
	if _, err := netip.ParseAddr(r.Host); err == nil || all == "" {
		return "", false
	}
	if suffix, _ := publicsuffix.PublicSuffix(all); suffix == all {
		return "", false
	}
	return all, true
}

// commonDomain returns the longest domain that contains both names. A name contains itself.
func commonDomain(a, b string) string {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	n := 0
	for n < min(len(x), len(y)) && x[len(x)-1-n] == y[len(y)-1-n] {
		n++
	}
	return strings.Join(x[len(x)-n:], ".")
}

// readRoutes reads the additional routes of a room.
func readRoutes(dst *[]route.Route) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > mostRoutes {
			d.fault(key, n, wrong("a room has all below its path: name the folders that are highest",
				"has %d routes, more than %d", len(n.Content), mostRoutes))
			return
		}
		for key, item := range d.items(key, n) {
			x := route.Route{Path: "/"}
			d.mapping(key, item, routeFields(&x))
			*dst = append(*dst, x)
		}
	}
}

func routeFields(x *route.Route) []field {
	return []field{one("host", raw(&x.Host, cleanHost)), one("path", raw(&x.Path, cleanPath).as(absolute()))}
}

// checkRoutes checks the routes of a room against each other.
func checkRoutes(d *decoder, r *Room, k string) {
	if len(r.AdditionalRoutes) == 0 || !d.good(k+"host", k+"path", k+"additional_routes") {
		return
	}
	if r.CookieSuffix == "" && d.good(k+"cookie_suffix") {
		_, at := d.blame(k + "additional_routes")
		d.faultAt(k+"cookie_suffix", at, wrong("add a word: the cookie has another name then than before",
			"is missing: additional_routes need it"))
	}
	all := r.routes()
	for i, x := range r.AdditionalRoutes {
		at := k + "additional_routes[" + strconv.Itoa(i) + "]."
		if !d.good(strings.TrimSuffix(at, "."), at+"host", at+"path") {
			return
		}
		if slices.ContainsFunc(all[:i+1], func(y route.Route) bool {
			return route.Same(x, y, !r.PathCaseSensitive)
		}) {
			d.clash(wrong("take it out", "host and path are those of a route of this room already"),
				at+"path", at+"host", strings.TrimSuffix(at, "."))
		}
		if _, ok := r.domain(i + 1); !ok {
			d.clash(wrong("take hosts of one domain, such as shop.example.com and pay.example.com, or make "+
				"a room for each", "a visitor's cookie cannot go along from %s to %s",
				hostName(r.Host), hostName(x.Host)), at+"host", strings.TrimSuffix(at, "."))
			return
		}
	}
}

func hostName(host string) string {
	if host == "" {
		return "any host"
	}
	return quote(host)
}

// shares reports whether two rooms have a route in common, and returns it.
func (r *Room) shares(x *Room) (route.Route, bool) {
	if len(r.AdditionalRoutes)+len(x.AdditionalRoutes) == 0 { // the usual case
		a, anyCase := route.Route{Host: r.Host, Path: r.Path}, !r.PathCaseSensitive || !x.PathCaseSensitive
		return a, route.Same(a, route.Route{Host: x.Host, Path: x.Path}, anyCase)
	}
	for _, a := range r.routes() {
		for _, b := range x.routes() {
			if route.Same(a, b, !r.PathCaseSensitive || !x.PathCaseSensitive) {
				return a, true
			}
		}
	}
	return route.Route{}, false
}

// Taken reports whether another room has a route of this one, or the same cookie name.
func (r *Room) Taken(x *Room) (at route.Route, place, cookie bool) {
	at, place = r.shares(x)
	if r.CookieSuffix == "" && x.CookieSuffix == "" {
		return at, place, false
	}
	a, _ := route.CookieNames(r.Name, r.CookieSuffix, false)
	b, _ := route.CookieNames(x.Name, x.CookieSuffix, false)
	return at, place, r.Name != x.Name && a[0] == b[0]
}

// Bounds of the routes of a room. Chosen: each request is compared with all routes of all rooms.
const (
	mostRoutes = 100 // in addition to the first
	mostStars  = 4   // in one path
)
