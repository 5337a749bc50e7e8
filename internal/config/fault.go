package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/hint"
)

// A Fault is one mistake in a file or in flags, or one warning.
type Fault struct {
	File    string `json:"file"`   // "" for a flag
	Line    int    `json:"line"`   // from 1; 0 when the fault has no line
	Column  int    `json:"column"` // from 1; 0 when the fault has no column
	Key     string `json:"key"`    // rooms[0].origin or --origin; "" for the whole file
	Problem string `json:"problem"`
	Hint    string `json:"hint"` // what to do about it

	cause error // why the file could not be read
}

// Error returns file:line:column: key: problem, without the parts that are not known. The hint is
// not included.
func (f *Fault) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		b.WriteString(": ")
	}
	if f.Key != "" {
		b.WriteString(f.Key + ": ")
	}
	b.WriteString(f.Problem)
	return b.String()
}

// Unwrap returns the reason why a file could not be read, or nil.
func (f *Fault) Unwrap() error { return f.cause }

// Faults returns the faults that err consists of, in their order. It returns nil when err is not
// made of faults.
func Faults(err error) []*Fault {
	if f, ok := err.(*Fault); ok { //nolint:errorlint // it takes the tree of err apart itself
		return []*Fault{f}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var all []*Fault
	for _, e := range joined.Unwrap() {
		all = append(all, Faults(e)...)
	}
	return all
}

// Print writes err for people: a line for each fault, and what to do.
func Print(w io.Writer, err error) {
	faults := Faults(err)
	PrintFaults(w, faults)
	if faults != nil {
		return
	}
	fmt.Fprintf(w, "headgate: %v\n", err)
	if do := hint.Of(err); do != "" {
		fmt.Fprintf(w, "hint: %s\n", do)
	}
}

// PrintFaults writes a line for each fault, and what to do.
func PrintFaults(w io.Writer, faults []*Fault) {
	for _, f := range faults {
		fmt.Fprintf(w, "headgate: %v\nhint: %s\n", f, f.Hint)
	}
}

// joinFaults joins the faults into one error, in the order of the file. It returns nil if there are
// none.
func joinFaults(faults []*Fault) error {
	slices.SortStableFunc(faults, byPlace)
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// byPlace compares two faults by position. Flags have no position: they keep their order and come
// before the file.
func byPlace(a, b *Fault) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}

// A mistake describes what is wrong with one value, before its position is known.
type mistake struct{ problem, hint string }

// wrong makes a mistake. The hint comes first because it takes no arguments.
func wrong(hint, format string, args ...any) *mistake {
	return &mistake{problem: fmt.Sprintf(format, args...), hint: hint}
}

func quote(s string) string { return hint.Quote(s) }
