package traffic

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// An Error describes what is wrong with a file or one of its options, and where.
type Error struct {
	File    string
	Line    int64  // from 1; 0: the file as a whole
	Option  string // the wrong flag; "" when it is the file
	Problem string
	Do      string // what to do about it

	cause error
}

// Error returns file, line and problem, without the hint.
func (e *Error) Error() string {
	switch {
	case e.Option != "":
		return e.Option + ": " + e.Problem
	case e.Line > 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
	}
	return e.File + ": " + e.Problem
}

// Hint returns what to do.
func (e *Error) Hint() string { return e.Do }

// Unwrap returns why a file could not be read, or nil.
func (e *Error) Unwrap() error { return e.cause }

// quoted returns a part of a file quoted and cut, so that neither long lines nor control sequences
// reach a terminal.
func quoted(text []byte) string {
	const most = 60 // chosen: with file and line it still fits on two lines
	s := strings.ToValidUTF8(string(text[:min(len(text), most*utf8.UTFMax)]), "\uFFFD")
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q…", string(r[:most]))
	}
	return fmt.Sprintf("%q", s)
}
