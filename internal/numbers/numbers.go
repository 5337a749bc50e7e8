// Package numbers finds whole numbers in JSON that passes by: what a call cost, in the answer of a model
// server, or the most that it may cost, in a request.
//
// A Scanner reads a document in pieces of any size, without keeping it, and in memory that does not
// depend on its size. It looks for paths of object keys, such as usage.output_tokens. Keys are compared
// as encoding/json does it, without regard to case, because a server that reads the document may do so
// too. If a path occurs several times, the greatest number counts: nobody who writes a key twice pays less.
//
// A Stream reads the events of text/event-stream (HTML, section 9.2), each of which is such a document.
//
// Neither checks that a document is valid beyond what it needs to find the numbers.
package numbers

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// These are the bounds of a Scanner.
const (
	mostDepth  = 64          // of the longest path; deeper objects and arrays are passed over
	mostKey    = 6 * MostKey // each letter may be written as \u0061
	mostDigits = 19
)

// MostKey is the length of the longest key in a path, in bytes.
const MostKey = 64

// Errors of a Scanner.
var (
	ErrSyntax = errors.New("it is no JSON")
	ErrNumber = errors.New("it is no whole number, or is negative or too large")
)

// A state is what a Scanner reads.
type state uint8

const (
	between state = iota // structure and spaces
	inText
	inEscape // after a backslash
	inNumber
	inWord // true, false or null
)

// A Scanner looks for numbers in a document, or in several one after the other. The zero Scanner finds none.
type Scanner struct {
	paths  [][]string
	values []int64
	found  []bool
	hits   int64 // numbers that were found
	err    error

	state   state
	isKey   bool   // the text is a key
	wants   bool   // a key comes next, in an object
	depth   int    // of containers that are open
	objects uint64 // by depth, a bit for each: it is an object
	open    [mostDepth + 1]uint32
	next    uint32 // paths that lead to the next value
	token   []byte // of a key or a number
	escaped bool
	long    bool // the token is longer than what is kept
}

// NewScanner returns a Scanner for at most 32 paths, whose keys are separated by dots.
func NewScanner(paths ...string) *Scanner {
	s := &Scanner{values: make([]int64, len(paths)), found: make([]bool, len(paths))}
	for _, p := range paths {
		s.paths = append(s.paths, strings.Split(p, "."))
	}
	s.Next()
	return s
}

// Next begins another document, whatever the one before was.
func (s *Scanner) Next() {
	s.state, s.depth, s.objects, s.wants, s.isKey = between, 0, 0, false, false
	s.next = s.all()
	if s.stopped() {
		s.err = nil
	}
}

func (s *Scanner) all() uint32 { return 1<<len(s.paths) - 1 }

// valueEnds is the end of a value that is no object and no array.
func (s *Scanner) valueEnds() {
	if s.state, s.next = between, 0; s.depth == 0 {
		s.next = s.all()
	}
}

// Value returns the greatest number that was found at a path, by its index.
func (s *Scanner) Value(path int) (n int64, ok bool) { return s.values[path], s.found[path] }

// Err returns why the rest of the document is not read, or that a path leads to something else than null and
// whole numbers from 0 on with 19 digits at most.
func (s *Scanner) Err() error { return s.err }

// Write reads the next piece. It never fails, so that it can stand beside another writer.
func (s *Scanner) Write(p []byte) (int, error) {
	for i := 0; i < len(p) && !s.stopped(); {
		switch s.state {
		case inText:
			i += s.text(p[i:])
		case inEscape:
			s.keep(p[i])
			s.state = inText
			i++
		case inNumber:
			if isOfNumber(p[i]) {
				s.keep(p[i])
				i++
			} else {
				s.endNumber()
			}
		case inWord:
			if 'a' <= p[i] && p[i] <= 'z' {
				i++
			} else {
				s.valueEnds()
			}
		default:
			s.structure(p[i])
			i++
		}
	}
	return len(p), nil
}

// End reads the end of the document, which may be that of a number.
func (s *Scanner) End() {
	if s.state == inNumber {
		s.endNumber()
	}
	if s.state == inWord {
		s.valueEnds()
	}
}

func (s *Scanner) stopped() bool { return s.err != nil && !errors.Is(s.err, ErrNumber) }

func isOfNumber(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// text reads to the end of a text or to its next escape, and returns how much that is.
func (s *Scanner) text(p []byte) int {
	n := bytes.IndexAny(p, `"\`)
	if n < 0 {
		n = len(p)
	}
	if s.isKey {
		for _, c := range p[:n] {
			s.keep(c)
		}
	}
	if n == len(p) {
		return n
	}
	if p[n] == '\\' {
		s.keep('\\')
		s.state, s.escaped = inEscape, true
		return n + 1
	}
	if s.isKey {
		s.endKey()
	} else {
		s.valueEnds()
	}
	return n + 1
}

// keep adds a byte to a key or a number.
func (s *Scanner) keep(c byte) {
	switch {
	case s.state != inNumber && !s.isKey:
	case len(s.token) >= mostKey:
		s.long = true
	default:
		s.token = append(s.token, c)
	}
}

// structure reads a byte outside of texts and numbers.
func (s *Scanner) structure(c byte) {
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
	case c == '{' || c == '[':
		s.push(c == '{')
	case c == '}' || c == ']':
		s.pop(c == '}')
	case c == ',':
		s.wants = s.inObject()
		s.next = 0
	case c == ':':
		s.wants = false
	case c == '"':
		s.state, s.isKey = inText, s.wants
		s.token, s.escaped, s.long = s.token[:0], false, false
		if !s.isKey {
			s.noNumber()
		}
	case c == '-' || '0' <= c && c <= '9':
		s.state, s.token, s.long = inNumber, append(s.token[:0], c), false
	case 'a' <= c && c <= 'z':
		if s.state = inWord; c != 'n' {
			s.noNumber()
		}
	default:
		s.err = ErrSyntax
	}
}

// noNumber notes that the next value is no number, and not null, if a path leads to it: servers may read
// "12" and [12] as 12.
func (s *Scanner) noNumber() {
	for i := 0; i < len(s.paths) && s.next != 0; i++ {
		if s.next>>i&1 == 1 && len(s.paths[i]) == s.depth {
			s.err = ErrNumber
		}
	}
}

// inObject reports whether the innermost container is an object in which keys are read.
func (s *Scanner) inObject() bool {
	return s.depth > 0 && s.depth <= mostDepth && s.objects>>(s.depth-1)&1 == 1
}

func (s *Scanner) push(object bool) {
	s.noNumber()
	inside := uint32(0)
	for i := range s.paths {
		if object && s.next>>i&1 == 1 && len(s.paths[i]) > s.depth {
			inside |= 1 << i
		}
	}
	s.depth++
	if s.wants, s.next = false, 0; s.depth > mostDepth {
		return
	}
	s.open[s.depth] = inside
	s.objects &^= 1 << (s.depth - 1)
	if object {
		s.objects |= 1 << (s.depth - 1)
	}
	s.wants = object
}

func (s *Scanner) pop(object bool) {
	if s.depth == 0 || s.depth <= mostDepth && s.inObject() != object {
		s.err = ErrSyntax
		return
	}
	s.depth--
	s.wants, s.next = false, 0
	if s.depth == 0 { // another document may follow
		s.next = s.all()
	}
}

// endKey finds the paths that go on with the key.
func (s *Scanner) endKey() {
	s.state, s.isKey, s.wants, s.next = between, false, false, 0
	if s.long || s.open[s.depth] == 0 {
		return
	}
	key := string(s.token)
	if s.escaped && json.Unmarshal([]byte(`"`+key+`"`), &key) != nil {
		s.err = ErrSyntax
		return
	}
	for i, path := range s.paths {
		if s.open[s.depth]>>i&1 == 1 && strings.EqualFold(path[s.depth-1], key) {
			s.next |= 1 << i
		}
	}
}

// endNumber notes the number for the paths that lead to it.
func (s *Scanner) endNumber() {
	for i, path := range s.paths {
		if s.next>>i&1 == 0 || len(path) != s.depth {
			continue
		}
		n, err := parse(string(s.token))
		if err != nil || s.long {
			s.err = ErrNumber
			continue
		}
		s.values[i], s.found[i] = max(s.values[i], n), true
		s.hits++
	}
	s.valueEnds()
}

// parse reads a whole number, which JSON may write as 12, 12.0 or 1.2e1.
func parse(text string) (int64, error) {
	if n, err := strconv.ParseUint(text, 10, 63); err == nil && len(text) <= mostDigits {
		return int64(n), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if n := int64(f); err == nil && f >= 0 && f <= 1<<53 && float64(n) == f {
		return n, nil
	}
	return 0, ErrNumber
}
