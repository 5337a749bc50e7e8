package doctor

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/keypair"
)

// endsSoon is how long before its expiry a certificate causes a warning, as in headgate run and
// headgate check (package join).
const endsSoon = 30 * 24 * time.Hour

// proofs reports which certificates this node and the others have, and when they expire.
func (x *examiner) proofs(c *finding) {
	x.authority(c)
	own := c.tls.Certificates[0].Leaf
	x.lasts(own, "ours, of "+whose(own, c.domain), renewal(c, own))
	for _, d := range c.here {
		shown := d.leaf()
		if shown == nil || d.route || bytes.Equal(shown.Raw, own.Raw) {
			continue
		}
		x.say(Warning, fmt.Sprintf("the headgate that runs here shows another one, of %s, until %s",
			whose(shown, c.domain), day(shown.NotAfter)), "restart it: it reads its files at the start")
	}
	for _, name := range c.Store {
		front, route := c.of(name)
		if name == c.Node || front == nil {
			continue
		}
		if front.leaf() == nil && route != nil {
			front = route
		}
		x.shown(c, front)
	}
}

// authority checks the CA itself.
func (x *examiner) authority(c *finding) {
	const do = "make a new cluster in another folder (headgate cluster init), stop all nodes, " +
		"bring each its new file, start all; the data folders stay"
	for rest := c.TLS.CA; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return
		}
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil {
			x.lasts(ca, "the CA, "+strconv.Quote(ca.Subject.CommonName), do)
		}
	}
}

// lasts reports when a certificate expires.
func (x *examiner) lasts(cert *x509.Certificate, what, do string) {
	switch when, text := keypair.At(cert, x.cfg.Now(), endsSoon); when {
	case keypair.Over:
		x.say(Fault, fmt.Sprintf("%s: %s: no node takes it", what, text), do)
	case keypair.Early:
		x.say(Fault, what+": "+text, "check the clock of this machine, and of the one that made it")
	case keypair.Ending:
		x.say(Warning, what+": "+text, do)
	default:
		x.ok("%s, until %s", what, day(cert.NotAfter))
	}
}

// shown reports the certificate of a store node, and the store node's answer to this node's
// certificate.
func (x *examiner) shown(c *finding, d *door) {
	const files = "bring both nodes files of one headgate cluster init: they trust what its ca.key " +
		"has signed"
	own := c.tls.Certificates[0].Leaf
	switch d.why {
	case refusesCA:
		x.say(Fault, d.node+" does not trust the CA of our certificate", files)
	case refusesOver:
		x.say(Fault, d.node+" refuses our certificate: it is over by the clock there",
			renewal(c, own)+"; if it is not over by this one, compare the clocks")
	case refusesUs:
		x.say(Fault, fmt.Sprintf("%s refuses our certificate: %v", d.node, d.err), files)
	}
	leaf := d.leaf()
	if leaf == nil {
		if d.reached() && d.why != "" && !strings.HasPrefix(string(d.why), string(refusesUs)) {
			x.say(Skipped, d.node+" shows none", "")
		}
		return
	}
	who := whose(leaf, c.domain)
	switch d.why {
	case otherCA:
		x.say(Fault, fmt.Sprintf("%s shows a certificate of another CA, %q; ours is %q", d.node,
			leaf.Issuer.CommonName, own.Issuer.CommonName), files)
	case otherName:
		x.say(Fault, fmt.Sprintf("%s shows the certificate of %s, which is no store node of %s",
			d.node, who, c.Datacenter), "see which join file it has, and whether the address is its own: "+
			renewal(c, nil))
	case badCert:
		x.say(Fault, fmt.Sprintf("%s shows a certificate that is not good: %v", d.node, d.err),
			renewalOf(d.node))
	default:
		x.lasts(leaf, d.node+" shows that of "+who, renewalOf(d.node))
	}
}

// renewal returns how to renew the certificate of this node.
func renewal(c *finding, own *x509.Certificate) string {
	switch {
	case own == nil:
		return "headgate cluster node NAME makes a file for NAME"
	case c.Node != "":
		return renewalOf(c.Node)
	}
	return renewalOf(whose(own, c.domain))
}

func renewalOf(node string) string {
	return fmt.Sprintf("where ca.key is, move %s.join away and run: headgate cluster node %s; bring the "+
		"new file to its machine and restart headgate there", node, node)
}

// whose returns the name of the node that a certificate is for. It quotes names that are not from
// this data center, because others wrote them.
func whose(leaf *x509.Certificate, domain string) string {
	for _, name := range leaf.DNSNames {
		label, ok := strings.CutSuffix(name, domain)
		if ok && label != anyStore && join.CheckName(label) == nil {
			return label
		}
	}
	if slices.Contains(leaf.DNSNames, anyStore+domain) {
		return "any store node"
	}
	return strconv.Quote(leaf.Subject.CommonName)
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

func inMS(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
