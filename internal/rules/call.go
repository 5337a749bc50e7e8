package rules

import "strings"

// call reads the parenthesized arguments after the name of a function.
func (p *parser) call(f function, word string) (*node, error) {
	// A nested expression takes stack when it is evaluated, for each request.
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	p.symbol("(")
	if f == callAny || f == callAll {
		return p.through(f, word)
	}
	p.space()
	from := p.at
	if quotes(p.rest()) {
		return nil, p.wrong(word+"() takes a field first", word+`(http.request.uri.path …)`)
	}
	arg, err := p.operand()
	if err != nil {
		return nil, err
	}
	if err := p.argument(f, arg, word, from); err != nil {
		return nil, err
	}
	n := &node{kind: isText, args: []*node{arg}, mapped: arg.mapped, packed: arg.mapped}
	switch f {
	case callLower:
		n.op = opLower
	case callUpper:
		n.op = opUpper
	case callLen:
		n.op, n.kind = opLenText, isInt
		if arg.kind == isArray {
			n.op, n.src, n.args = opLenArray, arg, nil
		}
	case callStarts, callEnds:
		n.op, n.kind = opStarts, isBool
		if f == callEnds {
			n.op = opEnds
		}
		if !p.symbol(",") {
			return nil, p.wrong("a comma and a text are missing", word+`(http.request.uri.path, "…")`)
		}
		if p.space(); !quotes(p.rest()) {
			return nil, p.wrong("a text in double quotes is missing", word+`(http.request.uri.path, "…")`)
		}
		if n.text, err = p.quoted(false); err != nil {
			return nil, err
		}
	}
	if !p.symbol(")") {
		return nil, p.wrong(") is missing after what "+word+"() takes", "")
	}
	return n, nil
}

// argument checks an argument of a function.
func (p *parser) argument(f function, arg *node, word string, from int) error {
	what := strings.TrimSpace(p.src[from:p.at])
	switch {
	case arg.packed:
		return p.since(from, what+" is an array", "write [*] after it")
	case arg.kind == isText || f == callLen && arg.kind == isArray:
		return nil
	case arg.kind == isMap:
		return p.since(from, what+" is a map", `write ["name"][0] after it`)
	case arg.kind == isArray:
		return p.since(from, what+" is an array", "write [0] after it, or [*] within any() and all()")
	}
	return p.since(from, word+"() takes text, and "+what+" is "+arg.kind.String(), "")
}

// through reads the comparison that any or all evaluates for each element.
func (p *parser) through(f function, word string) (*node, error) {
	from := p.at
	if p.each {
		return nil, p.since(from-1, word+"() within any() or all()",
			"write them side by side, with and or or")
	}
	p.each, p.array = true, nil
	defer func() { p.each, p.array = false, nil }()
	body, err := p.logical(0)
	if err != nil {
		return nil, err
	}
	if !p.symbol(")") {
		return nil, p.noOperator(") is missing after what " + word + "() takes")
	}
	n := &node{op: opAny, kind: isBool, src: p.array, args: []*node{body}}
	if f == callAll {
		n.op = opAll
	}
	return n, nil
}
