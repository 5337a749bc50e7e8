package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/join"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
	"github.com/headgate/headgate/tests/yardstick"
)

func TestALiveChangeSurvivesARestart(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"total_active_users": "3", "message": "Live"})
	p.change("shop", map[string]string{"message": "Alive"})
	p.stop()
	p.start()
	st := p.status("shop")
	live := p.live("shop")
	if st.TotalActiveUsers != 3 || live == nil || live.Pairs["message"] != "Alive" || live.By != "a test" ||
		len(live.Pairs) != 2 {
		t.Fatalf("%+v %+v", st, live)
	}
	if !strings.Contains(p.log.String(), "live changes in force") {
		t.Error("not told")
	}
	for range 3 {
		get(t, p.visitors+"/", "")
	}
	if b := get(t, p.visitors+"/", ""); b.StatusCode != 503 || !strings.Contains(b.body, "Alive") {
		t.Errorf("%d %s", b.StatusCode, b.body)
	}
	p.reload()
	if p.status("shop").TotalActiveUsers != 1 || p.live("shop") != nil {
		t.Error("a reload did not drop it")
	}
	p.stop()
	p.start()
	if p.status("shop").TotalActiveUsers != 1 || p.live("shop") != nil {
		t.Error("what a reload has dropped came back")
	}
}

func TestALiveChangeIsDroppedWithTheFileItWasMadeFor(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"total_active_users": "3"})
	p.stop()
	p.write(strings.Replace(shop, "name: shop", "name: shop, title: New", 1))
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 1 {
		t.Errorf("the limit is %d", n)
	}
	if log := p.log.String(); !strings.Contains(log, "live changes dropped") ||
		!strings.Contains(log, "total_active_users") {
		t.Errorf("not told: %s", log)
	}
	p.stop()
	p.write(shop)
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 1 {
		t.Errorf("it came back with the old file: %d", n)
	}
}

func TestALiveChangeBackToTheFileIsNone(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"closed": "true", "hold": "1h"})
	p.change("shop", map[string]string{"closed": "false"})
	if live := p.live("shop"); live == nil || live.Pairs["closed"] != "" || live.Pairs["hold"] != "1h" {
		t.Errorf("%+v", live)
	}
	p.change("shop", map[string]string{"hold": "5m"})
	if live := p.live("shop"); live != nil {
		t.Errorf("%+v", live)
	}
	// hold alone would change hold_phone too: both must stay.
	p.change("shop", map[string]string{"hold": "1h", "hold_phone": "15m"})
	if live := p.live("shop"); live == nil || live.Pairs["hold_phone"] != "15m" {
		t.Errorf("%+v", live)
	}
}

func TestALiveChangeOfTwoKeysIsAllOrNothing(t *testing.T) {
	p := run(t, shop)
	_, err := p.s.Change(t.Context(), "shop", map[string]string{"message": "x", "hold": "1s"}, "")
	if len(config.Faults(err)) != 1 || p.live("shop") != nil {
		t.Errorf("%v %+v", err, p.live("shop"))
	}
}

// A failing store fails on request, and is otherwise a real one.
type failing struct {
	store.Store
	mu  sync.Mutex
	bad bool // write nothing
	lie bool // write, but return an error
}

func (f *failing) fail(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad = yes
}

func (f *failing) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bad {
		return 0, errors.New("disk full")
	}
	if f.lie {
		f.Store.CompareAndSwap(ctx, key, revision, value)
		return 0, errors.New("no answer")
	}
	return f.Store.CompareAndSwap(ctx, key, revision, value)
}

func TestWhatCannotBeWrittenIsNotInForce(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"total_active_users": "2"})
	f := &failing{Store: p.s.node.Records}
	p.s.turn.Lock()
	p.s.node.Records = f
	p.s.turn.Unlock()
	f.fail(true)
	_, err := p.s.Change(t.Context(), "shop", map[string]string{"total_active_users": "3"}, "")
	if err == nil || p.status("shop").TotalActiveUsers != 2 ||
		p.live("shop").Pairs["total_active_users"] != "2" {
		t.Errorf("%v: the limit is %d", err, p.status("shop").TotalActiveUsers)
	}
	p.write(strings.Replace(shop, "users: 1,", "users: 9,", 1) +
		"  - {name: tea, path: /tea, origin: ORIGIN, " + limits + "}\n")
	if _, err := p.s.Reload(t.Context()); err == nil || p.status("shop").TotalActiveUsers != 2 {
		t.Errorf("reload: %v: the limit is %d", err, p.status("shop").TotalActiveUsers)
	}
	if get(t, p.operators+"/v1/rooms/tea", "").StatusCode != 404 || p.live("shop") == nil {
		t.Error("half a reload is in force")
	}
	f.fail(false)
	p.reload()
	if p.status("shop").TotalActiveUsers != 9 || get(t, p.visitors+"/tea", "").StatusCode != 200 {
		t.Error("the store is back, and the reload is not in force")
	}
}

// A write that was not confirmed may have been executed. A change that is reported as failed and
// takes effect at the next start would be worse than either.
func TestALiveChangeWhoseWriteWasNotConfirmed(t *testing.T) {
	p := run(t, shop)
	f := &failing{Store: p.s.node.Records, lie: true}
	p.s.turn.Lock()
	p.s.node.Records = f
	p.s.turn.Unlock()
	p.change("shop", map[string]string{"total_active_users": "3"})
	if n := p.status("shop").TotalActiveUsers; n != 3 {
		t.Errorf("the limit is %d", n)
	}
	p.stop()
	p.start()
	if n := p.status("shop").TotalActiveUsers; n != 3 {
		t.Errorf("after a restart the limit is %d", n)
	}
}

func TestADamagedLiveRecordIsDropped(t *testing.T) {
	for _, damaged := range []string{"{", `"x"`, `{"fingerprint":"","pairs":{"hold":"1h"}}`} {
		p := run(t, shop)
		if _, err := p.s.node.Records.CompareAndSwap(t.Context(), "live.shop", 0, []byte(damaged)); err != nil {
			t.Fatal(err)
		}
		p.stop()
		p.start()
		if p.live("shop") != nil || !strings.Contains(p.log.String(), "live changes dropped") {
			t.Errorf("%s: %+v\n%s", damaged, p.live("shop"), p.log.String())
		}
	}
}

func TestLiveRecordOnDisk(t *testing.T) {
	p := run(t, shop)
	p.change("shop", map[string]string{"hold": "1h"})
	value, _, err := p.s.node.Records.Load(t.Context(), "live.shop")
	var rec map[string]any
	if err != nil || json.Unmarshal(value, &rec) != nil || len(rec) != 4 ||
		fmt.Sprint(rec["pairs"]) != "map[hold:1h]" || rec["by"] != "a test" {
		t.Errorf("%s %v", value, err)
	}
}

// writeAtOnce lets all nodes write at the same time: no write is lost, and each has a version.
func writeAtOnce(t *testing.T, bosses []*boss, rooms, id string) {
	const each = 5
	var wg sync.WaitGroup
	for i, b := range bosses {
		wg.Go(func() {
			for n := range each {
				body := fmt.Sprintf(`{"action":"deny","expression":"ssl","description":"%d-%d"}`, i, n)
				if a := b.ask("POST", rooms+"/"+id+"/rules", body); a.StatusCode != 200 {
					t.Error(a.text)
				}
			}
		})
	}
	wg.Wait()
	var list []struct{ Description string }
	a := bosses[0].ask("GET", rooms+"/"+id+"/rules", "")
	if err := json.Unmarshal(a.Result, &list); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, x := range list {
		seen[x.Description] = true
	}
	if len(list) != len(bosses)*each || len(seen) != len(list) {
		t.Errorf("of %d rules %d are there: %s", len(bosses)*each, len(list), a.text)
	}
}

// within waits for a condition for at most that time, and logs how long it took.
func within(t *testing.T, most time.Duration, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	eventually(t, what, ok)
	took := time.Since(begin)
	t.Logf("%s after %v", what, took.Round(time.Millisecond))
	if took > most {
		t.Errorf("%s after %v, and not within %v", what, took, most)
	}
}

// keys returns the numbers of the keys that a process opens cookies with, by data center.
func (p *process) keys() (all []string) {
	p.t.Helper()
	list, err := p.s.node.ListKeys()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, k := range list {
		all = append(all, fmt.Sprintf("%s-%d", k.Datacenter, k.Key))
	}
	return all
}

// pairs returns the live changes in force.
func (p *process) pairs(room string) map[string]string {
	if live := p.live(room); live != nil {
		return live.Pairs
	}
	return nil
}

// shows returns a function that reports whether a data center has a message and a limit in force by
// live changes.
func (p *process) shows(message, limit string) func() bool {
	return func() bool {
		m := p.pairs("shop")
		return m["message"] == message && m["total_active_users"] == limit &&
			(limit == "" || fmt.Sprint(p.status("shop").TotalActiveUsers) == limit)
	}
}

func (p *process) unchanged() bool { return p.live("shop") == nil }

// thief connects to the bus with the certificate of a join file, and can send anything.
func (p *process) thief(file string) *store.Bus {
	p.t.Helper()
	f := p.joinFile(file)
	t, err := f.TLS()
	if err != nil {
		p.t.Fatal(err)
	}
	var servers []string
	for _, name := range f.Store {
		servers = append(servers, f.Peers[name])
	}
	conn, err := embedded.Connect(p.t.Context(), embedded.Remote{Name: "w-0badcafe", Servers: servers,
		TLS: t})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(conn.Close)
	eventually(p.t, "connected", conn.IsConnected)
	return store.NewBus(conn)
}

func (p *process) joinFile(name string) *join.File {
	p.t.Helper()
	f, err := join.Read(filepath.Join(filepath.Dir(p.file), name+".join"))
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// asked returns the answer to a request on the bus, "" if there is none.
func asked(t *testing.T, bus *store.Bus, name, msg string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	b, err := bus.Request(ctx, name, []byte(msg))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(b)
}

// A sharer is a client with an address of its own, and with a cookie that it received or copied.
type sharer struct {
	t            *testing.T
	url          string
	addr, member string
	cookie       string
}

// get requests a path and returns the status and the body.
func (c *sharer) get(path string) (int, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), "GET", c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("X-Forwarded-For", c.addr)
	if c.member != "" {
		r.Header.Set("X-Member", c.member)
	}
	if c.cookie != "" {
		r.Header.Set("Cookie", c.cookie)
	}
	res := fetch(c.t, http.DefaultTransport.RoundTrip, r)
	for _, x := range res.Cookies() {
		c.cookie = x.Name + "=" + x.Value
	}
	loads(c.t, r, res.body, c.cookie)
	return res.StatusCode, res.body
}

// in reports whether the origin answers, that is, whether the client is inside.
func (c *sharer) in() bool {
	code, body := c.get("/")
	return code == 200 && strings.HasPrefix(body, "first for")
}

// shared is a room for one visitor, behind a trusted proxy.
const shared = "trusted_proxies: [127.0.0.0/8]\nrooms:\n  - name: shop\n    origin: ORIGIN\n" +
	"    total_active_users: 1\n    new_users_per_minute: 1000\n    session_duration: 1h\n"

func (p *process) client(addr string) *sharer { return &sharer{t: p.t, url: p.visitors, addr: addr} }

// copies returns clients in other networks with the cookie of c.
func (c *sharer) copies(n int) (all []*sharer) {
	for i := range n {
		x := *c
		x.addr = fmt.Sprintf("203.%d.%d.7", i/250, i%250)
		all = append(all, &x)
	}
	return all
}

// Finding 8: 1,000 clients from 1,000 addresses with one cookie were all served, and nothing
// indicated it.
func TestOnePassFromAThousandAddresses(t *testing.T) {
	t.Run("mark", func(t *testing.T) {
		p := run(t, shared)
		owner := p.client("198.51.100.1")
		owner.in()
		for _, addr := range []string{"198.51.100.2", "2001:db8:1::1", "2001:db8:1:2::3", "192.0.2.1"} {
			c := *owner
			if c.addr = addr; !c.in() {
				t.Errorf("%s: a phone that changes its network is not in", addr)
			}
		}
		if p.metric(`headgate_passes_shared_total{room="shop"}`) != 0 {
			t.Error("three networks are shown as shared")
		}
		for _, c := range owner.copies(1000) {
			if !c.in() {
				t.Fatalf("%s is not in: nobody is punished by default", c.addr)
			}
		}
		if p.metric(`headgate_passes_shared_total{room="shop"}`) != 1 ||
			p.metric(`headgate_refused_pass_sharing_total{room="shop"}`) != 0 {
			t.Error("not shown")
		}
		eventually(t, "shown in the past", func() bool {
			got := p.past("room=shop").Total
			return got["passesShared"] == 1.0 && got["passesRefused"] == 0.0
		})
	})
	t.Run("wait", func(t *testing.T) {
		p := run(t, shared+"    checkout: {pass: true}\n    pass_sharing: {networks: 3, action: wait}\n")
		owner := p.client("198.51.100.1")
		owner.in()
		copies := owner.copies(100)
		in := 0
		for _, c := range copies {
			if c.in() {
				in++
			} else if c.cookie == owner.cookie {
				t.Fatal("no place in the line")
			}
		}
		if in != 2 || !owner.in() || !copies[0].in() {
			t.Errorf("%d of 100 networks are in, want the first two beside the owner", in)
		}
		late := owner.copies(101)[100]
		if code, _ := late.get("/.headgate/pass"); code != 404 {
			t.Errorf("a copy gets a signed pass: %d", code)
		}
		if code, _ := owner.get("/.headgate/pass"); code != 200 {
			t.Errorf("the owner gets no signed pass: %d", code)
		}
		if s := p.status("shop"); s.WaitingUsers != 98 || s.ActiveUsers != 1 {
			t.Errorf("%d wait, %d inside", s.WaitingUsers, s.ActiveUsers)
		}
		if p.metric(`headgate_refused_pass_sharing_total{room="shop"}`) != 98 {
			t.Error("not shown")
		}
	})
	t.Run("end", func(t *testing.T) {
		p := run(t, shared+"    pass_sharing: {networks: 2, action: end}\n")
		owner, next := p.client("198.51.100.1"), p.client("192.0.2.1")
		owner.in()
		if next.in() {
			t.Fatal("two at once")
		}
		copies := owner.copies(3)
		if !copies[0].in() || !owner.in() {
			t.Error("two networks are allowed")
		}
		if copies[1].in() || copies[2].in() || owner.in() || copies[0].in() {
			t.Error("the visit goes on")
		}
		eventually(t, "in by the slot that came back", next.in)
	})
}

// Finding 8: 20 clients with one called ticket were all admitted.
func TestOneCalledTicketAndTwentyClients(t *testing.T) {
	p := run(t, shared)
	first, owner := p.client("192.0.2.1"), p.client("198.51.100.1")
	if !first.in() || owner.in() {
		t.Fatal("want one inside and one in the line")
	}
	copies := owner.copies(20)
	if code, text := p.patch("shop", `{"total_active_users": 2}`); code != 200 {
		t.Fatal(code, text)
	}
	eventually(t, "called and in", owner.in)
	if !owner.in() { // the pass has come back
		t.Fatal("not in")
	}
	eventually(t, "refused", func() bool { probe := *copies[0]; return !probe.in() })
	for _, c := range copies {
		if c.in() {
			t.Errorf("%s is in with a used ticket", c.addr)
		}
	}
	if s := p.status("shop"); s.ActiveUsers != 2 || !owner.in() {
		t.Errorf("%d inside, want the first and the owner", s.ActiveUsers)
	}
}

// A limit with the key visit counts all clients that share a pass as one, whatever their addresses.
func TestALimitByVisitIsOneForAllWhoShareAPass(t *testing.T) {
	p := run(t, "limits: [{name: each, algorithm: sliding_log, amount: 10, window: 1h, key: [session]}]\n"+
		shared+"    limits: [each]\n    exclude: {paths: [/free]}\n")
	owner := p.client("198.51.100.1")
	owner.in()
	served := 1
	for _, c := range owner.copies(50) {
		if code, _ := c.get("/"); code == 200 {
			served++
		} else if code != 429 {
			t.Fatal(code)
		}
	}
	if served != 10 {
		t.Errorf("%d served, want 10", served)
	}
	for i := range 12 { // requests without a session are counted by address
		code, _ := p.client("192.0.2.1").get("/free")
		if want := map[bool]int{true: 200, false: 429}[i < 10]; code != want {
			t.Errorf("excluded request %d: %d, want %d", i, code, want)
		}
	}
	if code, _ := p.client("192.0.2.2").get("/free"); code != 200 {
		t.Errorf("excluded, from another address: %d", code)
	}
}

// With bind a cookie is valid only for the client that received it.
func TestABoundCookieIsGoodForItsClientAlone(t *testing.T) {
	p := run(t, shared+"    bind: header:x-member\n")
	ann := p.client("198.51.100.1")
	ann.member = "ann"
	for range 2 {
		if !ann.in() {
			t.Fatal("not in")
		}
	}
	for _, member := range []string{"bob", "", "an"} {
		x := *ann
		if x.member = member; x.in() {
			t.Errorf("in with the value %q", member)
		}
	}
	bob := p.client("198.51.100.2")
	bob.member = "bob"
	bob.in()
	ticket := bob.cookie
	if s := p.status("shop"); s.WaitingUsers != 4 { // three beyond the join limit, and bob
		t.Errorf("%d wait", s.WaitingUsers)
	}
	bob.in()
	if s := p.status("shop"); s.WaitingUsers != 4 {
		t.Errorf("%d wait: bob joined twice", s.WaitingUsers)
	}
	eve := p.client("198.51.100.3")
	eve.member, eve.cookie = "eve", ticket
	eve.in()
	if s := p.status("shop"); s.WaitingUsers != 5 || eve.cookie == ticket {
		t.Errorf("%d wait: a place was taken over with its cookie", s.WaitingUsers)
	}
	if !ann.in() {
		t.Error("ann is out")
	}
}

// A cookie from before its room had bind stays valid.
func TestACookieFromBeforeABindingCounts(t *testing.T) {
	p := run(t, shared)
	old := p.client("198.51.100.1")
	old.in()
	p.write(shared + "    bind: header:x-member\n")
	p.reload()
	if old.member = "ann"; !old.in() {
		t.Error("out")
	}
}

// A number in place of a limit that is found, and one of an event, are not what was found. A number that is
// frozen stays.
func TestNumbersInPlaceOfAFoundLimit(t *testing.T) {
	const found = "rooms:\n  - name: shop\n    origin: ORIGIN\n    new_users_per_minute: 100\n" +
		"    total_active_users: {auto: %s, min: 5, max: 500, start: 12}\n"
	event := fmt.Sprintf("    events:\n      - {name: sale, start: %q, end: %q, total_active_users: 44, "+
		"new_users_per_minute: 44}\n", time.Now().Add(-time.Hour).Format(time.RFC3339),
		time.Now().Add(time.Hour).Format(time.RFC3339))
	p := run(t, fmt.Sprintf(found, "true"))
	is := func(what string, active int64, also func(*status.Room) bool) {
		t.Helper()
		yardstick.Await(t, what, func() bool {
			st := p.status("shop")
			return st.TotalActiveUsers == active && (also == nil || also(&st))
		})
	}
	is("it begins at start", 12, func(st *status.Room) bool { return st.Auto != nil }) // it is in the record
	p.write(fmt.Sprintf(found, "true") + event)
	p.reload()
	is("an event", 44, nil)
	p.write(fmt.Sprintf(found, "frozen"))
	p.reload()
	is("frozen after the event", 12, nil)
	p.change("shop", map[string]string{"total_active_users": "40"})
	is("a number", 40, nil)
	p.change("shop", map[string]string{"total_active_users": "frozen"})
	is("frozen", 40, func(st *status.Room) bool { return st.Auto != nil && st.Auto.Mode == "frozen" })
	p.stop()
	p.start()
	is("frozen after a restart", 40, nil)
}

// An invited is a browser that follows no redirect by itself.
type invited struct {
	t    *testing.T
	p    *process
	http http.Client
}

func (p *process) invited() *invited {
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &invited{p.t, p, http.Client{Jar: jar, CheckRedirect: stay}}
}

// open opens a page and returns its status and where it is redirected to.
func (v *invited) open(path string) (status int, to string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), "GET", v.p.visitors+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	res := fetch(v.t, v.http.Do, r)
	return res.StatusCode, res.Header.Get("Location")
}

func TestARevokedInvitationEndsAtOnce(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "codes.key")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5ecret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100, "+
		"session_duration: 1h, identity: {codes: {secret_file: "+secret+"}, required: true, "+
		"sign_in: \"/invited?why={reason}\"}}\n  - {name: plain, path: /plain, origin: ORIGIN, "+
		"total_active_users: 9, new_users_per_minute: 100}\n")
	token, _, err := api.CreateToken(p.dir+"/data", api.Token{Name: "a test", Scopes: []string{"write:shop"}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, body string, want int) (got struct{ Codes, Revoked []string }) {
		t.Helper()
		code, answer := post(t, p.operators+"/v1/rooms/"+path, token, body)
		if code != want || code == 200 && json.Unmarshal([]byte(answer), &got) != nil {
			t.Fatalf("%s %s: %d %s", path, body, code, answer)
		}
		return got
	}
	codes := ask("shop/codes", `{"batch": 3, "count": 3, "until": "2080-01-01T00:00:00Z"}`, 200).Codes
	if again := ask("shop/codes", `{"batch": 3, "first": 2, "count": 2, "until": "2080-01-01T00:00:00Z"}`, 200).
		Codes; len(codes) != 3 || !slices.Equal(codes[1:], again) {
		t.Fatalf("%q, and again %q", codes, again)
	}
	for body, want := range map[string]int{
		`{"batch": 3, "count": 10001, "until": "2080-01-01T00:00:00Z"}`: 422, `{"batch": 3, "count": 1}`: 422,
		`{"batch": 0, "count": 1, "until": "2080-01-01T00:00:00Z"}`:                   422,
		`{"batch": 3, "first": 2097151, "count": 2, "until": "2080-01-01T00:00:00Z"}`: 422,
		`{"batch": 3, "count": 1, "until": "2180-01-01T00:00:00Z"}`:                   422, `{"batch": 3, "use": 9}`: 400, `[]`: 400,
		`{"batch": 3, "count": 1, "uses": 0, "until": "2080-01-01T00:00:00Z"}`:    422,
		`{"batch": 3, "count": 1, "uses": 1024, "until": "2080-01-01T00:00:00Z"}`: 422,
	} {
		ask("shop/codes", body, want)
	}
	ask("shop/codes/revoked", `{"revoke": ["0"]}`, 409)
	ask("plain/codes", `{"batch": 3, "count": 1, "until": "2080-01-01T00:00:00Z"}`, 403) // not its room

	inside, waits, late := p.invited(), p.invited(), p.invited()
	enters := func(v *invited, code string) {
		t.Helper()
		if status, to := v.open("/?invitation=" + code); status != 303 || to != "/" {
			t.Fatalf("%d to %q", status, to)
		}
	}
	is := func(v *invited, path string, want int, where string) {
		t.Helper()
		if status, to := v.open(path); status != want || to != where {
			t.Errorf("%s: %d to %q, want %d to %q", path, status, to, want, where)
		}
	}
	enters(inside, codes[0])
	eventually(t, "inside", func() bool { status, _ := inside.open("/"); return status == 200 })
	enters(waits, codes[1])
	is(waits, "/", 503, "")
	is(late, "/", 303, "/invited?why=")

	if got := ask("shop/codes/revoked", `{"revoke": ["3-1"]}`, 200).Revoked; !slices.Equal(got, []string{"3-1"}) {
		t.Fatal(got)
	}
	is(inside, "/", 303, "/invited?why=")
	is(late, "/?invitation="+codes[0], 303, "/invited?why=revoked")
	is(waits, "/", 503, "")
	for range 2 {
		p.reload()
		is(inside, "/", 303, "/invited?why=")
		p.stop()
		p.start()
		is(inside, "/", 303, "/invited?why=")
	}
	ask("shop/codes/revoked", `{"revoke": ["`+codes[1]+`"], "allow": ["3-1"]}`, 200)
	is(waits, "/", 303, "/invited?why=")
	eventually(t, "inside again", func() bool { status, _ := inside.open("/"); return status == 200 })
	ask("shop/codes/revoked", `{"revoke": ["3"]}`, 200)
	is(inside, "/", 303, "/invited?why=")
	is(late, "/?invitation="+codes[2], 303, "/invited?why=revoked")
	is(late, "/plain?invitation="+codes[2], 200, "") // a room without invitations
}

// TestARevokedInvitationStaysSoInANewConfiguration checks a room that takes invitations from a reload on.
func TestARevokedInvitationStaysSoInANewConfiguration(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "codes.key")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5ecret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	const plain = "rooms:\n  - {name: shop, origin: ORIGIN, total_active_users: 1, new_users_per_minute: 100%s}\n"
	with := fmt.Sprintf(plain, ", identity: {codes: {secret_file: "+secret+"}, required: true, "+
		"sign_in: \"/invited?why={reason}\"}")
	p := run(t, with)
	token, _, err := api.CreateToken(p.dir+"/data", api.Token{Name: "a test", Scopes: []string{"write:shop"}})
	if err != nil {
		t.Fatal(err)
	}
	if code, answer := post(t, p.operators+"/v1/rooms/shop/codes/revoked", token, `{"revoke": ["3"]}`); code != 200 {
		t.Fatalf("%d %s", code, answer)
	}
	code := invite.NewKey("shop", []byte(strings.Repeat("5ecret", 6))).
		New(invite.Code{Batch: 3, Serial: 1, Uses: 1, End: invite.EndAt(time.Now()) + 5})
	p.stop()
	p.write(fmt.Sprintf(plain, ""))
	p.start()
	p.write(with)
	p.reload()
	if status, to := p.invited().open("/?invitation=" + code); status != 303 || to != "/invited?why=revoked" {
		t.Errorf("%d to %q", status, to)
	}
}

// sends posts a code by the form, and returns where its answer leads.
func (v *invited) sends(path, code string) (to string) {
	v.t.Helper()
	body := strings.NewReader(url.Values{invite.Field: {code}}.Encode())
	r, err := http.NewRequestWithContext(v.t.Context(), "POST", v.p.visitors+path, body)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return fetch(v.t, v.http.Do, r).Header.Get("Location")
}

// reads returns a page.
func (v *invited) reads(path, accept string) (header http.Header, page string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), "GET", v.p.visitors+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	res, err := v.http.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return res.Header, string(b)
}

// TestVisitorsTypeTheirCode: a room that requires invitations and names no page to sign in has a form, and
// one that requires none has a link to it on its waiting page.
func TestVisitorsTypeTheirCode(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "codes.key")
	if err := os.WriteFile(secret, []byte(strings.Repeat("5ecret", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := run(t, "rooms:\n  - {name: shop, title: Tea & more, origin: ORIGIN, total_active_users: 3, "+
		"new_users_per_minute: 100, session_duration: 1h, identity: {codes: {secret_file: "+secret+"}, "+
		"required: true}}\n  - {name: open, path: /open, origin: ORIGIN, total_active_users: 1, "+
		"new_users_per_minute: 100, identity: {codes: {secret_file: "+secret+"}}}\n")
	code := func(room string) string {
		return invite.NewKey(room, []byte(strings.Repeat("5ecret", 6))).
			New(invite.Code{Batch: 3, Serial: 1, Uses: 2, End: invite.EndAt(time.Now()) + 5})
	}
	const form = "/.headgate/code?why=&to=%2Fbuy%3Fa%3D1"
	first := p.invited()
	if status, to := first.open("/buy?a=1"); status != 303 || to != form {
		t.Fatalf("%d to %q", status, to)
	}
	if _, body := first.reads("/buy?a=1", "application/json"); !strings.Contains(body, `"sign_in_url":"/.headgate/code?`) {
		t.Errorf("an app reads %s", body)
	}
	header, page := first.reads(form, "text/html")
	if !strings.Contains(page, "Tea &amp; more") || !strings.Contains(page, `<form method="post"><label for="code">`) ||
		!strings.HasPrefix(header.Get("Content-Security-Policy"), "default-src 'none'; ") ||
		strings.Contains(header.Get("Content-Security-Policy"), "form-action") || // the site may redirect further
		header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", header, page)
	}
	wrong := first.sends(form, code("shop")[1:])
	if wrong != "/.headgate/code?why=wrong&to=%2Fbuy%3Fa%3D1" || first.sends(wrong, code("open")) != wrong {
		t.Fatalf("a wrong code leads to %s", wrong)
	}
	if _, page := first.reads(wrong, "text/html"); !strings.Contains(page, `role="alert">This code is not correct`) {
		t.Error(page)
	}
	for i, v := range []*invited{first, p.invited(), p.invited()} {
		if to := v.sends(form, strings.ToLower(code("shop"))); to != "/buy?a=1" {
			t.Fatalf("visitor %d is sent to %s", i, to)
		}
		status, to := 0, ""
		eventually(t, "inside, or sent away", func() bool {
			status, to = v.open("/buy?a=1")
			return status != 503
		})
		if i < 2 && status != 200 || i == 2 && to != "/.headgate/code?why=used&to=%2Fbuy%3Fa%3D1" {
			t.Errorf("visitor %d of two: %d to %q", i, status, to)
		}
	}
	eventually(t, "the other room is full", func() bool { status, _ := p.invited().open("/open"); return status == 503 })
	guest := p.invited()
	const link = `href="/open/.headgate/code?why=&amp;to=%2Fopen"`
	if _, page := guest.reads("/open", "text/html"); !strings.Contains(page, link) {
		t.Errorf("no link on %s", page)
	}
	if to := guest.sends("/open/.headgate/code?why=&to=%2Fopen", code("open")); to != "/open" {
		t.Fatalf("sent to %q", to)
	}
	if _, page := guest.reads("/open", "text/html"); strings.Contains(page, ".headgate/code") {
		t.Error("a visitor with a code is asked for one")
	}
}
