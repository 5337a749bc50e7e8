package embedded

import (
	"crypto/x509"
	"errors"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/rights"
)

// A doorkeeper decides for each connection which account it belongs to, and what a worker
// may do there. It implements server.Authentication.
type doorkeeper struct {
	store   string                    // the name that only certificates of store nodes carry
	others  map[string]*x509.CertPool // the CAs of the data centers that connect to us, by name
	engine  *server.Server            // set before it starts
	revoked *revocations
}

// Check implements server.Authentication. A connection from another machine has shown a
// certificate in the handshake already: of this cluster at the port for clients, of another
// data center at the port for links.
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
		if user.Account, err = k.engine.LookupAccount((&Datacenter{Name: dc}).account()); err != nil {
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

// leastSecret is the shortest secret of a worker's inbox. [Connect] draws 26 characters.
const leastSecret = 16

// worker returns the permissions of a worker, nil for one that must not come in: its name
// is of another certificate, or it has no inbox of its own.
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

// revocations are the certificates that are refused, and the connections by certificate.
type revocations struct {
	mu      sync.Mutex
	serials map[string]bool   // refused
	open    map[uint64]string // the serial of the certificate of a connection
	peers   map[string]bool   // serials that this engine has shaken hands with as an engine does
}

// begin forgets the connections of the engine before: their numbers are given again.
func (r *revocations) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open, r.peers = nil, nil
}

// check refuses a certificate that was revoked.
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

// checkPeer is check for routes, and for links that we open. nats-server has no call that ends
// one, and keeps one whose other end has not said a word after the handshake: see Revoke.
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

// admit notes which certificate a connection has, and reports whether it may stay: it may
// have been revoked since the handshake.
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

// Revoke replaces the list of certificates that are refused, by serial number in lower-case
// hexadecimal, and ends all connections that were opened with one of them. nats-server can
// end those of clients and links one by one. For a route, and for a link that this engine
// opened, Run starts the engine anew. It should be called now and then with the same list: it
// forgets connections that have ended.
func (s *Server) Revoke(serials []string) {
	refused := make(map[string]bool, len(serials))
	for _, serial := range serials {
		refused[serial] = true
	}
	engine := s.engine.Load()
	s.revoked.mu.Lock()
	s.revoked.serials = refused
	var end []uint64
	for id, serial := range s.revoked.open {
		if refused[serial] {
			end = append(end, id)
		}
		if refused[serial] || engine == nil || engine.GetClient(id) == nil && engine.GetLeafNode(id) == nil {
			delete(s.revoked.open, id)
		}
	}
	var peers []string
	for serial := range s.revoked.peers {
		if refused[serial] {
			peers = append(peers, serial)
			delete(s.revoked.peers, serial)
		}
	}
	s.revoked.mu.Unlock()
	if engine == nil {
		return // it has no connections
	}
	for _, id := range end {
		_ = engine.DisconnectClientByID(id) // one that is gone already is well
	}
	if len(peers) > 0 && s.startAgain() {
		s.cfg.Log.Warn("a store node was revoked: the engine is started anew, which ends its connections",
			"serials", peers)
	}
}
