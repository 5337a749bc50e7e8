package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

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
// together. The error is an [*Error].
func ReadPair(certificate, key string, now time.Time) (*Pair, error) {
	chain, _, err := readFile(certificate)
	if err != nil {
		return nil, err
	}
	secret, mode, err := readFile(key)
	if err != nil {
		return nil, err
	}
	if !hasBlock(chain, "CERTIFICATE") {
		return nil, wrong(certificate, "holds no certificate",
			"name a PEM file with the certificate first and those above it after it")
	}
	if hasBlock(secret, "ENCRYPTED PRIVATE KEY") || bytes.Contains(secret, []byte("Proc-Type: 4,ENCRYPTED")) {
		return nil, wrong(key, "is protected by a password",
			"take it off: openssl pkey -in OLD -out NEW")
	}
	if !hasBlock(secret, "PRIVATE KEY") {
		return nil, wrong(key, "holds no private key",
			"name the PEM file with the private key; tls.certificate names the certificate")
	}
	cert, err := tls.X509KeyPair(chain, secret)
	if err != nil {
		return nil, wrong(key, strings.TrimPrefix(err.Error(), "tls: "),
			"give both files of one certificate, the site's own certificate first in its file")
	}
	leaf := cert.Leaf
	p := &Pair{Names: leaf.DNSNames, NotAfter: leaf.NotAfter, cert: &cert}
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
	switch {
	case now.After(leaf.NotAfter):
		warn(renew, "%s expired at %s", certificate, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		warn("check the clock of this machine", "%s is not valid before %s",
			certificate, leaf.NotBefore.UTC().Format(time.RFC3339))
	case leaf.NotAfter.Sub(now) < soon && leaf.NotAfter.Sub(leaf.NotBefore) > 2*soon:
		warn(renew, "%s expires at %s", certificate, leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if len(leaf.DNSNames) == 0 && len(leaf.IPAddresses) == 0 {
		warn("browsers refuse it: issue it with subject alternative names",
			"%s is for no host name", certificate)
	}
}

// ReadRoots reads trusted CAs from a file; "" returns nil, the system's own. The error is an
// [*Error].
func ReadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, _, err := readFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, wrong(file, "holds no certificate",
			"name a PEM file with the root certificate of the issuer")
	}
	return pool, nil
}

// readFile reads a small regular file. The error is an [*Error].
func readFile(name string) ([]byte, fs.FileMode, error) {
	b, mode, err := smallfile.Read(name)
	if e, ok := errors.AsType[*smallfile.Error](err); ok {
		return nil, 0, &Error{e}
	}
	return b, mode, err
}

func wrong(file, problem, hint string) *Error { return &Error{smallfile.Wrong(file, problem, hint)} }

// hasBlock reports whether one of the PEM blocks has this type or a type that ends in it, such as
// EC PRIVATE KEY.
func hasBlock(b []byte, kind string) bool {
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return false
		}
		if block.Type == kind || strings.HasSuffix(block.Type, " "+kind) {
			return true
		}
	}
}
