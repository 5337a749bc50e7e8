// Package hint has the error that says what to do.
//
// Everything that a person reads about an error is a line that says what failed, and a hint. An error
// type with a hint of its own has a method Hint; [Of] finds it. A value may be used by many goroutines
// at once.
package hint

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// An Error says what failed, and what to do.
type Error struct {
	Text  string
	Do    string // what to do about it
	Err   error  // the cause, or nil
	Quiet bool   // Text says the cause in better words: Error leaves it out
}

// Error returns the text and the cause, without the hint.
func (e *Error) Error() string {
	if e.Err != nil && !e.Quiet {
		return e.Text + ": " + e.Err.Error()
	}
	return e.Text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Hint returns what to do.
func (e *Error) Hint() string { return e.Do }

// Of returns what to do about err, or "".
func Of(err error) string {
	if h, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		return h.Hint()
	}
	return ""
}

// File returns an Error about a file or folder that text names: its path is left out of the cause.
func File(err error, text, do string) *Error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return &Error{Text: text, Do: do, Err: err}
}

// Quote returns a value for a message: quoted, so that no control sequence reaches a terminal, and
// cut when it is long.
func Quote(s string) string {
	const most = 60 // chosen: with file and key a message still fits on two lines
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%q…", string(r[:most]))
	}
	return fmt.Sprintf("%q", s)
}

// Cut shortens a text that somebody else can make long to that many bytes, and marks the cut.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
