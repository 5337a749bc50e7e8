package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Parameters of a key set. Chosen: sites publish a new key long before they sign with it, and a set
// has a few keys. An unknown key may be a new one, so it makes Run load the set at once, but an
// attacker who invents keys makes it do so only once in findEvery.
const (
	loadEvery = 5 * time.Minute
	loadAgain = 30 * time.Second // after a failure
	findEvery = 10 * time.Second
	loadWait  = 5 * time.Second
	findWait  = 2 * time.Second
	mostBytes = 1 << 20
	mostKeys  = 100
	leastRSA  = 2048 // bits
)

// Keys are the public keys of a site's sign-in, from a JWKS (RFC 7517) in a file or at a URL. Run
// loads them. While the source is away, the keys stay as they are. They may be used by many
// goroutines at once.
type Keys struct {
	source string
	client *http.Client
	log    *slog.Logger
	wake   chan struct{}

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	gen    uint64    // 0: never loaded
	body   []byte    // of the current keys
	asked  time.Time // the last time that an unknown key made Run load
	loads  uint64    // attempts
	news   chan struct{}
	failed bool
}

// NewKeys returns the keys of a source: the name of a file, or a URL.
func NewKeys(source string, log *slog.Logger) *Keys {
	follow := func(to *http.Request, via []*http.Request) error {
		if len(via) > 3 || !Safe(to.URL) {
			return errors.New("redirected to an address that is not https")
		}
		return nil
	}
	return &Keys{source: source, log: log, wake: make(chan struct{}, 1), news: make(chan struct{}),
		client: &http.Client{Timeout: loadWait, CheckRedirect: follow}}
}

// Safe reports whether keys may be loaded from a URL: whoever changes them on their way can be
// anybody.
func Safe(u *url.URL) bool {
	addr, _ := netip.ParseAddr(u.Hostname()) // 127.example.com is a name
	local := u.Hostname() == "localhost" || addr.IsLoopback()
	return u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && local
}

// IsURL reports whether a source is a URL and not a file.
func IsURL(source string) bool { return strings.Contains(source, "://") }

// Run loads the keys, again and again, until ctx ends.
func (k *Keys) Run(ctx context.Context) error {
	for {
		err := k.load(ctx)
		if ctx.Err() != nil {
			return nil
		}
		next := loadEvery
		if err != nil {
			next = loadAgain
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (k *Keys) load(ctx context.Context) error {
	b, err := k.fetch(ctx)
	var keys []jose.JSONWebKey
	if err == nil {
		keys, err = Parse(b)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil && !k.failed:
		k.log.Warn("keys of the site's sign-in not loaded: those known stay in force",
			"jwks", k.source, "known", len(k.keys), "error", err)
	case err == nil && k.failed:
		k.log.Info("keys of the site's sign-in loaded again", "jwks", k.source)
	}
	if k.failed = err != nil; err == nil && !bytes.Equal(b, k.body) {
		k.keys, k.body = keys, b
		k.gen++
	}
	k.loads++
	close(k.news)
	k.news = make(chan struct{})
	return err
}

// fetch reads the source.
func (k *Keys) fetch(ctx context.Context) ([]byte, error) {
	if !IsURL(k.source) {
		f, err := os.Open(k.source)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readBounded(f)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.source, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", resp.Status)
	}
	return readBounded(resp.Body)
}

func readBounded(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err == nil && len(b) > mostBytes {
		err = fmt.Errorf("it is larger than %d bytes", mostBytes)
	}
	return b, err
}

// Parse returns the keys of a JWKS that may verify tokens. It leaves out secret and private keys,
// keys for encryption, and keys that are too weak or of an unknown kind.
func Parse(b []byte) (keys []jose.JSONWebKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(b, &set); err != nil {
		return nil, fmt.Errorf("it is not a JWKS: %w", err)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" || !verifies(key.Key) {
			continue
		}
		if keys = append(keys, key); len(keys) > mostKeys {
			return nil, fmt.Errorf("it has more than %d keys", mostKeys)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no public key of RSA (2048 bits or more), EC or Ed25519")
	}
	return keys, nil
}

func verifies(key any) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= leastRSA
	case *ecdsa.PublicKey:
		return true
	case ed25519.PublicKey:
		return len(key) == ed25519.PublicKeySize
	}
	return false
}

// find returns the key that a token names. A token without a name needs a set of one key. If the
// name is unknown, find waits until the keys are loaded again, but not long and not often, and not
// for what has just failed: each call with a token would wait. ok is false if no keys were ever loaded.
func (k *Keys) find(ctx context.Context, id, algorithm string) (key *jose.JSONWebKey, gen uint64, ok bool) {
	ctx, stop := context.WithTimeout(ctx, findWait)
	defer stop()
	for first := true; ; first = false {
		k.mu.Lock()
		key, gen, news := k.get(id, algorithm), k.gen, k.news
		if key == nil && first && gen > 0 && time.Since(k.asked) < findEvery || gen == 0 && k.failed {
			first = false
		} else if key == nil && first && gen > 0 {
			k.asked = time.Now()
			select {
			case k.wake <- struct{}{}:
			default:
			}
		}
		k.mu.Unlock()
		if key != nil || !first {
			return key, gen, gen > 0
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, 0, gen > 0
		}
	}
}

// get returns a key by its name. The lock is held.
func (k *Keys) get(id, algorithm string) *jose.JSONWebKey {
	for i := range k.keys {
		key := &k.keys[i]
		if (key.KeyID == id || id == "" && len(k.keys) == 1) && (key.Algorithm == "" || key.Algorithm == algorithm) {
			return key
		}
	}
	return nil
}

// generation returns the number of the current key set.
func (k *Keys) generation() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gen
}
