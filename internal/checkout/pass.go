package checkout

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/headgate/headgate"
)

const issuer = "headgate"

// claims are the claims of a signed pass.
type claims struct {
	Issuer   string           `json:"iss"`
	Audience string           `json:"aud"` // the room
	Subject  string           `json:"sub"` // the session
	Issued   *jwt.NumericDate `json:"iat"`
	Expires  *jwt.NumericDate `json:"exp"` // the session lasts at least until then
	Entered  *jwt.NumericDate `json:"entered"`
	ID       string           `json:"jti"` // accepted by Complete
}

// ErrPass means that a token is not a signed pass of the room.
var ErrPass = errors.New("not a signed pass of this room")

// Sign returns the signed pass of a session in a room. It is valid for as long as the counter has
// confirmed the session, rounded down to whole seconds.
func (k *Keys) Sign(room string, s *headgate.Session) (token string, expires time.Time, err error) {
	expires = k.now().Add(s.Confirmed).Truncate(time.Second)
	token, err = k.sign(&claims{Issuer: issuer, Audience: room, Subject: s.ID, ID: s.Pass(),
		Entered: jwt.NewNumericDate(s.Entered)}, expires)
	return token, expires, err
}

func (k *Keys) sign(c *claims, expires time.Time) (string, error) {
	c.Issued, c.Expires = jwt.NewNumericDate(k.now()), jwt.NewNumericDate(expires)
	token, err := jwt.Signed(k.signer().signer).Claims(c).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a pass: %w", err)
	}
	return token, nil
}

// Open verifies the signature of a signed pass of a room, and returns its jti. It ignores the time:
// a session may be completed after its pass has expired.
func (k *Keys) Open(room, token string) (pass string, err error) {
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || len(t.Headers) != 1 || t.Headers[0].ExtraHeaders[jose.HeaderType] != tokenType {
		return "", ErrPass
	}
	key := k.set.Load().byID[t.Headers[0].KeyID]
	if key == nil {
		return "", ErrPass
	}
	var c claims
	if t.Claims(key.public, &c) != nil || c.Issuer != issuer || c.Audience != room {
		return "", ErrPass
	}
	return c.ID, nil
}
