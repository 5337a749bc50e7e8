package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	knockWait = 2 * time.Second // for all ports together; chosen
	maxHello  = 64 << 10        // a greeting of nats-server is 1 KB; chosen
)

// A door is a port at which a store node should answer.
type door struct {
	node  string // the expected node
	addr  string
	route bool // for store nodes only
	link  bool // for those of other data centers only

	rtt    time.Duration // of the connection, including name resolution
	local  bool          // reached without leaving this machine
	certs  []*x509.Certificate
	server string // random id of the engine, new at each start
	why    reason // "": no fault
	err    error
}

// A reason is why a door does not open.
type reason string

const (
	refused     reason = "connection refused"
	silent      reason = "timeout"
	noWay       reason = "no way there"
	noName      reason = "its name cannot be looked up"
	noTLS       reason = "no TLS: another program answers"
	broken      reason = "closed in the middle of the handshake"
	otherCA     reason = "wrong CA"
	otherName   reason = "wrong name"
	over        reason = "expired"
	early       reason = "not valid yet"
	badCert     reason = "bad certificate"
	refusesCA   reason = "it refuses our certificate: wrong CA"
	refusesOver reason = "it refuses our certificate: expired"
	refusesUs   reason = "it refuses our certificate"
)

// reached reports whether something answered at all.
func (d *door) reached() bool {
	switch d.why {
	case refused, silent, noWay, noName:
		return false
	}
	return true
}

// leaf returns the certificate of the other end, or nil.
func (d *door) leaf() *x509.Certificate {
	if len(d.certs) == 0 {
		return nil
	}
	return d.certs[0]
}

// knockAll tries all doors at once, and waits for all of them.
func knockAll(ctx context.Context, doors []*door, t *tls.Config) {
	ctx, stop := context.WithTimeout(ctx, knockWait)
	defer stop()
	var wg sync.WaitGroup
	for _, d := range doors {
		wg.Go(func() { d.knock(ctx, t) })
	}
	wg.Wait()
}

// knock connects as a node does and reads the engine's greeting. It sends nothing but the
// handshake.
func (d *door) knock(ctx context.Context, t *tls.Config) {
	began := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.addr)
	if err != nil {
		d.why, d.err = unreached(err), err
		return
	}
	defer conn.Close()
	d.rtt = time.Since(began)
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		d.local = a.IP.IsLoopback()
	}
	secure := tls.Client(conn, t)
	if err := secure.HandshakeContext(ctx); err != nil {
		d.unproved(err, t)
		return
	}
	d.certs = secure.ConnectionState().PeerCertificates
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(end); err != nil {
			d.why, d.err = broken, err
			return
		}
	}
	// In TLS 1.3 the handshake completes for the client before the server has checked the client's
	// certificate. Only the server's first data shows whether it accepts the certificate.
	line, err := bufio.NewReader(io.LimitReader(secure, maxHello)).ReadString('\n')
	if err != nil {
		d.unproved(err, t)
		return
	}
	var hello struct {
		ID string `json:"server_id"`
	}
	text, ok := strings.CutPrefix(line, "INFO ")
	if err := json.Unmarshal([]byte(text), &hello); !ok || err != nil || hello.ID == "" {
		d.why, d.err = noTLS, errors.New("it is not an engine of headgate")
		return
	}
	d.server = hello.ID
}

// unreached returns why there is no connection.
func unreached(err error) reason {
	_, dns := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case dns:
		return noName
	case isTimeout(err):
		return silent
	}
	return noWay
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT)
}

// unproved reports which end rejects the other's certificate, and why.
func (d *door) unproved(err error, t *tls.Config) {
	d.err = err
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		d.certs = bad.UnverifiedCertificates
		d.why = d.distrust(bad.Err, t)
		return
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		d.why = noTLS
		return
	}
	// crypto/tls has no types for alerts, only their texts (alert.go).
	alert := ""
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		alert = op.Err.Error()
	}
	switch {
	case strings.Contains(alert, "unknown certificate authority"):
		d.why = refusesCA
	case strings.Contains(alert, "expired certificate"):
		d.why = refusesOver
	case strings.Contains(alert, "certificate"):
		d.why = refusesUs
	case isTimeout(err):
		d.why = silent
	default:
		d.why = broken
	}
}

// distrust returns why this node rejects a certificate. It checks the CA first: if another CA has
// signed the certificate, its names and dates prove nothing.
func (d *door) distrust(err error, t *tls.Config) reason {
	if leaf := d.leaf(); leaf != nil {
		_, why := leaf.Verify(x509.VerifyOptions{Roots: t.RootCAs, CurrentTime: leaf.NotBefore})
		if _, ok := errors.AsType[x509.UnknownAuthorityError](why); ok {
			return otherCA
		}
	}
	_, name := errors.AsType[x509.HostnameError](err)
	invalid, timed := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case name:
		return otherName
	case !timed || invalid.Reason != x509.Expired:
		return badCert
	case t.Time().Before(invalid.Cert.NotBefore):
		return early
	}
	return over
}

// about returns a description of the door.
func (d *door) about() string { return fmt.Sprintf("%s at %s", d.node, d.addr) }
