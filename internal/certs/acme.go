package certs

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
)

const (
	// lookAgain bounds every wait: timers stand still while a machine sleeps.
	lookAgain = time.Minute

	// retryFirst is the delay after an issuer did not answer. It doubles with each failure, up to
	// retryMost. Chosen.
	retryFirst = 10 * time.Second
	retryMost  = 30 * time.Minute

	// refusedFirst is the first delay after a failed proof. Let's Encrypt allows five failed proofs
	// of a host per hour, and one attempt makes two.
	refusedFirst = 30 * time.Minute
	refusedMost  = 6 * time.Hour

	attemptWithin = 4 * time.Minute // chosen: an issuer needs seconds
)

// An ACMEConfig defines the issuer and the domains.
type ACMEConfig struct {
	Domains   []string       // in lower case
	Email     string         // may be ""
	Directory string         // URL of the issuer
	Roots     *x509.CertPool // CAs to trust for Directory; nil: the system's
	Vault     Vault
	Log       *slog.Logger
}

// An ACME obtains a certificate for each domain. It renews a certificate when two thirds of its
// life are over, or a month before it expires.
//
// It retries a domain without a certificate forever, with growing delays.
type ACME struct {
	cfg    ACMEConfig
	client *http.Client
	kick   chan struct{}
	spread float64 // 0 to 1: machines with a shared vault renew one by one

	// Only Run uses these.
	account *acme.Client // nil until registered
	tries   map[string]*try

	mu      sync.RWMutex // guards the following; never held during a request
	domains []string
	certs   map[string]*tls.Certificate
	failed  map[string]bool             // the last attempt failed
	tokens  map[string]string           // http-01 answers by path
	proofs  map[string]*tls.Certificate // tls-alpn-01 certificates by domain
}

// A try is the time of the next attempt for a domain.
type try struct {
	at    time.Time
	fails int
}

// OpenACME reads the certificates in the vault. It sends nothing to the issuer; Run does.
func OpenACME(ctx context.Context, cfg ACMEConfig) *ACME {
	a := &ACME{
		cfg:    cfg,
		kick:   make(chan struct{}, 1),
		spread: rand.Float64(),
		tries:  map[string]*try{},
		certs:  map[string]*tls.Certificate{},
		failed: map[string]bool{},
		tokens: map[string]string{},
		proofs: map[string]*tls.Certificate{},
	}
	a.client = &http.Client{
		Timeout: 30 * time.Second, // chosen: one request takes seconds
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute,
			TLSClientConfig: &tls.Config{RootCAs: cfg.Roots, MinVersion: tls.VersionTLS12},
		},
	}
	a.SetDomains(ctx, cfg.Domains)
	return a
}

// Place returns a folder name for the account with an issuer, so that keys and certificates of a
// test issuer are not used in production.
func Place(directory string) string {
	host := "issuer"
	if u, err := url.Parse(directory); err == nil && u.Hostname() != "" {
		host = strings.ReplaceAll(u.Hostname(), ":", "_") // an IPv6 address
	}
	return fmt.Sprintf("%s-%x", host, sha256.Sum256([]byte(directory)))[:len(host)+1+8]
}

// SetDomains replaces the domains, and starts attempts at once for those without a certificate.
// When it returns, the certificates in the vault are served. A certificate that is served but
// missing in the vault continues to be served.
func (a *ACME) SetDomains(ctx context.Context, domains []string) {
	found := map[string]*tls.Certificate{}
	for _, name := range domains {
		cert, err := a.stored(ctx, name)
		switch {
		case err == nil:
			found[name] = cert
		case !errors.Is(err, fs.ErrNotExist): // a new one replaces it
			a.cfg.Log.Error("kept certificate is not usable", "domain", name, "error", err)
		}
	}
	a.mu.Lock()
	for _, name := range domains {
		// If the vault's disk is full, it lacks the newest certificate or has an older one.
		if held := a.certs[name]; held != nil &&
			(found[name] == nil || held.Leaf.NotAfter.After(found[name].Leaf.NotAfter)) {
			found[name] = held
		}
	}
	a.domains, a.certs, a.failed = slices.Clone(domains), found, map[string]bool{}
	a.mu.Unlock()
	select {
	case a.kick <- struct{}{}:
	default: // Run will look anyway
	}
}

// Run obtains and renews certificates until ctx ends.
func (a *ACME) Run(ctx context.Context) error {
	defer a.client.CloseIdleConnections()
	for ctx.Err() == nil {
		timer := time.NewTimer(a.round(ctx))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.kick:
			clear(a.tries) // the operator changed something: retry at once
		}
		timer.Stop()
	}
	return nil
}

// round processes each domain that is due, and returns the delay until the next round.
func (a *ACME) round(ctx context.Context) time.Duration {
	a.mu.RLock()
	domains := a.domains
	a.mu.RUnlock()
	for name := range a.tries {
		if !slices.Contains(domains, name) {
			delete(a.tries, name)
		}
	}
	wait := lookAgain
	for _, name := range domains {
		if ctx.Err() != nil {
			return 0
		}
		t := a.tries[name]
		if t == nil {
			t = &try{at: a.renewAt(a.held(name))}
			a.tries[name] = t
		}
		if !time.Now().Before(t.at) {
			a.attempt(ctx, name, t)
		}
		wait = min(wait, max(time.Until(t.at), 100*time.Millisecond))
	}
	return wait
}

// attempt tries to obtain one certificate and sets the time of the next attempt.
func (a *ACME) attempt(ctx context.Context, name string, t *try) {
	cert, err := a.renewed(ctx, name)
	if err == nil {
		a.mu.Lock()
		if slices.Contains(a.domains, name) {
			a.certs[name] = cert
		}
		delete(a.failed, name)
		a.mu.Unlock()
		t.at, t.fails = a.renewAt(cert), 0
		a.cfg.Log.Info("certificate ready", "domain", name, "expires", cert.Leaf.NotAfter)
		return
	}
	if ctx.Err() != nil {
		return
	}
	a.account = nil // the issuer may no longer know the account
	wait, hint := backoff(err, t.fails)
	t.at, t.fails = time.Now().Add(wait), t.fails+1
	a.mu.Lock()
	a.failed[name] = true
	a.mu.Unlock()
	args := []any{"domain", name, "error", err, "retry_in", wait.Round(time.Second).String(), "hint", hint}
	if held := a.held(name); held != nil {
		args = append(args, "expires", held.Leaf.NotAfter)
	}
	a.cfg.Log.Error("no certificate from the issuer", args...)
}

// renewed returns a certificate that is not due: one that another machine has
// put into the vault, or a new one.
func (a *ACME) renewed(ctx context.Context, name string) (*tls.Certificate, error) {
	if cert, err := a.stored(ctx, name); err == nil && time.Now().Before(a.renewAt(cert)) {
		return cert, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptWithin)
	defer cancel()
	if a.account == nil {
		account, err := a.register(ctx)
		if err != nil {
			return nil, fmt.Errorf("register with %s: %w", a.cfg.Directory, err)
		}
		a.account = account
	}
	return a.order(ctx, name)
}

// backoff returns the delay after an error, and advice for the operator.
func backoff(err error, fails int) (time.Duration, string) {
	first, most := retryFirst, retryMost
	hint := "can this machine reach the issuer, and does the issuer work?"
	problem, _ := errors.AsType[*acme.Error](err)
	if problem != nil && problem.StatusCode < 500 {
		first, most = refusedFirst, refusedMost
		hint = "the issuer refused: see the error"
	}
	if _, ok := errors.AsType[*acme.AuthorizationError](err); ok {
		first, most = refusedFirst, refusedMost
		hint = "the issuer must reach this server by the domain's name: port 80 at listen, " +
			"or port 443 at tls.listen; then reload"
	}
	wait := first << min(fails, 16)
	if problem != nil {
		if least, ok := acme.RateLimit(problem); ok {
			wait, most = max(wait, least), max(most, min(least, 7*24*time.Hour))
		}
	}
	wait = min(wait, most)
	return wait + rand.N(wait/10), hint // spreads the load of many machines
}

// renewAt returns when to renew a certificate: at once if there is none; else when a third of its
// life is left, or 30 days for a long life, plus a random spread.
func (a *ACME) renewAt(cert *tls.Certificate) time.Time {
	if cert == nil {
		return time.Time{}
	}
	left := min(cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore)/3, 30*24*time.Hour)
	return cert.Leaf.NotAfter.Add(time.Duration(a.spread*float64(left)/10) - left)
}
