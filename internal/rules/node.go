package rules

import (
	"net/netip"
	"regexp"
)

// An op is the operation of a node.
type op uint8

const (
	opTrue op = iota + 1
	opFalse
	opAnd
	opOr
	opXor
	opNot
	opAny // body is true for an element of src
	opAll // src has elements, and body is true for each
	opBoolField
	opStarts
	opEnds
	opCompareText
	opContains
	opMatches
	opWildcard
	opInTexts
	opCompareInt
	opInInts
	opCompareAddress
	opInAddresses

	opTextField
	opElement // the current element in any or all
	opIndex   // element n of src
	opLower
	opUpper

	opLenText
	opLenArray
	opIntField

	opAddressField
	opArray // a field, or the values that a map has for text
)

// A node is a part of a compiled expression. op determines which of its fields are used.
type node struct {
	op    op
	kind  kind
	args  []*node // of and, or, xor, not; compared values, or a function's arguments
	src   *node   // an opArray
	field field
	want  compare

	text      string
	keyed     bool   // the array that a map has for text
	header    string // text in Go's canonical header form
	number    int64
	address   netip.Addr
	pattern   *regexp.Regexp
	wildcard  *wildcard
	texts     map[string]bool
	ints      spans[int64]
	addresses spans[netip.Addr]
	crawlers  *Crawlers

	// The checker sets these. mapped: the node has a value for each element. packed: that value is
	// again an array, which needs another [*].
	mapped, packed bool
}

// A compare is the set of outcomes for which a comparison is true.
type compare uint8

const (
	less compare = 1 << iota
	same
	more
)

// holds reports whether an outcome of -1, 0 or +1 is in the set.
func (c compare) holds(outcome int) bool { return c>>(outcome+1)&1 == 1 }

var comparisons = map[string]compare{
	"eq": same, "ne": less | more, "lt": less, "le": less | same, "gt": more, "ge": more | same,
}

// symbols are the symbols for operators, longer ones before their prefixes.
var symbols = [][2]string{
	{"==", "eq"}, {"!=", "ne"}, {"<=", "le"}, {">=", "ge"}, {"<", "lt"}, {">", "gt"}, {"~", "matches"},
}
