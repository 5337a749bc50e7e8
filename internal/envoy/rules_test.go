package envoy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/tests/yardstick"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/limit"
)

// parse parses rules without faults.
func parse(t testing.TB, text string) *Rules {
	t.Helper()
	r, err := ParseRules("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// entries returns a descriptor from key, value, key, value, ….
func entries(words ...string) []*common.RateLimitDescriptor_Entry {
	var all []*common.RateLimitDescriptor_Entry
	for pair := range slices.Chunk(words, 2) {
		all = append(all, &common.RateLimitDescriptor_Entry{Key: pair[0], Value: pair[1]})
	}
	return all
}

// TestReferenceFiles checks that ParseRules accepts and rejects the same files as the reference.
func TestReferenceFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/reference/*.yaml")
	if err != nil || len(names) < 30 {
		t.Fatalf("found %d files: %v", len(names), err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		bad := strings.HasPrefix(filepath.Base(name), "bad_")
		r, err := ParseRules(name, text)
		if (err != nil) != bad {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			checkLimits(t, r)
		}
	}
}

// checkLimits checks that a limiter accepts the limits.
func checkLimits(t testing.TB, r *Rules) {
	t.Helper()
	seen := map[string]bool{}
	for _, l := range r.Limits() {
		if err := l.Check(); err != nil {
			t.Errorf("%s: %v", l.Name, err)
		}
		plain := strings.Trim(l.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-/")
		if plain != "" || len(l.Name) > 64 || seen[l.Name] {
			t.Errorf("impossible name %q", l.Name)
		}
		seen[l.Name] = true
	}
}

func TestLimitsOfRules(t *testing.T) {
	r := parse(t, `
domain: shop
descriptors:
- {key: a, rate_limit: {unit: second, requests_per_unit: 1}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 2}, shadow_mode: yes}
- {key: c, rate_limit: {unit: HOUR, requests_per_unit: 0x10, algorithm: token_bucket}}
- {key: d, rate_limit: {unit: day, requests_per_unit: 4294967295, algorithm: sliding_log}}
- {key: e, rate_limit: {unit: Week, requests_per_unit: 1_000, algorithm: sliding_window}}
- {key: f, rate_limit: {unit: month, requests_per_unit: 6, algorithm: leaky_bucket, overdraft: no}}
- {key: g, rate_limit: {unit: year}}
- {key: h, rate_limit: {unit: minute, requests_per_unit: 20, unit_multiplier: 5}}
- {key: i, rate_limit: {unlimited: true}}
- {key: j}
`)
	checkLimits(t, r)
	day := 24 * time.Hour
	want := []ratelimit.Limit{
		{Rule: limit.Rule{Algorithm: limit.FixedWindow, Amount: 1, Window: time.Second}},
		{Rule: limit.Rule{Algorithm: limit.FixedWindow, Amount: 2, Window: time.Minute}, Shadow: true},
		{Rule: limit.Rule{Algorithm: limit.TokenBucket, Amount: 16, Window: time.Hour}},
		{Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 4294967295, Window: day}},
		{Rule: limit.Rule{Algorithm: limit.SlidingWindow, Amount: 1000, Window: 7 * day}},
		{Rule: limit.Rule{Algorithm: limit.LeakyBucket, Amount: 6, Window: 30 * day}},
		{Rule: limit.Rule{Algorithm: limit.FixedWindow, Amount: 0, Window: 365 * day}},
		{Rule: limit.Rule{Algorithm: limit.FixedWindow, Amount: 20, Window: 5 * time.Minute}},
	}
	if n := r.domains["shop"].top.next["h"].rule.shown.GetUnitMultiplier().GetValue(); n != 5 {
		t.Errorf("of 5 minutes the status tells %d", n)
	}
	got := r.Limits()
	if len(got) != len(want) {
		t.Fatalf("%d limits, want %d", len(got), len(want))
	}
	for i, g := range got {
		if g.Name != "shop/"+string(rune('a'+i)) {
			t.Errorf("limit %d has name %q", i, g.Name)
		}
		if g.Rule != want[i].Rule || g.Shadow != want[i].Shadow {
			t.Errorf("limit %d is %+v, want %+v", i, g, want[i])
		}
	}
}

// TestFaultsOfRules checks faults with their positions and hints.
func TestFaultsOfRules(t *testing.T) {
	const head = "domain: d\ndescriptors:\n- key: k\n"
	const rate = head + "  rate_limit: "
	for name, c := range map[string]struct{ text, want, hint string }{
		"empty":     {"", "a.yaml: is empty", "domain:"},
		"list":      {"- a\n", "a.yaml:1:1: is not a group of keys", "domain descriptors"},
		"domain":    {"descriptors: []\n", "a.yaml:1:1: domain: is missing", "domain:"},
		"long":      {strings.Repeat("x", 1000) + ": v\n", `xxx"…: there is no such`, "domain"},
		"two":       {"domain: a\n---\ndomain: b\n", "has more than one document", "a file of each"},
		"tab":       {"domain: a\n\tb: c\n", "a.yaml:2:", "with spaces"},
		"unknown":   {head + "  valeu: v\n", "a.yaml:4:3: descriptors[0].valeu: there is no", "mean value?"},
		"elsewhere": {head + "  unit: day\n", "descriptors[0].unit: there is no such", "below rate_limit"},
		"shadow": {rate + "{unit: day, shadow_mode: true}\n",
			"rate_limit.shadow_mode: there is no such", "to the descriptor"},
		"twice": {head + "  key: k\n", "a.yaml:4:3: descriptors[0].key: is already set on li", "one of"},
		"same":  {head + "- key: k\n", `:4:3: descriptors[1]: the descriptor "k" is there twice`, "one"},
		"unit":  {rate + "{unit: secnd}\n", `rate_limit.unit: "secnd" is no unit`, "mean second?"},
		"no unit": {rate + "{requests_per_unit: 4}\n", "rate_limit.unit: is missing",
			"second minute"},
		"UNKNOWN":  {rate + "{unit: unknown}\n", `"unknown" is no unit`, "second minute"},
		"negative": {rate + "{unit: day, requests_per_unit: -1}\n", "not such a number", "0 to 4294967295"},
		"huge": {rate + "{unit: day, requests_per_unit: 4294967296}\n", "not such a number",
			"0 to 4294967295"},
		"quoted":    {rate + "{unit: day, requests_per_unit: '5'}\n", "not such a number", "quotes"},
		"truth":     {head + "  shadow_mode: perhaps\n", `"perhaps" is not a truth value`, "true or false"},
		"both":      {rate + "{unit: day, unlimited: true}\n", "has no meaning", "unlimited"},
		"share":     {head + "  share_threshold: true\n", "is for values with a *", "put a *"},
		"itself":    {rate + "{unit: day, name: n, replaces: [{name: n}]}\n", "the limit itself", "another"},
		"nothing":   {rate + "{unit: day, replaces: [{name: }]}\n", "name: is missing", "replaced"},
		"algorithm": {rate + "{unit: day, algorithm: sliding_lok}\n", "is not possible", "mean sliding_log?"},
		"lease":     {rate + "{unit: day, algorithm: concurrency}\n", "is not possible", "fixed_window"},
		"no times":  {rate + "{unit: day, unit_multiplier: 0}\n", "0 days are not", "1 to 366"},
		"times":     {rate + "{unit: day, unit_multiplier: 367}\n", "367 days are not", "1 to 366"},
		"metadata":  {head + "  metadata: 5\n", "metadata: is not a group", "keys and values"},
		"no list":   {"domain: d\ndescriptors: 5\n", "descriptors: is not a list", "dash"},
		"two words": {"domain: [a]\n", "domain: is not a single value", "one value"},
		"deep": {"domain: d\n" + strings.Repeat("descriptors: [{key: k, ", 40) + strings.Repeat("}]", 40),
			"nested more than 32", "fewer"},
		"cycle":  {"domain: d\ndescriptors: &a\n- key: k\n  descriptors: *a\n", "more than 32", "fewer"},
		"merges": {"domain: d\ndescriptors:\n- &a\n  key: k\n  <<: *a\n", "more than 8 times", "out"},
	} {
		_, err := ParseRules("a.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
			continue
		}
		faults := config.Faults(err)
		if len(faults) == 0 || !slices.ContainsFunc(faults, func(f *config.Fault) bool {
			return strings.Contains(f.Hint, c.hint)
		}) {
			t.Errorf("%s: no hint says %q: %+v", name, c.hint, faults)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	_, err := ParseRules("a.yaml", []byte("domian: d\ndescriptors:\n- {kee: k}\n- {key: k, valu: v}\n"))
	if n := len(config.Faults(err)); n != 5 { // and two about missing values
		t.Errorf("%d faults, want 5: %v", n, err)
	}
	_, err = ParseRules("a.yaml", []byte("domain: d\ndescriptors:\n"+strings.Repeat("- 1\n", 100)))
	if err == nil || !strings.HasSuffix(err.Error(), "and 50 more faults from here on") {
		t.Errorf("not cut: %v", err)
	}
}

// TestBombs checks that small files with huge contents are rejected quickly.
func TestBombs(t *testing.T) {
	var bomb, wide strings.Builder
	bomb.WriteString("domain: d\ndescriptors:\n- key: k0\n  descriptors: &a0 [{key: x}]\n")
	for i := 1; i < 8; i++ {
		fmt.Fprintf(&bomb, "- key: k%d\n  descriptors: &a%d\n", i, i)
		for j := range 10 {
			fmt.Fprintf(&bomb, "  - {key: y%d, descriptors: *a%d}\n", j, i-1)
		}
	}
	wide.WriteString("domain: d\ndescriptors:\n- key: k\n  descriptors: &l\n")
	for i := range 1000 {
		fmt.Fprintf(&wide, "  - {key: a%d}\n", i)
	}
	for i := range 1000 {
		fmt.Fprintf(&wide, "- {key: b%d, descriptors: *l}\n", i)
	}
	stick := yardstick.Start(t)
	for name, text := range map[string]string{"deep": bomb.String(), "wide": wide.String(),
		"large": strings.Repeat("#", maxFile+1)} {
		began := time.Now()
		_, err := ParseRules("a.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "500000 values") && name != "large" {
			t.Errorf("%s: %v", name, err)
		}
		// Measured: 1 s.
		stick.Judge(t, name, time.Since(began), yardstick.Bound{Design: 15 * time.Second, Requests: 1000})
	}
}

func TestJoin(t *testing.T) {
	a := parse(t, "domain: a\ndescriptors: [{key: k, rate_limit: {unit: day}}]\n")
	b := parse(t, "domain: b\n")
	both, err := Join(a, b)
	if err != nil || !slices.Equal(both.Domains(), []string{"a", "b"}) || len(both.Limits()) != 1 {
		t.Errorf("joined %v, %v", both, err)
	}
	if _, err := Join(a, b, a); err == nil || !strings.Contains(err.Error(), `a.yaml: domain "a"`) {
		t.Errorf("joined twice: %v", err)
	}
}

// TestFind looks up descriptors as GetLimit of the reference does.
func TestFind(t *testing.T) {
	r := parse(t, `
domain: d
descriptors:
- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: a, value: v, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: a, value: free}
- {key: p, value: /api/*/x, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: p, value: /api/*, rate_limit: {unit: day, requests_per_unit: 4}}
- {key: p, value: /api/v1/x, rate_limit: {unit: day, requests_per_unit: 5}}
- key: s
  value: files/*
  share_threshold: true
  rate_limit: {unit: day, requests_per_unit: 6}
  descriptors:
  - {key: t, value: "*.pdf*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 7}}
  - {key: u, rate_limit: {unit: day, requests_per_unit: 8}}
- &m
  key: m
  rate_limit: {unit: day, requests_per_unit: 9}
- <<: *m
  key: n
`)
	for _, c := range []struct {
		entries []string
		amount  int64
		key     string
	}{
		{[]string{"a", "x"}, 1, "a=x"},
		{[]string{"a", ""}, 1, "a="},
		{[]string{"a", "v"}, 2, "a=v"},
		{[]string{"a", "free"}, -1, ""},
		{[]string{"a", "v", "b", "w"}, -1, ""}, // deeper than the rules
		{[]string{"b", "v"}, -1, ""},
		{[]string{"p", "/api/v1/x"}, 5, "p=/api/v1/x"},
		{[]string{"p", "/api/v2/x"}, 3, "p=/api/v2/x"},
		{[]string{"p", "/api/x"}, 4, "p=/api/x"}, // the two slashes of /api/*/x do not overlap
		{[]string{"p", "/web"}, -1, ""},
		{[]string{"s", "files/1"}, 6, "s=files/*"},
		{[]string{"s", "files/1", "t", "a.pdf"}, 7, "s=files/*|t=*.pdf*"},
		{[]string{"s", "files/1", "u", "|=\\"}, 8, `s=files/*|u=\|=\\`},
		{[]string{"s", "files/1", "z", "1"}, -1, ""},
		{[]string{"n", "1"}, 9, "n=1"},
	} {
		rule, key := r.domains["d"].find(entries(c.entries...), nil)
		if (rule == nil) != (c.amount < 0) || rule != nil &&
			(int64(rule.shown.GetRequestsPerUnit()) != c.amount || string(key) != c.key) {
			t.Errorf("%v: %v with key %q, want %d with %q", c.entries, rule, key, c.amount, c.key)
		}
	}
}

// TestKeys checks that different lists of entries make different keys.
func TestKeys(t *testing.T) {
	long := strings.Repeat("ä", 600)
	lists := [][]string{{"a", "b"}, {"a", "b|c=d"}, {"a", "b", "c", "d"}, {"a=b", ""}, {"a", "=b"},
		{"a", "b="},
		{`a\`, "b"}, {`a`, `\b`}, {"a", "b", "", ""}, {"a", long}, {"a", long + "1"}, {"a" + long, ""},
		{"a", strings.Repeat("x", 956) + `\`, "b", long}, {"a", strings.Repeat("x", 1022)}}
	seen := map[string]bool{}
	for _, l := range lists {
		var key []byte
		for _, e := range entries(l...) {
			key = appendEntry(key, e.Key, e.Value)
		}
		short := shorten(key)
		if seen[short] || len(short) > ratelimit.MaxKey || strings.ToValidUTF8(short, "") != short {
			t.Errorf("%.20q has key %q", l, short)
		}
		seen[short] = true
		// A key that looks like a cut key is a different key.
		again := shorten(appendEntry(nil, "a", strings.TrimPrefix(short, "a=")))
		if seen[again] && len(key) > ratelimit.MaxKey {
			t.Errorf("%.20q can be forged", l)
		}
	}
}

func TestLimitNames(t *testing.T) {
	seen := map[string]bool{}
	x := strings.Repeat("x", 65)
	for _, path := range [][]string{{"a", "b_c"}, {"a_b", "c"}, {"a", "b", "c"}, {"a", "b/c"},
		{"a/b", "c"}, {"a", "b c"}, {"a", ""}, {"a", "b", ""}, {"ä€", "/"}, {""}, {x[1:]}, {x},
		{x + "a", "b"}, {x, "ab"}, {strings.Repeat(x, 20)}} {
		name := limitName(path...)
		if seen[name] || len(name) < 3 || len(name) > 64 {
			t.Errorf("%.20q: %q", path, name)
		}
		seen[name] = true
	}
	if !seen["a/b_c"] || !seen["a_b/c"] || !seen["a/b/c"] || !seen[x[1:]] {
		t.Errorf("a plain path is not the name: %v", seen)
	}
}

func FuzzRules(f *testing.F) {
	names, _ := filepath.Glob("testdata/reference/*.yaml")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRules("a.yaml", text)
		if err != nil {
			if r != nil || len(config.Faults(err)) == 0 {
				t.Errorf("rules, or no faults, beside %v", err)
			}
			return
		}
		checkLimits(t, r)
		for name, d := range r.domains {
			d.find(entries("key1", "value1", "subkey1", name), nil)
		}
		if _, err := ratelimit.New(ratelimit.Config{Limits: r.Limits()}); err != nil {
			t.Error(err)
		}
	})
}
