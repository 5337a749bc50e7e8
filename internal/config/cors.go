package config

import (
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
	"golang.org/x/net/publicsuffix"

	"github.com/headgate/headgate/internal/cors"
)

// mostCORS bounds each list of cors. Chosen: the same as for a room of the API.
const mostCORS = 100

func readCORS(dst **cors.Rules) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		c := &cors.Rules{Methods: cors.DefaultMethods(), MaxAge: cors.DefaultMaxAge}
		d.mapping(key, n, corsFields(c))
		*dst = c
		for _, l := range []struct {
			key  string
			list []string
		}{{key + ".origins", c.Origins}, {key + ".methods", c.Methods}, {key + ".headers", c.Headers}} {
			if len(l.list) > mostCORS {
				d.clash(wrong("leave some out", "has %d entries, and %d are the most", len(l.list),
					mostCORS), l.key)
			}
			if c.Credentials && slices.Contains(l.list, cors.Any) {
				d.clash(wrong("name them one by one, or write credentials: false",
					"* cannot be allowed together with credentials: browsers refuse that"), l.key)
			}
		}
		if c.Origins != nil && len(c.Origins) == 0 && d.good(key+".origins", key+".origins[0]") {
			d.clash(wrong("add one, such as https://app.example, or leave cors out", "has no origin"), key+".origins")
		}
	}
}

func corsFields(c *cors.Rules) []field {
	origins := list("origins", &c.Origins, cleanCORSOrigin)
	origins.example = "[https://app.example]"
	return []field{
		origins,
		list("methods", &c.Methods, orAny(cleanMethod)),
		list("headers", &c.Headers, orAny(cleanCORSHeader)),
		one("max_age", span(&c.MaxAge, time.Second, day, true)),
		one("credentials", truth(&c.Credentials)),
	}
}

func orAny(clean func(string) (string, *mistake)) func(string) (string, *mistake) {
	return func(s string) (string, *mistake) {
		if s == cors.Any {
			return s, nil
		}
		return clean(s)
	}
}

func cleanCORSHeader(s string) (string, *mistake) {
	if !isToken(s) || strings.Contains(s, "*") {
		return "", wrong("write each name alone, such as x-member, or * for all",
			"%s is not the name of a header", quote(s))
	}
	return textproto.CanonicalMIMEHeaderKey(s), nil
}

// cleanCORSOrigin normalizes an origin to the form of [cors.Rules].
func cleanCORSOrigin(s string) (string, *mistake) {
	const hint = "write scheme and host, such as https://app.example or https://*.shop.example"
	switch {
	case s == cors.Any:
		return s, nil
	case s == "null":
		return "", wrong("name the origins, or write *", "sandboxed frames of any site have the origin null")
	case strings.Contains(s, "@"): // it may hold a password
		return "", wrong(hint, "has a user name or password")
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || scheme == "" {
		return "", wrong(hint, "%s has no scheme", quote(s))
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		return "", wrong("write "+clip(scheme+"://"+rest[:i]), "%s has more than scheme, host and port", quote(s))
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", wrong(hint, "%s is not an origin", quote(s))
	}
	name, below := strings.CutPrefix(u.Hostname(), "*.")
	if strings.Contains(name, "*") {
		return "", wrong("begin a domain with the star, such as https://*.shop.example",
			"%s has a star that is not the first part of a domain", quote(s))
	}
	host, m := cleanHost(name)
	if m != nil || name == "" {
		return "", wrong(hint, "%s is not an ASCII host name", quote(u.Hostname()))
	}
	ip, err := netip.ParseAddr(host)
	// *.co.uk, or *.github.io, would allow the sites of strangers.
	switch suffix, _ := publicsuffix.PublicSuffix(host); {
	case below && (err == nil || suffix == host):
		return "", wrong("name a domain of your own, such as https://*.shop.example",
			"%s includes sites of different owners", quote(s))
	case below:
		host = "*." + host
	case err == nil && ip.Is6():
		host = "[" + host + "]"
	}
	port := u.Port()
	if port != "" || strings.HasSuffix(u.Host, ":") {
		if m := checkPort(port, 1); m != nil {
			return "", m
		}
	}
	// Browsers leave out the default port, and origins are compared as text.
	if port != "" && (u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80") {
		host += ":" + port
	}
	return u.Scheme + "://" + host, nil
}
