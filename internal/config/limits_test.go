package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/tests/yardstick"
)

// limited returns a file with one limit and the room.
func limited(keys string) string { return "limits:\n  - {name: api, " + keys + "}\n" + room }

func TestEveryBoundOfALimitIsInclusive(t *testing.T) {
	const sliding, bucket = "algorithm: sliding_log, window: 1m, ", "algorithm: token_bucket, window: 1m, "
	most := strconv.Itoa(limit.MaxAmount)
	tests := []struct {
		keys string
		good bool
	}{
		{sliding + "amount: 0", true},
		{sliding + "amount: -1", false},
		{sliding + "amount: " + most, true},
		{sliding + "amount: " + most + "0", false},
		{"algorithm: sliding_log, amount: 1, window: 1ms", true},
		{"algorithm: sliding_log, amount: 1, window: 999us", false},
		{"algorithm: sliding_log, amount: 1, window: 366d", true},
		{"algorithm: sliding_log, amount: 1, window: 8784h1ns", false},
		{"algorithm: sliding_window, amount: 1, window: 1h, parts: 1", true},
		{"algorithm: sliding_window, amount: 1, window: 1h, parts: 3600", true},
		{"algorithm: sliding_window, amount: 1, window: 1h, parts: 3601", false},
		{"algorithm: sliding_window, amount: 1, window: 10ms, parts: 10", true},
		{"algorithm: sliding_window, amount: 1, window: 10ms, parts: 11", false},
		{bucket + "amount: 1, burst: 1", true},
		{bucket + "amount: 1, burst: 0", false},
		{bucket + "amount: 1, burst: " + most, true},
		{bucket + "amount: 1, burst: " + most + "0", false},
		{"algorithm: concurrency, amount: " + strconv.Itoa(limit.MaxConcurrent), true},
		{"algorithm: concurrency, amount: " + strconv.Itoa(limit.MaxConcurrent+1), false},
		{"algorithm: leaky_bucket, window: 1m, amount: 1, paced: true", true},
		{"algorithm: leaky_bucket, window: 1m, amount: 0, paced: true", false},
		{"algorithm: leaky_bucket, window: 1m, amount: 0, paced: false", true},
		{"algorithm: concurrency, amount: 1, lease: 1ms", true},
		{"algorithm: concurrency, amount: 1, lease: 999us", false},
		{"algorithm: concurrency, amount: 1, lease: 366d", true},
		{"algorithm: concurrency, amount: 1, lease: 367d", false},
		{sliding + "amount: 1, cost: 1", true},
		{sliding + "amount: 1, cost: " + most, true},
		{sliding + "amount: 1, cost: 0", false},
		{sliding + "amount: 1, max_keys: 1", true},
		{sliding + "amount: 1, max_keys: 0", false},
		{sliding + "amount: 1, max_keys: 100000000", true},
		{sliding + "amount: 1, overrides: {a: 0, b: " + most + "}", true},
		{sliding + "amount: 1, overrides: {" + strings.Repeat("a", 1024) + ": 1}", true},
		{sliding + "amount: 1, overrides: {? " + strings.Repeat("a", 1025) + " : 1}", false},
		{sliding + "amount: 1, key: [client_address/1/1, client_address/32/128]", true},
		{sliding + "amount: 1, key: [client_address/0]", false},
		{sliding + "amount: 1, key: [client_address/33]", false},
		{sliding + "amount: 1, key: [client_address/32/0]", false},
		{sliding + "amount: 1, key: [client_address/32/129]", false},
		{sliding + "amount: 1, key: [\"header:!#$%&'*+-.^_`|~09azAZ\"]", true},
		{sliding + "amount: 1, key: ['header:(x)']", false},
		{sliding + "amount: 1, key: ['cookie:" + strings.Repeat("c", 256) + "']", true},
		{sliding + "amount: 1, key: ['cookie:" + strings.Repeat("c", 257) + "']", false},
		{sliding + "amount: 1, key: [path" + strings.Repeat(", path", 15) + "]", true},
		{sliding + "amount: 1, key: [path" + strings.Repeat(", path", 16) + "]", false},
	}
	for _, tt := range tests {
		_, err := Parse("f", []byte(limited(tt.keys)))
		if (err == nil) != tt.good {
			t.Errorf("%.80s: got error %v, want good %v", tt.keys, err, tt.good)
		}
	}
}

func TestOneMistakeInALimitIsToldOnce(t *testing.T) {
	good := limited("algorithm: sliding_window, amount: 1, window: 1m, parts: 6")
	uses := good + "    limits: [api]\n"
	for _, file := range []string{
		strings.Replace(uses, "name: api", "nam: api", 1),
		strings.Replace(uses, "name: api", "name: a b", 1),
		strings.Replace(uses, "limits:\n  -", "limit:\n  -", 1),
		strings.Replace(uses, "limits:\n  -", "limits:\n    a:", 1),
		strings.Replace(uses, "[api]", "[api, apj]", 1),
		strings.Replace(uses, "sliding_window", "slidingwindows", 1),
		strings.Replace(uses, "algorithm:", "algoritm:", 1),
		strings.Replace(uses, "window: 1m", "window: 1", 1),
		strings.Replace(uses, "window: 1m, ", "", 1),
		strings.Replace(uses, "window: 1m", "windw: 1m", 1),
		strings.Replace(uses, "window: 1m", "window: 2ms", 1),
		strings.Replace(uses, "sliding_window", "sliding_log", 1),
		limited("algorithm: concurrency, amount: 1, window: 1m"),
		limited("algorithm: fixed_window, amount: 1, align: dya"),
		limited("algorithm: fixed_window, amount: 1, align: day, time_zone: Europe/Pariss"),
		limited("algorithm: fixed_window, amount: 1, aling: day, time_zone: UTC"),
		limited("algorithm: fixed_window, amount: 1, window: 1m, time_zone: Europe/Pariss"),
		limited("algorithm: concurrency, amount: 1, unit: bits, cost: 2"),
		limited("algorithm: concurrency, amount: 1, burst: many"),
		limited("algorithm: leaky_bucket, amount: many, window: 1m, paced: true"),
		limited("algorithm: concurrency, algorithm: token_bucket, amount: 1, burst: 2"),
		limited("algorithm: concurrency, amount: 1, unit: request_bytes, unit: units, cost: 2"),
	} {
		if _, err := Parse("f", []byte(file)); len(Faults(err)) != 1 {
			t.Errorf("got %d faults, want 1, of\n%s%v", len(Faults(err)), file, err)
		}
	}
	if _, err := Parse("f", []byte(uses)); err != nil {
		t.Errorf("without the mistake: %v", err)
	}
}

// The order of limits and rooms in the file does not matter.
func TestRoomsMayStandBeforeTheirLimits(t *testing.T) {
	c, err := Parse("f", []byte(room+"    limits: [b, a, b]\n"+
		"limits:\n  - {name: a, algorithm: concurrency, amount: 1}\n  - {name: b, algorithm: concurrency, amount: 2}\n"))
	if err != nil || !slices.Equal(c.Rooms[0].Limits, []string{"b", "a"}) {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestTimeZonesAreThoseOfTheMachine(t *testing.T) {
	c, err := Parse("f", []byte(limited("algorithm: fixed_window, amount: 1, align: day, time_zone: Europe/Paris")))
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	if h := noon.In(c.Limits[0].Zone).Hour(); h != 14 {
		t.Errorf("noon in UTC is %d o'clock in Paris, want 14", h)
	}
	t.Setenv("TZ", "Europe/Paris") // the machine's own time zone must not matter
	c, err = Parse("f", []byte(limited("algorithm: fixed_window, amount: 1, align: day")))
	if err != nil || c.Limits[0].Zone != time.UTC {
		t.Errorf("without a zone: got %v, %v, want UTC", c, err)
	}
}

// The management API serves a limit at /v1/limits/NAME: a limit with the name of another path there
// could not be read or changed.
func TestNamesOfPathsAreNoLimits(t *testing.T) {
	for _, name := range []string{"check", "renew", "reserve", "settle"} {
		text := strings.Replace(limited("algorithm: sliding_log, amount: 1, window: 1m"), "api", name, 1)
		_, err := Parse("headgate.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "is no name for a limit") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLimitsAreSharedUnlessTheyAreAWorkers(t *testing.T) {
	dir := clusterDir(t, time.Now())
	for _, beside := range []string{
		"cluster: {join: n1.join, listen: \":7422\"}\n", "engine: {url: \"nats://127.0.0.1\"}\n",
	} {
		for said, want := range map[string]string{
			"": "global", ", scope: worker": "worker", ", scope: datacenter": "datacenter",
		} {
			c, err := inDir(t, dir, beside+
				"limits:\n  - {name: api, algorithm: concurrency, amount: 1"+said+"}\n")
			if err != nil || c.Limits[0].Scope != want {
				t.Errorf("%q beside %s: %v, want %s", said, beside, err, want)
			}
		}
	}
}

// Faults that only the rule itself finds are reported too, at the limit.
func TestTheRuleHasTheLastWord(t *testing.T) {
	d := newDecoder("f", homeOf)
	d.spots["limits[0]"] = spot{line: 3, column: 5}
	l := Limit{Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: -1, Window: time.Minute, Parts: 2}}
	l.checkRule(d, "limits[0].")
	var said []string
	for _, f := range d.Found {
		said = append(said, f.Error())
	}
	want := []string{"f:3:5: limits[0]: amount -1, want 0 to 1125899906842624",
		"f:3:5: limits[0]: parts belong to sliding_window"}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestKeyPartsAreWrittenAsTheyAreRead(t *testing.T) {
	for text, want := range map[string]KeyPart{
		"client_address":        {KeyAddress, "", 32, 64},
		"client_address/24":     {KeyAddress, "", 24, 64},
		"client_address/24/128": {KeyAddress, "", 24, 128},
		"header:x-client":       {Kind: KeyHeader, Name: "X-Client"},
		"cookie:Sid":            {Kind: KeyCookie, Name: "Sid"},
		"path":                  {Kind: KeyPath}, "method": {Kind: KeyMethod}, "host": {Kind: KeyHost},
		"session": {Kind: KeySession}, "person": {Kind: KeyPerson}, "holder": {Kind: KeyHolder},
	} {
		got, m := cleanKeyPart(text)
		if m != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, m)
			continue
		}
		if again, m := cleanKeyPart(got.String()); m != nil || again != want {
			t.Errorf("%s is written %s: %+v, %v", text, got, again, m)
		}
	}
}

func TestTooManyLimitsAreRefused(t *testing.T) {
	var limits, overrides strings.Builder
	for i := range maxLimits + 1 {
		fmt.Fprintf(&limits, "  - {name: l%d, algorithm: concurrency, amount: 1}\n", i)
	}
	for i := range maxOverrides + 1 {
		fmt.Fprintf(&overrides, "c%d: 1, ", i)
	}
	all, many := limits.String(), overrides.String()
	fewer := all[:strings.LastIndex(all, "  -")]
	const head = "algorithm: concurrency, amount: 1, overrides: {"
	one := "c0: 1, "
	for _, tt := range []struct{ name, file, want string }{
		{"limits", "limits:\n" + all + room, "limits: has 1001 limits, more than 1000"},
		{"as many as may be", "limits:\n" + fewer + room, ""},
		{"overrides", limited(head + many + "}"), "overrides: is a group of keys, not a group of up to 10000"},
		{"as many overrides", limited(head + many[len(one):] + "}"), ""},
	} {
		_, err := Parse("f", []byte(tt.file))
		if tt.want == "" && err != nil || tt.want != "" && (len(Faults(err)) != 1 ||
			!strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A file of the maximum size must not keep the process busy: 100,000 unknown names, each compared
// with a thousand known ones.
func TestManyUnknownNamesAreRefusedSoon(t *testing.T) {
	var file strings.Builder
	file.WriteString("limits:\n")
	for i := range maxLimits {
		fmt.Fprintf(&file, "  - {name: l%061d, algorithm: concurrency, amount: 1}\n", i)
	}
	file.WriteString("rooms:\n  - name: r0\n    path: /0\n    origin: http://127.0.0.1:3000\n    total_active_users: 1\n" +
		"    new_users_per_minute: 1\n    limits: &a [")
	file.WriteString(strings.Repeat("x"+strings.Repeat("y", 60)+", ", 1000) + "z]\n")
	for i := range 80 {
		fmt.Fprintf(&file, "  - {name: r%d, path: /%d, origin: \"http://127.0.0.1:3000\", total_active_users: 1, "+
			"new_users_per_minute: 1, limits: *a}\n", i+1, i+1)
	}
	stick, begin := yardstick.Start(t), time.Now()
	_, err := Parse("f", []byte(file.String()))
	if n := len(Faults(err)); n != maxFaults+1 {
		t.Errorf("got %d faults, want %d", n, maxFaults+1)
	}
	// Measured: 1 s. Without the bound on faults it is minutes.
	stick.Judge(t, "a file of 80,000 unknown names", time.Since(begin),
		yardstick.Bound{Design: 10 * time.Second, Requests: 1000})
}

func TestARoomWithoutLimitsIsAsBefore(t *testing.T) {
	plain, err := running(t, "").Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	none, err := running(t, "    limits: []\n").Fingerprint()
	if err != nil || none != plain {
		t.Errorf("limits: [] says nothing new, and changed the fingerprint: %v", err)
	}
}

// A reload compares configurations: a list without entries must not look like a change.
func TestWhatSaysNothingAboutALimitIsNothing(t *testing.T) {
	const rule = "algorithm: fixed_window, amount: 1, window: 1m"
	plain, err := Parse("f", []byte(limited(rule)))
	if err != nil {
		t.Fatal(err)
	}
	said, err := Parse("f", []byte(limited(rule+", align: epoch, unit: requests, key: [], overrides: {}, cost: 1, "+
		"shadow: false, scope: global, on_unreachable: local, max_keys: 1000000, headers: ietf")))
	if err != nil || !reflect.DeepEqual(plain.Limits, said.Limits) {
		t.Errorf("got %+v, %v, want %+v", said.Limits, err, plain.Limits)
	}
}

// brokenLimits is the part of brokenRules for limits.
func brokenLimits(c *Config) []string {
	var broken []string
	must := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	in := func(s, all string) bool { return slices.Contains(strings.Fields(all), s) }
	names := map[string]bool{}
	must(len(c.Limits) <= 1000, "%d limits", len(c.Limits))
	for i := range c.Limits {
		l := &c.Limits[i]
		must(!names[l.Name] && len(l.Name) >= 1 && len(l.Name) <= 64, "name %q", l.Name)
		names[l.Name] = true
		_, err := limittable.Compile(l.Rule, l.Overrides)
		must(l.Check() == nil && err == nil, "rule %v, %v", l.Check(), err)
		calendar := l.Align >= limit.Minute
		must(calendar == (l.Zone != nil), "align %v, zone %v", l.Align, l.Zone)
		must((l.Window > 0) == (l.Algorithm != limit.Concurrency && !calendar), "window %v", l.Window)
		must((l.Parts > 0) == (l.Algorithm == limit.SlidingWindow), "parts %d", l.Parts)
		must((l.Lease > 0) == (l.Algorithm == limit.Concurrency), "lease %v", l.Lease)
		must(in(l.Unit, "requests units request_bytes response_bytes"), "unit %q", l.Unit)
		must(in(l.Scope, "worker datacenter global"), "scope %q", l.Scope)
		must(in(l.OnUnreachable, "local deny allow"), "on_unreachable %q", l.OnUnreachable)
		must(in(l.Headers, "ietf draft06 draft03 legacy none"), "headers %q", l.Headers)
		must(l.Cost >= 1 && l.Cost <= limit.MaxAmount && (l.Cost == 1 || l.CostHeader == ""),
			"cost %d", l.Cost)
		must(l.MaxKeys >= 1, "max_keys %d", l.MaxKeys)
		must(len(l.Key) <= 16 && len(l.Overrides) <= 10_000, "%d parts, %d overrides",
			len(l.Key), len(l.Overrides))
		for k, n := range l.Overrides {
			must(k != "" && len(k) <= 1024 && n >= 0 && n <= limit.MaxAmount, "override %q: %d", k, n)
		}
		for _, p := range l.Key {
			named := p.Kind == "header" || p.Kind == "cookie"
			must(named || in(p.Kind, "client_address path method host session person holder"), "kind %q", p.Kind)
			must(p.Kind != "holder" || c.HoldersOf() != nil, "nobody has keys")
			must(named == (p.Name != "") && !strings.ContainsAny(p.Name, " :;,=\"/"), "name %q", p.Name)
			must(p.Kind != "client_address" || p.Prefix4 >= 1 && p.Prefix4 <= 32 &&
				p.Prefix6 >= 1 && p.Prefix6 <= 128, "prefixes %+v", p)
		}
	}
	if h := c.HoldersOf(); h != nil {
		must(h.Header != "" && h.Header != "Cookie" && h.StaleAfter >= 20*time.Second &&
			h.StaleAfter <= 24*time.Hour && c.Plans.Header == "" && c.Plans.JWT.JWKS == "", "holders %+v", h)
	}
	for i := range c.Rooms {
		seen := map[string]bool{}
		for _, name := range c.Rooms[i].Limits {
			must(names[name] && !seen[name], "room %d names %q", i, name)
			seen[name] = true
		}
	}
	return broken
}
