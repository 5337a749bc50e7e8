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

// A Fault is what is wrong with one place of a body.
type Fault struct {
	Pointer string `json:"pointer"` // RFC 6901; "" for the whole
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

// Faults are all that is wrong with a body.
type Faults []*Fault

func (f Faults) Error() string {
	var lines []string
	for _, x := range f {
		lines = append(lines, x.Error())
	}
	return strings.Join(lines, "\n")
}

// The errors that an operation tells apart from Faults.
var (
	ErrNoZone   = errors.New("there is no such zone")
	ErrNoRoom   = errors.New("there is no such waiting room")
	ErrNoEvent  = errors.New("there is no such event")
	ErrNoRule   = errors.New("there is no such rule")
	ErrNoChange = errors.New("there is no such change")
	// ErrVersion: the object is not the one that If-Match names.
	ErrVersion = errors.New("it has changed since it was read")
	// ErrSince: a change cannot be taken back, for another has come upon it.
	ErrSince = errors.New("it has changed again since: take the later change back first")
)

func one(pointer, code, hint, problem string) error {
	return Faults{{Pointer: pointer, Code: code, Problem: problem, Hint: hint}}
}

// mostFaults bounds what is told of a body. Chosen: nobody mends more in one go.
const mostFaults = 50

// A reader reads a body and collects what is wrong with it.
type reader struct {
	whole  bool // members that are not there get their defaults
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

// below is the pointer of a member.
func below(at, name string) string {
	return at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(clip(name))
}

func item(at string, i int) string { return at + "/" + strconv.Itoa(i) }

// clip cuts what anybody can make long.
func clip(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

func quote(s string) string { return strconv.Quote(clip(s)) }
