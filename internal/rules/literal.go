package rules

import (
	"cmp"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// compared reads an operator and its operand.
func (p *parser) compared(left *node, what string) (*node, error) {
	p.space()
	from := p.at
	operator := p.operator()
	if operator == "" {
		if p.rest() == "" || strings.HasPrefix(p.rest(), ")") {
			return nil, p.wrong(what+" is "+left.kind.String()+" and is compared with nothing",
				"its operators are "+operatorsOf(left.kind))
		}
		return nil, p.noOperator("an operator is missing after " + what + ", before " + p.sight())
	}
	n := &node{kind: isBool, args: []*node{left}, mapped: left.mapped, want: comparisons[operator]}
	var err error
	switch {
	case operator == "in":
		return p.in(n, left.kind)
	case n.want != 0 && left.kind == isInt:
		n.op = opCompareInt
		n.number, err = p.integer(p.literal())
	case n.want == same || n.want == less|more || left.kind == isText && n.want != 0:
		if n.op = opCompareText; left.kind == isText {
			n.text, err = p.text(false)
			break
		}
		n.op = opCompareAddress
		n.address, err = p.address(p.literal())
	case left.kind != isText:
		return nil, p.since(from, p.src[from:p.at]+" does not go with "+what+", which is "+left.kind.String(),
			"its operators are "+operatorsOf(left.kind))
	case operator == "contains":
		n.op = opContains
		n.text, err = p.text(false)
	case operator == "matches":
		n.op = opMatches
		n.pattern, err = p.regexp()
	default:
		n.op = opWildcard
		n.wildcard, err = p.stars(operator == "wildcard")
	}
	if err != nil {
		return nil, err
	}
	return n, nil
}

// operator reads the next operator and returns its name in words, or "".
func (p *parser) operator() string {
	for _, s := range symbols {
		if p.symbol(s[0]) {
			return s[1]
		}
	}
	for _, w := range operators() {
		if !p.word(w) {
			continue
		}
		if after := p.at; w == "strict" && !p.word("wildcard") {
			p.at = after - len(w)
			return ""
		}
		return w
	}
	return ""
}

// text reads a literal in quotes.
func (p *parser) text(regexp bool) (string, error) {
	p.space()
	rest := p.rest()
	if quotes(rest) {
		return p.quoted(regexp)
	}
	hint := `text stands in double quotes, such as "example.com"`
	if n := name(rest); n != "" {
		if _, ok := fields[n]; ok {
			hint = "on the right stands a text in double quotes, not a field"
		}
	}
	return "", p.wrong("a text is missing", hint)
}

// literal reads up to the next space or bracket.
func (p *parser) literal() string {
	p.space()
	text := bare(p.rest())
	p.at += len(text)
	return text
}

// back returns an error about the literal that was just read.
func (p *parser) back(text, problem, hint string) error {
	if p.at -= len(text); text == "" {
		return p.wrong(problem, hint)
	}
	return fault(p.src, p.at, p.at+len(text), problem, hint)
}

func (p *parser) integer(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if len(digits) > 1 && digits[0] == '0' {
		return 0, p.back(text, "a number that begins with 0", "leave the 0 out")
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strings.HasPrefix(text, "+") {
		return 0, p.back(text, "a number is missing", "numbers are whole, such as 42")
	}
	return n, nil
}

func (p *parser) address(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err == nil && a.Zone() == "" && !a.Is4In6():
		return a, nil
	case err == nil && a.Is4In6():
		return a, p.back(text, "an IPv4 address in IPv6", "write "+a.Unmap().String())
	case strings.Contains(text, "/"):
		return a, p.back(text, "a network is no address", "write in {"+text+"}")
	case text == "" && strings.HasPrefix(p.rest(), `"`):
		return a, p.wrong("an address is missing", "write it without quotes, such as 192.0.2.1")
	}
	return a, p.back(text, "an address is missing", "such as 192.0.2.1 or 2001:db8::1")
}

// in reads { … } or $name.
func (p *parser) in(n *node, kind kind) (*node, error) {
	switch {
	case p.symbol("$"):
		return p.inList(n, kind)
	case !p.symbol("{"):
		such := [...]string{isText: `{"a" "b"}`, isInt: "{1 5..9}",
			isAddress: "{192.0.2.1 2001:db8::/32}"}[kind]
		return nil, p.wrong("{ or $ is missing after in", "write in "+such+", or in $name")
	}
	open := p.at - 1
	n.op = [...]op{isText: opInTexts, isInt: opInInts, isAddress: opInAddresses}[kind]
	items := 0
	for !p.symbol("}") {
		if p.rest() == "" {
			return nil, fault(p.src, open, open+1, "no } for this {", "close it by }")
		}
		if strings.HasPrefix(p.rest(), ",") || strings.HasPrefix(p.rest(), ";") {
			return nil, p.wrong("no "+p.rest()[:1]+" in a list", "spaces part its items")
		}
		if err := p.item(n, kind); err != nil {
			return nil, err
		}
		items++
	}
	if items == 0 {
		return nil, p.since(open, "an empty list", "nothing is in it; write false")
	}
	n.ints.sort(cmp.Compare[int64])
	n.addresses.sort(netip.Addr.Compare)
	return n, nil
}

// item reads one item of a list.
func (p *parser) item(n *node, kind kind) error {
	switch kind {
	case isText:
		text, err := p.text(false)
		if err != nil {
			return err
		}
		if n.texts == nil {
			n.texts = map[string]bool{}
		}
		n.texts[text] = true
	case isInt:
		text := p.literal()
		first, last, isRange := strings.Cut(text, "..")
		// An error about a range points to the half that is wrong.
		p.at -= len(text) - len(first)
		lo, err := p.integer(first)
		if err != nil {
			return err
		}
		hi := lo
		if p.at += len(text) - len(first); isRange {
			if hi, err = p.integer(last); err != nil {
				return err
			}
		}
		if hi < lo {
			return p.back(text, "a range that ends before it begins", "write "+last+".."+first)
		}
		n.ints.add(lo, hi)
	default:
		text := p.literal()
		lo, hi, problem, hint := network(text)
		if problem != "" {
			return p.back(text, problem, hint)
		}
		n.addresses.add(lo, hi)
	}
	return nil
}

// inList reads the name of a list.
func (p *parser) inList(n *node, kind kind) (*node, error) {
	from := p.at - 1
	word := bare(p.rest())
	p.at += len(word)
	if strings.HasPrefix(word, "cf.") {
		return nil, p.since(from, "$"+word+" is not supported: only Cloudflare has its lists",
			"make a list of your own")
	}
	l := p.env.Lists[word]
	if l == nil {
		return nil, p.since(from, "there is no list $"+word, nearList(word, p.env.Lists))
	}
	switch {
	case kind == isText && l.texts != nil:
		n.op, n.texts = opInTexts, l.texts
	case kind == isAddress && l.texts == nil:
		n.op, n.addresses = opInAddresses, l.addresses
	default:
		return nil, p.since(from, "the list $"+word+" holds "+l.holds(), "compared is "+kind.String())
	}
	return n, nil
}

func (p *parser) regexp() (*regexp.Regexp, error) {
	p.space()
	from := p.at
	text, err := p.text(true)
	if err != nil {
		return nil, err
	}
	re, problem := compilePattern(text)
	if problem != "" {
		return nil, p.since(from, problem, "the syntax is that of RE2")
	}
	return re, nil
}

// stars reads the operand of wildcard, which contains stars.
func (p *parser) stars(fold bool) (*wildcard, error) {
	p.space()
	from := p.at
	text, err := p.text(false)
	if err != nil {
		return nil, err
	}
	w, problem := compileWildcard(text, fold)
	if problem != "" {
		return nil, p.since(from, problem, `in r"…" a star that is none is \* and a backslash \\`)
	}
	return w, nil
}
