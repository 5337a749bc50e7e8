package checkout

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// tokenType prevents confusion with other tokens of the same keys (RFC 8725, 3.11).
const tokenType = "headgate-pass+jwt"

// These are the parameters of the signing keys. Chosen: common libraries fetch keys at most once a
// minute. Before a new key signs, every node serves it (30 s in a cluster), and no cached key set
// lacks it.
const (
	jwksAge    = 5 * time.Minute  // how long clients may cache the key set
	signsAfter = 6 * time.Minute  // from the creation of a key to its first signature
	mostDraws  = 1000             // attempts for a scalar: each fails once in 2^32
	derivation = "headgate pass " // prefix of the derivation input
)

// A Secret is a sealing key from which a signing key is derived. Whatever stores, shares, rotates
// and forgets the sealing key does the same to the signing key.
type Secret struct {
	Key  [32]byte
	Made time.Time
}

// Keys are the signing keys of a process. They may be used by many goroutines at once.
type Keys struct {
	now func() time.Time
	set atomic.Pointer[keySet]

	mu   sync.Mutex
	from map[[32]byte]*signingKey // all that were ever set
}

// A keySet holds the keys at one time.
type keySet struct {
	own  []*signingKey // the newest first
	byID map[string]*signingKey
	jwks []byte
	tag  string // of jwks, for If-None-Match
}

type signingKey struct {
	id     string
	public *ecdsa.PublicKey
	signer jose.Signer
	signs  time.Time // not before this time
}

// NewKeys returns Keys without keys; the caller must call Set.
func NewKeys(now func() time.Time) *Keys {
	return &Keys{now: now, from: map[[32]byte]*signingKey{}}
}

// Set replaces the keys: one of own signs, all verify. A key added after the first ones signs once
// everybody certainly has it.
func (k *Keys) Set(own, others []Secret) error {
	if len(own) == 0 {
		return errors.New("there is no key to sign with")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.set.Load()
	next := &keySet{byID: map[string]*signingKey{}}
	own = slices.SortedStableFunc(slices.Values(own), func(a, b Secret) int {
		return b.Made.Compare(a.Made)
	})
	for _, s := range own {
		key, err := k.derive(&s, old != nil)
		if err != nil {
			return err
		}
		next.own, next.byID[key.id] = append(next.own, key), key
	}
	for _, s := range others {
		key, err := k.derive(&s, old != nil)
		if err != nil {
			return err
		}
		next.byID[key.id] = key
	}
	if err := next.encode(); err != nil {
		return err
	}
	if old == nil || !bytes.Equal(old.jwks, next.jwks) || !slices.Equal(old.own, next.own) {
		k.set.Store(next)
	}
	return nil
}

// derive derives the signing key of a sealing key, once. late means that others may not have it
// yet.
func (k *Keys) derive(s *Secret, late bool) (*signingKey, error) {
	if key := k.from[s.Key]; key != nil {
		return key, nil
	}
	private, err := scalar(s.Key[:])
	if err != nil {
		return nil, err
	}
	key := &signingKey{public: &private.PublicKey, signs: s.Made.Add(signsAfter)}
	if late { // by this process's clock: the creator's may be wrong
		key.signs = later(key.signs, k.now().Add(signsAfter))
	}
	jwk := jose.JSONWebKey{Key: key.public}
	sum, err := jwk.Thumbprint(crypto.SHA256) // RFC 7638
	if err != nil {
		return nil, fmt.Errorf("name a signing key: %w", err)
	}
	key.id = base64.RawURLEncoding.EncodeToString(sum[:12])
	key.signer, err = jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: key.id}},
		(&jose.SignerOptions{}).WithType(tokenType))
	if err != nil {
		return nil, fmt.Errorf("make a signing key: %w", err)
	}
	k.from[s.Key] = key
	return key, nil
}

// scalar derives the private key from a secret, by drawing until the value is in range (FIPS 186-5,
// appendix A.2.2).
func scalar(secret []byte) (*ecdsa.PrivateKey, error) {
	for i := range mostDraws {
		b, err := hkdf.Key(sha256.New, secret, nil, derivation+strconv.Itoa(i), 32)
		if err != nil {
			return nil, fmt.Errorf("derive a signing key: %w", err)
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("no signing key can be derived")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// encode writes the public keys (RFC 7517), sorted so that all nodes serve the same bytes.
func (s *keySet) encode() (err error) {
	set := jose.JSONWebKeySet{}
	for id, key := range s.byID {
		set.Keys = append(set.Keys,
			jose.JSONWebKey{Key: key.public, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	}
	slices.SortFunc(set.Keys, func(a, b jose.JSONWebKey) int { return cmp.Compare(a.KeyID, b.KeyID) })
	s.jwks, err = json.Marshal(set)
	sum := sha256.Sum256(s.jwks)
	s.tag = `"` + base64.RawURLEncoding.EncodeToString(sum[:9]) + `"`
	return err
}

// signer returns the key that signs now: the newest that everybody has, or else the oldest.
func (k *Keys) signer() *signingKey {
	own, now := k.set.Load().own, k.now()
	for _, key := range own {
		if !now.Before(key.signs) {
			return key
		}
	}
	return own[len(own)-1]
}

// ServeHTTP serves the public keys (RFC 7517).
func (k *Keys) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r) {
		return
	}
	set, h := k.set.Load(), w.Header()
	h.Set("Content-Type", "application/jwk-set+json")
	h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(jwksAge.Seconds())))
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("ETag", set.tag)
	if r.Header.Get("If-None-Match") == set.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(set.jwks)))
	if r.Method == http.MethodGet {
		w.Write(set.jwks)
	}
}

// reads rejects all methods except GET and HEAD.
func reads(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "use GET", http.StatusMethodNotAllowed)
	return false
}
