package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"hash/maphash"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// A signIn is the sign-in of a site, with the other JWT library of this module.
type signIn struct {
	t     testing.TB
	ec    *ecdsa.PrivateKey
	rsa   *rsa.PrivateKey
	ed    ed25519.PrivateKey
	file  string
	keys  *Keys
	now   time.Time
	knows *Source
}

func newSignIn(t testing.TB) *signIn {
	t.Helper()
	s := &signIn{t: t, now: time.Now(), file: filepath.Join(t.TempDir(), "jwks.json")}
	var err error
	if s.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if s.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if _, s.ed, err = ed25519.GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	s.publish(s.set())
	s.keys = NewKeys(s.file, slog.New(slog.DiscardHandler))
	if err := s.keys.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.knows = New(Config{Keys: s.keys, Issuer: "https://login.example.com", Audience: "shop", Claim: "sub",
		Cookie: "session", Now: func() time.Time { return s.now }})
	return s
}

func (s *signIn) set() []jose.JSONWebKey {
	return []jose.JSONWebKey{
		{Key: s.ec.Public(), KeyID: "ec", Use: "sig", Algorithm: "ES256"},
		{Key: s.rsa.Public(), KeyID: "rsa"}, {Key: s.ed.Public(), KeyID: "ed"},
		{Key: []byte("a secret of thirty-two characters"), KeyID: "oct", Algorithm: "HS256"},
	}
}

func (s *signIn) publish(keys []jose.JSONWebKey) {
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err == nil {
		err = os.WriteFile(s.file, b, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *signIn) claims() jwt.MapClaims {
	return jwt.MapClaims{"iss": "https://login.example.com", "aud": []string{"other", "shop"}, "sub": "ada",
		"exp": s.now.Add(time.Hour).Unix(), "iat": s.now.Unix()}
}

func (s *signIn) sign(m jwt.SigningMethod, kid string, key any, claims jwt.MapClaims) string {
	s.t.Helper()
	t := jwt.NewWithClaims(m, claims)
	if kid != "" {
		t.Header["kid"] = kid
	}
	text, err := t.SignedString(key)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func bearer(token string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), "GET", "/", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

func TestATokenOfTheSignInNamesAPerson(t *testing.T) {
	s := newSignIn(t)
	good := s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims())
	for name, token := range map[string]string{
		"ES256": good,
		"RS256": s.sign(jwt.SigningMethodRS256, "rsa", s.rsa, s.claims()),
		"PS512": s.sign(jwt.SigningMethodPS512, "rsa", s.rsa, s.claims()),
		"EdDSA": s.sign(jwt.SigningMethodEdDSA, "ed", s.ed, s.claims()),
	} {
		for range 2 { // verified, and recognized
			if id, _, known := s.knows.Of(bearer(token)); id != "ada" || !known {
				t.Errorf("%s: %q %v", name, id, known)
			}
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header.Set("Authorization", "Basic YTpi")
	r.Header.Set("Cookie", "a=b; session="+good)
	if id, _, _ := s.knows.Of(r); id != "ada" {
		t.Errorf("in a cookie: %q", id)
	}
	number := s.claims()
	number["user"] = 4711
	s.knows.cfg.Claim = "user"
	if id, _, _ := s.knows.Of(bearer(s.sign(jwt.SigningMethodES256, "ec", s.ec, number))); id != "4711" {
		t.Errorf("a number: %q", id)
	}
	s.now = s.now.Add(time.Hour + 2*leeway)
	if id, _, _ := s.knows.Of(bearer(good)); id != "" {
		t.Error("an expired token that was valid before is recognized")
	}
}

func TestTokensThatDoNotCount(t *testing.T) {
	s := newSignIn(t)
	with := func(name string, value any) jwt.MapClaims {
		c := s.claims()
		if c[name] = value; value == nil {
			delete(c, name)
		}
		return c
	}
	es := func(c jwt.MapClaims) string { return s.sign(jwt.SigningMethodES256, "ec", s.ec, c) }
	good := es(s.claims())
	parts := strings.Split(good, ".")
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.keys.asked = s.now    // nobody loads them here: an unknown key waits for nothing
	spki := s.rsa.N.Bytes() // the public key as a secret
	inside := jwt.NewWithClaims(jwt.SigningMethodES256, s.claims())
	inside.Header["jwk"] = jose.JSONWebKey{Key: other.Public(), KeyID: "ec"}
	inside.Header["kid"] = "ec"
	ownKey, err := inside.SignedString(other)
	if err != nil {
		t.Fatal(err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"ec"}`)) + "." + parts[1] + "."
	for name, token := range map[string]string{
		"expired":                  es(with("exp", s.now.Add(-2*leeway).Unix())),
		"without an expiry":        es(with("exp", nil)),
		"not valid yet":            es(with("nbf", s.now.Add(2*leeway).Unix())),
		"another audience":         es(with("aud", "bank")),
		"no audience":              es(with("aud", nil)),
		"another issuer":           es(with("iss", "https://evil.example.com")),
		"no issuer":                es(with("iss", nil)),
		"no person":                es(with("sub", nil)),
		"a person that is no text": es(with("sub", []string{"ada"})),
		"a person with a newline":  es(with("sub", "ada\nbob")),
		"too long a name":          es(with("sub", strings.Repeat("a", longestID+1))),
		"another key":              s.sign(jwt.SigningMethodES256, "ec", other, s.claims()),
		"a key of its own":         ownKey,
		"an unknown key":           s.sign(jwt.SigningMethodES256, "new", s.ec, s.claims()),
		"no key name":              s.sign(jwt.SigningMethodES256, "", s.ec, s.claims()),
		"unsigned":                 none,
		"signed with a public key": s.sign(jwt.SigningMethodHS256, "rsa", spki, s.claims()),
		"signed with a secret of the set": s.sign(jwt.SigningMethodHS256, "oct",
			[]byte("a secret of thirty-two characters"), s.claims()),
		"changed":         parts[0] + "." + parts[1][:8] + "x" + parts[1][9:] + "." + parts[2],
		"without its end": parts[0] + "." + parts[1],
		"huge":            good + strings.Repeat("A", longestToken),
		"nothing":         "",
		"text":            "ada",
	} {
		if id, _, known := s.knows.Of(bearer(token)); id != "" || !known {
			t.Errorf("%s: %q %v", name, id, known)
		}
	}
	if id, _, _ := s.knows.Of(bearer(good)); id != "ada" {
		t.Error("the good one does not count either")
	}
}

func TestKeysOfTheSignIn(t *testing.T) {
	s := newSignIn(t)
	token := s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims())
	if err := os.WriteFile(s.file, []byte("<html>"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.keys.load(t.Context()) == nil {
		t.Fatal("a page was taken for keys")
	}
	if id, _, _ := s.knows.Of(bearer(token)); id != "ada" {
		t.Error("keys are forgotten while the source is away")
	}
	s.publish(s.set()[1:]) // the site has withdrawn the key
	if err := s.keys.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id, _, _ := s.knows.Of(bearer(token)); id != "" {
		t.Error("a withdrawn key counts")
	}
	never := New(Config{Keys: NewKeys(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)), Now: time.Now})
	r := bearer(token)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if id, _, known := never.Of(r.WithContext(ctx)); id != "" || known {
		t.Errorf("without keys nobody can know: %q %v", id, known)
	}
	for name, keys := range map[string][]jose.JSONWebKey{
		"none": {}, "weak": {{Key: &rsa.PublicKey{N: new(big.Int).Rsh(s.rsa.N, 1024), E: 65537}, KeyID: "weak"}}, "secret": {s.set()[3]},
		"private": {{Key: crypto.PrivateKey(s.ec), KeyID: "private"}}, "encryption": {{Key: s.ec.Public(), Use: "enc"}},
	} {
		b, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(b); err == nil {
			t.Errorf("%s: %d keys", name, len(got))
		}
	}
}

// A new key is found at once, and invented ones do not make a node load the keys again and again.
func TestANewKeyIsFound(t *testing.T) {
	s := newSignIn(t)
	var loads atomic.Int64
	all := s.set()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := min(loads.Add(1), 2)
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: all[n-1 : n]})
	}))
	defer srv.Close()
	keys := NewKeys(srv.URL, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	loaded, done := keys.news, make(chan bool)
	go func() { keys.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	<-loaded
	x := New(Config{Keys: keys, Issuer: "https://login.example.com", Audience: "shop", Claim: "sub", Now: time.Now})
	if id, _, known := x.Of(bearer(s.sign(jwt.SigningMethodRS256, "rsa", s.rsa, s.claims()))); id != "ada" || !known {
		t.Errorf("%q %v", id, known)
	}
	for range 5 {
		x.Of(bearer(s.sign(jwt.SigningMethodRS256, "invented", s.rsa, s.claims())))
	}
	if n := loads.Load(); n != 2 {
		t.Errorf("%d loads: want one at the start, and one for a new key and five invented ones", n)
	}
}

// TestAGroupIsOfTheSameToken: whoever has the token of a member beside the own one is not of its group.
func TestAGroupIsOfTheSameToken(t *testing.T) {
	s := newSignIn(t)
	cfg := s.knows.cfg
	cfg.GroupClaim, cfg.Groups = "tier", []string{"gold", "silver", "7"}
	x := New(cfg)
	token := func(id string, tier any) string {
		c := s.claims()
		if c["sub"] = id; tier != nil {
			c["tier"] = tier
		}
		return s.sign(jwt.SigningMethodES256, "ec", s.ec, c)
	}
	for _, c := range []struct {
		tier any
		want string
	}{
		{nil, ""}, {"gold", "gold"}, {"Gold", ""}, {"gold,silver", ""}, {[]any{"x", "silver", "gold"}, "gold"}, {7, "7"},
		{[]any{}, ""}, {[]any{[]any{"gold"}, nil, 7}, "7"}, {map[string]any{"gold": true}, ""}, {true, ""},
	} {
		for range 2 { // verified, and recognized
			if id, group, known := x.Of(bearer(token("ada", c.tier))); id != "ada" || group != c.want || !known {
				t.Errorf("%v: %q of %q, want %q", c.tier, id, group, c.want)
			}
		}
	}
	r := bearer(token("bob", nil))
	r.Header.Set("Cookie", "session="+token("ada", "gold"))
	if id, group, _ := x.Of(r); id != "bob" || group != "" {
		t.Errorf("%q is of %q by the token of another", id, group)
	}
	noID := s.claims()
	delete(noID, "sub")
	noID["tier"] = "gold"
	r = bearer(s.sign(jwt.SigningMethodES256, "ec", s.ec, noID))
	r.Header.Set("Cookie", "session="+token("bob", nil))
	if id, group, _ := x.Of(r); id != "bob" || group != "" {
		t.Errorf("%q is of %q by the token of nobody", id, group)
	}
}

func TestAGroupInAHeaderCountsFromTrustedPeersOnly(t *testing.T) {
	trusted := true
	x := New(Config{Header: "X-Member", GroupHeader: "X-Tier", Groups: []string{"gold", "silver"},
		Trusted: func(*http.Request) bool { return trusted }})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	for _, c := range []struct {
		tiers []string
		want  string
	}{
		{nil, ""}, {[]string{"gold"}, "gold"}, {[]string{" silver , gold"}, "gold"}, {[]string{"silver,x"}, "silver"},
		{[]string{"gold", "silver"}, ""}, {[]string{"golden"}, ""}, {[]string{""}, ""}, {[]string{","}, ""},
	} {
		r.Header["X-Member"], r.Header["X-Tier"] = []string{"ada"}, c.tiers
		if id, group, _ := x.Of(r); id != "ada" || group != c.want {
			t.Errorf("%q: %q of %q, want %q", c.tiers, id, group, c.want)
		}
	}
	r.Header["X-Tier"] = []string{"gold"}
	delete(r.Header, "X-Member")
	if id, group, _ := x.Of(r); id != "" || group != "" {
		t.Errorf("nobody is of %q", group)
	}
	r.Header["X-Member"], trusted = []string{"ada"}, false
	if id, group, _ := x.Of(r); id != "" || group != "" {
		t.Errorf("anybody is %q of %q", id, group)
	}
}

func TestAHeaderCountsFromTrustedPeersOnly(t *testing.T) {
	trusted := true
	x := New(Config{Header: "X-Member", Trusted: func(*http.Request) bool { return trusted }})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	r.Header["X-Member"] = []string{" ada "}
	if id, _, known := x.Of(r); id != "ada" || !known {
		t.Errorf("%q %v", id, known)
	}
	trusted = false
	if id, _, _ := x.Of(r); id != "" {
		t.Errorf("anybody is %q", id)
	}
	trusted = true
	for _, bad := range [][]string{nil, {""}, {"ada", "bob"}, {"ada\x00"}, {strings.Repeat("a", longestID+1)}} {
		r.Header["X-Member"] = bad
		if id, _, known := x.Of(r); id != "" || !known {
			t.Errorf("%q is %q", bad, id)
		}
	}
}

// FuzzToken looks for a token that counts and that the sign-in has not made, and for panics.
func FuzzToken(f *testing.F) {
	s := newSignIn(f)
	good := s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims())
	f.Add(good, "session="+good)
	f.Add("", "session=;session=a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.", "\x00")
	f.Fuzz(func(t *testing.T, token, cookie string) {
		r := bearer(token)
		r.Header["Cookie"] = []string{cookie}
		id, _, known := s.knows.Of(r)
		if id != "" && !strings.Contains(token+cookie, good) || !known {
			t.Errorf("%q in %q %q", id, token, cookie)
		}
	})
}

func TestKeysComeByHTTPSOnly(t *testing.T) {
	for text, want := range map[string]bool{
		"https://login.example.com/jwks": true, "http://127.0.0.1:8080/jwks": true, "http://[::1]/": true,
		"http://localhost/jwks": true, "http://login.example.com/jwks": false, "http://127.example.com/": false,
		"https:///jwks": false, "http://localhost.example.com/": false, "http://127.0.0.1.example.com/": false,
		"ftp://127.0.0.1/": false,
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Safe(u); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// A signature is verified once, also where the claim is missing: its holder could make each call cost
// a verification.
func TestATokenIsVerifiedOnce(t *testing.T) {
	s := newSignIn(t)
	none := s.claims()
	delete(none, "sub")
	for want, claims := range map[string]jwt.MapClaims{"ada": s.claims(), "": none} {
		r := bearer(s.sign(jwt.SigningMethodES256, "ec", s.ec, claims))
		before := len(s.knows.known)
		for range 3 {
			if id, _, ok := s.knows.Of(r); id != want || !ok {
				t.Errorf("%q %v, want %q", id, ok, want)
			}
		}
		if n := len(s.knows.known) - before; n != 1 {
			t.Errorf("%q: %d tokens are remembered, want 1", want, n)
		}
	}
}

// So is one that does not count: a client that goes on with it costs no verification for each call. A new key
// set, and a time at which a token becomes valid, are noticed.
func TestATokenThatDoesNotCountIsVerifiedOnce(t *testing.T) {
	s := newSignIn(t)
	over, early := s.claims(), s.claims()
	over["exp"] = s.now.Add(-time.Hour).Unix()
	early["nbf"] = s.now.Add(time.Hour).Unix()
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged := s.sign(jwt.SigningMethodES256, "ec", other, s.claims())
	later := s.sign(jwt.SigningMethodES256, "ec", s.ec, early)
	for token, want := range map[string]bool{
		forged: true, s.sign(jwt.SigningMethodES256, "ec", s.ec, over): true, later: false,
		s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims()): false,
	} {
		for range 2 {
			s.knows.Of(bearer(token))
		}
		if got := s.knows.isRejected(maphash.String(s.knows.seed, token), token, s.now); got != want {
			t.Errorf("%s is remembered: %v", token, got)
		}
	}
	s.now = s.now.Add(30 * time.Minute)
	if id, _, _ := s.knows.Of(bearer(later)); id != "" {
		t.Error("a token counts before its time")
	}
	s.now = s.now.Add(29*time.Minute + 30*time.Second)
	if id, _, _ := s.knows.Of(bearer(later)); id != "ada" {
		t.Error("a token does not count at its time")
	}
	s.now = s.now.Add(-time.Hour)
	s.publish([]jose.JSONWebKey{{Key: other.Public(), KeyID: "ec", Use: "sig", Algorithm: "ES256"}})
	if err := s.keys.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id, _, _ := s.knows.Of(bearer(forged)); id != "ada" {
		t.Errorf("with the key that signed it: %q", id)
	}
}

// A token that counted, and is over now, is among those that counted and among those that do not.
func TestATokenThatIsOverStaysSo(t *testing.T) {
	s := newSignIn(t)
	token := s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims())
	if id, _, _ := s.knows.Of(bearer(token)); id != "ada" {
		t.Fatal("a good token does not count")
	}
	s.now = s.now.Add(1000 * time.Hour)
	for range 3 {
		if id, group, ok := s.knows.Of(bearer(token)); id != "" || group != "" || !ok {
			t.Errorf("%q of %q %v after the end of its token", id, group, ok)
		}
	}
}

// A clock that was ahead, and is right again, locks nobody out.
func TestAClockThatWasAheadRejectsNobodyForLong(t *testing.T) {
	s := newSignIn(t)
	r := bearer(s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims()))
	s.now = s.now.Add(1000 * time.Hour)
	if id, _, _ := s.knows.Of(r); id != "" {
		t.Fatalf("%q after the end of its token", id)
	}
	s.now = s.now.Add(-1000 * time.Hour)
	if id, _, _ := s.knows.Of(r); id != "ada" {
		t.Errorf("%q with a good token", id)
	}
}

// BenchmarkOf is the look-up of a person, or of a plan: by the header of a trusted proxy, and by a
// token that was verified before.
func BenchmarkOf(b *testing.B) {
	s := newSignIn(b)
	trusted := func(*http.Request) bool { return true }
	header := New(Config{Header: "X-Plan", Trusted: trusted})
	named := httptest.NewRequestWithContext(b.Context(), "GET", "/", nil)
	named.Header.Set("X-Plan", "pro")
	ec := bearer(s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims()))
	long := bearer(s.sign(jwt.SigningMethodRS256, "rsa", s.rsa, s.claims()))
	over := s.claims()
	over["exp"] = s.now.Add(-time.Hour).Unix()
	old := bearer(s.sign(jwt.SigningMethodES256, "ec", s.ec, over))
	b.Run("rejected", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if id, _, _ := s.knows.Of(old); id != "" {
				b.Fatal(id)
			}
		}
	})
	for _, x := range []struct {
		name string
		of   *Source
		r    *http.Request
	}{{"header", header, named}, {"ES256", s.knows, ec}, {"RS256", s.knows, long}} {
		b.Run(x.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if id, _, _ := x.of.Of(x.r); id == "" {
					b.Fatal("nobody")
				}
			}
		})
	}
}

// Known tokens are bounded in number and size.
func TestKnownTokensAreBounded(t *testing.T) {
	s := New(Config{})
	for i := range mostKnown + 10 {
		s.remember(uint64(i), proof{token: strings.Repeat("t", i%longestToken)})
	}
	text := 0
	for _, p := range s.known {
		text += len(p.token)
	}
	if len(s.known) > mostKnown || text > mostText || text != s.text || text < mostText/2 {
		t.Errorf("%d tokens of %d bytes, counted as %d", len(s.known), text, s.text)
	}
}

// Two tokens of one hash are two tokens.
func TestATokenIsComparedWhole(t *testing.T) {
	s := newSignIn(t)
	good := s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims())
	if id, _, _ := s.knows.Of(bearer(good)); id != "ada" {
		t.Fatal(id)
	}
	forged := good[:len(good)-1]
	s.knows.known[maphash.String(s.knows.seed, forged)] = s.knows.known[maphash.String(s.knows.seed, good)]
	if id, _, _ := s.knows.Of(bearer(forged)); id != "" {
		t.Errorf("a forged token of the same hash is %q", id)
	}
}

func TestTextsAreComparedByWords(t *testing.T) {
	const all = "0123456789abcdefghijklmnopqrstuvwxyz"
	for n := range len(all) {
		text := strings.Clone(all[:n])
		if !isSame(all[:n], text) || isSame(text, all[:n+1]) || isSame(all[:n+1], text) {
			t.Errorf("%d bytes", n)
		}
		for i := range n {
			if isSame(all[:n], all[:i]+"!"+all[i+1:n]) {
				t.Errorf("byte %d of %d does not count", i, n)
			}
		}
	}
}

// While a key set could never be loaded, calls are not delayed by their tokens: nothing is awaited that has
// just failed.
func TestNobodyWaitsForKeysThatDoNotCome(t *testing.T) {
	s := newSignIn(t)
	token := s.sign(jwt.SigningMethodES256, "ec", s.ec, s.claims())
	synctest.Test(t, func(t *testing.T) {
		keys := NewKeys(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler))
		x := New(Config{Keys: keys, Now: time.Now})
		began := time.Now()
		if id, _, known := x.Of(bearer(token)); id != "" || known || time.Since(began) != findWait {
			t.Errorf("before the first attempt: %q %v after %v", id, known, time.Since(began))
		}
		if keys.load(t.Context()) == nil {
			t.Fatal("no file was read")
		}
		began = time.Now()
		if id, _, known := x.Of(bearer(token)); id != "" || known || time.Since(began) != 0 {
			t.Errorf("after an attempt that failed: %q %v after %v", id, known, time.Since(began))
		}
	})
}
