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
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/keypair"
	"github.com/headgate/headgate/internal/smallfile"
	"github.com/headgate/headgate/queue"
)

// A Target describes where and how jobs are sent.
type Target struct {
	URL     string            // http or https
	Method  string            // default POST
	Headers map[string]string // fixed: they replace a job's header of the same name
	Secrets []string          // whsec_…, each one signs; none: unsigned
	Timeout time.Duration     // per delivery, default 30 s
	// KeyIsID uses a job's key as its Webhook-Id, so that the ID is the same when a job is put
	// twice. No Idempotency-Key is sent then.
	KeyIsID bool

	CA          string // PEM file of CAs trusted for the target; "": the system's
	Certificate string // PEM file of the client certificate, used with Key
	Key         string

	// Resolver resolves the host of the URL. Nil: the system's resolver.
	Resolver *net.Resolver

	// Dial opens connections to the target. Nil: TCP, to the addresses that guard allows.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Around wraps the transport of the deliveries. It may change their headers. Nil: no wrapper.
	Around func(next http.RoundTripper) http.RoundTripper
}

// Limits. All are chosen.
const (
	defaultTimeout = 30 * time.Second
	dialTimeout    = 5 * time.Second // same as the proxy
	idleConns      = 512             // same as the proxy
	idleFor        = time.Minute     // same as the proxy
	maxAnswer      = 64 << 10        // bytes of a body to read so that its connection can be reused
	maxAnswerHead  = 64 << 10
	maxSecrets     = 4 // a rotation needs two
)

// Check returns all errors of the target's configuration. It does not read files.
func (t Target) Check() error {
	var all []error
	bad := func(wrong bool, text string, args ...any) {
		if wrong {
			all = append(all, fmt.Errorf(text, args...))
		}
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		u = &url.URL{} // the error contains the address, which may contain a secret
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

// Open prepares deliveries to a target. It reads the files that the target names, but does not
// connect. Call Close after the last delivery.
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
	// HTTP/1.1 only: with HTTP/2, net/http retries a request by itself when the target refuses its
	// stream, and the limits would not count the retry.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	h.transport = &http.Transport{
		DialContext:            t.dialer(h.url.Hostname()),
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    dialTimeout,
		Protocols:              protocols,
		MaxIdleConns:           idleConns,
		MaxIdleConnsPerHost:    idleConns, // the default of 2 would dial for nearly every job
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxAnswerHead,
		DisableCompression:     true, // the answer's body is not used
	}
	h.carrier = h.transport
	if t.Around != nil {
		h.carrier = t.Around(h.transport)
	}
	return h, nil
}

// tls returns the TLS configuration for the target.
func (t Target) tls() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		text, err := smallfile.ReadPublic(t.CA)
		if err != nil {
			return nil, fmt.Errorf("read the target's ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the target's ca %s holds no certificate: name a PEM file", t.CA)
		}
	}
	if t.Certificate != "" {
		cert, err := smallfile.ReadPublic(t.Certificate)
		key, keyErr := smallfile.ReadPublic(t.Key)
		if err := errors.Join(err, keyErr); err != nil {
			return nil, fmt.Errorf("read the target's certificate and key: %w", err)
		}
		pair, fault := keypair.Parse(cert, key)
		if fault != nil {
			return nil, &hint.Error{Do: fault.Hint, Text: fmt.Sprintf("read certificate %s and its key %s: %s",
				t.Certificate, t.Key, fault.Problem)}
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
