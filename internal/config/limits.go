package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/numbers"
	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/suggest"
	"github.com/headgate/headgate/limit"
)

// Bounds of limits. Chosen; each override counts as two of the values that a file may have.
const (
	maxLimits    = 1000
	maxOverrides = 10_000
	maxKeys      = 100_000_000 // about 15 GB
	maxKeyLength = 1024        // the same as ratelimit.MaxKey
)

func defaultLimit() Limit {
	return Limit{Unit: "requests", Cost: 1, Scope: "global", OnUnreachable: "local",
		MaxKeys: 1_000_000, Headers: "ietf"}
}

// limitFields connects the keys of a limit to the fields of Limit.
func limitFields(l *Limit) []field {
	return []field{
		required("name", "api", text(&l.Name, cleanLimitName)),
		required("algorithm", "sliding_log", raw(&l.Algorithm, cleanAlgorithm).as(schema.OneOf(algorithms()...))),
		{name: "amount", read: readAmount(l), example: "100"},
		group("origin_target", targetOfOriginFields(&l.Auto)),
		one("window", stretch(&l.Window)),
		{name: "key", read: readKey(&l.Key)},
		one("unit", word(&l.Unit, "requests", "units", "request_bytes", "response_bytes")),
		one("parts", whole(&l.Parts, 1, limit.MaxParts)),
		one("burst", whole(&l.Burst, 1, limit.MaxAmount)),
		one("align", raw(&l.Align, cleanAlign).as(schema.OneOf(aligns()...))),
		one("time_zone", raw(&l.Zone, cleanZone)),
		one("paced", truth(&l.Paced)),
		one("lease", stretch(&l.Lease)),
		one("cost", whole(&l.Cost, 1, limit.MaxAmount)),
		one("cost_header", raw(&l.CostHeader, cleanHeaderName)),
		one("cost_field", raw(&l.CostField, cleanKeys)),
		group("settle", settleFields(&l.Settle)),
		{name: "overrides", read: readOverrides(&l.Overrides)},
		one("soft", truth(&l.Soft)),
		one("shadow", truth(&l.Shadow)),
		one("scope", word(&l.Scope, "worker", "datacenter", "global")),
		one("on_unreachable", word(&l.OnUnreachable, "local", "deny", "allow")),
		one("max_keys", whole(&l.MaxKeys, 1, maxKeys)),
		one("usage", truth(&l.Usage)),
		one("headers", word(&l.Headers, "ietf", "draft06", "draft03", "legacy", "none")),
	}
}

// mostTokenCost limits what a token costs. Chosen: a price in millionths of a cent fits.
const mostTokenCost = 1_000_000

func settleFields(s *Settle) []field {
	return []field{
		one("header", raw(&s.Header, cleanHeaderName)),
		one("field", raw(&s.Field, cleanKeys)),
		one("input", whole(&s.Input, 1, mostTokenCost)),
		one("output", whole(&s.Output, 1, mostTokenCost)),
	}
}

// cleanKeys parses the keys that lead to a number in JSON.
func cleanKeys(s string) (string, *mistake) {
	keys := strings.Split(s, ".")
	if len(keys) > mostPath || slices.ContainsFunc(keys, func(key string) bool {
		return key == "" || len(key) > numbers.MostKey || strings.ContainsAny(key, "[]\"\\/ $")
	}) {
		return "", wrong("write the keys that lead to the number, with dots between them, such as usage.total_tokens",
			"%s is not a path of at most %d keys", quote(s), mostPath)
	}
	return s, nil
}

// mostPath limits the keys of a path. Chosen.
const mostPath = 16

// readAmount reads a number, or the bounds of an amount that is found.
func readAmount(l *Limit) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			l.Amount = l.Auto.read(d, key, n, limit.MaxConcurrent)
		} else {
			d.scalar(key, n, whole(&l.Amount, 0, limit.MaxAmount))
		}
	}
}

// readLimits reads the limits and checks the keys of each against each other.
func readLimits(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > maxLimits {
			d.fault(key, n, wrong("one limit may have a key for each client: see key and overrides",
				"has %d limits, more than %d", len(n.Content), maxLimits))
			return
		}
		named := map[string]string{}
		for key, item := range d.items(key, n) {
			l, before := defaultLimit(), d.Count()
			d.mapping(key, item, limitFields(&l))
			k := key + "."
			if first, twice := named[l.Name]; twice && l.Name != "" {
				d.clash(wrong("give each limit a name of its own",
					"%s is already the name of %s", quote(l.Name), first), k+"name")
			} else {
				named[l.Name] = key
			}
			if item.Kind == yaml.MappingNode {
				l.cross(d, k)
			}
			// Defaults that depend on other keys are computed only from good keys.
			if d.Count() == before && !d.Stopped {
				l.settle(c, d, k)
			}
			c.Limits = append(c.Limits, l)
		}
	}
}

// cross checks the keys of a limit against each other.
func (l *Limit) cross(d *decoder, k string) {
	if d.good(k + "algorithm") {
		l.crossAlgorithm(d, k)
		l.crossWindow(d, k)
		l.crossAmount(d, k)
		l.crossAuto(d, k)
	}
	least := time.Duration(max(1, l.Parts)) * limit.MinWindow
	if d.good(k+"window", k+"parts") && l.Parts > 1 && l.Window > 0 && l.Window < least {
		d.clash(wrong("take fewer parts, or a window of at least "+short(least),
			"%d parts of %s are shorter than %s each", l.Parts, short(l.Window), short(limit.MinWindow)),
			k+"parts")
	}
	_, cost := d.spots[k+"cost"]
	_, header := d.spots[k+"cost_header"]
	bytes := l.Unit == "request_bytes" || l.Unit == "response_bytes"
	switch {
	case bytes && (cost || header) && d.good(k+"unit"):
		d.clash(wrong("take it out, or write unit: units",
			"stands beside unit: %s, where the body says what a call costs", l.Unit), k+"cost_header", k+"cost")
	case cost && header:
		d.clash(wrong("keep one of the two", "stands beside cost"), k+"cost_header")
	}
	l.crossSettle(d, k, bytes)
	if bytes && l.Algorithm == limit.Concurrency && d.good(k+"unit", k+"algorithm") {
		d.clash(wrong("write unit: requests", "concurrency counts calls under way, not bytes"), k+"unit")
	}
	switch {
	case l.Usage && l.Algorithm == limit.Concurrency && d.good(k+"usage", k+"algorithm"):
		d.clash(wrong("record it of a limit of calls in a window", "concurrency counts calls under way, which use "+
			"nothing up"), k+"usage")
	case l.Usage && l.Scope == "worker" && d.good(k+"usage", k+"scope"):
		d.clash(wrong("write scope: datacenter", "stands beside scope: worker, where each process counts for itself"),
			k+"usage")
	}
}

// crossSettle checks what says the cost of a call that is known only after it.
func (l *Limit) crossSettle(d *decoder, k string, bytes bool) {
	s := &l.Settle
	_, settles := d.spots[k+"settle"]
	_, field := d.spots[k+"cost_field"]
	_, header := d.spots[k+"cost_header"]
	ways := 0
	for _, way := range []bool{s.Header != "", s.Field != "", s.Input > 0 || s.Output > 0} {
		if way {
			ways++
		}
	}
	switch {
	case field && header && d.good(k+"cost_field"):
		d.clash(wrong("keep one of the two", "stands beside cost_header"), k+"cost_field")
	case bytes && (field || settles) && d.good(k+"unit"):
		d.clash(wrong("take it out, or write unit: units",
			"stands beside unit: %s, where the body says what a call costs", l.Unit), k+"settle", k+"cost_field")
	case !settles || !d.good(k+"settle", k+"settle.header", k+"settle.field", k+"settle.input",
		k+"settle.output", k+"algorithm", k+"paced"):
	case ways != 1:
		d.clash(wrong("write one of header, field, and the pair of input and output",
			"must say in one way where the answer tells the cost"), k+"settle")
	case l.Algorithm == limit.Concurrency:
		d.clash(wrong("take it out", "concurrency counts calls under way, whatever they cost"), k+"settle")
	case l.Paced:
		d.clash(wrong("take paced out", "a paced call waits as long as its cost says, which is not known yet"),
			k+"settle")
	}
}

// crossAlgorithm rejects keys that belong to other algorithms.
func (l *Limit) crossAlgorithm(d *decoder, k string) {
	for _, of := range []struct {
		key string
		has []limit.Algorithm
	}{
		{"window", []limit.Algorithm{limit.SlidingLog, limit.SlidingWindow, limit.FixedWindow,
			limit.TokenBucket, limit.LeakyBucket}},
		{"parts", []limit.Algorithm{limit.SlidingWindow}},
		{"burst", []limit.Algorithm{limit.TokenBucket, limit.LeakyBucket}},
		{"align", []limit.Algorithm{limit.FixedWindow}},
		{"time_zone", []limit.Algorithm{limit.FixedWindow}},
		{"paced", []limit.Algorithm{limit.LeakyBucket}},
		{"lease", []limit.Algorithm{limit.Concurrency}},
	} {
		var owners []string
		foreign := l.Algorithm != 0
		for _, a := range of.has {
			owners = append(owners, a.String())
			foreign = foreign && a != l.Algorithm
		}
		if _, written := d.spots[k+of.key]; !written || !foreign || !d.good(k+of.key) {
			continue
		}
		m := wrong("take it out, or write algorithm: "+owners[0],
			"belongs to %s, not to %s", strings.Join(owners, " and "), l.Algorithm)
		if of.key == "window" {
			m = wrong("take it out: calls under way are counted, however long they last",
				"belongs to all but %s", l.Algorithm)
		}
		d.clash(m, k+of.key)
	}
}

// crossWindow checks that exactly one key determines the length of the window.
func (l *Limit) crossWindow(d *decoder, k string) {
	if l.Algorithm == 0 || l.Algorithm == limit.Concurrency || !d.good(k+"align") {
		return
	}
	fixed := l.Algorithm == limit.FixedWindow
	calendar := fixed && l.Align >= limit.Minute
	_, written := d.spots[k+"window"]
	switch {
	case calendar && written:
		d.clash(wrong("take it out, or write align: epoch",
			"stands beside align: %s, which says how long a window is", l.Align), k+"window")
	case !calendar && !written && d.good(k+"window"):
		hint := "add window: 60s"
		if fixed {
			hint += ", or align: day"
		}
		d.faultAt(k+"window", d.spots[strings.TrimSuffix(k, ".")], wrong(hint, "is missing"))
	}
	if _, zone := d.spots[k+"time_zone"]; zone && fixed && !calendar && d.good(k+"time_zone") {
		d.clash(wrong("add align: day, or another of minute, hour, week, month and year, or take it out",
			"belongs to windows of the calendar, not to align: %s", l.Align), k+"time_zone")
	}
}

// crossAmount rejects amounts that an algorithm does not accept.
func (l *Limit) crossAmount(d *decoder, k string) {
	switch {
	case !d.good(k+"amount", k+"paced", k+"burst"):
	case l.Amount == 0 && l.Burst > 0:
		d.clash(wrong("take it out, or raise the amount", "stands beside amount: 0, which refuses everything"),
			k+"burst")
	case l.Algorithm == limit.Concurrency && l.Amount > limit.MaxConcurrent:
		d.clash(wrong("write a whole number from 0 to "+strconv.Itoa(limit.MaxConcurrent),
			"%d is too large for calls at once", l.Amount), k+"amount")
	case l.Algorithm == limit.LeakyBucket && l.Paced && l.Amount == 0:
		d.clash(wrong("raise it, or take paced out", "0 would let a paced call wait for ever"), k+"amount")
	}
}

// crossAuto rejects what does not go with an amount that is found: one number, for all calls that rooms
// carry, at all nodes.
func (l *Limit) crossAuto(d *decoder, k string) {
	_, target := d.spots[k+"origin_target"]
	switch {
	case l.Auto.Mode == "" && target && d.good(k+"amount", k+"amount.auto", k+"origin_target"):
		d.clash(wrong("write amount: {auto: true, min: 10, max: 500}, or take it out",
			"needs an amount that is found"), k+"origin_target")
	case l.Auto.Mode == "" || !d.good(k+"amount", k+"amount.auto"):
	case l.Algorithm != limit.Concurrency:
		d.clash(wrong("write a number, or algorithm: concurrency",
			"only an amount of concurrency is found, not one of %s", l.Algorithm), k+"amount")
	case d.amends:
		d.clash(wrong("write a number, or put the limit into the file and into limits of a room",
			"is found only for limits of the file: rooms measure their calls"), k+"amount")
	case l.Scope == "worker" && d.good(k+"scope"):
		d.clash(wrong("take it out: one process finds the amount, and it holds at all nodes",
			"stands beside an amount that is found"), k+"scope")
	case l.Shadow && d.good(k+"shadow"):
		d.clash(wrong("take it out; amount: {auto: shadow, ...} finds an amount and changes nothing",
			"stands beside an amount that is found"), k+"shadow")
	}
	for _, key := range []string{"key", "overrides", "unit", "cost", "cost_header", "cost_field", "settle"} {
		_, written := d.spots[k+key]
		if written && l.Auto.Mode != "" && d.good(k+key) && (key != "unit" || l.Unit != "requests") {
			d.clash(wrong("take it out, or write a number as the amount",
				"stands beside an amount that is found: that is one number for all calls, and each counts as 1"),
				k+key)
		}
	}
}

// settle fills in the defaults that depend on other keys, and then runs the rule's own check for
// what has not been checked here.
func (l *Limit) settle(c *Config, d *decoder, k string) {
	switch {
	case l.Algorithm == limit.SlidingWindow:
		l.Parts = max(1, l.Parts)
	case l.Algorithm == limit.Concurrency && l.Lease == 0:
		l.Lease = time.Minute
	case l.Align >= limit.Minute && l.Zone == nil:
		l.Zone = time.UTC
	}
	l.checkRule(d, k)
	l.crossSoft(d, k)
	if l.Settle != (Settle{}) && l.Cost == 1 && l.CostField == "" && l.CostHeader == "" {
		c.warn(d, wrong("write cost or cost_field: the most that a call may cost",
			"is settled after the call, and each call is estimated at 1: many calls at once go far over the amount"),
			k+"settle")
	}
}

// crossSoft rejects keys that have no meaning for a soft limit.
func (l *Limit) crossSoft(d *decoder, k string) {
	if !l.Soft || !d.good(k+"soft", k+"shadow", k+"paced", k+"on_unreachable", k+"amount") {
		return
	}
	switch {
	case l.Shadow:
		d.clash(wrong("keep one of the two: soft marks the calls beyond the amount, shadow shows them to you only",
			"stands beside soft"), k+"shadow")
	case l.Paced:
		d.clash(wrong("take one of the two out", "stands beside soft: no call waits for a soft limit"), k+"paced")
	case l.OnUnreachable == "deny":
		d.clash(wrong("write local or allow", "stands beside soft: a soft limit denies nothing"), k+"on_unreachable")
	case l.Usage && d.good(k+"usage"):
		d.clash(wrong("record it of a limit that refuses, with a large amount: it counts all calls",
			"stands beside soft: what is beyond a soft limit is not counted"), k+"usage")
	case l.Auto.Mode != "":
		d.clash(wrong("take it out: an amount that is found is what the origin can take",
			"stands beside an amount that is found"), k+"soft")
	}
}

// checkRule records the faults that the rule finds in itself, and in the amounts of overrides.
func (l *Limit) checkRule(d *decoder, k string) {
	if err := l.Check(); err != nil {
		l.tell(d, strings.TrimSuffix(k, "."), err)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.Overrides)) {
		if limittable.IsPlanKey(name) {
			d.clash(wrong("give the plan an amount instead, or another key",
				"is the key of a caller with a plan"), under(k+"overrides", name))
		}
	}
	if _, err := limittable.Compile(l.Rule, l.Overrides); err == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.Overrides)) { // the error does not name the override
		if _, err := limittable.Compile(l.Rule, map[string]int64{name: l.Overrides[name]}); err != nil {
			l.tell(d, under(k+"overrides", name), err)
		}
	}
}

// tell records each line of an error of package limit as a fault.
func (l *Limit) tell(d *decoder, key string, err error) {
	for line := range strings.Lines(err.Error()) {
		problem := strings.TrimPrefix(strings.TrimSpace(line), limit.ErrRule.Error()+": ")
		d.clash(wrong("see Limits in docs/configuration.md", "%s", problem), key)
	}
}

// checkLimits checks that the limits that rooms name exist, and that a call can pass each of them.
func checkLimits(d *decoder, c *Config) {
	known, complete := map[string]bool{}, d.good("limits")
	var all []string
	for i := range c.Limits {
		l := &c.Limits[i]
		l.checkCost(c, d, "limits["+strconv.Itoa(i)+"].")
		complete = complete && l.Name != ""
		known[l.Name], all = true, append(all, l.Name)
	}
	for i := range c.Rooms {
		r := &c.Rooms[i]
		for j, name := range r.Limits {
			k := "rooms[" + strconv.Itoa(i) + "].limits[" + strconv.Itoa(j) + "]"
			if complete && !known[name] && d.good(k) {
				d.clash(wrong(limitHint(d, name, all), "there is no limit %s", quote(name)), k)
			}
		}
		r.Limits = union(nil, r.Limits)
	}
}

// checkCost warns if no call can ever pass.
func (l *Limit) checkCost(c *Config, d *decoder, k string) {
	if d.good(k+"cost", k+"amount") && l.Check() == nil && l.Cost > l.MaxCost() && l.Amount > 0 && !l.Shadow && !l.Soft &&
		len(l.Overrides) == 0 && len(l.Plans) == 0 {
		c.warn(d, wrong("lower cost, or raise the amount or the burst",
			"%d is more than can ever pass at once (%d), so every call is refused", l.Cost, l.MaxCost()), k+"cost")
	}
}

// limitHint suggests the limit that was probably meant.
func limitHint(d *decoder, name string, known []string) string {
	if d.Count() < maxFaults {
		if near := suggest.Nearest(name, known); near != "" {
			return "did you mean " + near + "?"
		}
	}
	return "add it at the left margin under limits, or take it out here"
}

// readRoomLimits reads names and records the position of each for checkLimits.
func readRoomLimits(dst *[]string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		for key, item := range d.items(key, n) {
			var name string
			d.scalar(key, item, nameText(&name))
			*dst = append(*dst, name)
		}
	}
}

// readOverrides reads a group whose keys are those of callers and may be any text.
func readOverrides(dst *map[string]int64) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode || len(n.Content) > 2*maxOverrides {
			d.fault(key, n, wrong(`write keys and amounts, such as {"big-client": 1000}`,
				"is %s, not a group of up to %d amounts", kind(n), maxOverrides))
			return
		}
		all, lines := map[string]int64{}, map[string]int{}
		for i := 0; i+1 < len(n.Content) && !d.Stopped; i += 2 {
			k, v := d.Resolve(n.Content[i]), d.Resolve(n.Content[i+1])
			if m := overrideKey(k); m != nil {
				d.fault(key, k, m)
				continue
			}
			full := under(key, k.Value)
			if line, twice := lines[k.Value]; twice {
				d.fault(full, k, wrong("keep one of the two", "is already set on line %d", line))
				continue
			}
			var amount int64
			d.read(field{read: one("", whole(&amount, 0, limit.MaxAmount)).read}, full, v)
			all[k.Value], lines[k.Value] = amount, k.Line
		}
		if len(all) > 0 {
			*dst = all
		}
	}
}

// overrideKey checks a key whose amount is overridden.
func overrideKey(k *yaml.Node) *mistake {
	switch {
	case k.Kind != yaml.ScalarNode || k.Tag == "!!merge":
		return wrong("write each key out", "has a key that is not a word")
	case k.Value == "":
		return wrong("write a key as it is counted", "has an empty key")
	case len(k.Value) > maxKeyLength:
		return wrong("write a key as it is counted",
			"has a key of %d bytes, more than %d", len(k.Value), maxKeyLength)
	}
	return nil
}

// stretch reads a duration that a rule accepts.
func stretch(dst *time.Duration) scalar {
	of := span(dst, limit.MinWindow, limit.MaxWindow, false)
	return scalar{func(n *yaml.Node) *mistake {
		m := of.read(n)
		if m != nil && strings.HasSuffix(m.problem, "is too long") {
			m.hint = "write a duration from " + short(limit.MinWindow) + " to " + short(limit.MaxWindow)
		}
		return m
	}, of.form}
}

// cleanLimitName rejects names that would collide with paths of the management API.
func cleanLimitName(s string) (string, *mistake) {
	if slices.Contains([]string{"check", "renew", "reserve", "settle"}, s) {
		return "", wrong("choose another name, such as "+s+"s",
			"%s is no name for a limit: /v1/limits/%s asks about limits", quote(s), s)
	}
	return cleanName(s)
}

func cleanAlgorithm(s string) (limit.Algorithm, *mistake) {
	if a, ok := limit.ParseAlgorithm(s); ok {
		return a, nil
	}
	return 0, oneWord(s, algorithms())
}

func algorithms() (all []string) {
	for a := limit.SlidingLog; a <= limit.Concurrency; a++ {
		all = append(all, a.String())
	}
	return all
}

func cleanAlign(s string) (limit.Align, *mistake) {
	if a, ok := limit.ParseAlign(s); ok {
		return a, nil
	}
	return 0, oneWord(s, aligns())
}

func aligns() (all []string) {
	for a := limit.Epoch; a <= limit.Year; a++ {
		all = append(all, a.String())
	}
	return all
}

// cleanZone finds a time zone in the database of this machine. It rejects Local, which differs from
// machine to machine.
func cleanZone(s string) (*time.Location, *mistake) {
	const hint = "write a name of the IANA list, such as Europe/Paris or UTC"
	if s == "" || s == "Local" {
		return nil, wrong(hint, "%s names no time zone", quote(s))
	}
	zone, err := time.LoadLocation(s)
	if err != nil {
		return nil, wrong(hint+"; if it is one, install the machine's tzdata",
			"%s is a time zone that this machine does not know", quote(s))
	}
	return zone, nil
}

// maxKeyParts bounds the number of parts of a key. Chosen.
const maxKeyParts = 16

// readKey reads the parts of a key. Duplicates are dropped.
func readKey(dst *[]KeyPart) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > maxKeyParts {
			d.fault(key, n, wrong("name what tells callers apart, and no more",
				"has %d parts, more than %d", len(n.Content), maxKeyParts))
			return
		}
		if n.Kind != yaml.SequenceNode {
			d.fault(key, n, wrong(`write a list, such as ["header:x-client"]`,
				"is %s, not a list", kind(n)))
			return
		}
		for key, item := range d.items(key, n) {
			if item.Kind == yaml.MappingNode { // YAML reads "header: x-client", with a space, as a group
				d.fault(key, item, wrong(`put it in quotes, without a space: "header:x-client"`,
					"is a group of keys, not a part of a key"))
				continue
			}
			var p KeyPart
			if d.scalar(key, item, raw(&p, cleanKeyPart)) && !slices.Contains(*dst, p) {
				*dst = append(*dst, p)
			}
		}
	}
}

// cleanKeyPart parses client_address, client_address/24, client_address/24/64, header:NAME,
// cookie:NAME, path, method, host, session, person or holder.
func cleanKeyPart(s string) (KeyPart, *mistake) {
	kinds := []string{KeyAddress, KeyHeader, KeyCookie, KeyPath, KeyMethod, KeyHost, KeySession, KeyPerson,
		KeyHolder}
	end := strings.IndexAny(s, ":/")
	if end < 0 {
		end = len(s)
	}
	what, rest := s[:end], s[end:]
	named := what == KeyHeader || what == KeyCookie
	switch {
	case !slices.Contains(kinds, what):
		hint := "write client_address, header:NAME, cookie:NAME, path, method, host, session, person or holder"
		if near := suggest.Nearest(what, kinds); near != "" {
			hint = "did you mean " + clip(near+rest) + "?"
		}
		if what == "visit" {
			hint = "write session, the new name of visit"
		}
		return KeyPart{}, wrong(hint, "%s is no part of a key", quote(s))
	case what == KeyAddress:
		return cleanKeyAddress(s, rest)
	case named && (rest == "" || rest[0] != ':' || rest == ":"):
		example := "header:x-client"
		if what == KeyCookie {
			example = "cookie:session"
		}
		return KeyPart{}, wrong("write "+what+":NAME, such as "+example,
			"%s does not say which %s", quote(s), what)
	case named:
		return cleanKeyName(what, rest[1:])
	case rest != "":
		return KeyPart{}, wrong("write "+what+" alone", "%s says more than %s", quote(s), what)
	}
	return KeyPart{Kind: what}, nil
}

func cleanKeyName(what, name string) (KeyPart, *mistake) {
	if what == KeyCookie {
		if !isToken(name) {
			return KeyPart{}, wrong("write the cookie's name alone, such as cookie:session",
				"%s is not the name of a cookie", quote(name))
		}
		return KeyPart{Kind: what, Name: name}, nil
	}
	name, m := cleanHeaderName(name)
	if m != nil {
		return KeyPart{}, m
	}
	return KeyPart{Kind: what, Name: name}, nil
}

// cleanKeyAddress parses the prefix lengths after client_address, such as /24/64.
func cleanKeyAddress(s, prefixes string) (KeyPart, *mistake) {
	p := KeyPart{Kind: KeyAddress, Prefix4: 32, Prefix6: 64}
	if prefixes == "" {
		return p, nil
	}
	const hint = "write client_address/24 or client_address/24/64: 1 to 32 bits of IPv4, 1 to 128 of IPv6"
	bits := strings.Split(prefixes[1:], "/")
	if prefixes[0] != '/' || len(bits) > 2 {
		return p, wrong(hint, "%s is no part of a key", quote(s))
	}
	for i, of := range []struct {
		name string
		dst  *int
		most int
	}{{"IPv4", &p.Prefix4, 32}, {"IPv6", &p.Prefix6, 128}}[:len(bits)] {
		n, err := strconv.Atoi(bits[i])
		if err != nil || !allDigits(bits[i]) || n < 1 || n > of.most {
			return p, wrong(hint, "%s is not a prefix of %s", quote(bits[i]), of.name)
		}
		*of.dst = n
	}
	return p, nil
}
