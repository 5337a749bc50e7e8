package checkout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// TestVectors: connectors/vectors.json has the keys that headgate derives, and its verdicts about
// tokens are those of headgate, which knows more signatures as long as they may end a session.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("../../connectors/vectors.json")
	var v struct {
		Now     int64
		Rooms   []string
		Secrets []string
		JWKS    json.RawMessage
		Tokens  []struct {
			Name, Token   string
			Valid, Signed bool
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || len(v.Tokens) < 50 || len(v.Rooms) != 1 {
		t.Fatal(err, len(v.Tokens), v.Rooms)
	}
	now := time.Unix(v.Now, 0)
	k := NewKeys(func() time.Time { return now })
	var secrets []Secret
	for _, s := range v.Secrets {
		b, err := base64.RawURLEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, Secret{Key: [32]byte(b)})
	}
	if err := k.Set(secrets[:1], secrets[1:]); err != nil {
		t.Fatal(err)
	}
	var want, got bytes.Buffer
	if json.Compact(&want, k.set.Load().jwks) != nil || json.Compact(&got, v.JWKS) != nil ||
		!bytes.Equal(want.Bytes(), got.Bytes()) {
		t.Errorf("keys: %s, want %s", got.Bytes(), want.Bytes())
	}
	valid := 0
	for _, x := range v.Tokens {
		_, err := k.Open(v.Rooms[0], x.Token)
		if (err == nil) != x.Signed || x.Valid && !x.Signed {
			t.Errorf("%s: %v", x.Name, err)
		}
		if !x.Valid {
			continue
		}
		valid++
		parsed, err := jwt.ParseSigned(x.Token, []jose.SignatureAlgorithm{jose.ES256})
		var c claims
		if err == nil {
			err = parsed.UnsafeClaimsWithoutVerification(&c)
		}
		if err != nil || !c.Expires.Time().After(now) || c.Issued.Time().After(now) || c.Subject == "" {
			t.Errorf("%s: %+v %v", x.Name, c, err)
		}
	}
	if valid < 3 {
		t.Error("no token is right")
	}
}
