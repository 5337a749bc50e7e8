package challenge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A party is a third party as its documents describe it: tokens are good once. It is a RoundTripper, so
// that time is virtual where a test needs that.
type party struct {
	mu     sync.Mutex
	secret string
	host   string
	action string                                     // of tokens that were made for another widget
	spent  map[string]bool                            // tokens
	asked  int                                        // questions
	answer func(r *http.Request) (int, string, error) // in the place of its own
}

const secret = "0x4AAAAAAA-the-secret" //nolint:gosec // of a test

func (p *party) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.asked++
	answer := p.answer
	p.mu.Unlock()
	code, text := 200, ""
	if answer != nil {
		if code, text, err = answer(r); err != nil {
			return nil, err
		}
	} else {
		text = p.verify(string(body))
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Location": {"https://elsewhere.example/"}},
		Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func (p *party) verify(form string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, err := url.ParseQuery(form)
	token := q.Get("response")
	switch {
	case err != nil:
		return `{"success":false,"error-codes":["bad-request"]}`
	case q.Get("secret") != p.secret:
		return `{"success":false,"error-codes":["invalid-input-secret"]}`
	case !strings.HasPrefix(token, "good"):
		return `{"success":false,"error-codes":["invalid-input-response"]}`
	case p.spent[token]:
		return `{"success":false,"error-codes":["timeout-or-duplicate"]}`
	}
	p.spent[token] = true
	return fmt.Sprintf(`{"success":true,"challenge_ts":"2026-11-27T20:00:00Z","hostname":%q,"action":%q,`+
		`"error-codes":[],"cdata":"","metadata":{"interactive":false}}`, p.host, p.action)
}

func newParty() *party {
	return &party{secret: secret, host: "shop.example.com", action: action("shop"), spent: map[string]bool{}}
}

func (p *party) config(kind string) *Config {
	return &Config{Kind: kind, PublicKey: "0x4AAAAAAA", Secret: secret, Transport: p}
}

// sends returns what a gate finds about a token of a ticket.
func (g *Gate) sends(c *Config, t bound, token string) result {
	r := httptest.NewRequest(http.MethodGet, "http://shop.example.com/", nil)
	return g.checkToken(r, c, &t, token, time.Now, always)
}

func other(t bound) bound {
	x := *t.Token
	x.ID = rand.Uint64()
	return bound{t.room, &x, t.expires}
}

// A token is good for the ticket that sends it first, once, and again for the same ticket, because an
// answer can be lost. Each is asked about once.
func TestATokenIsUsedOnce(t *testing.T) {
	for _, kind := range []string{Turnstile, HCaptcha, ReCAPTCHA} {
		p, own := newParty(), sample()
		own.room = "shop"
		c, here, there := p.config(kind), &Gate{}, &Gate{}
		for range 2 {
			if r := here.sends(c, own, "good1"); r != solved || p.asked != 1 {
				t.Fatal(kind, r, p.asked)
			}
		}
		if r := here.sends(c, other(own), "good1"); r != repeated || p.asked != 1 {
			t.Error(kind, "another ticket:", r, p.asked)
		}
		if r := there.sends(c, other(own), "good1"); r != expired {
			t.Error(kind, "another node:", r)
		}
		if r := there.sends(c, other(own), "good2"); r != solved {
			t.Error(kind, r)
		}
	}
}

// Twice at once on two nodes, it is good once. Twice at once on one node, it is asked about once.
func TestATokenTwiceAtOnce(t *testing.T) {
	p, own := newParty(), sample()
	own.room = "shop"
	c, gates := p.config(Turnstile), []*Gate{{}, {}}
	got := make([]result, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = gates[i%2].sends(c, other(own), "good") })
	}
	wg.Wait()
	counts := map[result]int{}
	for _, r := range got {
		counts[r]++
	}
	if counts[solved] != 1 || counts[expired] != 1 || counts[repeated] != 6 || p.asked != 2 {
		t.Error(counts, p.asked)
	}
}

// What an answer says decides, and nothing but the answer of a siteverify endpoint counts. A redirect is not
// followed: it would send the secret elsewhere.
func TestAnswersOfAThirdParty(t *testing.T) {
	codes := func(s ...string) string {
		return `{"success":false,"error-codes":["` + strings.Join(s, `","`) + `"]}`
	}
	own := sample()
	own.room = "shop"
	for _, x := range []struct {
		kind string
		code int
		body string
		err  error
		want result
	}{
		{"", 200, `{"success":true}`, nil, solved}, // a party that names neither host nor action
		{"", 200, `{"success":true,"hostname":"SHOP.example.com"}`, nil, solved},
		{"", 200, `{"success":true,"hostname":"evil.example"}`, nil, foreign},
		{"", 200, `{"success":true,"hostname":""}`, nil, foreign},
		{HCaptcha, 200, `{"success":true,"hostname":"not-provided"}`, nil, solved}, // under high traffic
		{Turnstile, 200, `{"success":true,"hostname":"not-provided"}`, nil, foreign},
		{Turnstile, 200, `{"success":true,"hostname":"shop.example.com","action":"login"}`, nil, foreign},
		{Turnstile, 200, `{"success":true,"hostname":"shop.example.com","action":""}`, nil, foreign},
		{ReCAPTCHA, 200, `{"success":true,"action":"login"}`, nil, solved}, // it has no actions that we set
		{"", 200, codes("missing-input-secret"), nil, unavailable},
		{"", 200, codes("invalid-input-secret"), nil, unavailable},
		{"", 200, codes("internal-error"), nil, unavailable},
		{"", 200, codes("missing-input-response"), nil, malformed},
		{"", 200, codes("invalid-input-response"), nil, wrong},
		{"", 400, codes("bad-request"), nil, malformed}, // nobody is refused for it
		{"", 200, codes("timeout-or-duplicate"), nil, expired},
		{"", 200, codes("expired-input-response"), nil, expired},
		{"", 200, codes("already-seen-response"), nil, expired},
		{"", 200, codes("sitekey-secret-mismatch"), nil, foreign},
		{"", 200, codes("invalid-or-already-seen-response"), nil, malformed},
		{"", 200, codes("not-using-dummy-passcode"), nil, malformed}, // a client chooses the site key of its token
		{"", 200, codes("of the future"), nil, malformed},
		{"", 200, `{"success":false}`, nil, malformed},
		{"", 200, `{"success":"true"}`, nil, unavailable},
		{"", 200, `{}`, nil, unavailable},
		{"", 200, `null`, nil, unavailable},
		{"", 200, `<html>`, nil, unavailable},
		{"", 200, ``, nil, unavailable},
		{"", 200, `{"success":true}` + strings.Repeat(" ", mostAnswer), nil, unavailable},
		{"", 200, `{"success":true} {"success":false}`, nil, unavailable},
		{"", 307, `{"success":true}`, nil, unavailable},
		{"", 404, `{"success":true}`, nil, unavailable},
		{"", 429, `{"success":true}`, nil, unavailable},
		{"", 503, `{"success":true}`, nil, unavailable},
		{"", 0, "", errors.New("no route to host"), unavailable},
	} {
		kinds := []string{x.kind}
		if x.kind == "" {
			kinds = []string{Turnstile, HCaptcha, ReCAPTCHA}
		}
		for _, kind := range kinds {
			p := newParty()
			p.answer = func(*http.Request) (int, string, error) { return x.code, x.body, x.err }
			if r := new(Gate).sends(p.config(kind), own, "good"); r != x.want || p.asked != 1 {
				t.Errorf("%s: %d %.60s %v: %v after %d questions, want %v", kind, x.code, x.body, x.err, r, p.asked, x.want)
			}
		}
	}
}

// hCaptcha is told the site key, so that it refuses tokens of another one. No address of the visitor
// leaves the site.
func TestWhatAThirdPartyIsTold(t *testing.T) {
	for kind, want := range map[string]string{
		Turnstile: "response=good&secret=" + secret, ReCAPTCHA: "response=good&secret=" + secret,
		HCaptcha: "response=good&secret=" + secret + "&sitekey=0x4AAAAAAA",
	} {
		var got string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(b)
			if err != nil || len(r.Cookies()) > 0 {
				t.Error(err, r.Header)
			}
			io.WriteString(w, `{"success":true}`)
		}))
		c := &Config{Kind: kind, PublicKey: "0x4AAAAAAA", Secret: secret, VerifyURL: server.URL + "/siteverify"}
		r := new(Gate).sends(c, sample(), "good")
		server.Close()
		if want = "POST /siteverify application/x-www-form-urlencoded " + want; r != solved || got != want {
			t.Errorf("%s: %v: %s, want %s", kind, r, got, want)
		}
	}
}

// A token that nobody can check solves nothing, unless the room fails open. It is no fault of the
// visitor, and the operator reads it once, without the secret.
func TestAThirdPartyThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, own := newParty(), &Gate{}, sample()
		var log bytes.Buffer
		c := p.config(Turnstile)
		g.Log = slog.New(slog.NewTextHandler(&log, nil))
		own.room, c.VerifyURL = "shop", "https://proxy.example/siteverify?key=hidden"
		p.answer = func(r *http.Request) (int, string, error) {
			<-r.Context().Done()
			return 0, "", r.Context().Err()
		}
		solves := func(token string) (yes, unchecked bool) {
			r := httptest.NewRequest(http.MethodGet, "http://shop.example.com/", nil)
			r.Header.Set(Header, token)
			return g.Solves(r, c, own.room, other(own).Token, time.Now, always)
		}
		for i := range failures {
			began := time.Now()
			if yes, unchecked := solves(fmt.Sprint("good", i)); yes || !unchecked || time.Since(began) != askWait {
				t.Fatal(yes, unchecked, time.Since(began))
			}
		}
		began := time.Now()
		for i := range 100 { // nobody waits any more, and nobody is asked
			if yes, unchecked := solves(fmt.Sprint("goodr", i)); yes || !unchecked {
				t.Fatal(yes, unchecked)
			}
		}
		if p.asked != failures || time.Since(began) != 0 {
			t.Errorf("%d questions, %v", p.asked, time.Since(began))
		}
		c.FailOpen = true
		if yes, _ := solves("good-open"); !yes {
			t.Error("a room that fails open does not")
		}
		p.answer = nil
		time.Sleep(pause)
		if yes, _ := solves("bad"); yes { // it is back: then open lets nobody in
			t.Error("a wrong token counts")
		}
		if yes, _ := solves("goodr7"); !yes || p.asked != failures+2 { // nobody was asked about it before
			t.Error("not checked again")
		}
		text := log.String()
		if strings.Count(text, "cannot be checked") != 1 || strings.Count(text, "checked again") != 1 ||
			strings.Contains(text, secret) || strings.Contains(text, "good") || strings.Contains(text, "hidden") {
			t.Error(text)
		}
	})
}

// More questions than mostAsked wait a second, and are then as new. Of a ticket three tokens are checked,
// and none after one that was refused.
func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, own := newParty(), &Gate{}, sample()
		own.room = "shop"
		c, hold := p.config(Turnstile), make(chan struct{})
		p.answer = func(*http.Request) (int, string, error) {
			<-hold
			return 200, `{"success":true}`, nil
		}
		var wg sync.WaitGroup
		for i := range mostAsked {
			wg.Go(func() {
				if r := g.sends(c, other(own), fmt.Sprint("good", i)); r != solved {
					t.Error(r)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if r := g.sends(c, own, "good"); r != busy || time.Since(began) != checkWait || p.asked != mostAsked {
			t.Error(r, time.Since(began), p.asked)
		}
		if r := g.sends(c, other(own), "good0"); r != repeated {
			t.Error("a token of another ticket that is being checked:", r)
		}
		close(hold)
		wg.Wait()
		p.answer = nil
		if r := g.sends(c, own, "good"); r != solved {
			t.Error(r)
		}
	})
	p, g, own := newParty(), &Gate{}, sample()
	c := p.config(Turnstile)
	own.room = "shop"
	for i, want := range []result{wrong, repeated, repeated} {
		if r := g.sends(c, own, fmt.Sprint("bad", i)); r != want || p.asked != 1 {
			t.Error(i, r, p.asked)
		}
	}
	own = other(own)
	p.host = "evil.example"
	for i, want := range []result{foreign, foreign, foreign, repeated} {
		if r := g.sends(c, own, fmt.Sprint("good", i)); r != want {
			t.Error(i, r)
		}
	}
	if p.asked != 4 {
		t.Error(p.asked)
	}
}

// What cannot be a token is asked about nowhere, nor one that the network of the client may not send.
func TestTokensThatAreNone(t *testing.T) {
	p, g, own := newParty(), &Gate{}, sample()
	c := p.config(Turnstile)
	for _, text := range []string{strings.Repeat("a", mostToken+1), "a b", "a\x7f", "gr\u00fcn", "\x00", "<script>", "'a'", "{$a}"} {
		if r := g.sends(c, own, text); r != malformed {
			t.Errorf("%.20q: %v", text, r)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "http://shop.example.com/", nil)
	if got := g.checkToken(r, c, &own, "good", time.Now, func() bool { return false }); got != busy || p.asked > 0 {
		t.Error(got, p.asked)
	}
	if got := g.sends(c, own, strings.Repeat("a", mostToken)); got != wrong {
		t.Error(got)
	}
}

// The memory of tokens is bounded, and forgets nothing that the third party does not know.
func TestTheMemoryOfTokensIsBounded(t *testing.T) {
	p, g, own := newParty(), &Gate{}, sample()
	own.room = "shop"
	c := p.config(Turnstile)
	for i := range mostTickets + 1 {
		g.sends(c, other(own), fmt.Sprint("good", i))
	}
	if len(g.tokens) > mostTickets {
		t.Error(len(g.tokens))
	}
	if r := g.sends(c, other(own), "good1"); r != expired {
		t.Error(r)
	}
}

func TestConfigsThatAreNone(t *testing.T) {
	for _, c := range []Config{{Kind: "puzzle"}, {Kind: Turnstile}, {Kind: Turnstile, PublicKey: "a"},
		{Kind: Turnstile, Secret: "a"}, {Kind: HCaptcha, PublicKey: `a"`, Secret: "a"}} {
		if got := c.Check(); got == nil || strings.Contains(got.Error(), "secret: a") {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, c := range []Config{{}, {Kind: Kind}, {Kind: ReCAPTCHA, PublicKey: "a", Secret: "b"}} {
		if got := c.Check(); got != nil {
			t.Error(got)
		}
	}
}

// A token that is asked about while the memory begins anew is still of one ticket: what the third party
// says of it for the first ticket does not count for another that has sent it meanwhile.
func TestATokenWhileTheMemoryBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, own := newParty(), &Gate{}, sample()
		own.room = "shop"
		c, next, hold := p.config(Turnstile), other(own), []chan string{make(chan string), make(chan string)}
		p.answer = func(*http.Request) (int, string, error) { return 200, <-hold[p.asked-1], nil }
		first, second := make(chan result, 1), make(chan result, 1)
		go func() { first <- g.sends(c, own, "good") }()
		synctest.Wait()
		g.tokens = nil // as after mostTickets others
		go func() { second <- g.sends(c, next, "good") }()
		synctest.Wait()
		hold[0] <- `{"success":true}`
		if r := <-first; r != solved {
			t.Error(r)
		}
		if r := g.sends(c, next, "good"); r != busy {
			t.Error("while it is asked about:", r)
		}
		hold[1] <- `{"success":false,"error-codes":["timeout-or-duplicate"]}`
		if r := <-second; r != expired {
			t.Error(r)
		}
	})
}

// Of one ticket three tokens are checked, also when many come at once.
func TestManyTokensOfATicketAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, g, own := newParty(), &Gate{}, sample()
		c, hold, allow := p.config(Turnstile), make(chan struct{}), true
		got := make(chan result, mostAsked)
		all := func() {
			for i := range mostAsked {
				go func() {
					r := httptest.NewRequest(http.MethodGet, "http://shop.example.com/", nil)
					got <- g.checkToken(r, c, &own, fmt.Sprint("bad", i), time.Now, func() bool { <-hold; return allow })
				}()
			}
			synctest.Wait()
		}
		allow = false // those that its network may not send do not count
		all()
		close(hold)
		for range mostAsked {
			<-got
		}
		if len(g.checks) > 0 || p.asked != 0 {
			t.Error(g.checks, p.asked)
		}
		own, hold, allow = other(own), make(chan struct{}), true
		all()
		close(hold)
		for range mostAsked {
			<-got
		}
		if p.asked != checksOfTicket {
			t.Error(p.asked)
		}
	})
}
