package config

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzParse checks the promise of Parse: it never panics, each fault has a position and a hint, and
// an accepted configuration satisfies every rule, which are written here a second time.
func FuzzParse(f *testing.F) {
	for _, file := range seeds(f, "yaml") {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse("f", b)
		judge(t, c, err)
	})
}

// FuzzParseRun does the same with flags, one per line. They always name the same file, so that no
// other file is read.
func FuzzParseRun(f *testing.F) {
	for _, file := range seeds(f, "args") {
		f.Add(strings.Join(strings.Fields(string(file)), "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		for i, a := range args {
			if strings.Contains(a, "config") {
				args[i] = "--config=testdata/short.yaml"
			}
		}
		c, err := ParseRun(args, io.Discard)
		if err != nil && len(Faults(err)) == 0 {
			return // flag.ErrHelp
		}
		judge(t, c, err)
	})
}

func seeds(f *testing.F, ext string) [][]byte {
	f.Helper()
	var all [][]byte
	entries, err := os.ReadDir("testdata")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range entries {
		if path.Ext(e.Name()) != "."+ext {
			continue
		}
		b, err := os.ReadFile("testdata/" + e.Name())
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func judge(t *testing.T, c *Config, err error) {
	t.Helper()
	if (c == nil) == (err == nil) {
		t.Fatalf("got config %v and error %v, want one of them", c, err)
	}
	faults := Faults(err)
	if err != nil && len(faults) == 0 {
		t.Fatalf("error without faults: %v", err)
	}
	for _, x := range faults {
		if x.Problem == "" || x.Hint == "" || strings.Contains(x.Error(), "\n") {
			t.Errorf("poor fault %#v", x)
		}
	}
	if c == nil {
		return
	}
	for _, broken := range brokenRules(c) {
		t.Error(broken)
	}
}

// brokenRules is a slow and simple oracle.
func brokenRules(c *Config) []string {
	var broken []string
	must := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	for _, l := range []string{c.Listen, c.AdminListen} {
		_, port, err := net.SplitHostPort(l)
		_, portErr := net.LookupPort("tcp", port) // numeric, so it needs no network
		must(err == nil && portErr == nil, "listen %q", l)
	}
	must(c.Data != "", "no data")
	must(len(c.Rooms) > 0 || len(c.Limits) > 0 || len(c.Queues) > 0 || c.Envoy != nil, "no rooms")
	mustPrefixes := func(ps []netip.Prefix) {
		for _, p := range ps {
			must(p.IsValid() && p == p.Masked() && !p.Addr().Is4In6(), "prefix %v", p)
		}
	}
	mustPrefixes(c.TrustedProxies)
	must(c.Cluster == nil || (len(c.Cluster.Store) == 1 || len(c.Cluster.Store) == 3) &&
		c.Cluster.Datacenter != "" && (c.Cluster.Listen != "" || !c.Cluster.IsStore()) &&
		len(c.Cluster.TLS.Key) > 0, "cluster %v", c.Cluster)
	broken = append(broken, brokenLimits(c)...)
	names, places := map[string]bool{}, map[string]bool{}
	for i := range c.Rooms {
		r := &c.Rooms[i]
		place := r.Host + " " + r.Path
		must(!names[r.Name] && !places[place], "twin room %q at %q", r.Name, place)
		names[r.Name], places[place] = true, true
		mustPrefixes(r.Exclude.CIDRs)
		broken = append(broken, brokenRoom(r)...)
	}
	return broken
}

func brokenRoom(r *Room) []string {
	var broken []string
	must := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	between := func(what string, v, least, most int64) {
		must(least <= v && v <= most, "%s is %d, not in [%d, %d]", what, v, least, most)
	}
	spans := func(what string, v, least, most time.Duration) {
		between(what, int64(v), int64(least), int64(most))
	}
	only := func(s, letters string) bool { return strings.Trim(s, letters) == "" }
	const word = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	const month = 30 * 24 * time.Hour

	must(len(r.Name) >= 1 && len(r.Name) <= 64 && only(r.Name, word), "name %q", r.Name)
	must(r.Title != "" && utf8.RuneCountInString(r.Title) <= 100, "title %q", r.Title)
	must(utf8.RuneCountInString(r.Message) <= 500, "message %q", r.Message)
	must(r.Host == strings.ToLower(r.Host) && only(r.Host, word+".:") && len(r.Host) <= 253,
		"host %q", r.Host)
	must(strings.HasPrefix(r.Path, "/") && path.Clean(r.Path) == r.Path, "path %q", r.Path)
	must(!strings.ContainsAny(r.Path, "?#%; \"\\") && len(r.Path) <= 1024, "path %q", r.Path)
	for _, x := range r.AdditionalRoutes {
		must(strings.HasPrefix(x.Path, "/") && path.Clean(x.Path) == x.Path, "path %q", x.Path)
		must((x.Host == "") == (r.Host == ""), "hosts %q and %q", r.Host, x.Host)
		domain := r.CookieDomain()
		must(x.Host == r.Host || strings.HasSuffix("."+x.Host, "."+domain) && domain != "",
			"cookie of %q and %q", r.Host, x.Host)
	}
	must(len(r.AdditionalRoutes) == 0 || r.CookieSuffix != "", "no suffix")
	must(r.Places().CookiePath() == path.Clean(r.Places().CookiePath()), "path of the cookie of %q", r.Path)
	must(r.Path != "/.headgate" && !strings.HasPrefix(r.Path, "/.headgate/"), "path %q", r.Path)
	must(r.Origin != nil && (r.Origin.Scheme == "http" || r.Origin.Scheme == "https") &&
		r.Origin.Hostname() != "" && r.Origin.User == nil && r.Origin.RawQuery == "" &&
		r.Origin.Fragment == "" && r.Origin.Opaque == "", "origin %v", r.Origin)
	between("total_active_users", r.TotalActiveUsers, 1, math.MaxInt32)
	between("new_users_per_minute", r.NewUsersPerMinute, 1, math.MaxInt32)
	between("max_waiting", r.MaxWaiting, 1, math.MaxInt32)
	spans("session_duration", r.SessionDuration, time.Second, month)
	if r.HardEnd != 0 {
		spans("hard_end", r.HardEnd, r.SessionDuration, month)
	}
	spans("poll_min", r.PollMin, 100*time.Millisecond, r.PollMax)
	spans("poll_max", r.PollMax, r.PollMin, 10*time.Minute)
	spans("hold", r.Hold, max(r.PollMax+1, time.Second), month)
	spans("hold_phone", r.HoldPhone, max(r.PollMax+1, time.Second), month)
	if r.CallHold != 0 {
		spans("call_hold", r.CallHold, time.Second, time.Hour)
	}
	must(slices.Contains([]int{200, 202, 429, 503}, r.QueueingStatusCode),
		"status %d", r.QueueingStatusCode)
	between("amount", r.JoinLimit.Amount, 0, math.MaxInt32)
	spans("window", r.JoinLimit.Window, time.Second, 24*time.Hour)
	between("prefix_v4", int64(r.JoinLimit.PrefixV4), 1, 32)
	between("prefix_v6", int64(r.JoinLimit.PrefixV6), 1, 128)
	must(slices.Contains([]CookieSecure{"auto", "always", "never"}, r.CookieSecure),
		"secure %q", r.CookieSecure)
	for _, p := range r.Exclude.Paths {
		must(strings.HasPrefix(p, "/") && !strings.Contains(strings.TrimSuffix(p, "*"), "*"),
			"exclude path %q", p)
	}
	for _, m := range r.Exclude.Methods {
		must(m != "" && m == strings.ToUpper(m), "exclude method %q", m)
	}
	for _, h := range r.Exclude.Headers {
		name, value, has := strings.Cut(h, ": ")
		must(name != "" && !strings.ContainsAny(name, " :") && has == (value != ""),
			"exclude header %q", h)
	}
	if c := r.CORS; c != nil {
		must(len(c.Origins) > 0 && len(c.Origins) <= mostCORS, "%d origins", len(c.Origins))
		must(!c.Credentials || !slices.Contains(c.Origins, "*"), "every origin with credentials")
		spans("max_age", c.MaxAge, 0, 24*time.Hour)
		for _, o := range c.Origins {
			again, m := cleanCORSOrigin(o)
			must(m == nil && again == o, "origin %q", o)
		}
	}
	return broken
}
