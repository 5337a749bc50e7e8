package manage

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The codes of faults. They are part of the API.
const (
	CodeJSON         = "invalid_json"
	CodeType         = "wrong_type"
	CodeRange        = "out_of_range"
	CodeValue        = "invalid_value"
	CodeRequired     = "required"
	CodeUnknown      = "unknown_field"
	CodeTaken        = "taken"
	CodeNotSupported = "not_supported"
	CodeConflict     = "conflicting"
	CodeReadOnly     = "read_only"
	CodeTooMany      = "too_many"
)

// A Fault describes what is wrong at one position of a body.
type Fault struct {
	Pointer string `json:"pointer"` // RFC 6901; "" for the whole body
	Code    string `json:"code"`
	Problem string `json:"detail"`
	Hint    string `json:"hint"`
}

func (f *Fault) Error() string {
	if f.Pointer == "" {
		return f.Problem
	}
	return f.Pointer + ": " + f.Problem
}

// Faults holds all faults of a body.
type Faults []*Fault

func (f Faults) Error() string {
	var lines []string
	for _, x := range f {
		lines = append(lines, x.Error())
	}
	return strings.Join(lines, "\n")
}

// The errors of an operation that are not Faults.
var (
	ErrNoZone   = errors.New("there is no such zone")
	ErrNoRoom   = errors.New("there is no such waiting room")
	ErrNoEvent  = errors.New("there is no such event")
	ErrNoRule   = errors.New("there is no such rule")
	ErrNoChange = errors.New("there is no such change")
	// ErrVersion reports that the object does not have the version that If-Match names.
	ErrVersion = errors.New("it has changed since you read it")
	// ErrSince reports that a change cannot be undone, because a later change builds on it.
	ErrSince = errors.New("a later change builds on this one; undo that one first")
)

func one(pointer, code, hint, problem string) error {
	return Faults{{Pointer: pointer, Code: code, Problem: problem, Hint: hint}}
}

// mostFaults bounds the faults that are reported for a body. Chosen: nobody corrects more at one
// time.
const mostFaults = 50

// A reader reads a body and collects its faults.
type reader struct {
	whole  bool // missing members get their defaults
	faults Faults
}

func (r *reader) wrong(at, code, hint, format string, args ...any) {
	if len(r.faults) < mostFaults {
		r.faults = append(r.faults, &Fault{at, code, fmt.Sprintf(format, args...), hint})
	}
}

func (r *reader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return r.faults
}

// below returns the JSON pointer of a member.
func below(at, name string) string {
	return at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(name))
}

func item(at string, i int) string { return at + "/" + strconv.Itoa(i) }

// clip shortens text that a client can make long.
func clip(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

func quote(s string) string { return strconv.Quote(clip(s)) }
