package join

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/keypair"
)

// soon is how long before its expiry a certificate causes a warning. Chosen: enough time to bring a
// new file to each machine.
const soon = 30 * 24 * time.Hour

// A proof is a certificate that matches the names and the CA of its file.
type proof struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

// TLS returns the configuration of all connections of the node, for both ends. A client must
// present a certificate of the same data center, and a server must be a store node. TLS ignores the
// clock: the other end rejects an expired certificate.
func (f *File) TLS() (*tls.Config, error) {
	p, faults := f.pair()
	if len(faults) > 0 {
		return nil, faults[0]
	}
	domain := f.domain()
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{p.cert},
		RootCAs:                p.roots,
		ClientCAs:              p.roots,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ServerName:             anyStore + domain,
		SessionTicketsDisabled: true, // connections live for days: resumption would save nothing
		VerifyConnection: func(cs tls.ConnectionState) error {
			return ofDomain(cs, domain)
		},
	}, nil
}

// ofDomain checks that the other end has a name in the data center. Its CA should sign no others,
// but several clusters may share one.
func ofDomain(cs tls.ConnectionState, domain string) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the other end shows no certificate")
	}
	leaf := cs.PeerCertificates[0]
	for _, name := range leaf.DNSNames {
		if label, ok := strings.CutSuffix(name, domain); ok && CheckName(label) == nil {
			return nil
		}
	}
	return fmt.Errorf("the certificate of %q is not of *%s", leaf.Subject.CommonName, domain)
}

// domain returns the suffix of all names in certificates.
func (p *Plan) domain() string { return domainOf(p.Datacenter) }

func domainOf(datacenter string) string { return "." + datacenter + ".headgate" }

// StoreName returns the common name in the certificates of all store nodes of a data center.
func StoreName(datacenter string) string { return anyStore + domainOf(datacenter) }

// pair reads the certificate, its key and the CA.
func (f *File) pair() (*proof, []*Fault) {
	const remake = "make another file with headgate cluster node"
	p := &proof{roots: x509.NewCertPool()}
	var faults []*Fault
	if !p.roots.AppendCertsFromPEM([]byte(f.CA)) {
		faults = append(faults, fault("give the ca.pem of the cluster", "holds no certificate").in("ca"))
	}
	cert, wrong := keypair.Parse([]byte(f.Cert), []byte(f.Key))
	if wrong != nil {
		field := "cert"
		if wrong.InKey {
			field = "key"
		}
		faults = append(faults, fault(remake, "%s", wrong.Problem).in(field))
	}
	p.cert = cert
	return p, faults
}

// prove checks the certificate against the CA, the clock and the names.
func (f *File) prove(now time.Time) (*proof, []*Fault) {
	p, faults := f.pair()
	if len(faults) > 0 {
		return nil, faults
	}
	leaf := p.cert.Leaf
	renew := "make another with headgate cluster node " + leaf.Subject.CommonName
	bad := func(hint, format string, args ...any) (*proof, []*Fault) {
		return nil, collect(fault(hint, format, args...).in("cert"))
	}
	if f := validity(leaf, now, renew); f != nil {
		return nil, collect(f.in("cert"))
	}
	// A node both listens and dials: Verify accepts a certificate that may do one of several uses,
	// so each is verified alone.
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: p.roots, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{use}})
		unknown, ok := errors.AsType[x509.UnknownAuthorityError](err)
		switch {
		case ok && unknown.Cert != nil:
			return bad("give the ca.pem and the certificate of one cluster",
				"is not signed by the CA of the cluster")
		case err != nil:
			return bad(renew, "is not good: %s", strings.TrimPrefix(err.Error(), "x509: "))
		}
	}
	domain := f.domain()
	label := f.Node
	switch isStore := slices.Contains(leaf.DNSNames, anyStore+domain); {
	case ofDomain(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}, domain) != nil:
		return bad("check the name of the data center", "is not of the data center %s", f.Datacenter)
	case label != "" && !slices.Contains(leaf.DNSNames, label+domain):
		return bad("give the certificate of "+label+", or take the node's name from the certificate",
			"is of the node %s, not of %s", quote(leaf.Subject.CommonName), label)
	case f.IsStore() && !isStore:
		return bad("make the one of a store node with headgate cluster node "+label,
			"is the certificate of a worker, and %s is a store node", label)
	case !f.IsStore() && isStore:
		return bad("give each worker a file of its own, or worker.join",
			"is the certificate of a store node, and this is a worker")
	}
	return p, nil
}

// Serial returns the serial number of the certificate, hexadecimal, and the name in it.
func (f *File) Serial() (serial, name string, err error) {
	p, faults := f.pair()
	if len(faults) > 0 {
		return "", "", faults[0]
	}
	return SerialText(p.cert.Leaf.SerialNumber), p.cert.Leaf.Subject.CommonName, nil
}

// SerialText formats a serial number as it is revoked: hexadecimal, lower case.
func SerialText(n *big.Int) string { return fmt.Sprintf("%x", n) }

// EndsSoon returns when the certificate expires, and whether that is within a month.
func (f *File) EndsSoon(now time.Time) (time.Time, bool) {
	p, faults := f.pair()
	if len(faults) > 0 {
		return time.Time{}, false
	}
	leaf := p.cert.Leaf
	return leaf.NotAfter, leaf.NotAfter.Sub(now) < soon
}
