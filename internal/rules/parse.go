package rules

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxLength is the maximum length of an expression in characters: Cloudflare's limit.
	maxLength = 4096
	// maxDepth is the maximum nesting of parentheses, nots and calls. Chosen.
	maxDepth = 50
	// maxIndex is the largest index of an array element. Chosen.
	maxIndex = 999
)

// A parser reads an expression and checks it as it reads.
type parser struct {
	scanner
	env   Env
	depth int
	each  bool  // within any() or all()
	array *node // the array that [*] refers to; nil before the first
}

// parse reads all of src.
func parse(src string, env Env) (*node, error) {
	switch {
	case !utf8.ValidString(src):
		return nil, fault(strings.ToValidUTF8(src, "?"), 0, 0, "not UTF-8", `write other bytes as \xHH`)
	case utf8.RuneCountInString(src) > maxLength:
		return nil, fault(src, maxLength, maxLength, "longer than 4096 characters",
			"put long lists into a list: in $name; or make several rules")
	}
	p := &parser{scanner: scanner{src: src}, env: env}
	if p.space(); p.rest() == "" {
		return nil, p.wrong("an expression is missing", "true matches every request")
	}
	n, err := p.logical(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.rest() == "" {
		return n, nil
	}
	return nil, p.noOperator("and, or, xor or the end is missing before " + p.sight())
}

// wrong returns an error about the next token.
func (p *parser) wrong(problem, hint string) error {
	return fault(p.src, p.at, p.at+len(p.sight()), problem, hint)
}

// since returns an error about the text read since from.
func (p *parser) since(from int, problem, hint string) error {
	return fault(p.src, from, p.at, problem, hint)
}

// noOperator returns an error about what is in the place of an operator.
func (p *parser) noOperator(problem string) error {
	word := name(p.rest())
	low := strings.ToLower(word)
	_, logical := slices.BinarySearch([]string{"and", "not", "or", "xor"}, low)
	switch {
	case word != low && (logical || slices.Contains(operators(), low)):
		return p.wrong("unknown word "+word, "operators are in lower case: "+low)
	case word == "starts_with" || word == "ends_with":
		return p.wrong(word+" is a function", `write `+word+`(http.request.uri.path, "…")`)
	case word == "strict":
		return p.wrong("unknown operator strict", "write strict wildcard")
	case strings.HasPrefix(p.rest(), "="):
		return p.wrong("unknown operator =", "write ==")
	case strings.HasPrefix(p.rest(), "&") || strings.HasPrefix(p.rest(), "|"):
		return p.wrong("unknown operator "+p.rest()[:1], "write and, or; or && and ||")
	case strings.HasPrefix(p.rest(), ")"):
		return p.wrong("a ) without its (", "")
	case strings.HasPrefix(p.rest(), "#") || strings.HasPrefix(p.rest(), "//"):
		return p.wrong("the language has no comments", "put it into the rule's description")
	}
	return p.wrong(problem, "")
}

// levels are the logical operators, lowest precedence first.
var levels = [...]struct {
	word, symbol string
	op           op
}{{"or", "||", opOr}, {"xor", "^^", opXor}, {"and", "&&", opAnd}}

// logical reads operands of one precedence, by recursive descent.
func (p *parser) logical(level int) (*node, error) {
	if level == len(levels) {
		return p.unary()
	}
	first, err := p.logical(level + 1)
	if err != nil {
		return nil, err
	}
	l, args := levels[level], []*node{first}
	for p.word(l.word) || p.symbol(l.symbol) {
		next, err := p.logical(level + 1)
		if err != nil {
			return nil, err
		}
		args = append(args, next)
	}
	if len(args) == 1 {
		return first, nil
	}
	return &node{op: l.op, kind: isBool, args: args}, nil
}

// deeper counts the nesting. It limits the recursion of the parser.
func (p *parser) deeper() error {
	if p.depth++; p.depth > maxDepth {
		return p.wrong("nested deeper than "+strconv.Itoa(maxDepth), "make several rules of it")
	}
	return nil
}

// unary reads a negation, a group in parentheses, or a comparison.
func (p *parser) unary() (*node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	switch {
	case p.word("not") || p.symbol("!"):
		n, err := p.unary()
		if err != nil {
			return nil, err
		}
		return &node{op: opNot, kind: isBool, args: []*node{n}}, nil
	case p.symbol("("):
		from := p.at - 1
		n, err := p.logical(0)
		if err != nil {
			return nil, err
		}
		if p.symbol(")") {
			return n, nil
		}
		if p.rest() == "" {
			return nil, fault(p.src, from, from+1, "no ) for this (", "close it by )")
		}
		return nil, p.noOperator("and, or, xor or ) is missing before " + p.sight())
	}
	return p.comparison()
}

// comparison reads a field or a call, and its operator and operand.
func (p *parser) comparison() (*node, error) {
	p.space()
	from := p.at
	if !p.each && (p.word("true") || p.word("false")) {
		if p.src[from] == 't' {
			return &node{op: opTrue, kind: isBool}, nil
		}
		return &node{op: opFalse, kind: isBool}, nil
	}
	n, err := p.operand()
	if err != nil {
		return nil, err
	}
	what := strings.TrimSpace(p.src[from:p.at])
	switch {
	// A comparison needs one value. Lists of values are compared within any() and all() only, as in
	// Cloudflare's language.
	case n.packed && n.kind != isBool:
		return nil, p.since(from, what+" is an array", "write [*] after it")
	case n.kind == isArray:
		return nil, p.since(from, what+" is an array", "write [0] after it, or any("+what+"[*] …)")
	case n.kind == isMap:
		return nil, p.since(from, what+" is a map", `write ["name"][0] after it`)
	case p.each && !n.mapped:
		return nil, p.since(from, what+" is not compared for each element",
			"within any() and all() each comparison needs the array with [*]")
	case !p.each && n.mapped:
		return nil, p.since(from, "[*] outside of any() and all()", "write any("+what+" …)")
	case n.kind == isBool:
		if hint := p.boolCompared(what); hint != "" {
			return nil, p.wrong(what+" is true or false by itself", hint)
		}
		return n, nil
	}
	return p.compared(n, what)
}

// boolCompared returns what to write instead of comparing a boolean.
func (p *parser) boolCompared(what string) string {
	p.space()
	for _, s := range [...]string{"==", "!=", "eq", "ne"} {
		if strings.HasPrefix(p.rest(), s) {
			return "write " + what + ", or not " + what
		}
	}
	return ""
}

// operand reads a field or a call, and the brackets after it.
func (p *parser) operand() (*node, error) {
	p.space()
	from, rest := p.at, p.rest()
	word := name(rest)
	switch {
	case word == "" && rest == "":
		return nil, p.wrong("the expression ends too early", "a comparison is missing")
	// The mistakes that people make most get an answer of their own.
	case quotes(rest) || word == "" && bare(rest) != "" && rest[0] >= '0' && rest[0] <= '9':
		return nil, p.wrong("a field is missing on the left", `such as http.host == "example.com"`)
	case word == "" && rest[0] == ')':
		return nil, p.wrong("a comparison is missing before )", "")
	case word == "":
		return nil, p.noOperator("a field is missing before " + p.sight())
	}
	p.at += len(word)
	p.space()
	if strings.HasPrefix(p.rest(), "(") {
		f, ok := functions[word]
		if !ok {
			p.at = from
			return nil, p.wrong(unknownFunction(word))
		}
		n, err := p.call(f, word)
		if err != nil {
			return nil, err
		}
		return p.brackets(n, from)
	}
	if _, ok := functions[word]; ok {
		return nil, p.since(from, word+" is a function", "write "+word+"(…)")
	}
	s, ok := fields[word]
	if !ok {
		p.at = from
		if slices.Contains([]string{"AND", "OR", "XOR", "NOT", "and", "or", "xor"}, word) {
			return nil, p.noOperator("a comparison is missing before " + word)
		}
		return nil, p.wrong(unknownField(word))
	}
	ops := [...]op{isBool: opBoolField, isText: opTextField, isInt: opIntField, isAddress: opAddressField,
		isArray: opArray, isMap: opArray}
	n := &node{field: s.field, kind: s.kind, op: ops[s.kind]}
	if s.field == fieldCrawler {
		if n.crawlers = p.env.Crawlers; n.crawlers == nil {
			return nil, p.since(from, word+" is not known here",
				"the place of this rule looks up no crawlers")
		}
	}
	return p.brackets(n, from)
}

// brackets reads ["key"], [0] and [*].
func (p *parser) brackets(n *node, from int) (*node, error) {
	for {
		p.space()
		open := p.at
		if !p.symbol("[") {
			return n, nil
		}
		p.space()
		var err error
		switch {
		case n.kind == isMap && quotes(p.rest()):
			n, err = p.key(n)
		case n.kind == isMap:
			err = p.wrong("a name in quotes is missing", `such as http.request.headers["accept"][0]`)
		case n.packed && p.symbol("*"):
			n.packed = false
		case n.kind != isArray || n.packed:
			return nil, p.since(open, "nothing can stand in brackets here",
				strings.TrimSpace(p.src[from:open])+" is "+n.kind.String())
		case p.symbol("*"):
			n, err = p.star(n, open)
		default:
			n, err = p.index(n)
		}
		if err != nil {
			return nil, err
		}
		if !p.symbol("]") {
			return nil, p.wrong("] is missing", "")
		}
	}
}

// key reads the name of a map entry.
func (p *parser) key(n *node) (*node, error) {
	from := p.at
	text, err := p.quoted(false)
	if err != nil {
		return nil, err
	}
	if n.field == fieldHeaders && text != lower(text) {
		return nil, p.since(from, "names of headers are in lower case here",
			"write "+strconv.Quote(lower(text)))
	}
	n.kind, n.keyed = isArray, true
	n.text, n.header = text, http.CanonicalHeaderKey(text)
	return n, nil
}

// star reads [*], which stands for each element of an array.
func (p *parser) star(n *node, open int) (*node, error) {
	switch {
	case !p.each:
		return nil, p.since(open, "[*] outside of any() and all()", "write any(… [*] …), or [0]")
	case p.array == nil:
		p.array = n
	case p.array.field != n.field || p.array.text != n.text:
		return nil, p.since(open, "[*] of two arrays in one any() or all()", "write any(…) and any(…)")
	}
	return &node{op: opElement, kind: isText, mapped: true}, nil
}

// index reads the index of an element.
func (p *parser) index(n *node) (*node, error) {
	p.space()
	from, digits := p.at, bare(p.rest())
	if n.field == fieldHeaderNames || n.field == fieldHeaderValues {
		return nil, p.wrong("the order of headers is not known", "write any(… [*] …)")
	}
	i, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || i > maxIndex {
		return nil, p.wrong("a number from 0 to 999 is missing", "or * within any() and all()")
	}
	p.at = from + len(digits)
	return &node{op: opIndex, kind: isText, src: n, number: int64(i)}, nil
}
