package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"time"

	"github.com/headgate/headgate/internal/keypair"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/smallfile"
)

// soon is how long before its expiry a certificate causes a warning. Chosen: ACME clients renew a
// month before, so a week left means that renewal is broken.
const soon = 7 * 24 * time.Hour

// A Pair is a certificate and its key, read from two files.
type Pair struct {
	Names    []string // its host names
	NotAfter time.Time
	Warnings []Warning

	cert *tls.Certificate
}

// A Warning describes a certificate that is served but has a problem.
type Warning struct{ Problem, Hint string }

// ReadPair reads a certificate and its key and checks that they belong
// together. The error is a [*hint.Error].
func ReadPair(certificate, key string, now time.Time) (*Pair, error) {
	chain, err := smallfile.ReadPublic(certificate)
	if err != nil {
		return nil, err
	}
	secret, mode, err := smallfile.Read(key)
	if err != nil {
		return nil, err
	}
	cert, fault := keypair.Parse(chain, secret)
	switch {
	case fault != nil && fault.InKey:
		return nil, smallfile.Wrong(key, fault.Problem, fault.Hint)
	case fault != nil:
		return nil, smallfile.Wrong(certificate, fault.Problem, fault.Hint)
	}
	p := &Pair{Names: cert.Leaf.DNSNames, NotAfter: cert.Leaf.NotAfter, cert: &cert}
	p.judge(certificate, key, mode, now)
	return p, nil
}

// judge returns the warnings about a pair.
func (p *Pair) judge(certificate, key string, mode fs.FileMode, now time.Time) {
	warn := func(hint, format string, args ...any) {
		p.Warnings = append(p.Warnings, Warning{fmt.Sprintf(format, args...), hint})
	}
	leaf := p.cert.Leaf
	if !platform.IsPrivate(mode) {
		warn("chmod 600 "+key, "%s may be read by others (mode %03o)", key, mode.Perm())
	}
	const renew = "renew it; headgate takes the new files up by itself"
	switch when, text := keypair.At(leaf, now, soon); {
	case when == keypair.Early:
		warn("check the clock of this machine", "%s %s", certificate, text)
	case when == keypair.Over, when == keypair.Ending && leaf.NotAfter.Sub(leaf.NotBefore) > 2*soon:
		warn(renew, "%s %s", certificate, text)
	}
	if !keypair.IsFor(leaf, x509.ExtKeyUsageServerAuth) {
		warn("browsers refuse it: issue it for server authentication", "%s is not for a server", certificate)
	}
	if len(leaf.DNSNames) == 0 && len(leaf.IPAddresses) == 0 {
		warn("browsers refuse it: issue it with subject alternative names",
			"%s is for no host name", certificate)
	}
}

// ReadRoots reads trusted CAs from a file; "" returns nil, the system's own. The error is a
// [*hint.Error].
func ReadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := smallfile.ReadPublic(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, smallfile.Wrong(file, "holds no certificate",
			"name a PEM file with the root certificate of the issuer")
	}
	return pool, nil
}
