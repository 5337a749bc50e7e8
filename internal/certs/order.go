package certs

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/crypto/acme"
)

// register returns a client of the issuer with the account in the vault, or with a new one. It
// accepts the terms of service: the operator who configures acme has agreed to them.
func (a *ACME) register(ctx context.Context) (*acme.Client, error) {
	key, err := a.accountKey(ctx)
	if err != nil {
		return nil, err
	}
	c := &acme.Client{Key: key, DirectoryURL: a.cfg.Directory, HTTPClient: a.client,
		UserAgent: "headgate", RetryBackoff: retryAfter}
	account := &acme.Account{}
	if a.cfg.Email != "" {
		account.Contact = []string{"mailto:" + a.cfg.Email}
	}
	_, err = c.Register(ctx, account, acme.AcceptTOS)
	if err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists) {
		return nil, err
	}
	return c, nil
}

// retryAfter limits the repetitions of the client within one attempt, for stale nonces and a
// briefly busy issuer.
func retryAfter(n int, _ *http.Request, res *http.Response) time.Duration {
	wait := 100 * time.Millisecond << min(n, 6)
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		wait = max(wait, time.Duration(min(s, 3600))*time.Second)
	}
	if n > 6 || wait > 10*time.Second {
		return -1 // the next attempt comes much later
	}
	return wait
}

const accountName = "account.pem"

func (a *ACME) accountKey(ctx context.Context) (crypto.Signer, error) {
	b, err := a.cfg.Vault.Get(ctx, accountName)
	if err == nil {
		return parseKey(b)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if b, err = encodeKey(key); err != nil {
		return nil, err
	}
	return key, a.cfg.Vault.Put(ctx, accountName, b)
}

// order obtains a certificate for one domain and stores it in the vault.
func (a *ACME) order(ctx context.Context, name string) (*tls.Certificate, error) {
	o, err := a.authorize(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("prove %s: %w", name, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{DNSNames: []string{name}}, key)
	if err != nil {
		return nil, err
	}
	chain, _, err := a.account.CreateCertFromOrder(ctx, o, csr, true)
	if err != nil {
		return nil, fmt.Errorf("issue for %s: %w", name, err)
	}
	b, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	for _, der := range chain {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	cert, err := parse(b, name)
	if err != nil {
		return nil, fmt.Errorf("the issuer's answer: %w", err)
	}
	// If the vault cannot store it, it is served from memory. Ordering again would use up the
	// issuer's weekly limit.
	if err := a.cfg.Vault.Put(ctx, certName(name), b); err != nil {
		a.cfg.Log.Error("certificate is served but not kept", "domain", name, "error", err,
			"hint", "mend the data folder: the next start orders a new certificate")
	}
	return cert, nil
}

// authorize proves control of the domain by http-01 and, if that fails, by tls-alpn-01: a site may
// be reachable by only one of the two. A failed proof invalidates its order, so each try has its
// own order.
func (a *ACME) authorize(ctx context.Context, name string) (*acme.Order, error) {
	var failed error
	for _, kind := range []string{"http-01", "tls-alpn-01"} {
		o, err := a.account.AuthorizeOrder(ctx, acme.DomainIDs(name))
		if err != nil {
			return nil, errors.Join(failed, err)
		}
		err = a.proveAll(ctx, o, kind, name)
		if err == nil && o.Status != acme.StatusReady {
			o, err = a.account.WaitOrder(ctx, o.URI)
		}
		if err == nil {
			return o, nil
		}
		a.withdraw(ctx, o)
		failed = errors.Join(failed, fmt.Errorf("%s: %w", kind, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

func (a *ACME) proveAll(ctx context.Context, o *acme.Order, kind, name string) error {
	for _, url := range o.AuthzURLs {
		z, err := a.account.GetAuthorization(ctx, url)
		if err != nil {
			return err
		}
		if z.Status != acme.StatusPending {
			continue // proven recently
		}
		at := slices.IndexFunc(z.Challenges, func(c *acme.Challenge) bool { return c.Type == kind })
		if at < 0 {
			return errors.New("the issuer does not offer it")
		}
		if err := a.prove(ctx, z, z.Challenges[at], name); err != nil {
			return err
		}
	}
	return nil
}

// prove answers one challenge while the issuer checks it.
func (a *ACME) prove(ctx context.Context, z *acme.Authorization, c *acme.Challenge, name string) error {
	if c.Type == "http-01" {
		answer, err := a.account.HTTP01ChallengeResponse(c.Token)
		if err != nil {
			return err
		}
		path := a.account.HTTP01ChallengePath(c.Token)
		a.mu.Lock()
		a.tokens[path] = answer
		a.mu.Unlock()
	} else {
		cert, err := a.account.TLSALPN01ChallengeCert(c.Token, name)
		if err != nil {
			return err
		}
		a.mu.Lock()
		a.proofs[name] = &cert
		a.mu.Unlock()
	}
	defer func() {
		a.mu.Lock()
		clear(a.tokens) // one at a time
		clear(a.proofs)
		a.mu.Unlock()
	}()
	if _, err := a.account.Accept(ctx, c); err != nil {
		return err
	}
	_, err := a.account.WaitAuthorization(ctx, z.URI)
	return err
}

// withdraw cancels the pending parts of a failed order, because issuers limit their number. Its
// errors are ignored.
func (a *ACME) withdraw(ctx context.Context, o *acme.Order) {
	for _, url := range o.AuthzURLs {
		if z, err := a.account.GetAuthorization(ctx, url); err == nil && z.Status == acme.StatusPending {
			_ = a.account.RevokeAuthorization(ctx, url)
		}
	}
}

// stored reads a certificate from the vault.
func (a *ACME) stored(ctx context.Context, name string) (*tls.Certificate, error) {
	b, err := a.cfg.Vault.Get(ctx, certName(name))
	if err != nil {
		return nil, err
	}
	return parse(b, name)
}

func certName(domain string) string { return domain + ".pem" }

// parse reads a key and a chain. They are stored in one text, so that they always match.
func parse(b []byte, name string) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(b, b)
	if err != nil {
		return nil, err
	}
	return &cert, cert.Leaf.VerifyHostname(name)
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func parseKey(b []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errors.New("the account key in the vault is not a PEM file")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the account key in the vault: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the account key in the vault cannot sign")
	}
	return signer, nil
}
