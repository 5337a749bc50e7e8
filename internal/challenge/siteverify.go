package challenge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/ticket"
)

// Kinds of challenges that a third party makes: its widget on the waiting page hands out a token, and
// its siteverify endpoint says whether the token is good.
const (
	Turnstile = "turnstile"
	HCaptcha  = "hcaptcha"
	ReCAPTCHA = "recaptcha"
)

// Kinds returns the kinds of challenges in configurations.
func Kinds() []string { return []string{None, Kind, Turnstile, HCaptcha, ReCAPTCHA} }

// Config is what a room asks of the browsers of newcomers. The zero value is nothing.
type Config struct {
	Kind string // "work", "turnstile", "hcaptcha" or "recaptcha"; "" is none
	On   string // Claim or Draw; "" is the join

	// Of a third party:
	PublicKey string   // public, for its widget
	Secret    string   // for its siteverify endpoint
	VerifyURL string   // of that endpoint; "" is the party's own
	Hostnames []string // of the sites on which tokens may be made; nil: the host of the request
	FailOpen  bool     // tickets need no token while the endpoint does not answer
	Endless   bool     // nobody comes in without a token: there is no lane for them

	ByRules   bool              // only newcomers that a rule names have the challenge
	Transport http.RoundTripper // to the endpoint of a third party; nil is http.DefaultTransport
}

// When a challenge is asked. With Claim a ticket has its place at once, and is called once it is solved.
// With Draw those who have not solved it have few chances.
const (
	Join  = "join" // in configurations
	Claim = "claim"
	Draw  = "draw"
)

// drawAhead is how long before a draw the challenge is asked, so that nobody computes for longer. Chosen: as
// for a turn that comes.
const drawAhead = 2 * time.Minute

// NoDraw is the time until a draw that does not come.
const NoDraw = time.Duration(math.MaxInt64)

// UntilDraw returns how long it is until places are drawn: 0 if each call is a draw, or NoDraw.
func UntilDraw(prequeue, shuffle, random bool, toStart time.Duration) time.Duration {
	switch {
	case prequeue && (shuffle || random):
		return max(0, toStart)
	case random:
		return 0
	}
	return NoDraw
}

// Asks reports whether a newcomer has a challenge. named means that a rule names it, or that it had a
// challenge before and has not solved it: it must not get rid of it with a request that no rule names.
func (c *Config) Asks(named bool, toDraw time.Duration) bool {
	return c.Kind != "" && (named || !c.ByRules) && (c.On != Draw || toDraw != NoDraw)
}

// Due reports whether the challenge of a ticket is asked now. turn means that its turn comes soon.
func (c *Config) Due(t *ticket.Token, turn bool, toDraw time.Duration) bool {
	switch c.On {
	case Claim:
		return turn || t.Refused
	case Draw:
		return toDraw <= drawAhead
	}
	return true
}

// Lacks reports whether a ticket takes part in draws without the solution that it needs for its chances.
func (c *Config) Lacks(t *ticket.Token) bool { return c.Kind != "" && c.On == Draw && t.Work > 0 }

// Remote reports whether a third party makes the challenge.
func (c *Config) Remote() bool { return c.endpoint() != "" }

// endpoint returns the URL of the third party's siteverify endpoint, "" without one.
func (c *Config) endpoint() string {
	switch c.Kind {
	case Turnstile:
		return cmp.Or(c.VerifyURL, "https://challenges.cloudflare.com/turnstile/v0/siteverify")
	case HCaptcha:
		return cmp.Or(c.VerifyURL, "https://api.hcaptcha.com/siteverify")
	case ReCAPTCHA:
		return cmp.Or(c.VerifyURL, "https://www.google.com/recaptcha/api/siteverify")
	}
	return ""
}

// Sources returns what the page of a kind loads, as sources of the directives of a
// Content-Security-Policy, by the documents of the third parties.
func Sources(kind string) map[string]string {
	const cloudflare, hcaptcha = "https://challenges.cloudflare.com", "https://hcaptcha.com https://*.hcaptcha.com"
	const google = "https://www.google.com/recaptcha/"
	switch kind {
	case Turnstile:
		return map[string]string{"script-src": cloudflare, "frame-src": cloudflare}
	case HCaptcha:
		return map[string]string{"script-src": hcaptcha, "frame-src": hcaptcha, "style-src": hcaptcha,
			"connect-src": hcaptcha}
	case ReCAPTCHA:
		return map[string]string{"script-src": google + " https://www.gstatic.com/recaptcha/",
			"frame-src": google + " https://recaptcha.google.com/recaptcha/"}
	}
	return nil
}

// publicKeyForm keeps a site key readable in JSON and in HTML. Chosen: wider than those of all three.
var publicKeyForm = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,200}$`)

// tokenForm is wider than the tokens of all three. Others could be what a firewall before the endpoint takes
// for an attack: its answer would say that the third party is away, which only that one may say.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_.:~|+/=-]+$`)

// noScript begins the tokens of widget.js where the browser could not load the script of the third party.
// They are wrong, and nobody is refused for them.
const noScript = "unavailable-"

// What happens to those who fail, in Cloudflare's words. Log is the lane of those who have not solved it.
const (
	Log           = "log"
	InfiniteQueue = "infinite_queue"
)

// IsPublicKey reports whether a text can be a site key.
func IsPublicKey(s string) bool { return publicKeyForm.MatchString(s) }

// Check rejects a configuration that no room can have.
func (c *Config) Check() error {
	switch {
	case c.On != "" && c.On != Claim && c.On != Draw:
		return fmt.Errorf("challenge on %q: there are claim and draw, and \"\" for the join", c.On)
	case c.On == Draw && c.Endless:
		return errors.New("nobody is kept out before a draw: leave Endless or Draw out")
	case !c.Remote() && c.Kind != "" && c.Kind != Kind:
		return fmt.Errorf("challenge %q: there are %s", c.Kind, strings.Join(Kinds()[1:], ", "))
	case c.Endless && !c.Remote():
		return errors.New("only a third party can let nobody in who has not solved its challenge")
	case c.Remote() && (!IsPublicKey(c.PublicKey) || c.Secret == ""):
		return fmt.Errorf("challenge %s needs a secret, and a site key of letters, digits and _.:-", c.Kind)
	}
	return nil
}

// action names a room to Turnstile. Its answer names it again, so a token that was made for another room
// or form with the same site key does not count. It may have 32 letters, digits, _ and -.
func action(room string) string {
	sum := sha256.Sum256([]byte(room))
	return "headgate-" + hex.EncodeToString(sum[:8])
}

// widgetJSON returns what the page needs to show the widget of the third party.
func (c *Config) widgetJSON(room string) string {
	return `{"kind":"` + c.Kind + `","sitekey":"` + c.PublicKey + `","action":"` + action(room) + `"}`
}

// Bounds of questions to a third party. Chosen: it answers in a tenth of a second as a rule.
const (
	mostToken  = 6 << 10 // bytes; Turnstile's have 2 KB at most, and a proxy may bound a header by 8 KB
	mostAnswer = 16 << 10
	mostAsked  = 64              // at the same time
	askWait    = 3 * time.Second // for an answer. A ticket is provisional for 10 s

	// After so many failures in a row nobody is asked for pause: the third party is away, and a rush would
	// wait in vain, or ask it all at once when it comes back.
	failures = 3
	pause    = time.Second

	tokenLife = 300 // seconds that a token of Turnstile is good, the longest of the three
)

// A token is one that a client has sent.
type token struct {
	ticket uint64 // mixed
	at     int64  // Unix seconds
	result result // busy: the third party has been asked and has not answered yet
}

// spend notes that the token of a ticket will be checked. Otherwise it reports the result of its first
// check: a token is asked about once, so whoever sends it again, after an answer that was lost, is not
// told that it is spent. For another ticket it counts as repeated.
func (g *Gate) spend(sum [sha256.Size]byte, ticket uint64, now int64) (first bool, got result) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if x, known := g.tokens[sum]; known && now-x.at <= tokenLife {
		if x.ticket != ticket {
			return false, repeated
		}
		return false, x.result
	}
	if len(g.tokens) >= mostTickets || g.tokens == nil { // the third party knows spent ones too
		g.tokens = map[[sha256.Size]byte]token{}
	}
	g.tokens[sum] = token{ticket, now, busy}
	return true, busy
}

// settle notes the result of a token of a ticket. A token that nobody was asked about is as new. If the
// memory began anew meanwhile, the token may be that of another ticket now, which this result is not for.
func (g *Gate) settle(sum [sha256.Size]byte, ticket uint64, got result, asked bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch x, known := g.tokens[sum]; {
	case !known || x.ticket != ticket:
	case asked:
		x.result = got
		g.tokens[sum] = x
	default:
		delete(g.tokens, sum)
	}
}

// rests reports whether the third party has failed to answer just now.
func (g *Gate) rests(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failed >= failures && now.Sub(g.failedAt) < pause
}

// answered notes whether the third party has answered. problem is why it has not.
func (g *Gate) answered(c *Config, problem string, now time.Time) {
	g.mu.Lock()
	was := g.failed
	if g.failed++; problem == "" {
		g.failed = 0
	}
	g.failedAt = now
	g.mu.Unlock()
	switch {
	case g.Log == nil:
	case problem != "" && was == 0:
		g.Log.Warn("challenges cannot be checked", "kind", c.Kind, "problem", problem, "fail_open", c.FailOpen)
	case problem == "" && was > 0:
		g.Log.Info("challenges can be checked again", "kind", c.Kind)
	}
}

// A verdict is the answer of a siteverify endpoint. What an answer does not have is nil.
type verdict struct {
	Success  *bool    `json:"success"`
	Hostname *string  `json:"hostname"`
	Action   *string  `json:"action"`
	Errors   []string `json:"error-codes"`
}

// ask asks the third party about a token, once. The client may be gone meanwhile: the token is spent then,
// and its answer counts when it is sent again. A redirect would send the secret elsewhere.
func (c *Config) ask(ctx context.Context, room, host, token string) (got result, problem string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), askWait)
	defer stop()
	form := url.Values{"secret": {c.Secret}, "response": {token}}
	if c.Kind == HCaptcha { // it then refuses tokens of other site keys
		form.Set("sitekey", c.PublicKey)
	}
	body := strings.NewReader(form.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint(), body)
	if err != nil {
		return unavailable, err.Error()
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	client := http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.Do(req)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, in whose query a proxy may have a key
	}
	if err != nil {
		return unavailable, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	var v verdict
	switch {
	case err != nil:
		return unavailable, err.Error()
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusBadRequest:
		return unavailable, "its answer is " + strconv.Itoa(resp.StatusCode)
	case len(answer) > mostAnswer, json.Unmarshal(answer, &v) != nil, v.Success == nil:
		return unavailable, "its answer is not that of siteverify"
	}
	if got = c.judge(&v, room, host); got == unavailable {
		problem = fmt.Sprintf("%.200q", v.Errors)
	}
	return got, problem
}

// judge returns the result of an answer. hCaptcha names no host under high traffic.
func (c *Config) judge(v *verdict, room, host string) result {
	if c.Kind == HCaptcha && v.Hostname != nil && *v.Hostname == "not-provided" {
		v.Hostname = nil
	}
	has := func(codes ...string) bool {
		return slices.ContainsFunc(v.Errors, func(s string) bool { return slices.Contains(codes, s) })
	}
	switch {
	case *v.Success && (v.Hostname != nil && !c.allows(*v.Hostname, host) ||
		c.Kind == Turnstile && v.Action != nil && *v.Action != action(room)):
		return foreign
	case *v.Success:
		return solved
	case has("internal-error", "missing-input-secret", "invalid-input-secret"):
		return unavailable // whatever the token is
	case has("timeout-or-duplicate", "expired-input-response", "already-seen-response"):
		return expired
	case has("sitekey-secret-mismatch"):
		return foreign
	case has("invalid-input-response"):
		return wrong
	}
	return malformed // such as bad-request, or a no without a reason: nobody can be refused for that
}

// allows reports whether tokens may be made on a site; host is that of the request.
func (c *Config) allows(site, host string) bool {
	names := c.Hostnames
	if len(names) == 0 {
		names = []string{paths.Hostname(host)}
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, site) })
}

// checkToken checks the token of a third party.
func (g *Gate) checkToken(
	r *http.Request, c *Config, t *bound, text string, wall func() time.Time, allowed func() bool,
) result {
	if len(text) > mostToken || !tokenForm.MatchString(text) {
		return malformed
	}
	sum, now := sha256.Sum256([]byte(text)), wall()
	first, got := g.spend(sum, t.Mix(), now.Unix())
	if !first {
		return got
	}
	if g.rests(now) {
		g.settle(sum, t.Mix(), unavailable, false)
		return unavailable
	}
	asked := false
	got = g.admit(r.Context(), 1, t.Mix(), now.Unix(), allowed, func() result {
		asked = true
		got, problem := c.ask(r.Context(), t.room, r.Host, text)
		g.answered(c, problem, wall())
		return got
	})
	g.settle(sum, t.Mix(), got, asked)
	return got
}
