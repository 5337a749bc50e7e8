package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/checkout"
)

const payRoom = "  - {name: shop, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100, " +
	"session_duration: 4s, checkout: {pass: true, warn: 3s}}\n"

// shopOf returns an origin that answers with the headers of its requests.
func shopOf(t *testing.T) string {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := slices.Concat(r.Header[checkout.PassHeader], r.Header["Headgate_pass"])
		fmt.Fprint(w, "origin ", strings.Join(all, "|"))
	}))
	t.Cleanup(origin.Close)
	return origin.URL
}

// verifies checks a pass as a backend does: with the key set that it fetches, and a library other
// than ours.
func verifies(t *testing.T, jwks, room, token string) (jwt.MapClaims, error) {
	t.Helper()
	var set struct{ Keys []map[string]string }
	if err := json.Unmarshal([]byte(get(t, jwks, "").body), &set); err != nil {
		t.Fatal(err)
	}
	got := jwt.MapClaims{}
	_, err := jwt.ParseWithClaims(token, got, func(x *jwt.Token) (any, error) {
		for _, k := range set.Keys {
			if k["kid"] != x.Header["kid"] {
				continue
			}
			a, aerr := base64.RawURLEncoding.DecodeString(k["x"])
			b, berr := base64.RawURLEncoding.DecodeString(k["y"])
			if aerr != nil || berr != nil {
				return nil, fmt.Errorf("key %v", k)
			}
			return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, a, b))
		}
		return nil, fmt.Errorf("no key %v", x.Header["kid"])
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer("headgate"), jwt.WithAudience(room),
		jwt.WithExpirationRequired())
	return got, err
}

func TestTheOriginGetsASignedPassThatAnyBackendVerifies(t *testing.T) {
	visitors, operators, _ := start(t, shopOf(t), payRoom)
	before := time.Now()
	a := get(t, visitors+"/", "") // even the first request has one
	token := strings.TrimPrefix(a.body, "origin ")
	for _, jwks := range []string{visitors, operators} {
		c, err := verifies(t, jwks+"/.headgate/jwks.json", "shop", token)
		if err != nil {
			t.Fatalf("%v: %q", err, a.body)
		}
		exp, _ := c.GetExpirationTime()
		if d := exp.Sub(before); d < 2*time.Second || d > 5*time.Second || c["sub"] == "" || c["jti"] == "" {
			t.Errorf("expires after %v: %v", d, c)
		}
	}
	if _, err := verifies(t, visitors+"/.headgate/jwks.json", "tea", token); err == nil {
		t.Error("good for another room")
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", visitors+"/robots.txt", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/robots.txt"} { // a session, and an excluded request
		r.URL.Path = path
		r.Header = http.Header{"Cookie": {a.cookie}, checkout.PassHeader: {"forged", "forged too"},
			"headgate_PASS": {"forged as well"}}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || strings.Contains(string(b), "forged") {
			t.Errorf("%s: the origin got the client's own pass: %q %v", path, b, err)
		}
	}
	var mine struct {
		Inside bool
		Pass   string
	}
	if err := json.Unmarshal([]byte(get(t, visitors+"/.headgate/pass", a.cookie).body), &mine); err != nil ||
		!mine.Inside {
		t.Fatalf("%+v %v", mine, err)
	}
	if _, err := verifies(t, visitors+"/.headgate/jwks.json", "shop", mine.Pass); err != nil {
		t.Error(err)
	}
	if b := get(t, visitors+"/.headgate/pass", ""); b.StatusCode != http.StatusNotFound {
		t.Errorf("who is not inside gets %d %q", b.StatusCode, b.body)
	}
}

// post sends a body to the operators' address with a token.
func post(t *testing.T, url, token, body string) (code int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res := fetch(t, http.DefaultTransport.RoundTrip, r)
	return res.StatusCode, res.body
}

func TestABackendEndsAVisit(t *testing.T) {
	file := "rooms:\n" + strings.Replace(payRoom, "session_duration: 4s", "session_duration: 1h", 1)
	p := run(t, file)
	p.origin = shopOf(t)
	p.write(file)
	p.reload()
	scope := func(s string) string {
		secret, _, err := api.CreateToken(p.dir+"/data", api.Token{Name: s, Scopes: []string{s}})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	may, mayNot := scope("pass:shop"), scope("read")
	end := func(how, body string) (int, string) {
		return post(t, p.operators+"/v1/rooms/shop/passes/"+how, may, body)
	}
	visit := func(place string) (cookie, token string) {
		t.Helper()
		a := reply{cookie: place}
		eventually(t, "inside", func() bool {
			a = get(t, p.visitors+"/", a.cookie)
			return strings.HasPrefix(a.body, "origin ")
		})
		return a.cookie, strings.TrimPrefix(a.body, "origin ")
	}
	cookie, token := visit("")
	second := get(t, p.visitors+"/", "")
	if second.StatusCode != 503 {
		t.Fatalf("the room takes two: %d", second.StatusCode)
	}
	for _, bad := range []struct {
		token, body string
		code        int
		says        string
	}{
		{"", `{"token":"` + token + `"}`, 401, "token_missing"},
		{mayNot, `{"token":"` + token + `"}`, 403, "scope_missing"},
		{may, `{"token":"` + token[:len(token)-4] + `AAAA"}`, 422, "no_such_pass"},
		{may, `{"pass":"` + strings.Split(cookie, "=")[1] + `"}`, 422, "no_such_pass"},
		{may, `{}`, 400, "invalid_body"}, {may, `{"token":"a","pass":"b"}`, 400, "invalid_body"},
		{may, `{"token":1}`, 400, "invalid_body"}, {may, `{"tok":"a"}`, 400, "invalid_body"},
		{may, ``, 400, "invalid_body"}, {may, `{"token":"a"} {}`, 400, "invalid_body"},
		{may, `{"token":"` + strings.Repeat("a", 17<<10) + `"}`, 413, "body_too_large"},
	} {
		code, b := post(t, p.operators+"/v1/rooms/shop/passes/complete", bad.token, bad.body)
		if code != bad.code || !strings.Contains(b, bad.says) {
			t.Errorf("%.60s: %d %s, want %d %s", bad.body, code, b, bad.code, bad.says)
		}
	}
	if a := get(t, p.visitors+"/", cookie); !strings.HasPrefix(a.body, "origin ") {
		t.Fatalf("ended by a bad word: %d", a.StatusCode)
	}
	body := `{"token":"` + token + `"}`
	if code, b := end("complete", body); code != 200 || !strings.Contains(b, `{"ended":true}`) {
		t.Fatalf("%d %s", code, b)
	}
	if code, b := end("abandon", body); code != 200 || !strings.Contains(b, `{"ended":false}`) {
		t.Errorf("again: %d %s", code, b)
	}
	next, token := visit(second.cookie) // the slot is free at once, although a session lasts an hour
	if a := get(t, p.visitors+"/", cookie); a.StatusCode != 503 {
		t.Errorf("the ended visit goes on: %d", a.StatusCode)
	}
	c, err := verifies(t, p.visitors+"/.headgate/jwks.json", "shop", token)
	if err != nil {
		t.Fatal(err)
	}
	body = `{"pass":"` + c["jti"].(string) + `"}`
	if code, b := end("abandon", body); code != 200 || !strings.Contains(b, `{"ended":true}`) {
		t.Errorf("by its jti: %d %s", code, b)
	}
	if a := get(t, p.visitors+"/.headgate/pass", next); a.StatusCode != http.StatusNotFound {
		t.Errorf("an abandoned visit has a pass: %s", a.body)
	}
	m := get(t, p.operators+"/metrics", "").body
	for _, want := range []string{"completed", "abandoned"} {
		if want = "headgate_" + want + `_total{room="shop"} 1`; !strings.Contains(m, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
}
