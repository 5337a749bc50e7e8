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
	knockWait = 2 * time.Second // for a port to answer, all at once; chosen
	maxHello  = 64 << 10        // a hello of nats-server is 1 KB; chosen
)

// A door is a port at which a store node should answer.
type door struct {
	node  string // whose it should be
	addr  string
	route bool // for store nodes alone
	link  bool // for those of other data centres alone

	rtt    time.Duration // of the connection, with the look-up of its name
	local  bool          // it was reached without leaving this machine
	certs  []*x509.Certificate
	server string // drawn by the engine at its start
	why    reason // "": all is well
	err    error
}

// A reason says why a door does not open.
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

// reached tells whether something answered at all.
func (d *door) reached() bool {
	switch d.why {
	case refused, silent, noWay, noName:
		return false
	}
	return true
}

// leaf is the certificate that was shown, or nil.
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

// knock connects as a node does and hears what the engine says first. It sends
// nothing but the handshake.
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
	// In TLS 1.3 the handshake is over for us before the other end has seen our
	// certificate: whether it takes it shows when it speaks.
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
		d.why, d.err = noTLS, errors.New("it is no engine of headgate")
		return
	}
	d.server = hello.ID
}

// unreached says why there is no connection.
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

// unproved says which end does not take the other's certificate, and why.
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
	// crypto/tls has no types for alerts: only their texts (alert.go).
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

// distrust says why we do not take a certificate. Whose it is comes first: when
// another CA has signed it, its names and its end tell nothing.
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

// about says which door it is.
func (d *door) about() string { return fmt.Sprintf("%s at %s", d.node, d.addr) }
