// Package identity finds out which person of the site sent a request: by a header that a trusted
// proxy sets, or by a signed token (JWT) of the site's sign-in.
//
// # The promise
//
// A token counts only if a key of the key set signed it with one of the algorithms of this package,
// if issuer and audience are those of the configuration, and if it has an expiry that is not over.
// There are no unsigned tokens, no tokens of shared secrets, and no keys from the token itself. A
// header counts only from trusted peers. internal/proxy removes it from the requests of all others.
//
// # Concurrency and cost
//
// Many goroutines may use a Source at once. A token is verified once and then recognized until it
// expires.
package identity

import (
	"errors"
	"hash/maphash"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/headgate/headgate/internal/wire"
)

// Config describes where the ID of a person comes from: Header or Keys is set.
type Config struct {
	Header  string                     // in canonical form
	Trusted func(r *http.Request) bool // reports whether the peer is a trusted proxy

	Keys     *Keys
	Issuer   string
	Audience string
	Claim    string // the claim with the ID

	// GroupHeader and GroupClaim say in which groups a person is. The first one of Groups counts.
	GroupHeader, GroupClaim string
	Groups                  []string

	Cookie string // name of a cookie with the token; "": only Authorization: Bearer

	Now func() time.Time
}

// Bounds. Chosen: servers reject headers of some KB anyway, and IDs are numbers, names, addresses or
// UUIDs. A clock of the site may differ by leeway.
const (
	longestToken = 8 << 10
	longestID    = 255
	leeway       = time.Minute
	mostKnown    = 10_000
	mostText     = 16 << 20 // bytes of known tokens
	mostTokens   = 4        // of a request: the browser has cookies of several paths
	mostRejected = 1 << 10
	longRejected = 2 << 10 // longer ones are verified each time
)

// A Source finds out who sent a request.
type Source struct {
	cfg Config

	seed maphash.Seed

	mu    sync.Mutex
	known map[uint64]proof // tokens that were verified, by hash
	text  int              // bytes of them

	// rejected are tokens that no key signed, or that are over, by hash: a client that goes on with a
	// token of yesterday costs no verification for each call. Valid ones are apart, so that invalid ones
	// cannot crowd them out.
	rejected [mostRejected]rejection
}

type rejection struct {
	token  string
	keySet uint64    // generation of the keys that did not verify it
	from   time.Time // when it was over: a clock that was ahead may be set back; zero if it never counts
}

type proof struct {
	token  string
	id     string
	group  string
	until  time.Time
	keySet uint64 // generation of the keys that verified it
}

// New returns a source.
func New(cfg Config) *Source {
	return &Source{cfg: cfg, seed: maphash.MakeSeed(), known: map[uint64]proof{}}
}

// Of returns the ID of the person who sent a request, or "", and the person's group, or "". Both are of
// one token, so that nobody lends a group to somebody else. known is false while no key set could be
// loaded, so that a token cannot be verified.
func (s *Source) Of(r *http.Request) (id, group string, known bool) {
	if s.cfg.Header != "" {
		id = s.named(r, s.cfg.Header, clean)
		if id != "" && s.cfg.GroupHeader != "" {
			group = s.named(r, s.cfg.GroupHeader, s.groupIn)
		}
		return id, group, true
	}
	known = true
	var space [mostTokens]string
	for _, token := range s.tokens(r, space[:0]) {
		p, ok := s.verify(r, token)
		if p.id != "" {
			return p.id, p.group, true
		}
		known = known && ok
	}
	return "", "", known
}

// named returns what a header of a trusted proxy says.
func (s *Source) named(r *http.Request, header string, read func(string) string) string {
	values := r.Header[header]
	if len(values) != 1 || !s.cfg.Trusted(r) {
		return ""
	}
	return read(strings.Trim(values[0], " \t"))
}

// groupIn returns the first group in a list with commas that counts.
func (s *Source) groupIn(list string) string {
	return s.groupOf(func(group string) bool {
		for name := range strings.SplitSeq(list, ",") {
			if strings.Trim(name, " \t") == group {
				return true
			}
		}
		return false
	})
}

func (s *Source) groupOf(has func(group string) bool) string {
	if i := slices.IndexFunc(s.cfg.Groups, has); i >= 0 {
		return s.cfg.Groups[i]
	}
	return ""
}

// claimed returns the first group of a claim that counts: a text, a number, or a list of them.
func (s *Source) claimed(claim any) string {
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	return s.groupOf(func(group string) bool {
		return slices.ContainsFunc(list, func(v any) bool { return text(v) == group })
	})
}

// clean returns an ID, or "" if it is too long or has control characters.
func clean(id string) string {
	if len(id) > longestID || strings.ContainsFunc(id, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return ""
	}
	return id
}

// tokens returns the tokens of a request. A site may use Authorization for something else too.
func (s *Source) tokens(r *http.Request, all []string) []string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok &&
		strings.EqualFold(scheme, "Bearer") {
		all = append(all, strings.Trim(token, " "))
	}
	if s.cfg.Cookie == "" {
		return all
	}
	for _, line := range r.Header["Cookie"] {
		for line != "" && len(all) < mostTokens {
			var value string
			if value, line = wire.Cookie(line, s.cfg.Cookie); value != "" {
				all = append(all, value)
			}
		}
	}
	return all
}

// algorithms returns those that may sign a token: all have a public key.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}
}

// verify returns what a token says, nothing if it does not count. ok is false if there are no keys to
// verify it with.
func (s *Source) verify(r *http.Request, token string) (p proof, ok bool) {
	if token == "" || len(token) > longestToken {
		return proof{}, true
	}
	now, hash := s.cfg.Now(), maphash.String(s.seed, token)
	if p, ok := s.recall(hash, token, now); ok {
		return p, true
	}
	if s.isRejected(hash, token, now) {
		return proof{}, true
	}
	t, err := jwt.ParseSigned(token, algorithms())
	if err != nil || len(t.Headers) != 1 {
		return proof{}, true
	}
	key, set, ok := s.cfg.Keys.find(r.Context(), t.Headers[0].KeyID, t.Headers[0].Algorithm)
	if key == nil {
		return proof{}, ok
	}
	var std jwt.Claims
	var all map[string]any
	err = t.Claims(key.Key, &std, &all)
	if err == nil && std.Expiry != nil {
		err = std.ValidateWithLeeway(jwt.Expected{
			Issuer: s.cfg.Issuer, AnyAudience: jwt.Audience{s.cfg.Audience}, Time: now,
		}, leeway)
	}
	if err != nil || std.Expiry == nil {
		if !errors.Is(err, jwt.ErrNotValidYet) && !errors.Is(err, jwt.ErrIssuedInTheFuture) {
			x := rejection{token: strings.Clone(token), keySet: set}
			if errors.Is(err, jwt.ErrExpired) {
				x.from = std.Expiry.Time()
			}
			s.reject(hash, x)
		}
		return proof{}, true
	}
	p = proof{token: strings.Clone(token), until: std.Expiry.Time().Add(leeway), keySet: set}
	p.id = text(all[s.cfg.Claim]) // also none is remembered: a signature is verified once
	if s.cfg.GroupClaim != "" {
		p.group = s.claimed(all[s.cfg.GroupClaim])
	}
	s.remember(hash, p)
	return p, true
}

// text returns a claim as an ID. Some sites number people.
func text(claim any) string {
	switch v := claim.(type) {
	case string:
		return clean(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 { // beyond, two numbers may look the same
			return strconv.FormatInt(int64(v), 10)
		}
	case interface{ Int64() (int64, error) }: // json.Number, of go-jose's JSON too
		if n, err := v.Int64(); err == nil {
			return strconv.FormatInt(n, 10)
		}
	}
	return ""
}

// recall returns what a token says that was verified with the current keys. The hash only finds a token:
// it is compared whole.
func (s *Source) recall(hash uint64, token string, now time.Time) (p proof, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok = s.known[hash]
	if !ok || !isSame(p.token, token) || !now.Before(p.until) || p.keySet != s.cfg.Keys.generation() {
		return proof{}, false
	}
	return p, true
}

// isSame compares two texts of one length in a time that does not depend on what they say. It takes words
// of eight bytes, because subtle.ConstantTimeCompare takes longer for a token than all else of Of.
func isSame(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	var differ uint64
	for ; len(a) >= 8 && len(b) >= 8; a, b = a[8:], b[8:] {
		differ |= word(a) ^ word(b)
	}
	for i := range len(a) {
		differ |= uint64(a[i] ^ b[i])
	}
	return differ == 0
}

// word returns the first eight bytes of a text. The compiler loads them at once.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// isRejected reports whether the current keys have not verified a token, or it is over.
func (s *Source) isRejected(hash uint64, token string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &s.rejected[hash%mostRejected]
	return isSame(x.token, token) && !now.Before(x.from) && x.keySet == s.cfg.Keys.generation()
}

// reject remembers a token that does not count.
func (s *Source) reject(hash uint64, x rejection) {
	if len(x.token) > longRejected {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected[hash%mostRejected] = x
}

func (s *Source) remember(hash uint64, p proof) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(hash)
	for len(s.known) >= mostKnown || s.text+len(p.token) > mostText {
		for old := range s.known { // any: the order of a map is random
			s.forget(old)
			break
		}
	}
	s.known[hash] = p
	s.text += len(p.token)
}

// forget removes a token. The lock is held.
func (s *Source) forget(hash uint64) {
	s.text -= len(s.known[hash].token)
	delete(s.known, hash)
}
