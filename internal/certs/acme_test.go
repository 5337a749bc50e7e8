package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/acme"
)

const directory = "https://ca.example/directory"

// keep puts a certificate into the folder, as an earlier process would.
func keep(t *testing.T, v Vault, name string, from, to time.Time) {
	t.Helper()
	chain, key := pairOf(t, name, from, to)
	if err := v.Put(t.Context(), certName(name), append(key, chain...)); err != nil {
		t.Fatal(err)
	}
}

func folder(t *testing.T) (*Folder, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "certs")
	v, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	return v, path
}

// An issuer is asked by what the test does instead of the network.
type issuer func(*http.Request) (*http.Response, error)

func (f issuer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func hello(name string, protos ...string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{ServerName: name, SupportedProtos: protos}
}

func TestWhoGetsWhichCertificate(t *testing.T) {
	v, _ := folder(t)
	now := time.Now()
	keep(t, v, "a.example", now.Add(-time.Hour), now.Add(time.Hour))
	keep(t, v, "b.example", now.Add(-2*time.Hour), now.Add(-time.Hour)) // expired, and served
	a := OpenACME(t.Context(), ACMEConfig{Domains: []string{"a.example", "b.example", "new.example"},
		Directory: directory, Vault: v, Log: slog.New(slog.DiscardHandler)})
	proof := &tls.Certificate{}
	a.proofs["a.example"] = proof
	for _, c := range []struct {
		hello *tls.ClientHelloInfo
		want  string // "" is none
	}{
		{hello("a.example", "h2", "http/1.1"), "a.example"},
		{hello("A.Example."), "a.example"},
		{hello("b.example"), "b.example"},
		{hello(""), "a.example"},
		{hello("new.example"), ""},
		{hello("other.example"), ""},
		{hello("b.example", acme.ALPNProto), ""},
	} {
		got, err := a.Certificate(c.hello)
		name := ""
		if got != nil {
			name = got.Leaf.DNSNames[0]
		}
		if name != c.want || err != nil {
			t.Errorf("%q %q: %q, %v, want %q", c.hello.ServerName, c.hello.SupportedProtos,
				name, err, c.want)
		}
	}
	if got, _ := a.Certificate(hello("a.example", acme.ALPNProto)); got != proof {
		t.Error("the issuer did not get the proof")
	}
	for host, want := range map[string]bool{"a.example": true, "new.example": false, "x.example": true} {
		if a.Ready(host) != want {
			t.Errorf("ready for %s: %v, want %v", host, !want, want)
		}
	}
	states, good := a.States()
	if len(states) != 3 || !states[2].NotAfter.IsZero() || states[0].NotAfter.IsZero() || !good {
		t.Errorf("%v %v", states, good)
	}
}

// In a bubble: a day and a half of an issuer that is down, or refuses. Let's
// Encrypt allows five failed proofs in an hour and 300 orders in three.
func TestAnIssuerThatFailsIsAskedLessAndLess(t *testing.T) {
	refusal := `{"type":"urn:ietf:params:acme:error:rejectedIdentifier","detail":"no","status":403}`
	limit := `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"slow","status":429}`
	for _, c := range []struct {
		name        string
		status      int
		body        string
		after       string
		least, most int // attempts in 36 hours
	}{
		{"unreachable", 0, "", "", 70, 90},
		{"busy", 503, "", "", 70, 90},
		{"refuses", 403, refusal, "", 7, 12},
		{"limits", 429, limit, "43200", 3, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, _ := folder(t)
			synctest.Test(t, func(t *testing.T) {
				a := OpenACME(t.Context(), ACMEConfig{Domains: []string{"a.example"},
					Directory: directory, Vault: v, Log: slog.New(slog.DiscardHandler)})
				var attempts int
				a.client.Transport = issuer(func(r *http.Request) (*http.Response, error) {
					if c.status == 0 {
						attempts++
						return nil, errors.New("connection refused")
					}
					res := answer(r, c.status, c.body)
					res.Header.Set("Retry-After", c.after)
					if r.Method == http.MethodGet { // the directory, once in each attempt
						attempts++
						res = answer(r, 200, `{"newNonce":"https://ca.example/n",
							"newAccount":"https://ca.example/a","newOrder":"https://ca.example/o"}`)
					}
					res.Header.Set("Replay-Nonce", "nonce")
					return res, nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), 36*time.Hour)
				defer cancel()
				if err := a.Run(ctx); err != nil {
					t.Error(err)
				}
				if attempts < c.least || attempts > c.most {
					t.Errorf("%d attempts in 36 h, want %d to %d", attempts, c.least, c.most)
				}
				if _, good := a.States(); good {
					t.Error("nobody would notice")
				}
			})
		})
	}
}

func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Request: r, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body))}
}

// In a bubble: nothing is asked before a third of the life is left, and then it
// is; a certificate that another machine has put there is taken instead.
func TestRenewalWaitsAndThenComes(t *testing.T) {
	v, _ := folder(t)
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		day := 24 * time.Hour
		keep(t, v, "a.example", begin, begin.Add(90*day))
		a := OpenACME(t.Context(), ACMEConfig{Domains: []string{"a.example"},
			Directory: directory, Vault: v, Log: slog.New(slog.DiscardHandler)})
		var first time.Time
		a.client.Transport = issuer(func(r *http.Request) (*http.Response, error) {
			if first.IsZero() {
				first = time.Now()
			}
			return nil, errors.New("connection refused")
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(64 * day)
		synctest.Wait()
		if after := first.Sub(begin); after < 60*day || after > 63*day+time.Hour {
			t.Errorf("asked after %v, want 60 to 63 days", after)
		}
		before := a.held("a.example")
		keep(t, v, "a.example", time.Now(), time.Now().Add(90*day))
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.held("a.example") == before {
			t.Error("the certificate of the other machine was not taken")
		}
		if _, good := a.States(); !good {
			t.Error("all is well again")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// In a bubble: a reload does not wait for the next attempt.
func TestAReloadTriesAtOnce(t *testing.T) {
	v, _ := folder(t)
	synctest.Test(t, func(t *testing.T) {
		a := OpenACME(t.Context(), ACMEConfig{Domains: []string{"a.example"},
			Directory: directory, Vault: v, Log: slog.New(slog.DiscardHandler)})
		attempts := 0
		a.client.Transport = issuer(func(*http.Request) (*http.Response, error) {
			attempts++
			return nil, errors.New("connection refused")
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		before := attempts
		a.SetDomains(ctx, []string{"a.example", "b.example"})
		synctest.Wait()
		if attempts != before+2 {
			t.Errorf("%d attempts, want one for each domain", attempts-before)
		}
		cancel()
		<-done
	})
}

func TestABrokenKeptCertificateIsReplacedNotFatal(t *testing.T) {
	v, path := folder(t)
	if err := os.WriteFile(filepath.Join(path, "a.example.pem"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	a := OpenACME(t.Context(), ACMEConfig{Domains: []string{"a.example"}, Directory: directory,
		Vault: v, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if a.held("a.example") != nil || !strings.Contains(log.String(), "is not usable") {
		t.Errorf("%s", &log)
	}
}

func TestATrialHasAPlaceOfItsOwn(t *testing.T) {
	places := map[string]bool{}
	for _, d := range []string{"https://a.example/d", "https://a.example/staging", "https://b.example/d",
		"https://[::1]:14000/dir", "https://../../etc/d"} {
		p := Place(d)
		if places[p] || strings.ContainsAny(p, "/:\\") || p == "" || p[0] == '.' && p[1] == '/' {
			t.Errorf("%s: %q", d, p)
		}
		places[p] = true
	}
}

// A certificate that is served and could not be kept outlives a reload: to drop it
// would leave visitors without https until the issuer grants another.
func TestAReloadKeepsWhatTheVaultDoesNotHave(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		vault func(v Vault, file string) // what becomes of the vault
		newer bool                       // it has a newer certificate then
	}{
		"has nothing": {func(_ Vault, file string) { os.Remove(file) }, false},
		"is unreadable": {func(_ Vault, file string) {
			os.Remove(file)
			os.Mkdir(file, 0o700)
		}, false},
		"has an older one": {func(v Vault, _ string) {
			keep(t, v, "a.example", now.Add(-2*time.Hour), now.Add(time.Hour))
		}, false},
		"has a newer one": {func(v Vault, _ string) {
			keep(t, v, "a.example", now, now.Add(3*time.Hour))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			v, path := folder(t)
			keep(t, v, "a.example", now.Add(-time.Hour), now.Add(2*time.Hour))
			a := OpenACME(t.Context(), ACMEConfig{Domains: []string{"a.example"},
				Directory: directory, Vault: v, Log: slog.New(slog.DiscardHandler)})
			before := a.held("a.example")
			if before == nil {
				t.Fatal("not served")
			}
			c.vault(v, filepath.Join(path, certName("a.example")))
			a.SetDomains(t.Context(), []string{"b.example", "a.example"})
			switch got := a.held("a.example"); {
			case got == nil:
				t.Error("nothing is served any more")
			case (got == before) == c.newer:
				t.Errorf("served until %v, before until %v", got.Leaf.NotAfter, before.Leaf.NotAfter)
			}
			a.SetDomains(t.Context(), []string{"b.example"})
			if a.held("a.example") != nil {
				t.Error("a domain that is gone is served")
			}
		})
	}
}
