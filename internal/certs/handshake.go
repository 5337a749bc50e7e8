package certs

import (
	"crypto/tls"
	"slices"
	"strings"

	"golang.org/x/crypto/acme"
)

// challenge reports whether the handshake is an issuer's tls-alpn-01 check (RFC 8737).
func challenge(hello *tls.ClientHelloInfo) bool {
	return len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == acme.ALPNProto
}

// Certificate implements tls.Config.GetCertificate. Unknown hosts, and domains whose first
// certificate is not there yet, get the alert unrecognized_name. A client that names no host, such
// as a probe by address, gets the certificate of the first domain.
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

// Ready reports whether https works for a host. For unknown hosts it returns true.
func (a *ACME) Ready(host string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.certs[host] != nil || !slices.Contains(a.domains, host)
}

// Token returns the answer to an http-01 challenge at a path, while a proof is running.
func (a *ACME) Token(path string) (string, bool) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	answer, ok := a.tokens[path]
	return answer, ok
}

// States returns the state of each domain, and whether all last attempts succeeded.
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

// held returns the certificate served for a domain, or nil.
func (a *ACME) held(name string) *tls.Certificate {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.certs[name]
}
