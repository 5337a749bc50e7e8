// Package challenge makes a newcomer's browser compute something before its place in the line
// counts, and checks what it computed.
//
// # The promise
//
// A solution is accepted for one ticket of one room, before its challenge expires, and only after
// the work that the challenge asks for. The challenge of a ticket follows from what the sealed
// cookie of the ticket contains. So any node that can open the cookie can check the solution,
// nothing is stored, and nobody can compute in advance or choose an easier challenge: what the
// client sends of its challenge is only compared. A second use of a solution confirms the same
// ticket again, which changes nothing.
//
// # The wire
//
// It is the one of ALTCHA 2 (https://altcha.org/docs/v2/): the client looks for a counter whose
// key, derived by PBKDF2 with SHA-256 from nonce and counter, begins with a prefix. Its public
// clients solve our challenges. testdata has what they made of some.
//
// # Concurrency and cost
//
// A Gate may be used by many goroutines at once. Issuing costs one random number, and each answer
// with a challenge three hashes and a signature. Checking costs a JSON object of 2 KB at most, the
// same hashes, and one derivation if all else is right. A Gate bounds the derivations at the same
// time, for which a request waits a second at most, and those of a ticket. Its caller bounds those
// of a network.
//
// # Third parties
//
// Turnstile, hCaptcha and reCAPTCHA tell people from programs in their own way. Their widget gives the
// page a token, which is sent as a solution is, and a Gate asks their siteverify endpoint about it, once
// (siteverify.go). The rest is the same.
//
// # What it does not do
//
// A proof of work does not tell people from programs: it makes many places cost many times one.
package challenge

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/ticket"
	"github.com/headgate/headgate/status"
)

// Header is the request header with which a client sends a solution: the Base64 of ALTCHA's payload.
const Header = "Headgate-Solution"

// Kinds of challenges in configurations. Kind is the one that this package makes.
const (
	None = "none"
	Kind = "work"
)

// Lane returns the lane of visitors who have not solved their challenge in time. Its share is chosen
// as for a network above join_limit.
func Lane() slot.Lane { return slot.Lane{Name: slot.UnsolvedLane, Share: 10} }

// Parameters of challenges. A key begins with prefix once in 256 tries, so a challenge costs 256
// derivations on average. Chosen: the least cost of a derivation is long compared with a call of
// WebCrypto, so that a program gains little over a browser; with the greatest one a slow phone needs a
// second or two.
const (
	prefix    = "00"
	keyLength = 32
	leastCost = 1000
	mostCost  = 4 * leastCost
	costUnit  = 250 // of the cost in Work
	costBits  = 5   // of Work, for the cost; the tries follow

	freeChecks = 60 // solutions of a network, beside twice its newcomers

	rushWindow = 10 // seconds, as long as a ticket is provisional

	expiry    = 60          // seconds. Chosen: much longer than a ticket waits for its solution
	lateAfter = 7 * 86400   // the same where it is asked later than at the join. Chosen: no line lasts longer
	mostBytes = 2048        // of a solution; clients send about 600
	checkWait = time.Second // for a processor. Chosen: more than the crowd of a second needs

	// Chosen: a client that computes right sends one, and again if the answer was lost. After a wrong one
	// nothing of its ticket is checked any more: that client does not compute.
	checksOfTicket = 3
	mostTickets    = 10_000 // whose checks are counted. Chosen: 300 KB
)

// A visitor whose ticket is over before its challenge is solved joins again with a new challenge,
// and then waits in the lane: mostTries bounds what these times weigh together. lateWeighs is for a
// solution that did not come in time: a slow phone has one more try. One that could not be checked
// in time is no fault of its visitor, and weighs 1.
const (
	mostTries  = 7
	lateWeighs = 4

	// Seconds for which a turn waits for a solution (see package counter). Before, a place cannot be over for
	// want of one: its cookie came back too late, or the room asked for the solution at the join.
	leastAsked = 90
)

// Had reports whether a ticket has a challenge that is not solved.
func (c *Config) Had(t *ticket.Token) bool {
	return c.Kind != "" && c.On != Draw && (t.Work > 0 || t.Refused)
}

// Again returns how a visitor joins whose ticket is over, and whose challenge was not solved in time: with
// how many tries in the next one, and why. busy means that a solution came and could not be checked. A
// widget of a third party may ask its visitor something, which takes more than 10 s, and time buys nothing
// there. In a room that lets nobody in without, a ticket without a try left is refused, and why is 0; whoever
// was refused has one try.
func (c *Config) Again(t *ticket.Token, busy bool, now time.Time) (tries uint64, why ticket.Kind) {
	switch tries = t.Work >> costBits & mostTries; {
	case t.Refused:
		return mostTries, ticket.NotYetSolved
	case c.On == Claim && now.Unix()-t.Arrived >= leastAsked: // it had until its turn
		tries = mostTries + 1
	case busy || c.Remote():
		tries++
	default:
		tries += lateWeighs
	}
	switch {
	case tries <= mostTries:
		return tries, ticket.NotYetSolved
	case c.Endless:
		t.Refuse(false)
		return mostTries, 0
	}
	return mostTries, ticket.Unsolved
}

// NewChecks counts the solutions of networks that are checked: twice the newcomers that may come of one,
// and some more, in the same window. Without a limit of newcomers there is none of checks.
func NewChecks(newcomers exclude.JoinLimit) *exclude.Joins {
	if newcomers.Amount > 0 {
		newcomers.Amount = 2*newcomers.Amount + freeChecks
	}
	return exclude.NewJoins(newcomers)
}

// bound is what a challenge is bound to: a room, and of the visitor's ticket Life, ID, Work and
// Arrived.
type bound struct {
	room string
	*ticket.Token
	expires int64 // Unix seconds
}

func (c *Config) bind(room string, t *ticket.Token) *bound {
	if c.On == "" {
		return &bound{room, t, t.Arrived + expiry}
	}
	return &bound{room, t, t.Arrived + lateAfter}
}

// JSON returns the challenge of a ticket, or null if it has none or is not valid: as ALTCHA's clients
// read it, or what the widget of a third party needs. In a room without challenges it returns "".
func (c *Config) JSON(room string, t *ticket.Token, valid bool) string {
	switch {
	case c.Kind == "":
		return ""
	case t.Work == 0 || !valid:
		return "null"
	case c.Remote():
		return c.widgetJSON(room)
	}
	return string(c.bind(room, t).appendJSON(nil))
}

// cost returns the iterations of one derivation for a newcomer. The cost doubles while the line grows
// to a minute of admissions, and doubles once more while the newcomers of its network in a window
// grow to the limit; 0 is no limit.
func cost(waiting, perMinute int64, joined, limit int) int {
	n := leastCost + leastCost*min(waiting, perMinute)/max(1, perMinute)
	if limit > 0 {
		n += n * int64(min(joined, limit)) / int64(limit)
	}
	return int(n)
}

// draw returns the Work of a ticket with a challenge of this cost. It contains the cost, the tries
// before it, and a random number.
func draw(cost int, tries uint64) uint64 {
	return rand.Uint64()<<8 | tries<<costBits | uint64(min(max(cost, leastCost), mostCost)/costUnit)
}

// Cost returns the iterations of one derivation for the Work of a ticket.
func Cost(work uint64) int { return int(work&(1<<costBits-1)) * costUnit }

// parameters returns ALTCHA's parameters in canonical JSON, and the nonce and the salt in them.
func (t *bound) parameters() (text, nonce, salt []byte) {
	h := t.hash("parameters")
	nonce, salt = h[:16:16], h[16:] // derive appends to the nonce
	return canonical(Cost(t.Work), t.expires, nonce, salt), nonce, salt
}

// canonical returns parameters as ALTCHA signs them: without spaces, the keys in order.
func canonical(cost int, expires int64, nonce, salt []byte) []byte {
	b := strconv.AppendInt([]byte(`{"algorithm":"PBKDF2/SHA-256","cost":`), int64(cost), 10)
	b = strconv.AppendInt(append(b, `,"expiresAt":`...), expires, 10)
	b = strconv.AppendInt(append(b, `,"keyLength":`...), keyLength, 10)
	b = hex.AppendEncode(append(b, `,"keyPrefix":"`+prefix+`","nonce":"`...), nonce)
	b = hex.AppendEncode(append(b, `","salt":"`...), salt)
	return append(b, `"}`...)
}

// hash returns a number for one purpose that depends on everything that the challenge is bound to.
func (t *bound) hash(purpose string) []byte {
	h := sha256.New()
	for _, s := range []string{"headgate challenge", purpose, t.room} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	for _, n := range []uint64{t.Life, t.ID, t.Work, uint64(t.Arrived)} {
		h.Write(binary.BigEndian.AppendUint64(nil, n))
	}
	return h.Sum(nil)
}

func sign(key, parameters []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(parameters)
	return mac.Sum(nil)
}

func (t *bound) appendJSON(b []byte) []byte {
	parameters, _, _ := t.parameters()
	b = append(append(b, `{"parameters":`...), parameters...)
	b = hex.AppendEncode(append(b, `,"signature":"`...), sign(t.hash("signature"), parameters))
	return append(b, `"}`...)
}

// derive returns the key of a counter.
func derive(nonce, salt []byte, counter uint32, cost int) []byte {
	password := string(binary.BigEndian.AppendUint32(nonce, counter))
	key, err := pbkdf2.Key(sha256.New, password, salt, cost, keyLength)
	if err != nil { // only for a length or a hash that it does not have
		return nil
	}
	return key
}

// A result is what a check found.
type result uint8

// Results of a check. All but solved are counted as refused.
const (
	solved      result = iota // the ticket has done its work
	malformed                 // not a solution: too long, or no JSON
	expired                   // the challenge has expired
	foreign                   // the challenge is that of another ticket or room, or was changed
	wrong                     // the key does not follow from the counter
	busy                      // not checked: too many at the same time, or of this network
	repeated                  // not checked: too many of this ticket, after a wrong one, or of another ticket
	unavailable               // the third party does not answer, or not as it should
	unloaded                  // the browser could not load the script of the third party
	results
)

// String returns the name of a result in metrics.
func (r result) String() string {
	return [results]string{"solved", "malformed", "expired", "foreign", "wrong", "busy", "repeated",
		"unavailable", "no_script"}[r]
}

// A Gate issues the challenges of a room on one node, checks the solutions, and counts both. The zero
// value is ready.
type Gate struct {
	Log *slog.Logger // says when a third party is away; nil: nobody

	issued  atomic.Int64
	endless atomic.Int64 // tickets refused for a wrong token
	counts  [results]atomic.Int64
	rush    rush

	once  sync.Once
	slots [2]chan struct{} // derivations, and questions to a third party, at this moment

	mu     sync.Mutex
	since  int64                       // Unix seconds
	checks map[uint64]int              // since then, by ticket
	tokens map[[sha256.Size]byte]token // of a third party, by their hash

	failed   int // questions in a row without an answer
	failedAt time.Time
}

// Report returns the counts as operators see them, nil in a room without challenges.
func (g *Gate) Report(kind string) *status.Challenges {
	if kind == "" {
		return nil
	}
	s := &status.Challenges{Issued: g.issued.Load(), Solved: g.counts[solved].Load(),
		Refused: map[string]int64{}}
	for r := malformed; r < results; r++ {
		s.Refused[r.String()] = g.counts[r].Load()
	}
	return s
}

// Draw returns the Work of a ticket that has joined just now, with so many waiting: see cost. The
// tickets of the last seconds count too: in a burst they are all provisional, and nobody waits yet.
// tries is of Again, or 0.
func (g *Gate) Draw(now time.Time, waiting, perMinute int64, joined, limit int, tries uint64) uint64 {
	g.issued.Add(1)
	return draw(cost(max(waiting, g.rush.add(now.Unix()/rushWindow)), perMinute, joined, limit), tries)
}

// Count counts a challenge that a newcomer would have had, in a room that holds nobody.
func (g *Gate) Count(had bool) {
	if had {
		g.issued.Add(1)
	}
}

// A rush counts the challenges of this window and the one before it.
type rush struct {
	mu          sync.Mutex
	window      int64
	now, before int64
}

func (r *rush) add(window int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if window != r.window {
		if window != r.window+1 {
			r.now = 0
		}
		r.window, r.before, r.now = window, r.now, 0
	}
	r.now++
	return r.now - 1 + r.before
}

// Solves reports whether a request has the solution of its ticket's challenge. unchecked means that
// its solution may be right, but could not be checked now. Solves calls allowed before it checks one,
// which must report whether the client's network may cause one more. Where the room lets nobody in without
// a solution, Solves refuses the ticket for a token that the third party says is wrong.
func (g *Gate) Solves(
	r *http.Request, c *Config, room string, t *ticket.Token, wall func() time.Time,
	allowed func() bool,
) (yes, unchecked bool) {
	solution := r.Header.Get(Header)
	if solution == "" {
		return false, false
	}
	var got result
	if x := c.bind(room, t); c.Remote() {
		got = g.checkToken(r, c, x, solution, wall, allowed)
	} else {
		got = g.check(r.Context(), x, solution, wall().Unix(), allowed)
	}
	if got == wrong && c.Remote() && strings.HasPrefix(solution, noScript) {
		got = unloaded
	}
	g.counts[got].Add(1)
	away := got == unavailable
	if got == wrong && c.Endless {
		g.endless.Add(1)
		t.Refuse(true)
	}
	return got == solved || away && c.FailOpen, got == busy || away
}

// check checks a proof of work.
func (g *Gate) check(
	ctx context.Context, t *bound, solution string, now int64, allowed func() bool,
) result {
	signature, counter, key, ok := parse(solution)
	if !ok {
		return malformed
	}
	if now > t.expires {
		return expired
	}
	parameters, nonce, salt := t.parameters()
	if !hmac.Equal(signature, sign(t.hash("signature"), parameters)) {
		return foreign
	}
	if len(key) != keyLength || hex.EncodeToString(key)[:len(prefix)] != prefix {
		return wrong
	}
	return g.admit(ctx, 0, t.Mix(), now, allowed, func() result {
		if subtle.ConstantTimeCompare(key, derive(nonce, salt, counter, Cost(t.Work))) != 1 {
			return wrong
		}
		return solved
	})
}

// admit calls costly, which checks a solution of a ticket, if the bounds allow that.
func (g *Gate) admit(
	ctx context.Context, slots int, ticket uint64, now int64, allowed func() bool, costly func() result,
) result {
	leave, ok := g.enter(ctx, slots)
	if !ok {
		return busy
	}
	defer leave()
	n := g.checked(ticket, now, 1) // first: many may come at once
	if n > checksOfTicket || !allowed() {
		g.checked(ticket, now, -1)
		if n > checksOfTicket {
			return repeated
		}
		return busy
	}
	got := costly()
	if got == wrong {
		g.checked(ticket, now, checksOfTicket)
	}
	return got
}

// enter waits until a processor is free for a derivation, or one of the questions to a third party has
// its answer. It reports false if that takes too long.
func (g *Gate) enter(ctx context.Context, slots int) (leave func(), ok bool) {
	g.once.Do(func() {
		g.slots = [2]chan struct{}{make(chan struct{}, runtime.GOMAXPROCS(0)), make(chan struct{}, mostAsked)}
	})
	ctx, stop := context.WithTimeout(ctx, checkWait)
	defer stop()
	select {
	case g.slots[slots] <- struct{}{}:
		return func() { <-g.slots[slots] }, true
	case <-ctx.Done():
		return nil, false
	}
}

// checked adds to the checks of a ticket's solutions and returns how many there were. The counts begin
// anew with time, or when they are too many: then the bound of networks remains.
func (g *Gate) checked(id uint64, now int64, add int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now < g.since || now-g.since > expiry || len(g.checks) >= mostTickets {
		g.since, g.checks = now, map[uint64]int{}
	}
	if g.checks[id] += add; g.checks[id] <= 0 {
		delete(g.checks, id)
	}
	return g.checks[id]
}

// parse reads ALTCHA's payload. Of its challenge it reads only the signature, which covers the rest.
func parse(solution string) (signature []byte, counter uint32, key []byte, ok bool) {
	if len(solution) > mostBytes {
		return nil, 0, nil, false
	}
	text, err := base64.StdEncoding.DecodeString(solution)
	if err != nil {
		return nil, 0, nil, false
	}
	var p struct {
		Challenge struct {
			Signature string `json:"signature"`
		} `json:"challenge"`
		Solution struct {
			Counter    uint32 `json:"counter"`
			DerivedKey string `json:"derivedKey"`
		} `json:"solution"`
	}
	if json.Unmarshal(text, &p) != nil {
		return nil, 0, nil, false
	}
	signature, err = hex.DecodeString(p.Challenge.Signature)
	if err == nil {
		key, err = hex.DecodeString(p.Solution.DerivedKey)
	}
	return signature, p.Solution.Counter, key, err == nil
}
