// Package certs holds the certificates of the visitors' https listener. They come from two watched
// files, or from an ACME issuer (RFC 8555).
//
// # The promise
//
// A handshake never waits for a file or an issuer: it uses the current certificate, or none. A new
// pair of files or a renewal replaces the old certificate only when it is complete and valid; until
// then the old one is served. An expired certificate is served too, because a browser warning is
// clearer than a failed connection.
//
// # Concurrency and cost
//
// [Files] and [ACME] may be used by many goroutines. Each has a Run that blocks and does all work
// over time; nothing else starts a goroutine. A handshake costs an atomic load, or a lookup under a
// read lock.
//
// # What it does not do
//
// It opens no listener. It supports only http-01 and tls-alpn-01, so it obtains no wildcard
// certificates. It uses neither OCSP nor ACME renewal information (RFC 9773).
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"golang.org/x/crypto/acme"
)

// A State describes one certificate for operators.
type State struct {
	Name     string    // the first host name in it
	NotAfter time.Time // zero while there is none
}

// Config returns the configuration of a TLS listener: at least TLS 1.2, with TLS 1.3 and HTTP/2 if
// the client supports them, and Go's defaults otherwise.
func Config(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: certificate,
		// Without acme-tls/1 in this list, a tls-alpn-01 handshake fails before GetCertificate is
		// called. Offering it to others is harmless: they get no certificate for it.
		NextProtos: []string{"h2", "http/1.1", acme.ALPNProto},
	}
}

// nameOf returns the first host name of a certificate.
func nameOf(leaf *x509.Certificate) string {
	switch {
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		return leaf.IPAddresses[0].String()
	}
	return leaf.Subject.CommonName
}
