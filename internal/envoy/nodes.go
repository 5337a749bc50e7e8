package envoy

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/suggest"
)

// maxLevels is the maximum nesting of descriptors. Chosen: Envoy's own lists have 2 to 5 levels.
const maxLevels = 32

const (
	maxFile   = 4 << 20         // bytes. Chosen: about 30,000 descriptors
	maxValues = 500_000         // chosen: an alias may name a list that contains aliases
	maxDepth  = 3*maxLevels + 8 // YAML levels: a list, a group and an indent for each
)

// A parser walks the nodes of a file and collects all faults.
type parser struct {
	config.Reader
	rules   *Rules
	merging int // depth of nested << keys
}

func newParser(file string) *parser {
	return &parser{rules: &Rules{domains: map[string]*domain{}}, Reader: config.Reader{
		File: file, MostBytes: maxFile, MostValues: maxValues, MostLevels: maxDepth,
		Large: "make several files of it, one for each domain",
		Empty: "begin with domain: and a name",
		Two:   "make a file of each",
		Deep:  "use fewer levels",
		Wide:  "write out what aliases repeat",
	}}
}

func (p *parser) fault(key string, n *yaml.Node, hint, format string, args ...any) {
	f := &config.Fault{File: p.File, Key: key, Hint: hint, Problem: fmt.Sprintf(format, args...)}
	if n != nil {
		f.Line, f.Column = n.Line, n.Column
	}
	p.Add(f)
}

// follow resolves an alias. After maxValues it returns an empty node, because a list that contains
// itself grows with each level.
func (p *parser) follow(n *yaml.Node) *yaml.Node {
	if n = p.Resolve(n); n == nil || p.Stopped {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	return n
}

// mapping reads a mapping; unknown keys are faults. It returns nil if n is not a mapping.
func (p *parser) mapping(key string, n *yaml.Node, known string) map[string]*yaml.Node {
	if n.Kind != yaml.MappingNode {
		p.fault(key, n, "write keys and values; the keys here are "+known, "is not a group of keys")
		return nil
	}
	found := map[string]*yaml.Node{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content) && !p.Stopped; i += 2 {
		k, v := p.follow(n.Content[i]), p.follow(n.Content[i+1])
		full := strings.TrimPrefix(key+"."+formatKey(k.Value), ".")
		switch {
		case k.Tag == "!!merge":
			merged = append(merged, v)
		case k.Kind != yaml.ScalarNode:
			p.fault(key, k, "write each key out", "has a key that is not a word")
		case !slices.Contains(strings.Fields(known), k.Value):
			p.fault(full, k, suggestField(k.Value, known), "there is no such key")
		case found[k.Value] != nil:
			p.fault(full, k, "keep one of the two", "is already set on line %d", found[k.Value].Line)
		default:
			found[k.Value] = v
		}
	}
	for _, m := range merged {
		p.merge(key, m, known, found)
	}
	return found
}

// merge adds the keys of a mapping, or of a list of mappings, that are not yet set (the << key of
// YAML).
func (p *parser) merge(key string, n *yaml.Node, known string, into map[string]*yaml.Node) {
	const most = 8 // chosen: a mapping that merges itself would be endless
	if p.merging++; p.merging > most {
		p.fault(key, n, "write the keys out", "has << in << more than %d times", most)
	}
	defer func() { p.merging-- }()
	groups := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		groups = n.Content
	}
	for _, g := range groups {
		g = p.follow(g)
		if p.Stopped || p.merging > most {
			return
		}
		for k, v := range p.mapping(key, g, known) {
			if into[k] == nil {
				into[k] = v
			}
		}
	}
}

// suggestField returns a hint for an unknown key: the likely spelling, and where a known key
// belongs.
func suggestField(word, known string) string {
	homes := []struct{ keys, place string }{
		{fileKeys, "at the top of the file"},
		{descriptorKeys, "to the descriptor, beside its key"},
		{limitKeys, "below rate_limit"},
	}
	for _, h := range homes {
		if slices.Contains(strings.Fields(h.keys), word) {
			return word + " belongs " + h.place
		}
	}
	return didYouMean(word, known) + "the keys here are " + known
}

// didYouMean returns a question with the most similar known word, or "".
func didYouMean(word, known string) string {
	if meant := suggest.Nearest(word, strings.Fields(known)); meant != "" {
		return "did you mean " + meant + "? "
	}
	return ""
}

// items iterates over a list with the key of each item, such as descriptors[0]. A missing value is
// an empty list, as in the reference.
func (p *parser) items(key string, n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if n == nil || null(n) {
			return
		}
		if n.Kind != yaml.SequenceNode {
			p.fault(key, n, "begin each entry with a dash on a line of its own", "is not a list")
			return
		}
		for i, item := range n.Content {
			item = p.follow(item)
			if p.Stopped || !yield(key+"["+strconv.Itoa(i)+"]", item) {
				return
			}
		}
	}
}

// text returns a value as it is written. A missing value is "".
func (p *parser) text(key string, n *yaml.Node) string {
	if n == nil || null(n) {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		p.fault(key, n, "give it one value", "is not a single value")
		return ""
	}
	return n.Value
}

// truth parses a YAML 1.1 boolean, as the reference does.
func (p *parser) truth(key string, n *yaml.Node) bool {
	word := strings.ToLower(p.text(key, n))
	if slices.Contains(strings.Fields("true yes on y"), word) {
		return true
	}
	if word != "" && !slices.Contains(strings.Fields("false no off n"), word) {
		p.fault(key, n, "write true or false", "%s is not a truth value", hint.Quote(word))
	}
	return false
}

// whole parses an unsigned 32-bit number, the type in the reference.
func (p *parser) whole(key string, n *yaml.Node) uint32 {
	word := p.text(key, n)
	if word == "" {
		return 0
	}
	v, err := strconv.ParseUint(strings.ReplaceAll(word, "_", ""), 0, 32)
	if err != nil || n.Tag == "!!str" {
		p.fault(key, n, fmt.Sprintf("write a whole number from 0 to %d, without quotes",
			uint32(math.MaxUint32)), "%s is not such a number", hint.Quote(word))
	}
	return uint32(v)
}

// formatKey returns a key in the form for messages.
func formatKey(key string) string {
	if q := hint.Quote(key); q != `"`+key+`"` || strings.ContainsAny(key, ". ") {
		return q
	}
	return key
}

func null(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }
