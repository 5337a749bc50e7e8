package rules

import (
	"net/netip"
	"regexp"
)

// op is what a node does.
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
	opElement // of the array that any or all goes through
	opIndex   // element n of src
	opLower
	opUpper

	opLenText
	opLenArray

	opAddressField
	opArray // a field, or what a map has for text
)

// A node is a part of a compiled expression. Which of its fields count depends on op.
type node struct {
	op    op
	kind  kind
	args  []*node // of and, or, xor, not; what is compared, or given to a function
	src   *node   // an opArray
	field field
	want  compare

	text      string
	keyed     bool   // an array that a map has for text
	header    string // text as Go spells a header
	number    int64
	address   netip.Addr
	pattern   *regexp.Regexp
	wildcard  *wildcard
	texts     map[string]bool
	ints      spans[int64]
	addresses spans[netip.Addr]
	crawlers  *Crawlers

	// Of the checker: the node is worth something for each element, and is an array again
	// that needs another [*].
	mapped, packed bool
}

// compare says which outcomes of a comparison are wanted.
type compare uint8

const (
	less compare = 1 << iota
	same
	more
)

// holds tells of a -1, 0 or +1 whether it is wanted.
func (c compare) holds(outcome int) bool { return c>>(outcome+1)&1 == 1 }

var comparisons = map[string]compare{
	"eq": same, "ne": less | more, "lt": less, "le": less | same, "gt": more, "ge": more | same,
}

// symbols are what else operators are called, the longer before the shorter.
var symbols = [][2]string{
	{"==", "eq"}, {"!=", "ne"}, {"<=", "le"}, {">=", "ge"}, {"<", "lt"}, {">", "gt"}, {"~", "matches"},
}
