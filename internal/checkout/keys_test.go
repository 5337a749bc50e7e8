package checkout

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// clock is a wall clock that tests set.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// keys are the signing keys of one process.
func keys(t *testing.T, c *clock, own ...Secret) *Keys {
	t.Helper()
	k := NewKeys(c.now)
	if err := k.Set(own, nil); err != nil {
		t.Fatal(err)
	}
	return k
}

func secret(n byte, made time.Time) Secret { return Secret{Key: [32]byte{n, 1, 2}, Made: made} }

// signed is a pass for room, signed by k, without a room behind it.
func token(t *testing.T, k *Keys, room string, left time.Duration) string {
	t.Helper()
	c := &claims{Issuer: issuer, Audience: room, Subject: "1-2", ID: "the jti"}
	s, err := k.sign(c, k.now().Add(left))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// publicKeys reads the key set as a backend does that knows RFC 7517 and no code of ours.
func publicKeys(t *testing.T, h http.Handler) map[string]*ecdsa.PublicKey {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/.headgate/jwks.json", nil))
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal(w.Body.Bytes(), &set); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", w.Code, err, w.Body)
	}
	all := map[string]*ecdsa.PublicKey{}
	for _, k := range set.Keys {
		if k["kty"]+k["crv"]+k["alg"]+k["use"] != "ECP-256ES256sig" || k["d"] != "" {
			t.Fatalf("key %v", k)
		}
		point := []byte{4}
		for _, s := range []string{k["x"], k["y"]} {
			b, err := base64.RawURLEncoding.DecodeString(s)
			if err != nil || len(b) != 32 {
				t.Fatalf("%q: %v", s, err)
			}
			point = append(point, b...)
		}
		var err error
		if all[k["kid"]], err = ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// verify checks a pass with another library than the one that made it.
func verify(
	t *testing.T, keys map[string]*ecdsa.PublicKey, c *clock, room, token string,
) (jwt.MapClaims, error) {
	t.Helper()
	got := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(token, got, func(t *jwt.Token) (any, error) {
		if key := keys[t.Header["kid"].(string)]; key != nil {
			return key, nil
		}
		return nil, errors.New("no such key")
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer("headgate"), jwt.WithAudience(room),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(c.now))
	return got, err
}

func TestAPassIsGoodForItsRoomAndTimeAlone(t *testing.T) {
	c := &clock{began}
	k := keys(t, c, secret(1, began))
	pub, s := publicKeys(t, k), token(t, k, "shop", 90*time.Second)
	got, err := verify(t, pub, c, "shop", s)
	if err != nil || got["sub"] != "1-2" || got["jti"] != "the jti" {
		t.Fatalf("%v %v", got, err)
	}
	if jti, err := k.Open("shop", s); err != nil || jti != "the jti" {
		t.Errorf("%q %v", jti, err)
	}
	parts := strings.Split(s, ".")
	altered := strings.Join([]string{parts[0], base64.RawURLEncoding.EncodeToString(
		[]byte(`{"iss":"headgate","aud":"shop","sub":"1-3","exp":4102444800}`)), parts[2]}, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"` + tokenType + `"}`))
	none += "." + parts[1] + "."
	other := keys(t, c, secret(2, began))
	for name, bad := range map[string]string{"altered": altered, "unsigned": none, "cut": s[:len(s)-3],
		"of other keys":   token(t, other, "shop", time.Hour),
		"of another room": token(t, k, "tea", time.Hour)} {
		if _, err := verify(t, pub, c, "shop", bad); err == nil {
			t.Errorf("%s: verified", name)
		}
		if _, err := k.Open("shop", bad); !errors.Is(err, ErrPass) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.at = began.Add(90 * time.Second)
	if _, err := verify(t, pub, c, "shop", s); !errors.Is(err, jwt.ErrTokenExpired) {
		t.Errorf("over: %v", err)
	}
	if _, err := k.Open("shop", s); err != nil {
		t.Errorf("what is over can still be completed: %v", err)
	}
}

// A backend may hold the key set for as long as it says: what is signed meanwhile verifies.
func TestANewKeySignsWhenEverybodyHasIt(t *testing.T) {
	c := &clock{began}
	first := secret(1, began.Add(-time.Hour))
	a, b := keys(t, c, first), keys(t, c, first)
	old := publicKeys(t, a)
	next := secret(2, began.Add(-10*time.Minute)) // by a clock that is wrong
	early := token(t, a, "shop", 30*24*time.Hour)
	for _, k := range []*Keys{a, b} {
		if err := k.Set([]Secret{next, first}, nil); err != nil {
			t.Fatal(err)
		}
	}
	both := publicKeys(t, a)
	if len(both) != 2 || len(publicKeys(t, b)) != 2 {
		t.Fatalf("%d keys, want both at once", len(both))
	}
	for after := time.Duration(0); after < jwksAge; after += 10 * time.Second {
		c.at = began.Add(after)
		if _, err := verify(t, old, c, "shop", token(t, a, "shop", time.Hour)); err != nil {
			t.Fatalf("%v after the new key came: %v", after, err)
		}
	}
	c.at = began.Add(signsAfter)
	late := token(t, a, "shop", time.Hour)
	if _, err := verify(t, old, c, "shop", late); err == nil {
		t.Error("the new key never signs")
	}
	for _, s := range []string{early, late} {
		if _, err := verify(t, both, c, "shop", s); err != nil {
			t.Error(err)
		}
	}
}

// What another data center has signed is verified by the keys that are served here.
func TestKeysOfOtherDatacentersVerify(t *testing.T) {
	c := &clock{began}
	here, there := NewKeys(c.now), keys(t, c, secret(2, began))
	if err := here.Set([]Secret{secret(1, began)}, []Secret{secret(2, began)}); err != nil {
		t.Fatal(err)
	}
	s := token(t, there, "shop", time.Hour)
	if _, err := verify(t, publicKeys(t, here), c, "shop", s); err != nil {
		t.Error(err)
	}
	if _, err := here.Open("shop", s); err != nil {
		t.Error(err)
	}
}

func TestTheKeySetIsCachedAndUnchangedIsSaid(t *testing.T) {
	k := keys(t, &clock{began}, secret(1, began))
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	k.ServeHTTP(w, r)
	if got := w.Header().Get("Cache-Control"); got != "public, max-age=300" {
		t.Errorf("cached %q", got)
	}
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	w = httptest.NewRecorder()
	if k.ServeHTTP(w, r); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	k.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func BenchmarkSign(b *testing.B) {
	k := NewKeys(time.Now)
	if err := k.Set([]Secret{secret(1, time.Now())}, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.sign(&claims{Audience: "shop", Subject: "1-2"}, began); err != nil {
			b.Fatal(err)
		}
	}
}
