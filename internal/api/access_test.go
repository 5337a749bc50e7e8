package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestLocal(t *testing.T) {
	tests := []struct {
		peer, host string
		header     string
		want       bool
	}{
		{"127.0.0.1:1", "127.0.0.1:8081", "", true},
		{"127.9.9.9:1", "10.0.0.1", "", true},
		{"[::1]:1", "[::1]:8081", "", true},
		{"[::1]:1", "::1", "", true},
		{"[::ffff:127.0.0.1]:1", "localhost", "", true},
		{"127.0.0.1:1", "LOCALHOST:1", "", true},
		{"192.0.2.1:1", "127.0.0.1:8081", "", false},
		{"[2001:db8::1]:1", "localhost", "", false},
		{"", "localhost", "", false},
		{"@", "localhost", "", false},
		{"127.0.0.1:1", "", "", false},
		{"127.0.0.1:1", "evil.example", "", false},
		{"127.0.0.1:1", "127.0.0.1.evil.example", "", false},
		{"127.0.0.1:1", "localhost.evil.example:8081", "", false},
		{"127.0.0.1:1", "2130706433", "", false},
		{"127.0.0.1:1", "localhost", "X-Forwarded-For", false},
		{"127.0.0.1:1", "localhost", "X-Forwarded-Anything", false},
		{"127.0.0.1:1", "localhost", "Forwarded", false},
		{"127.0.0.1:1", "localhost", "cf-connecting-ip", false},
		{"127.0.0.1:1", "localhost", "Origin: https://evil.example", false},
		{"127.0.0.1:1", "localhost", "Origin: null", false},
		{"127.0.0.1:1", "localhost:8081", "Origin: http://localhost:8080", false},
		{"127.0.0.1:1", "localhost:8081", "Origin: http://localhost:8081", true},
		{"127.0.0.1:1", "localhost", "Sec-Fetch-Site: same-site", false},
		{"127.0.0.1:1", "localhost", "Sec-Fetch-Site: same-origin", true},
	}
	for _, tt := range tests {
		r := httptest.NewRequest("GET", "/v1/rooms", nil)
		r.RemoteAddr, r.Host = tt.peer, tt.host
		if tt.header != "" {
			name, value, _ := strings.Cut(tt.header, ": ")
			r.Header.Set(name, value)
		}
		if got := local(r); got != tt.want {
			t.Errorf("from %s as %s with %s: got %v", tt.peer, tt.host, tt.header, got)
		}
	}
}

func TestTheBucketFillsAgain(t *testing.T) {
	var b bucket
	now := time.Unix(1000, 0)
	for n := range attemptsAtOnce {
		if !b.take(now) {
			t.Fatalf("empty after %d", n)
		}
	}
	if b.take(now) {
		t.Error("one too many")
	}
	now = now.Add(time.Duration(1.01 / attemptsPerSecond * float64(time.Second)))
	if !b.take(now) || b.take(now) {
		t.Error("one more, and no two, were due")
	}
	if b.take(now.Add(-time.Hour)) {
		t.Error("a clock that steps back fills it")
	}
	now = now.Add(24 * time.Hour)
	for n := range attemptsAtOnce {
		if !b.take(now) {
			t.Fatalf("empty after %d", n)
		}
	}
	if b.take(now) {
		t.Error("a day fills it above its size")
	}
}

func TestEachTokenHasABucketOfItsOwnAndFewAreKept(t *testing.T) {
	var b buckets
	now := time.Unix(1000, 0)
	for range attemptsAtOnce {
		if !b.take("one", now) {
			t.Fatal("too few")
		}
	}
	if b.take("one", now) || !b.take("other", now) {
		t.Error("the buckets are one")
	}
	for n := range 3 * maxTokens { // tokens come and go
		now = now.Add(time.Minute)
		if !b.take(fmt.Sprint(n), now) {
			t.Fatal("a new token is refused")
		}
	}
	if len(b.all) > maxTokens {
		t.Errorf("%d buckets are kept", len(b.all))
	}
}

// FuzzAuthorization checks bearer and the routes behind it: no header except the token itself
// allows a change.
func FuzzAuthorization(f *testing.F) {
	dir := f.TempDir()
	secret, _, err := CreateToken(dir, Token{Scopes: []string{"write"}})
	if err != nil {
		f.Fatal(err)
	}
	expired, _, err := CreateToken(dir, Token{Scopes: []string{"write"}, ExpiresAt: time.Unix(1, 0)})
	if err != nil {
		f.Fatal(err)
	}
	a := New(Config{Tokens: NewTokens(dir, slog.New(slog.DiscardHandler))})
	for _, seed := range []string{"", "Bearer", "Bearer ", "Bearer hg_", "Basic x", "bearer\t" + secret,
		"Bearer " + secret[:len(secret)-1], "Bearer " + secret + " x", "Bearer " + expired,
		"Bearer hg_" + strings.Repeat("=", 43), secret, "Bearer Bearer " + secret} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		a.attempts = bucket{}
		r := httptest.NewRequest("PATCH", "/v1/rooms/shop", nil)
		r.Header["Authorization"] = []string{header}
		c := &call{r: r, room: "shop"}
		p := a.admit(c, route{scope: scopeWrite})
		scheme, rest, _ := strings.Cut(header, " ")
		right := strings.EqualFold(scheme, "bearer") && strings.TrimSpace(rest) == secret
		if (p == nil) != right {
			t.Errorf("%q: got %v", header, p)
		}
		if p != nil && (p.Status != http.StatusUnauthorized || strings.Contains(p.Detail+p.Hint, "hg_"+"A")) {
			t.Errorf("%q: %+v", header, p)
		}
	})
}

// FuzzBody compares parsePairs with encoding/json: an accepted body is an object of plain values,
// and means the same to both.
func FuzzBody(f *testing.F) {
	for _, seed := range []string{``, `{}`, `{"a":1}`, `{"a":"x","b":true}`, `{"a":1,"a":2}`, `{"a":[1]}`,
		`{"a":null}`, `{"message":5}`, `{"a":1}x`, `{"a":1e999}`, "{\"a\":\"\xff\"}", `{"a":{"b":1}}`,
		`{"a" "b"}`, `{"a":1,}`, `[{"a":1}]`, `{"a":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		pairs, err := parsePairs(body)
		if err != nil {
			if p, ok := errors.AsType[*problem](err); !ok || p.Detail == "" || p.Hint == "" || p.Code == "" {
				t.Errorf("poor error %#v", err)
			}
			return
		}
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.UseNumber()
		var want map[string]any
		if err := d.Decode(&want); err != nil || len(want) != len(pairs) {
			t.Fatalf("%q: got %v, encoding/json %v %v", body, pairs, want, err)
		}
		for k, v := range want {
			text, ok := pairs[k]
			switch v := v.(type) {
			case string:
				ok = ok && text == v
			case json.Number:
				ok = ok && text == v.String()
			case bool:
				ok = ok && (text == "true") == v
			default:
				ok = false
			}
			if !ok || !utf8.ValidString(text) {
				t.Errorf("%q: %q is %q, want %v", body, k, text, v)
			}
		}
	})
}

// A token has at least 256 random bits, and no two are alike.
func TestTokensAreDrawn(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		secret, hash, id := newToken()
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(secret, tokenPrefix))
		if err != nil || len(raw) != 32 || !wellFormed(secret) || seen[secret] || seen[hash] || seen[id] {
			t.Fatalf("%s %s %v", secret, id, err)
		}
		seen[secret], seen[hash], seen[id] = true, true, true
	}
}
