package traffic

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// An Error says what is wrong with a file or with an option for it, and where.
type Error struct {
	File    string
	Line    int64  // from 1; 0: the file as a whole
	Option  string // the flag that is wrong; "" when the file is
	Problem string
	Do      string // what to do about it

	cause error
}

// Error gives file, line and problem; what to do is not part of it.
func (e *Error) Error() string {
	switch {
	case e.Option != "":
		return e.Option + ": " + e.Problem
	case e.Line > 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem)
	}
	return e.File + ": " + e.Problem
}

// Hint says what to do.
func (e *Error) Hint() string { return e.Do }

// Unwrap returns why a file could not be read, or nil.
func (e *Error) Unwrap() error { return e.cause }

// quoted shows what a file holds: quoted and cut, so that neither a long line nor
// what a terminal would obey reaches one.
func quoted(text []byte) string {
	const most = 60 // chosen: with file and line it still fits on two lines
	s := strings.ToValidUTF8(string(text[:min(len(text), most*utf8.UTFMax)]), "\uFFFD")
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q…", string(r[:most]))
	}
	return fmt.Sprintf("%q", s)
}
