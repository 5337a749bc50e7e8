package dashboard

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
)

// These constants limit sign-ins. Chosen: a person who mistypes never reaches them.
const (
	signIns     = 10 // per address, in signInsIn
	signInsIn   = time.Minute
	addresses   = 10_000 // addresses counted separately
	mostSignIn  = 4 << 10
	signInWaits = 10 * time.Second // timeout for the body
)

// An attempts limits the sign-in attempts of an address.
type attempts struct {
	mu    sync.Mutex
	table limittable.Table
	seed  maphash.Seed
	began time.Time
}

func (a *attempts) open() error {
	rules, err := limittable.Compile(limit.Rule{Algorithm: limit.SlidingLog, Amount: signIns,
		Window: signInsIn}, nil)
	if err != nil {
		return err
	}
	a.seed, a.began = maphash.MakeSeed(), time.Now()
	a.table.SetRules(0, rules, addresses)
	return nil
}

// take counts an attempt. If it is not allowed, retry is the time until the next one.
func (a *attempts) take(address string) (retry time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, err := a.table.Take(limittable.Time(time.Since(a.began)), maphash.String(a.seed, address), address, 1)
	return d.Retry, err == nil && d.Allowed
}

// networkOf returns the address of a peer, or its network for IPv6, where everyone has many
// addresses.
func networkOf(remote string) string {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	addr := peer.Addr().Unmap()
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.String()
}

// A told is what the page receives about its session.
type told struct {
	SignedIn bool       `json:"signed_in"`
	Reads    bool       `json:"reads"` // may read something, even without a session
	ID       string     `json:"id,omitempty"`
	Name     string     `json:"name,omitempty"`
	Scopes   []string   `json:"scopes,omitempty"`
	EndsAt   *time.Time `json:"ends_at,omitempty"`
}

// tellSession handles GET session.
func (d *Dashboard) tellSession(w http.ResponseWriter, r *http.Request) {
	var t told
	s, token, ok := d.sessionOf(r)
	if ok {
		end := s.began.Add(absoluteEnd).UTC()
		t = told{SignedIn: true, ID: token.ID, Name: token.Name, Scopes: token.Scopes, EndsAt: &end}
	}
	t.Reads = d.cfg.API.ReadableRooms(s.token, r) != nil
	writeJSON(w, http.StatusOK, t)
}

// signIn handles POST session: {"token": "hg_…"}.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	if retry, ok := d.attempts.take(networkOf(r.RemoteAddr)); !ok {
		wait := int64(retry/time.Second) + 1
		w.Header().Set("Retry-After", strconv.FormatInt(wait, 10))
		refuse(w, refusal{Status: http.StatusTooManyRequests, Code: "too_many_attempts",
			Detail: "too many attempts from this address",
			Hint:   "wait " + strconv.FormatInt(wait, 10) + " seconds, then try again"})
		return
	}
	// An error means a test server without deadlines.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(signInWaits))
	var asked struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostSignIn)).Decode(&asked); err != nil {
		refuse(w, refusal{Status: http.StatusBadRequest, Code: "invalid_body", Field: "token",
			Detail: "the body is not a JSON object with a token", Hint: `send {"token": "hg_…"}`})
		return
	}
	secret := strings.TrimSpace(asked.Token)
	token, ok := d.cfg.API.SignIn(secret)
	if !ok {
		d.cfg.Log.Info("sign-in refused", "remote", r.RemoteAddr)
		refuse(w, refusal{Status: http.StatusUnauthorized, Code: "token_unknown", Field: "token",
			Detail: "invalid token: it is unknown, has expired, or may not read",
			Hint:   "create one on the machine that runs headgate: headgate token create --scope write"})
		return
	}
	d.sessions.end(secretOf(r))
	setCookie(w, r, d.sessions.add(token.Hash, time.Now()))
	d.cfg.Log.Info("signed in", "by", strings.TrimSpace(token.ID+" "+token.Name), "remote", r.RemoteAddr)
	w.WriteHeader(http.StatusNoContent)
}

// signOut handles DELETE session.
func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	d.sessions.end(secretOf(r))
	setCookie(w, r, "")
	w.WriteHeader(http.StatusNoContent)
}
