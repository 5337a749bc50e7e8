// Package certs holds the certificates of the visitors' https listener: two
// files that are watched, or an account with an ACME issuer (RFC 8555).
//
// # The promise
//
// A handshake never waits for a file or an issuer: it gets the certificate that
// is there now, or none. A new pair of files or a renewal takes the place of
// the old certificate only when it is whole: until then, and whatever goes
// wrong, the old one is served. An expired one is served too, for a warning in
// the browser says more than a closed door.
//
// # Concurrency and cost
//
// [Files] and [ACME] may be used by many goroutines. Each has a Run that blocks
// and owns all that happens over time; nothing else starts a goroutine. A
// handshake costs an atomic load, or a lookup under a read lock.
//
// # What it does not do
//
// It opens no listener. It proves domains by http-01 and tls-alpn-01 only, so
// it obtains no wildcards. It asks neither OCSP nor renewal information
// (RFC 9773) of the issuer.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/headgate/headgate/internal/smallfile"
)

// A State is what an operator wants to know of one certificate.
type State struct {
	Name     string    // the first host name in it
	NotAfter time.Time // zero while there is none
}

// Config makes the configuration of a TLS listener: version 1.2 at least,
// 1.3 and HTTP/2 where the client can, all else as Go chooses.
func Config(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: certificate,
		// Without acme-tls/1 here a tls-alpn-01 challenge ends before the
		// certificate is asked for. Offering it to others does no harm: they
		// get no certificate for it.
		NextProtos: []string{"h2", "http/1.1", acme.ALPNProto},
	}
}

// An Error says which file is wrong, and what to do.
type Error struct{ *fileError }

type fileError = smallfile.Error

func (e *Error) Error() string { return "tls: " + e.fileError.Error() }

// nameOf is the first host name a certificate is for.
func nameOf(leaf *x509.Certificate) string {
	switch {
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		return leaf.IPAddresses[0].String()
	}
	return leaf.Subject.CommonName
}
