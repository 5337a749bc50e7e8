package challenge

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/ticket"
)

func always() bool { return true }

// payload is what ALTCHA's clients send.
type payload struct {
	Challenge struct {
		Parameters struct {
			Algorithm string `json:"algorithm"`
			Cost      int    `json:"cost"`
			ExpiresAt int64  `json:"expiresAt"`
			KeyLength int    `json:"keyLength"`
			KeyPrefix string `json:"keyPrefix"`
			Nonce     string `json:"nonce"`
			Salt      string `json:"salt"`
		} `json:"parameters"`
		Signature string `json:"signature"`
	} `json:"challenge"`
	Solution struct {
		Counter    uint32  `json:"counter"`
		DerivedKey string  `json:"derivedKey"`
		Time       float64 `json:"time"`
	} `json:"solution"`
}

func (p *payload) String() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// solve solves a challenge as a client does: from its JSON alone.
func solve(t testing.TB, challenge []byte) *payload {
	t.Helper()
	var p payload
	if err := json.Unmarshal(challenge, &p.Challenge); err != nil {
		t.Fatal(err)
	}
	x := &p.Challenge.Parameters
	if x.Algorithm != "PBKDF2/SHA-256" || x.KeyLength != keyLength {
		t.Fatal(x)
	}
	nonce, salt := bytesOf(t, x.Nonce), bytesOf(t, x.Salt)
	for ; ; p.Solution.Counter++ {
		key := hex.EncodeToString(derive(nonce, salt, p.Solution.Counter, x.Cost))
		if strings.HasPrefix(key, x.KeyPrefix) {
			p.Solution.DerivedKey = key
			return &p
		}
	}
}

func bytesOf(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b[:len(b):len(b)]
}

func sample() bound {
	return *new(Config).bind("shop",
		&ticket.Token{Life: 7, ID: 42, Work: draw(leastCost, 0), Arrived: 1_800_000_000})
}

// What the public clients of ALTCHA make of a challenge: canonical JSON, signature and solution.
func TestVectorsOfAltcha(t *testing.T) {
	files, err := filepath.Glob("testdata/altcha-*.json")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Secret, Parameters, Signature string
			Counter                       uint32
			DerivedKey                    string `json:"derived_key"`
		}
		if err := json.Unmarshal(b, &all); err != nil || len(all) < 3 {
			t.Fatal(len(all), err)
		}
		for _, v := range all {
			var p payload
			if err := json.Unmarshal([]byte(v.Parameters), &p.Challenge.Parameters); err != nil {
				t.Fatal(err)
			}
			x := &p.Challenge.Parameters
			nonce, salt := bytesOf(t, x.Nonce), bytesOf(t, x.Salt)
			if got := string(canonical(x.Cost, x.ExpiresAt, nonce, salt)); got != v.Parameters {
				t.Errorf("%s: %s, want %s", file, got, v.Parameters)
			}
			if got := hex.EncodeToString(sign([]byte(v.Secret), []byte(v.Parameters))); got != v.Signature {
				t.Errorf("%s: signature %s, want %s", file, got, v.Signature)
			}
			if got := hex.EncodeToString(derive(nonce, salt, v.Counter, x.Cost)); got != v.DerivedKey {
				t.Errorf("%s: counter %d has the key %s, want %s", file, v.Counter, got, v.DerivedKey)
			}
		}
	}
}

// check checks a solution without a bound of the network.
func (b bound) check(solution string, now int64) result {
	return new(Gate).check(context.Background(), &b, solution, now, always)
}

func TestASolutionIsForOneTicket(t *testing.T) {
	own := sample()
	good := solve(t, own.appendJSON(nil))
	for range 2 { // the same ticket again
		if r := own.check(good.String(), own.Arrived+expiry); r != solved {
			t.Fatal(r)
		}
	}
	if r := own.check(good.String(), own.Arrived+expiry+1); r != expired {
		t.Error(r)
	}
	for name, change := range map[string]func(*bound){
		"room":    func(x *bound) { x.room = "shop2" },
		"life":    func(x *bound) { x.Life++ },
		"number":  func(x *bound) { x.ID++ },
		"draw":    func(x *bound) { x.Work += 1 << 8 },
		"cost":    func(x *bound) { x.Work++ },
		"arrival": func(x *bound) { x.Arrived++ },
	} {
		token := *own.Token
		x := bound{own.room, &token, own.expires}
		if change(&x); x.check(good.String(), own.Arrived) != foreign {
			t.Errorf("a solution is accepted for another %s", name)
		}
	}
	for name, change := range map[string]struct {
		do   func(*payload)
		want result
	}{
		"another counter":  {func(p *payload) { p.Solution.Counter++ }, wrong},
		"another key":      {func(p *payload) { p.Solution.DerivedKey = "00" + strings.Repeat("ab", 31) }, wrong},
		"no prefix":        {func(p *payload) { p.Solution.DerivedKey = strings.Repeat("ab", 32) }, wrong},
		"a short key":      {func(p *payload) { p.Solution.DerivedKey = "00" }, wrong},
		"no key":           {func(p *payload) { p.Solution.DerivedKey = "" }, wrong},
		"no hexadecimal":   {func(p *payload) { p.Solution.DerivedKey = "xy" }, malformed},
		"no signature":     {func(p *payload) { p.Challenge.Signature = "" }, foreign},
		"half a signature": {func(p *payload) { p.Challenge.Signature = p.Challenge.Signature[:32] }, foreign},
		"a challenge of the client's choice": {func(p *payload) {
			p.Challenge.Parameters.Cost = 1
			p.Challenge.Signature = hex.EncodeToString(sign([]byte("own"), []byte("own")))
		}, foreign},
	} {
		x := *good
		change.do(&x)
		if r := own.check(x.String(), own.Arrived); r != change.want {
			t.Errorf("%s: %v, want %v", name, r, change.want)
		}
	}
	long := *good
	long.Challenge.Parameters.Algorithm = strings.Repeat("x", mostBytes)
	for _, bad := range []string{"x", "e30", "bnVsb", long.String(),
		base64.StdEncoding.EncodeToString([]byte(strings.Repeat(`{"challenge":`, 110) + strings.Repeat("}", 110))),
		base64.StdEncoding.EncodeToString([]byte(`{"challenge":{"signature":["00"]}}`)),
		base64.StdEncoding.EncodeToString([]byte(`{"solution":{"counter":1e3}}`)),
		base64.StdEncoding.EncodeToString([]byte(`{"solution":{"counter":-1}}`)),
		base64.StdEncoding.EncodeToString([]byte(`{"solution":{"counter":4294967296}}`))} {
		if r := own.check(bad, own.Arrived); r != malformed {
			t.Errorf("%.20q: %v", bad, r)
		}
	}
}

// Nothing is derived for a solution that is wrong anyway, nor beyond what the caller allows.
func TestWrongSolutionsCostNoDerivation(t *testing.T) {
	own, other := sample(), sample()
	good := solve(t, own.appendJSON(nil))
	asked, g := 0, &Gate{}
	solves := func(x bound, solution string, now int64) bool {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(Header, solution)
		refuse := func() bool { asked++; return false }
		wall := func() time.Time { return time.Unix(now, 0) }
		yes, unchecked := g.Solves(r, &Config{Kind: Kind}, x.room, x.Token, wall, refuse)
		if unchecked != (asked > 0) {
			t.Error("a solution that was not checked, and one that was wrong, look the same")
		}
		return yes
	}
	bad := *good
	bad.Solution.DerivedKey = strings.Repeat("ab", 32)
	if solves(own, "", own.Arrived) || solves(own, "%", own.Arrived) || solves(other, good.String(), own.Arrived) ||
		solves(own, good.String(), own.Arrived+1000) || solves(own, bad.String(), own.Arrived) {
		t.Error("accepted")
	}
	if asked > 0 {
		t.Errorf("%d derivations for solutions that are wrong anyway", asked)
	}
	if solves(own, good.String(), own.Arrived) || asked != 1 {
		t.Error("not bounded by the caller")
	}
	want := map[string]int64{"malformed": 1, "foreign": 1, "expired": 1, "wrong": 1, "busy": 1, "repeated": 0,
		"unavailable": 0, "no_script": 0}
	if got := g.Report(Kind); !maps.Equal(got.Refused, want) || got.Solved != 0 {
		t.Errorf("%+v", got)
	}
}

// More checks than processors at the same time wait a second, and not longer.
func TestDerivationsAtTheSameTimeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, n := &Gate{}, runtime.GOMAXPROCS(0)
		var wg sync.WaitGroup
		hold := make(chan struct{})
		check := func(allowed func() bool) (r result) {
			own := sample()
			own.ID = rand.Uint64()
			bad := solve(t, own.appendJSON(nil))
			bad.Solution.Counter++
			return g.check(t.Context(), &own, bad.String(), own.Arrived, allowed)
		}
		for range n {
			wg.Go(func() {
				if r := check(func() bool { <-hold; return true }); r != wrong {
					t.Error(r)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if r := check(always); r != busy || time.Since(began) != checkWait {
			t.Errorf("%v after %v", r, time.Since(began))
		}
		wg.Go(func() {
			if r := check(always); r != wrong { // it waits for one of them
				t.Error(r)
			}
		})
		synctest.Wait()
		close(hold)
		wg.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range n {
			g.slots[0] <- struct{}{}
		}
		if _, ok := g.enter(gone, 0); ok {
			t.Error("a client that is gone has a processor")
		}
	})
}

// Three solutions of a ticket are checked while its challenge lasts, whatever is allowed to its network, and
// none after a wrong one. One that its network may not have is none of the three.
func TestChecksOfATicketAreBounded(t *testing.T) {
	g, own := &Gate{}, sample()
	good := solve(t, own.appendJSON(nil))
	bad := *good
	bad.Solution.Counter++
	check := func(p *payload, allowed bool) result {
		return g.check(t.Context(), &own, p.String(), own.Arrived, func() bool { return allowed })
	}
	for _, want := range []result{busy, busy, busy, busy} {
		if r := check(good, false); r != want {
			t.Errorf("%v, want %v", r, want)
		}
	}
	for _, want := range []result{solved, solved, solved, repeated} {
		if r := check(good, true); r != want {
			t.Errorf("%v, want %v", r, want)
		}
	}
	own.ID++ // another ticket
	good = solve(t, own.appendJSON(nil))
	bad = *good
	bad.Solution.Counter++
	for _, want := range []result{wrong, repeated} {
		if r := check(&bad, true); r != want {
			t.Errorf("another ticket: %v, want %v", r, want)
		}
	}
	if r := check(good, true); r != repeated {
		t.Errorf("a right one after a wrong one: %v", r)
	}
	for id := range uint64(3 * mostTickets) {
		g.checked(id, own.Arrived, 1)
	}
	if n := len(g.checks); n > mostTickets {
		t.Errorf("%d tickets are remembered", n)
	}
	for _, now := range []int64{own.Arrived + expiry + 1, 0} { // the wall clock may be set back
		g.checked(1, own.Arrived, 3)
		if n := g.checked(1, now, 0); n > 0 {
			t.Errorf("%d checks at %d", n, now)
		}
	}
}

// A late solution has one more try, and one that could not be checked has some. Nobody has new ones for
// ever, and the cost and the tries do not change each other.
func TestTriesEnd(t *testing.T) {
	for want, busies := range map[int]func(int) bool{
		2: func(int) bool { return false },
		8: func(int) bool { return true },
		5: func(i int) bool { return i < 3 },
	} {
		work, joins := draw(mostCost, 0), 0
		for {
			tries, why := (&Config{Kind: Kind}).Again(&ticket.Token{Work: work}, busies(joins), time.Time{})
			joins++
			if work = draw(mostCost, tries); Cost(work) != mostCost {
				t.Fatalf("the cost is another one after %d", joins)
			}
			if why == ticket.Unsolved {
				break
			}
		}
		if joins != want {
			t.Errorf("the lane after %d joins, want %d", joins, want)
		}
	}
}

func TestCostFollowsTheRush(t *testing.T) {
	for _, x := range []struct {
		waiting, perMinute int64
		joined, limit      int
		want               int
	}{
		{0, 200, 0, 60, 1000}, {0, 200, 60, 60, 2000},
		{1, 200, 0, 60, 1005}, {200, 200, 0, 60, 2000}, {1 << 40, 200, 0, 60, 2000},
		{100, 200, 30, 60, 2250}, {200, 200, 60, 60, 4000}, {200, 200, 1000, 60, 4000},
		{200, 200, 1000, 0, 2000}, {5, 0, 0, 60, 1000},
	} {
		if got := cost(x.waiting, x.perMinute, x.joined, x.limit); got != x.want {
			t.Errorf("%+v: %d", x, got)
		}
	}
	for _, want := range []int{leastCost, 2250, mostCost, 1 << 30} {
		if got := Cost(draw(want, 0)); got > want || got < min(want, mostCost)-costUnit {
			t.Errorf("cost %d became %d", want, got)
		}
	}
	if one, two := draw(leastCost, 0), draw(leastCost, 0); one == two {
		t.Error("one challenge for two tickets")
	}
	g := Gate{}
	if g.Draw(time.Unix(5, 0), 0, 10, 0, 60, 0) == 0 || g.Report(Kind).Issued != 1 {
		t.Error("no challenge for the first of a rush")
	}
}

// The tickets of a burst are all provisional, so that nobody waits. Their challenges cost as if all
// waited, and again less when the burst is over.
func TestABurstIsARush(t *testing.T) {
	g, last := Gate{}, 0
	at := func(second int64) int {
		return Cost(g.Draw(time.Unix(second, 0), 0, 100, 0, 0, 0))
	}
	for i := range 100 {
		if c := at(1000); c < last || i == 0 && c != leastCost {
			t.Fatalf("cost %d after %d", c, last)
		} else {
			last = c
		}
	}
	for _, x := range []struct {
		second int64
		want   int
	}{{1001, 2 * leastCost}, {1011, 2 * leastCost}, {1020, leastCost}, {1100, leastCost}, {900, leastCost}} {
		if c := at(x.second); c != x.want {
			t.Errorf("at %d s: %d, want %d", x.second, c, x.want)
		}
	}
}

// No input makes the check panic, or accept what is no solution.
func FuzzCheck(f *testing.F) {
	own := *new(Config).bind("shop",
		&ticket.Token{Life: 1, ID: 2, Work: 3<<8 | leastCost/costUnit, Arrived: 100})
	good := solve(f, own.appendJSON(nil))
	accepted, other := good.String(), *good
	other.Solution.Counter++
	for _, s := range []string{accepted, other.String(), "", "e30=", "!", accepted[:40]} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if own.check(s, 100) != solved {
			return
		}
		signature, counter, key, ok := parse(s)
		if !ok || counter != good.Solution.Counter || hex.EncodeToString(key) != good.Solution.DerivedKey ||
			hex.EncodeToString(signature) != good.Challenge.Signature {
			t.Errorf("accepted %q", s)
		}
	})
}

func BenchmarkChallenge(b *testing.B) {
	own, other := sample(), sample()
	own.Work = own.Work&^0xff | mostCost/costUnit
	p := solve(b, own.appendJSON(nil))
	good := p.String()
	p.Solution.DerivedKey = strings.Repeat("ab", keyLength)
	odd, long := p.String(), base64.StdEncoding.EncodeToString([]byte(strings.Repeat("[", mostBytes/4*3)))
	nonce := make([]byte, 16)
	for name, f := range map[string]func(){
		"Issue":      func() { own.appendJSON(nil) },
		"Foreign":    func() { new(Gate).check(b.Context(), &other, good, own.Arrived, always) },
		"Right":      func() { new(Gate).check(b.Context(), &own, good, own.Arrived, always) },
		"Malformed":  func() { new(Gate).check(b.Context(), &own, long, own.Arrived, always) },
		"NoPrefix":   func() { new(Gate).check(b.Context(), &own, odd, own.Arrived, always) },
		"Derivation": func() { derive(nonce[:16:16], nonce, 1, mostCost) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
		})
	}
}
