package certs

import (
	"crypto/tls"
	"slices"
	"strings"

	"golang.org/x/crypto/acme"
)

// challenge tells whether an issuer asks for the proof of a domain (RFC 8737).
func challenge(hello *tls.ClientHelloInfo) bool {
	return len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acme.ALPNProto
}

// Certificate is for tls.Config.GetCertificate. A host that is not among the
// domains gets the alert unrecognized_name, and so does a domain whose first
// certificate is still on its way. A client that names no host, such as a probe
// by address, gets that of the first domain.
func (a *ACME) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	a.mu.RLock()
	defer a.mu.RUnlock()
	switch {
	case challenge(hello):
		return a.proofs[name], nil
	case name == "" && len(a.domains) > 0:
		name = a.domains[0]
	}
	return a.certs[name], nil
}

// Ready tells whether https works for a host. Of hosts that are not ours that
// is nobody's worry.
func (a *ACME) Ready(host string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.certs[host] != nil || !slices.Contains(a.domains, host)
}

// Token is the answer to an http-01 challenge at a path, while an issuer asks.
func (a *ACME) Token(path string) (string, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	answer, ok := a.tokens[path]
	return answer, ok
}

// States tells of each domain, and whether no last attempt was in vain.
func (a *ACME) States() ([]State, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var all []State
	for _, name := range a.domains {
		s := State{Name: name}
		if cert := a.certs[name]; cert != nil {
			s.NotAfter = cert.Leaf.NotAfter
		}
		all = append(all, s)
	}
	return all, len(a.failed) == 0
}

// held is the certificate that is served for a domain, or nil.
func (a *ACME) held(name string) *tls.Certificate {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.certs[name]
}
