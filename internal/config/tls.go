package config

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/hint"
)

const (
	letsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

	// maxDomains bounds the certificate orders of one process. Chosen: Let's Encrypt accepts 300
	// new orders in three hours.
	maxDomains = 100
)

func readTLS(dst *TLS) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		*dst = TLS{Listen: ":8443", Redirect: true}
		d.mapping(key, n, tlsFields(dst))
	}
}

func tlsFields(t *TLS) []field {
	return []field{
		one("listen", address(&t.Listen)),
		one("certificate", text(&t.Certificate, cleanFile)),
		one("key", text(&t.Key, cleanFile)),
		{name: "acme", read: func(d *decoder, key string, n *yaml.Node) {
			t.ACME.Directory = letsEncrypt
			d.mapping(key, n, acmeFields(&t.ACME))
		}},
		one("redirect", truth(&t.Redirect)),
		one("hsts", span(&t.HSTS, time.Minute, 730*day, true)),
	}
}

func acmeFields(a *ACME) []field {
	domains := list("domains", &a.Domains, cleanDomain)
	domains.example = "[shop.example.com]"
	return []field{
		domains,
		one("email", text(&a.Email, cleanEmail)),
		one("directory", raw(&a.Directory, cleanDirectory)),
		one("root", text(&a.Root, cleanFile)),
	}
}

// TLSFault returns the error of a file that tls names as a fault of that key.
func (c *Config) TLSFault(err error) error {
	if err == nil {
		return nil
	}
	return &Fault{File: c.File, Key: "tls", Problem: err.Error(), Hint: hint.Of(err), cause: err}
}

// checkTLS checks the keys of tls against each other and against the rest.
func checkTLS(d *decoder, c *Config) {
	t := &c.TLS
	if !t.On() || !d.good("tls") {
		return
	}
	for _, other := range []struct{ key, addr string }{
		{"listen", c.Listen}, {"admin_listen", c.AdminListen},
	} {
		if d.good("tls.listen", other.key) && collide(t.Listen, other.addr) {
			d.clash(wrong("give https a port of its own, such as :8443 or :443",
				"%s and %s %s are the same place", t.Listen, other.key, other.addr),
				"tls.listen", "tls")
		}
	}
	if !d.good("tls.certificate", "tls.key", "tls.acme", "tls.acme.domains") {
		return
	}
	_, byACME := d.spots["tls.acme"]
	switch {
	case byACME && (t.Certificate != "" || t.Key != ""):
		d.clash(wrong("keep the files, or keep acme", "stands beside certificate or key"), "tls.acme")
		return
	case byACME:
		c.checkDomains(d)
	case t.Certificate == "" && t.Key == "":
		d.clash(wrong("add certificate: and key:, or acme: with domains:",
			"names no certificate"), "tls")
	case t.Certificate == "":
		d.clash(wrong("add certificate: fullchain.pem", "stands without a certificate"), "tls.key")
	case t.Key == "":
		d.clash(wrong("add key: privkey.pem", "stands without its key"), "tls.certificate")
	}
}

// checkDomains requires domains, and warns of those that no room covers.
func (c *Config) checkDomains(d *decoder) {
	domains := c.TLS.ACME.Domains
	switch {
	case len(domains) == 0:
		d.clash(wrong("add the host names that visitors use, such as shop.example.com",
			"names no domain"), "tls.acme.domains", "tls.acme")
		return
	case len(domains) > maxDomains:
		d.clash(wrong("use certificate files from an ACME client of your own",
			"has %d domains, more than the %d allowed", len(domains), maxDomains), "tls.acme.domains")
		return
	}
	if slices.ContainsFunc(c.Rooms, func(r Room) bool { return r.Host == "" }) {
		return
	}
	for _, name := range domains {
		if !slices.ContainsFunc(c.Rooms, func(r Room) bool { return r.Host == name }) {
			c.warn(d, wrong("take it out, or add a room with this host",
				"no room has the host %s", name), "tls.acme.domains")
		}
	}
}

// cleanDomain accepts only what an issuer can verify by a request to this server: a full name, no
// wildcard, no address.
func cleanDomain(s string) (string, *mistake) {
	const hint = "write a full host name, such as shop.example.com"
	if strings.Contains(s, "*") {
		return "", wrong("write each host out; for a wildcard use certificate files",
			"%s is a wildcard, which needs a proof by DNS", quote(s))
	}
	host, m := cleanHost(s)
	if m != nil {
		return "", m
	}
	if strings.Contains(s, ":") {
		return "", wrong(hint, "%s has a port", quote(s))
	}
	_, err := netip.ParseAddr(host)
	if err == nil || !strings.Contains(host, ".") || strings.Contains(host, "_") {
		return "", wrong(hint, "%s is not a full host name", quote(s))
	}
	return host, nil
}

func cleanEmail(s string) (string, *mistake) {
	const hint = "write one address, such as admin@example.com"
	name, host, ok := strings.Cut(s, "@")
	if !ok || name == "" || !isHostName(host) || len(s) > 254 ||
		strings.ContainsFunc(s, func(r rune) bool {
			return r <= ' ' || r >= 0x7f || strings.ContainsRune(`,;:?&%"<>()[]\`, r)
		}) {
		return "", wrong(hint, "%s is not an address for mail", quote(s))
	}
	return s, nil
}

// cleanDirectory requires https, as RFC 8555 section 6.1 does.
func cleanDirectory(s string) (string, *mistake) {
	const hint = "write the https URL of the issuer's directory, such as " + letsEncrypt
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "":
		return "", wrong(hint, "%s is not an https URL", quote(s))
	case u.User != nil:
		return "", wrong(hint, "has a user name or password")
	}
	return s, nil
}
