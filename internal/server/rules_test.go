package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/rules"
)

const ruled = "lists:\n  - name: office\n    addresses: [127.0.0.0/8]\n" +
	"rooms:\n  - name: shop\n    origin: http://127.0.0.1:1\n" +
	"    total_active_users: 1\n    new_users_per_minute: 1\n    queue_all: true\n    rules:\n"

// TestRulesOfTheFile checks that rules decide, that a reload changes them and their lists, and that
// their decisions are counted.
func TestRulesOfTheFile(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("origin " + r.URL.Path))
	}))
	t.Cleanup(origin.Close)
	file := func(rules string) string {
		return strings.Replace(ruled, "http://127.0.0.1:1", origin.URL, 1) + rules
	}
	hooks := "    - {action: bypass, expression: 'starts_with(http.request.uri.path, \"/hooks/\")'}\n"
	admin := "    - {action: deny, expression: 'http.request.uri.path == \"/admin\" and ip.src in $office'}\n"
	p := &process{t: t, dir: t.TempDir()}
	p.save("headgate.yaml", "")
	p.file = p.dir + "/headgate.yaml"
	p.write(file(hooks + admin))
	p.start()
	t.Cleanup(func() { p.stop() })
	expect := func(path string, want int) {
		t.Helper()
		if r := get(t, p.visitors+path, ""); r.StatusCode != want {
			t.Errorf("%s: %d %q, want %d", path, r.StatusCode, r.body, want)
		}
	}
	expect("/hooks/a", 200)
	expect("/x/../hooks/a", 308)
	expect("/admin", 403)
	expect("/%61dmin;x", 308)
	if r := ask(t, p.visitors+"/admin", "text/html", "de"); r.StatusCode != 403 ||
		r.Header.Get("Content-Language") != "de-DE" || strings.Contains(r.body, "http-equiv") ||
		!strings.Contains(r.body, "<h1>Diese Website lehnt diese Anfrage ab</h1>") {
		t.Errorf("in German: %d %v %s", r.StatusCode, r.Header, r.body)
	}
	expect("/", 503)
	p.write(strings.Replace(file(hooks+admin), "127.0.0.0/8", "192.0.2.0/24", 1))
	if got := p.reload(); len(got.Rooms.Changed) != 0 {
		t.Errorf("a list that has changed changes rooms %v", got.Rooms.Changed)
	}
	expect("/admin", 503)
	p.write(file(strings.Replace(hooks, "action:", "enabled: false, action:", 1)))
	p.reload()
	expect("/hooks/a", 503)
	metrics := get(t, p.operators+"/metrics", "").body
	for _, want := range []string{
		`headgate_rules_total{action="bypass",room="shop"} 1`,
		`headgate_rules_total{action="deny",room="shop"} 2`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// TestFindingsCountFromTrustedProxiesOnly checks that the country and the score of a CDN decide about
// challenges, in any spelling of a header only from trusted proxies, and that the origin reads only these.
func TestFindingsCountFromTrustedProxiesOnly(t *testing.T) {
	told := make(chan http.Header, 1)
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		told <- r.Header
	}))
	t.Cleanup(origin.Close)
	const rules = "    - {action: bypass, expression: 'starts_with(http.request.uri.path, \"/by\")'}\n" +
		"    - {action: lane, lane: vip, share: 5, expression: 'any(http.request.headers.names[*] contains \"score\")" +
		" and http.request.uri.path == \"/seen\"'}\n" +
		"    - {action: challenge, expression: 'not cf.bot_management.score ge 30 or ip.src.country eq \"XX\"'}\n" +
		"    challenge: {kind: work}\n"
	head := map[bool]string{true: "trusted_proxies: [127.0.0.1]\n", false: ""}
	for _, trusted := range []bool{true, false} {
		p := &process{t: t, dir: t.TempDir()}
		p.save("headgate.yaml", "")
		p.file = p.dir + "/headgate.yaml"
		p.write(head[trusted] + strings.Replace(ruled, "http://127.0.0.1:1", origin.URL, 1) + rules)
		p.start()
		send := func(path string, lines ...string) reply {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), "GET", p.visitors+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", "application/json")
			for _, line := range lines {
				name, value, _ := strings.Cut(line, ": ")
				r.Header[name] = append(r.Header[name], value) // in this spelling
			}
			return fetch(t, http.DefaultTransport.RoundTrip, r)
		}
		for i, x := range []struct {
			lines      []string
			challenged bool // from a trusted proxy; all others are
		}{
			{nil, true},
			{[]string{"Cf-Bot-Score: 99"}, false},
			{[]string{"cf-bot-score: 99"}, false},
			{[]string{"CF-BOT-SCORE: 30", "CF-IPCountry: GB"}, false},
			{[]string{"Cf-Bot-Score: 29"}, true},
			{[]string{"Cf-Bot-Score: 99", "Cf-Ipcountry: XX"}, true},
			{[]string{"Cf-Bot-Score: 99", "Cf-Bot-Score: 99"}, true}, // two lines: not by a CDN
			{[]string{"Cf-Bot-Score: 99, 1"}, true},
			{[]string{"Cf_Bot_Score: 99"}, true},
			{[]string{"cf.bot.score: 99"}, true},
		} {
			has := strings.Contains(send("/", x.lines...).body, `"challenge":{"parameters"`)
			if has != (x.challenged || !trusted) {
				t.Errorf("trusted %t, %d: challenged %t", trusted, i, has)
			}
		}
		send("/by", "cf-bot-score: 7", "CF-IPCountry: GB", "Cf_Bot_Score: 99", "cf.ipcountry: XX")
		h := <-told
		if got := h.Get("Cf-Bot-Score") + h.Get("Cf-Ipcountry"); (got == "7GB") != trusted || !trusted && got != "" {
			t.Errorf("trusted %t: the origin reads %q", trusted, got)
		}
		for name := range h {
			if strings.ContainsAny(name, "_.") {
				t.Errorf("the origin reads %s", name)
			}
		}
		send("/seen", "Cf-Bot-Score: 99")
		metrics := get(t, p.operators+"/metrics", "").body
		lane := `headgate_rules_total{action="lane",room="shop"} 0` // no rule sees the header
		count := `headgate_rules_total{action="challenge",room="shop"} 11`
		if trusted {
			lane = strings.TrimSuffix(lane, "0") + "1"
			count = strings.TrimSuffix(count, "11") + "7"
		}
		for _, want := range []string{lane, count} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("trusted %t: no %s in the metrics", trusted, want)
			}
		}
		p.stop()
	}
}

// TestNoRuleMatchesForNothing checks that a visitor who matches no rule costs no allocation.
func TestNoRuleMatchesForNothing(t *testing.T) {
	c, err := config.Parse("x", []byte(ruled+
		"    - {action: bypass, expression: 'http.request.method == \"POST\"'}\n"+
		"    - {action: deny, expression: 'ip.src in {192.0.2.0/24} or http.user_agent contains \"bad\"'}\n"+
		"    search_engine_crawler_bypass: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{}
	if s.crawlers, err = c.NewCrawlers(); err != nil {
		t.Fatal(err)
	}
	rules, _, err := s.rulesOf(c, &c.Rooms[0])
	if err != nil {
		t.Fatal(err)
	}
	r := headgate.RuleRequest{Request: httptest.NewRequestWithContext(t.Context(), "GET", "/a", nil),
		Path: "/a", From: netip.MustParseAddr("198.51.100.7")}
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0")
	if n := testing.AllocsPerRun(1000, func() {
		if rules.Match(r) != headgate.RuleNone {
			t.Fatal("a rule matches")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// oneCrawler is a DNS that knows one address.
type oneCrawler struct{}

func (oneCrawler) LookupAddr(context.Context, string) ([]string, error) {
	return []string{"crawl.googlebot.com."}, nil
}

func (oneCrawler) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("198.51.100.7")}, nil
}

// TestACrawlerPassesUnlessItIsDenied checks that only a verified crawler passes.
func TestACrawlerPassesUnlessItIsDenied(t *testing.T) {
	c, err := config.Parse("x", []byte(ruled+
		"    - {action: deny, expression: 'starts_with(http.request.uri.path, \"/own\")'}\n"+
		"    search_engine_crawler_bypass: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{}
	if s.crawlers, err = rules.NewCrawlers(rules.KnownCrawlers(), oneCrawler{}); err != nil {
		t.Fatal(err)
	}
	asked, _, err := s.rulesOf(c, &c.Rooms[0])
	if err != nil {
		t.Fatal(err)
	}
	match := func(from, path string) headgate.RuleAction {
		r := headgate.RuleRequest{Request: httptest.NewRequestWithContext(t.Context(), "GET", path, nil),
			Path: path, From: netip.MustParseAddr(from)}
		r.Header.Set("User-Agent", "Googlebot/2.1")
		return asked.Match(r)
	}
	if got := match("198.51.100.7", "/a"); got != headgate.RuleNone {
		t.Errorf("before it is verified: %v, want none", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.crawlers.Run(ctx) })
	eventually(t, "it is verified", func() bool {
		return match("198.51.100.7", "/a") == headgate.RuleCrawler
	})
	if got := match("198.51.100.7", "/own/a"); got != headgate.RuleDeny {
		t.Errorf("where it is denied: %v, want deny", got)
	}
	if got := match("198.51.100.8", "/a"); got != headgate.RuleNone {
		t.Errorf("another address: %v, want none", got)
	}
	stop()
	wg.Wait()
}
