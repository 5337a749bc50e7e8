package checkout

import (
	"strings"
	"testing"
	"time"
)

// Whatever is sent as a pass opens only if this process has signed it: then it says what was signed.
func FuzzPass(f *testing.F) {
	k := NewKeys((&clock{began}).now)
	if err := k.Set([]Secret{secret(1, began)}, nil); err != nil {
		f.Fatal(err)
	}
	other := NewKeys((&clock{began}).now)
	if err := other.Set([]Secret{secret(2, began)}, nil); err != nil {
		f.Fatal(err)
	}
	sign := func(k *Keys, room string) string {
		c := &claims{Issuer: issuer, Audience: room, Subject: "1-2", ID: "the jti"}
		s, err := k.sign(c, began.Add(time.Hour))
		if err != nil {
			f.Fatal(err)
		}
		return s
	}
	good := sign(k, "shop")
	_, rest, _ := strings.Cut(good, ".")
	for _, s := range []string{good, sign(k, "blog"), sign(other, "shop"), good + ".", "." + rest,
		"e30." + rest, "eyJhbGciOiJub25lIn0." + rest,
		`{"payload":"","signatures":[]}`, strings.Repeat("a.", 99)} {
		f.Add(s)
	}
	if pass, err := k.Open("shop", good); pass != "the jti" || err != nil {
		f.Fatal(pass, err)
	}
	signed, _, _ := strings.Cut(rest, ".") // the claims
	f.Fuzz(func(t *testing.T, token string) {
		pass, err := k.Open("shop", token)
		switch {
		case err != nil && (err != ErrPass || pass != ""):
			t.Errorf("%q: %q, %v", token, pass, err)
		case err == nil && (pass != "the jti" || !strings.Contains(token, signed)):
			t.Errorf("%q opens as %q", token, pass)
		}
	})
}
