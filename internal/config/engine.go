package config

import (
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/keypair"
	"github.com/headgate/headgate/internal/smallfile"
)

// ReadPassword reads the user and the password from a file of the kind password.
func ReadPassword(file string) (user, password string, err error) {
	b, err := smallfile.ReadSecret(file)
	if err != nil {
		return "", "", err
	}
	if kindOf(b) != CredentialPassword {
		return "", "", errors.New(file + ": is not a line user:password")
	}
	user, password, _ = strings.Cut(strings.TrimSpace(string(b)), ":")
	return user, password, nil
}

// kindOf detects the kind of a file of credentials. It returns "" if it is not known.
func kindOf(b []byte) CredentialKind {
	text := strings.TrimSpace(string(b))
	user, password, pair := strings.Cut(text, ":")
	switch {
	case strings.Contains(text, "BEGIN NATS USER JWT--") && strings.Contains(text, "BEGIN USER NKEY SEED--"):
		return CredentialJWT
	case strings.ContainsAny(text, "\r\n"):
		return ""
	case pair && user != "" && password != "":
		return CredentialPassword
	case strings.HasPrefix(text, "SU") && len(text) == seedLen:
		return CredentialSeed
	}
	return ""
}

// seedLen is the length of a seed: 36 bytes in base 32 (nats-io/nkeys, README).
const seedLen = 58

func readEngine(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		e := &Engine{}
		c.Engine = e
		before := d.Count()
		d.mapping(key, n, engineFields(e))
		if d.Count() == before && !d.Stopped {
			e.look(d)
		}
	}
}

func engineFields(e *Engine) []field {
	return []field{
		{name: "url", read: readURLs(&e.URLs), example: "nats://10.0.0.1:4222"},
		one("credentials", text(&e.Credentials, cleanCredentials)),
		one("ca", text(&e.CA, cleanFile)),
		one("cert", text(&e.Cert, cleanFile)),
		one("key", text(&e.Key, cleanFile)),
		one("replicas", oneOf(&e.Replicas, 1, 3)),
		one("name", raw(&e.Name, asJoin(join.CheckNode))),
	}
}

// readURLs reads one address, several separated by commas, or a list.
func readURLs(dst *[]string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode {
			list("url", dst, cleanNATS).read(d, key, n)
			if len(n.Content) == 0 || len(n.Content) > maxPeers {
				d.fault(key, n, wrong("name one server or more, such as nats://10.0.0.1:4222",
					"has %d servers, not 1 to %d", len(n.Content), maxPeers))
			}
			return
		}
		d.scalar(key, n, raw(dst, cleanNATSList))
	}
}

func cleanNATSList(s string) ([]string, *mistake) {
	var all []string
	for one := range strings.SplitSeq(s, ",") {
		u, m := cleanNATS(strings.TrimSpace(one))
		if m != nil {
			return nil, m
		}
		if !slices.Contains(all, u) && len(all) < maxPeers {
			all = append(all, u)
		}
	}
	return all, nil
}

// natsPort is the default port of NATS servers for clients.
const natsPort = "4222"

// cleanNATS checks the address of a server and adds the default port if it has none.
func cleanNATS(s string) (string, *mistake) {
	const hint = "write scheme, host and port, such as nats://10.0.0.1:4222"
	if strings.Contains(s, "@") { // never shown in messages: it may hold a password
		return "", wrong("write them into a file of mode 600, as user:password, and name it under credentials",
			"has a user name or password")
	}
	scheme, _, ok := strings.Cut(s, "://")
	switch {
	case s == "":
		return "", wrong(hint, "is empty")
	case !ok:
		return "", wrong("write nats:// or tls:// before it", "%s has no scheme", quote(s))
	case scheme == "ws" || scheme == "wss":
		return "", wrong("name the port for NATS clients, such as nats://10.0.0.1:4222 or tls://10.0.0.1:4222",
			"%s is of a WebSocket, which headgate does not speak", quote(s))
	case scheme != "nats" && scheme != "tls":
		return "", wrong("write nats:// or tls://", "the scheme %s is not one of NATS", quote(scheme))
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" || strings.ContainsAny(s, "?#") || u.Path != "" && u.Path != "/" {
		return "", wrong(hint, "%s is not the address of a server", quote(s))
	}
	host, port := u.Hostname(), u.Port()
	if _, err := netip.ParseAddr(host); err != nil && !isHostName(host) {
		return "", wrong(hint, "%s is not a host name", quote(host))
	}
	if port == "" && !strings.HasSuffix(u.Host, ":") {
		port = natsPort
	}
	if m := checkPort(port, 1); m != nil {
		return "", m
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}

// cleanCredentials checks the name of a file of credentials.
func cleanCredentials(s string) (string, *mistake) {
	s, m := cleanFile(s)
	if m != nil {
		m.hint = "name a file, such as /etc/headgate/nats.creds"
	}
	return s, m
}

// look reads the files once, so that errors in them are reported before anything is started.
func (e *Engine) look(d *decoder) {
	for _, file := range []*string{&e.Credentials, &e.CA, &e.Cert, &e.Key} {
		if *file != "" {
			*file = d.beside(*file)
		}
	}
	e.lookLogin(d)
	if ca, ok := e.open(d, "ca", e.CA, smallfile.ReadPublic); ok && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		d.clash(wrong("name the PEM file of the CA that has signed the servers' certificates",
			"%s: holds no certificate", e.CA), "engine.ca")
	}
	switch {
	case e.Cert != "" && e.Key == "":
		d.clash(wrong("add key: headgate.key", "stands without its key"), "engine.cert")
		return
	case e.Cert == "" && e.Key != "":
		d.clash(wrong("add cert: headgate.pem", "stands without a certificate"), "engine.key")
		return
	}
	cert, certOK := e.open(d, "cert", e.Cert, smallfile.ReadPublic)
	key, keyOK := e.open(d, "key", e.Key, smallfile.ReadSecret)
	if !certOK || !keyOK {
		return
	}
	if _, f := keypair.Parse(cert, key); f != nil {
		d.clash(wrong("name the certificate and the private key of one pair, as PEM",
			"%s and %s: %s", e.Cert, e.Key, f.Problem), "engine.cert")
	}
}

func (e *Engine) lookLogin(d *decoder) {
	b, ok := e.open(d, "credentials", e.Credentials, smallfile.ReadSecret)
	if !ok {
		return
	}
	if e.Kind = kindOf(b); e.Kind == "" {
		d.clash(wrong("give the .creds file that nsc makes, a user's seed (SU…), or one line user:password",
			"%s: holds no credentials that are known", e.Credentials), "engine.credentials")
	}
}

// open reads one of the files, if it is named, and reports whether it could.
func (e *Engine) open(
	d *decoder, key, file string, read func(string) ([]byte, error),
) ([]byte, bool) {
	if file == "" {
		return nil, false
	}
	b, err := read(file)
	if err != nil {
		m := clusterFile(err)
		if strings.HasPrefix(m.hint, "paths in cluster") {
			m.hint = "paths in engine count from the folder of the configuration"
		}
		d.clash(m, "engine."+key)
	}
	return b, err == nil
}

// checkEngine checks the engine against the rest of the configuration.
func checkEngine(d *decoder, c *Config) {
	if c.Engine == nil {
		return
	}
	if c.Cluster != nil {
		d.clash(wrong("keep one: engine for your own NATS, cluster for one that headgate runs",
			"stands beside cluster"), "engine")
		return
	}
	if _, ok := d.spots["drain_delay"]; !ok {
		c.DrainDelay = clusterDrain
	}
	if c.Engine.CA != "" || c.Engine.Cert != "" { // then every server must use TLS
		return
	}
	for _, s := range c.Engine.URLs {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "nats" || loopback(u.Hostname()) {
			continue
		}
		if !slices.ContainsFunc(c.Engine.URLs, func(x string) bool { return strings.HasPrefix(x, "tls:") }) {
			c.warn(d, wrong("write tls://, and ca: where the servers' certificates are of a CA of your own",
				"nothing makes %s encrypted, and sealing keys travel there", s), "engine.url")
			return
		}
	}
}
