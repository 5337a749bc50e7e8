package deliver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/queue"
)

// A Target says where jobs go and how.
type Target struct {
	URL     string            // http or https
	Method  string            // default POST
	Headers map[string]string // fixed: a job's header of the same name is left out
	Secrets []string          // whsec_…, each signs; none: unsigned
	Timeout time.Duration     // of a delivery, default 30 s
	// KeyIsID makes a job's key its Webhook-Id: it is the same when the job was put twice. There
	// is no Idempotency-Key then.
	KeyIsID bool

	CA          string // PEM file of who may vouch for the target; "": the system's
	Certificate string // PEM file of our own certificate, with Key
	Key         string

	// Resolver finds the address of the url's host. Nil: the system's.
	Resolver *net.Resolver

	// Dial opens the connections to the target. Nil: TCP, to addresses that the guard lets pass.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Around stands around the transport of the deliveries, whose headers it may change. Nil:
	// nothing.
	Around func(next http.RoundTripper) http.RoundTripper
}

// Bounds. Chosen.
const (
	defaultTimeout = 30 * time.Second
	dialTimeout    = 5 * time.Second // as the proxy's
	idleConns      = 512             // as the proxy's
	idleFor        = time.Minute     // as the proxy's
	maxAnswer      = 64 << 10        // of a body that is read so that its connection can be kept
	maxAnswerHead  = 64 << 10
	maxSecrets     = 4 // a rotation needs two
)

// Check reports all that is wrong with the target, but reads no file.
func (t Target) Check() error {
	var all []error
	bad := func(wrong bool, text string, args ...any) {
		if wrong {
			all = append(all, fmt.Errorf(text, args...))
		}
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		u = &url.URL{} // the error holds the address, which may hold a secret
	}
	bad(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "",
		"no url of a target: want http:// or https://, a host and a path")
	bad(u.User != nil, "the target's url holds a name or a password: set the header Authorization instead")
	bad(u.Fragment != "", "the target's url has a fragment (#…), which is never sent: take it out")
	methods := []string{"", http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete}
	bad(!slices.Contains(methods, t.Method), "method %q, want one of%s", t.Method,
		strings.Join(methods, " "))
	bad(t.Timeout < 0, "timeout %v is below 0", t.Timeout)
	bad(len(t.Secrets) > maxSecrets, "%d secrets, want %d at most", len(t.Secrets), maxSecrets)
	bad((t.Certificate == "") != (t.Key == ""), "certificate and key go together: name both files")
	bad(u.Scheme == "http" && t.CA+t.Certificate != "", "ca and certificate need an https url")
	for i, s := range t.Secrets {
		if _, err := parseSecret(s); err != nil {
			all = append(all, fmt.Errorf("secret %d: %w", i+1, err))
		}
	}
	return errors.Join(append(all, queue.CheckHeaders(t.Headers, true))...)
}

// Open makes ready to deliver to a target: it reads the files that it names, and connects to
// nothing yet. Close it after the last delivery.
func Open(t Target) (*HTTP, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	h := &HTTP{
		method: cmp.Or(t.Method, http.MethodPost), fixed: http.Header{},
		timeout: cmp.Or(t.Timeout, defaultTimeout), keyIsID: t.KeyIsID,
	}
	h.url, _ = url.Parse(t.URL)
	for name, value := range t.Headers {
		if name = http.CanonicalHeaderKey(name); name == "Host" {
			h.host = value
			continue
		}
		h.fixed.Set(name, value)
		h.fixedNames = append(h.fixedNames, queue.HeaderName(name))
	}
	for _, s := range t.Secrets {
		key, _ := parseSecret(s)
		h.keys = append(h.keys, key)
	}
	conf, err := t.tls()
	if err != nil {
		return nil, err
	}
	// HTTP/1.1 only: HTTP/2 of net/http sends a request again by itself when the target
	// refuses its stream, and nobody would have counted that.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	h.transport = &http.Transport{
		DialContext:            t.dialer(h.url.Hostname()),
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    dialTimeout,
		Protocols:              protocols,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConns, // net/http keeps 2, and dials for nearly every job
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxAnswerHead,
		DisableCompression:     true, // what the target answers is not read
	}
	h.carrier = h.transport
	if t.Around != nil {
		h.carrier = t.Around(h.transport)
	}
	return h, nil
}

// tls is how the target's connections are secured.
func (t Target) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read the target's ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the target's ca %s holds no certificate: name a PEM file", t.CA)
		}
	}
	if t.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, fmt.Errorf("read certificate %s and its key %s: %w", t.Certificate, t.Key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
