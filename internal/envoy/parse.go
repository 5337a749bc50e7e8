package envoy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
)

// Keys of the reference service's YAML (its README, "The configuration format"), plus three of
// headgate: algorithm, overdraft and unit_multiplier, which exists in Envoy's protocol.
const (
	fileKeys       = "domain descriptors"
	descriptorKeys = "key value rate_limit descriptors shadow_mode quota_mode detailed_metric " +
		"value_to_metric share_threshold metadata"
	limitKeys   = "unit requests_per_unit unlimited name replaces algorithm overdraft unit_multiplier"
	replaceKeys = "name"
)

// ParseRules parses one file of the reference rate limit service, which is one domain. name is the
// name of the file in errors. The error joins one [*config.Fault] for each mistake, with its
// position.
func ParseRules(name string, text []byte) (*Rules, error) {
	p := newParser(name)
	root := p.Load(text)
	if root == nil {
		return nil, p.Err()
	}
	fields := p.mapping("", root, fileKeys)
	d := &domain{file: name, top: node{next: map[string]*node{}}}
	id := p.text("domain", fields["domain"])
	if id == "" {
		p.fault("domain", root, "write domain: and a name", "is missing or empty")
	}
	p.descriptors(spot{key: "descriptors", path: []string{id}}, fields["descriptors"], &d.top)
	if err := p.Err(); err != nil {
		return nil, err
	}
	p.rules.domains[id] = d
	return p.rules, nil
}

// A spot is the position of the parser: the key for messages, and the domain and the key_values
// that lead to it.
type spot struct {
	key  string
	path []string
}

// descriptors reads one level.
func (p *parser) descriptors(at spot, list *yaml.Node, into *node) {
	if len(at.path) > maxLevels && list != nil {
		p.fault(at.key, list, "use fewer levels", "is nested more than %d levels deep", maxLevels)
		return
	}
	for key, item := range p.items(at.key, list) {
		p.descriptor(spot{key: key, path: at.path}, item, into)
	}
}

// descriptor reads one descriptor and everything below it.
func (p *parser) descriptor(at spot, item *yaml.Node, into *node) {
	f := p.mapping(at.key, item, descriptorKeys)
	if f == nil {
		return
	}
	word := p.text(at.key+".key", f["key"])
	if word == "" {
		p.fault(at.key+".key", item, "name the entry of a request that it is for",
			"is missing or empty")
		return
	}
	if v := p.text(at.key+".value", f["value"]); v != "" {
		word += "_" + v
	}
	if into.next[word] != nil {
		p.fault(at.key, item, "keep one of them", "the descriptor %s is there twice", hint.Quote(word))
		return
	}
	n := &node{next: map[string]*node{}}
	into.next[word] = n
	starred := strings.Contains(word, "*")
	if starred {
		into.wild = append(into.wild, wildcard{parts: strings.Split(word, "*"), node: n})
	}
	if p.truth(at.key+".share_threshold", f["share_threshold"]) {
		n.share = word
		if !starred {
			p.fault(at.key+".share_threshold", f["share_threshold"],
				"take it out, or put a * into value", "is for values with a *")
		}
	}
	// These two keys only change the names of the reference's statistics.
	p.truth(at.key+".detailed_metric", f["detailed_metric"])
	p.truth(at.key+".value_to_metric", f["value_to_metric"])
	if m := f["metadata"]; m != nil && !null(m) && m.Kind != yaml.MappingNode {
		p.fault(at.key+".metadata", m, "write keys and values", "is not a group of keys")
	}
	shadow := p.truth(at.key+".shadow_mode", f["shadow_mode"])
	quota := p.truth(at.key+".quota_mode", f["quota_mode"])
	path := append(slices.Clone(at.path), word)
	if l := f["rate_limit"]; l != nil && !null(l) {
		n.rule = p.rateLimit(spot{key: at.key + ".rate_limit", path: path}, l, shadow)
		n.rule.quota = quota
	}
	p.descriptors(spot{key: at.key + ".descriptors", path: path}, f["descriptors"], n)
}

// rateLimit reads a rate_limit and adds its limit to the limits of the file.
func (p *parser) rateLimit(at spot, block *yaml.Node, shadow bool) *rule {
	f := p.mapping(at.key, block, limitKeys)
	r := &rule{
		name:      p.text(at.key+".name", f["name"]),
		unlimited: p.truth(at.key+".unlimited", f["unlimited"]),
		overdraft: p.truth(at.key+".overdraft", f["overdraft"]),
	}
	r.replaces = p.replaces(at.key+".replaces", f["replaces"], r.name)
	amount := p.whole(at.key+".requests_per_unit", f["requests_per_unit"])
	algorithm := p.algorithm(at.key+".algorithm", f["algorithm"])
	word := p.text(at.key+".unit", f["unit"])
	times := p.whole(at.key+".unit_multiplier", f["unit_multiplier"])
	switch {
	case r.unlimited && word != "":
		p.fault(at.key+".unit", f["unit"], "take unit or unlimited out",
			"has no meaning where nothing is limited")
		return r
	case r.unlimited || f == nil:
		return r
	}
	unit := pb.RateLimitResponse_RateLimit_Unit(
		pb.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(word)])
	window, ok := windowOf(unit)
	if !ok {
		where, problem := f["unit"], fmt.Sprintf("%s is no unit", hint.Quote(word))
		if word == "" {
			where, problem = block, "is missing or empty"
		}
		p.fault(at.key+".unit", where, didYouMean(word, units)+"the units are "+units, "%s", problem)
		return r
	}
	r.limit = limitName(at.path...)
	r.shown = &pb.RateLimitResponse_RateLimit{RequestsPerUnit: amount, Unit: unit, Name: r.name}
	if n := f["unit_multiplier"]; n != nil && !null(n) {
		if most := uint32(limit.MaxWindow / window); times == 0 || times > most {
			p.fault(at.key+".unit_multiplier", n, fmt.Sprintf("write 1 to %d, or take it out", most),
				"%d %ss are not a window", times, strings.ToLower(word))
			return r
		}
		window *= time.Duration(times)
		r.shown.UnitMultiplier = wrapperspb.UInt32(times)
	}
	p.rules.limits = append(p.rules.limits, ratelimit.Limit{
		Name:   r.limit,
		Rule:   limit.Rule{Algorithm: algorithm, Amount: int64(amount), Window: window},
		Shadow: shadow,
	})
	r.window = window
	return r
}

func (p *parser) replaces(key string, list *yaml.Node, own string) []string {
	var names []string
	for at, item := range p.items(key, list) {
		name := p.text(at+".name", p.mapping(at, item, replaceKeys)["name"])
		switch name {
		case "":
			p.fault(at+".name", item, "name the rate_limit that is replaced", "is missing or empty")
		case own:
			p.fault(at+".name", item, "name another one", "%s is the limit itself", hint.Quote(name))
		}
		names = append(names, name)
	}
	return names
}

// algorithm reads headgate's own key. Envoy does not report the end of a call, so concurrency
// cannot be counted here.
func (p *parser) algorithm(key string, n *yaml.Node) limit.Algorithm {
	const known = "fixed_window sliding_log sliding_window token_bucket leaky_bucket"
	word := p.text(key, n)
	if word == "" {
		return limit.FixedWindow
	}
	a, ok := limit.ParseAlgorithm(word)
	if !ok || a == limit.Concurrency {
		p.fault(key, n, didYouMean(word, known)+"the algorithms here are "+known,
			"%s is not possible", hint.Quote(word))
		return limit.FixedWindow
	}
	return a
}

const units = "second minute hour day week month year"
