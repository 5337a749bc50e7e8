// Package keypair checks a certificate and its private key, in the same words wherever an operator
// names them: for visitors, in a join file, for an engine, for the target of a queue.
package keypair

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"time"
)

// A Fault is what is wrong with one of the two.
type Fault struct {
	InKey         bool // else in the certificate
	Problem, Hint string
}

// Parse parses the PEM of a certificate, with those above it after it, and of its key, and checks
// that they belong together.
func Parse(certificate, key []byte) (tls.Certificate, *Fault) {
	wrong := func(inKey bool, problem, hint string) (tls.Certificate, *Fault) {
		return tls.Certificate{}, &Fault{inKey, problem, hint}
	}
	switch {
	case !hasBlock(certificate, "CERTIFICATE"):
		return wrong(false, "holds no certificate",
			"name a PEM file with the certificate first and those above it after it")
	case hasBlock(key, "ENCRYPTED PRIVATE KEY"), bytes.Contains(key, []byte("Proc-Type: 4,ENCRYPTED")):
		return wrong(true, "is protected by a password", "take it off: openssl pkey -in OLD -out NEW")
	case !hasBlock(key, "PRIVATE KEY"):
		return wrong(true, "holds no private key",
			"name the PEM file with the private key; another one has the certificate")
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return wrong(!strings.HasPrefix(err.Error(), "x509: "), strings.TrimPrefix(err.Error(), "tls: "),
			"give both files of one certificate, its own certificate first in its file")
	}
	return pair, nil
}

// IsFor reports whether a certificate may be used so. One without any use may be used for all.
func IsFor(leaf *x509.Certificate, use x509.ExtKeyUsage) bool {
	return len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 ||
		slices.Contains(leaf.ExtKeyUsage, use) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// A Time is where a moment lies in the time of a certificate.
type Time int

// These are the times of a certificate.
const (
	Valid Time = iota
	Ending
	Early
	Over
)

// At returns where a moment lies in the time of a certificate, in words too; "" is valid for longer
// than soon.
func At(leaf *x509.Certificate, now time.Time, soon time.Duration) (Time, string) {
	end := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.After(leaf.NotAfter):
		return Over, "expired at " + end
	case now.Before(leaf.NotBefore):
		return Early, "is not valid before " + leaf.NotBefore.UTC().Format(time.RFC3339)
	case leaf.NotAfter.Sub(now) < soon:
		return Ending, "expires at " + end
	}
	return Valid, ""
}

// hasBlock reports whether one of the PEM blocks has this type or a type that ends in it, such as
// EC PRIVATE KEY.
func hasBlock(b []byte, kind string) bool {
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == kind || strings.HasSuffix(block.Type, " "+kind) {
			return true
		}
	}
	return false
}
