package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/rights"
	"github.com/nats-io/nats-server/v2/server"
)

// A doorkeeper decides for each connection to which account it belongs and what a worker may do
// there. It implements server.Authentication.
type doorkeeper struct {
	store   string                    // the name that only certificates of store nodes carry
	others  map[string]*x509.CertPool // the CAs of the data centers that connect to us, by name
	engine  *server.Server            // set before it starts
	revoked *revocations
}

// Check implements server.Authentication. A connection from another machine has already presented a
// certificate in the handshake: one of this cluster at the port for clients, one of another data
// center at the port for links.
func (k *doorkeeper) Check(c server.ClientAuthentication) bool {
	state := c.GetTLSConnectionState()
	user := &server.User{Account: k.engine.GlobalAccount()}
	switch name := c.GetOpts().Username; {
	case c.Kind() == server.LEAF:
		dc, err := k.whose(state)
		if err != nil {
			return false
		}
		stays := &server.SubjectPermission{Deny: staysHere()}
		user.Permissions = &server.Permissions{Publish: stays, Subscribe: stays}
		if user.Account, err = k.engine.LookupAccount(pairAccount(dc)); err != nil {
			return false
		}
	case state == nil && name != "": // of this process: no port is open without TLS
		var err error
		if user.Account, err = k.engine.LookupAccount(name); err != nil {
			return false
		}
	case state != nil && carries(state.PeerCertificates, k.store) != nil:
		if user.Permissions = k.worker(c); user.Permissions == nil {
			return false
		}
	}
	if state != nil && !k.revoked.admit(c.GetID(), state.PeerCertificates) {
		return false
	}
	c.RegisterUser(user)
	return true
}

// pairAccount returns the name of the account for the pair of this data center and another.
// nats-server rejects loops of links within an account, and three data centers would form one: so
// each pair has its own account. At the other end the account is named after this data center.
func pairAccount(other string) string { return "dc-" + other }

// leastSecret is the shortest secret of a worker's inbox. [Connect] draws 26 characters.
const leastSecret = 16

// worker returns the permissions of a worker, or nil if it must be rejected: its certificate has
// another name, or it has no inbox of its own.
func (k *doorkeeper) worker(c server.ClientAuthentication) *server.Permissions {
	chain, said := c.GetTLSConnectionState().PeerCertificates, c.GetOpts()
	_, domain, _ := strings.Cut(k.store, ".")
	var labels []string
	for _, name := range chain[0].DNSNames {
		if label, ok := strings.CutSuffix(name, "."+domain); ok {
			labels = append(labels, label)
		}
	}
	if len(said.Username) < leastSecret || !rights.Named(said.Name, labels) {
		k.engine.Warnf("worker %q refused: its certificate is of %q",
			said.Name, labels)
		return nil
	}
	may := rights.Of(said.Name, said.Username)
	return &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: may.Publish},
		Subscribe: &server.SubjectPermission{Allow: may.Subscribe},
	}
}

func carries(chain []*x509.Certificate, name string) error {
	if len(chain) == 0 {
		return errors.New("the other end shows no certificate")
	}
	return chain[0].VerifyHostname(name)
}

// whose returns the data center of the store node at the other end. Each CA is trusted for its own
// data center only.
func (k *doorkeeper) whose(cs *tls.ConnectionState) (string, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return "", errors.New("the other end shows no certificate")
	}
	leaf, found := cs.PeerCertificates[0], ""
	for name, pool := range k.others {
		if !slices.Contains(leaf.DNSNames, join.StoreName(name)) {
			continue
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: pool,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		switch {
		case err != nil:
			return "", err
		case found != "":
			return "", fmt.Errorf("the certificate is of %s and of %s", found, name)
		}
		found = name
	}
	if found == "" {
		return "", fmt.Errorf("the certificate of %q is not of a store node of another data center",
			leaf.Subject.CommonName)
	}
	return found, nil
}

// staysHere returns the subjects for requests to an engine about itself and its records. In the
// account of a pair they lead nowhere, and they do not cross the link.
func staysHere() []string { return []string{"$SYS.>", "$JS.>", "$KV.>", "$OBJ.>"} }

// revocations holds the rejected certificates, and the connections by certificate.
type revocations struct {
	mu      sync.Mutex
	serials map[string]bool   // rejected
	open    map[uint64]string // connection → serial of its certificate
	peers   map[string]bool   // serials of peers that have shaken hands as engines
}

// begin deletes the connections of the previous engine: the next one uses their numbers again.
func (r *revocations) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.peers = nil, nil
}

// check rejects a revoked certificate.
func (r *revocations) check(chain []*x509.Certificate) error {
	if r == nil || len(chain) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.serials[join.SerialText(chain[0].SerialNumber)] {
		return errors.New("the certificate of the other end was revoked")
	}
	return nil
}

// checkPeer is check for routes, and for links that we open. nats-server has no call that closes
// them, and keeps a connection whose other end sent nothing after the handshake: see Revoke.
func (r *revocations) checkPeer(chain []*x509.Certificate) error {
	if err := r.check(chain); r == nil || err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.peers == nil {
		r.peers = map[string]bool{}
	}
	r.peers[join.SerialText(chain[0].SerialNumber)] = true
	return nil
}

// admit stores the certificate of a connection, and reports whether the connection may stay: the
// certificate may have been revoked since the handshake.
func (r *revocations) admit(id uint64, chain []*x509.Certificate) bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	serial := join.SerialText(chain[0].SerialNumber)
	if r.serials[serial] {
		return false
	}
	if r.open == nil {
		r.open = map[uint64]string{}
	}
	r.open[id] = serial
	return true
}
