package rules

import (
	"cmp"
	"net/netip"
	"strings"
)

// truth evaluates n. A comparison with a missing value is false, even with !=.
func (in *input) truth(n *node) bool {
	switch n.op {
	case opTrue:
		return true
	case opFalse:
		return false
	case opNot:
		return !in.truth(n.args[0])
	case opAnd, opOr:
		for _, a := range n.args {
			if in.truth(a) == (n.op == opOr) {
				return n.op == opOr
			}
		}
		return n.op == opAnd
	case opXor:
		odd := false
		for _, a := range n.args {
			odd = odd != in.truth(a)
		}
		return odd
	case opAny:
		found, _ := in.scan(n.src, search{body: n.args[0], want: true})
		return found
	case opAll:
		found, count := in.scan(n.src, search{body: n.args[0]})
		// Of no elements all() is false: a missing header must not match a rule.
		return !found && count > 0
	case opBoolField:
		return in.bool(n)
	case opCompareInt, opInInts:
		x, ok := in.int(n.args[0])
		if n.op == opInInts {
			return ok && n.ints.has(x)
		}
		return ok && n.want.holds(cmp.Compare(x, n.number))
	case opCompareAddress, opInAddresses:
		a := in.address()
		if n.op == opInAddresses {
			return a.IsValid() && n.addresses.has(a)
		}
		return a.IsValid() && n.want.holds(a.Compare(n.address))
	}
	text, ok := in.text(n.args[0])
	return ok && n.fits(text)
}

// fits reports whether the comparison n holds for a text.
func (n *node) fits(text string) bool {
	switch n.op {
	case opStarts:
		return strings.HasPrefix(text, n.text)
	case opEnds:
		return strings.HasSuffix(text, n.text)
	case opContains:
		return strings.Contains(text, n.text)
	case opMatches:
		return n.pattern.MatchString(text)
	case opWildcard:
		return n.wildcard.match(text)
	case opInTexts:
		return n.texts[text]
	default: // opCompareText
		return n.want.holds(strings.Compare(text, n.text))
	}
}

// text returns the text value of n, and false if there is none.
func (in *input) text(n *node) (string, bool) {
	switch n.op {
	case opElement:
		return in.element, true
	case opIndex:
		ok, _ := in.scan(n.src, search{stop: int(n.number)})
		return in.element, ok
	case opLower:
		text, ok := in.text(n.args[0])
		return lower(text), ok
	case opUpper:
		text, ok := in.text(n.args[0])
		return upper(text), ok
	case opTextField:
		if n.field == fieldCountry {
			return in.country()
		}
	}
	return in.field(n.field), true
}

// int returns the number value of n, and false if there is none.
func (in *input) int(n *node) (int64, bool) {
	if n.op == opIntField {
		return in.score()
	}
	if n.op == opLenArray {
		_, count := in.scan(n.src, search{stop: -1})
		return int64(count), count > 0 || !n.src.keyed
	}
	text, ok := in.text(n.args[0])
	return int64(len(text)), ok
}

func (in *input) address() netip.Addr { return in.From.Unmap() }

// lower converts A to Z to lower case, and nothing else.
func lower(text string) string { return swap(text, 'A') }

// upper converts a to z to upper case, and nothing else.
func upper(text string) string { return swap(text, 'a') }

// swap changes the case of the 26 letters that start at first.
func swap(text string, first byte) string {
	const letters, other = 26, 'a' - 'A'
	for i := range len(text) {
		if text[i]-first >= letters {
			continue
		}
		var b strings.Builder
		b.Grow(len(text))
		b.WriteString(text[:i])
		for _, c := range []byte(text[i:]) {
			if c-first < letters {
				c ^= other
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	return text
}
