package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/hint"
)

// These constants limit the input. Chosen: a year of traffic, and a spool of 2 GB.
const (
	maxSpan     = 366 * 24 * time.Hour
	maxVisitors = 100_000_000
)

// A reader fills a Traffic from an input.
type reader struct {
	in *input
	o  Options
	t  *Traffic

	find  *finder   // nil: nothing is sought
	last  time.Time // time of the line before
	group int64     // the first visit of that second
	whole bool      // its time has no fraction
}

// read reads all of an input.
func read(ctx context.Context, in *input, o Options) (t *Traffic, err error) {
	sp, err := newSpool(o.Space)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t, err = nil, errors.Join(err, sp.close())
		}
	}()
	r := &reader{in: in, o: o, t: &Traffic{Name: in.name, Format: o.Format, spool: sp}}
	line, ok := in.next()
	if r.t.Format == Auto {
		r.t.Format = guess(line)
	}
	switch {
	case !ok:
		err = in.err()
	case r.t.Format == Log:
		err = r.readLog(ctx, line)
	default:
		err = r.readTable(ctx, line)
	}
	if err == nil {
		err = in.err()
	}
	if err == nil && r.t.Visitors == 0 {
		err = &hint.Error{Text: in.name + ": nobody is in it",
			Do: "name a file with a line for each visitor or request"}
	}
	if err == nil {
		err = r.end()
	}
	return r.t, err
}

// guess distinguishes a log from a table by the first line.
func guess(line []byte) Format {
	if _, _, err := logFields(line); err == "" {
		return Log
	}
	return CSV
}

// often is the number of lines between two checks of the context. Chosen: under a millisecond.
const often = 1 << 12

// look returns an error if the read was canceled, and reports progress.
func (r *reader) look(ctx context.Context) error {
	if r.in.number%often != 0 {
		return nil
	}
	if r.o.Progress != nil {
		r.o.Progress(r.in.done())
	}
	return ctx.Err()
}

// line checks and records the time of a line. Lines must be in order.
func (r *reader) line(at time.Time) error {
	if r.t.Lines == 0 {
		r.t.First, r.last = at, at
		r.whole = at.Nanosecond() == 0
	}
	if at.Sub(r.t.First) > maxSpan {
		return r.in.fault("look at the times of this line and the first, or cut the file",
			"%s is more than a year after the first line, %s", show(at), show(r.t.First))
	}
	if !at.Equal(r.last) {
		if err := r.spread(at.Sub(r.last)); err != nil {
			return err
		}
		r.last, r.whole = at, at.Nanosecond() == 0
	}
	r.t.Lines++
	return nil
}

// visit adds a visitor that arrives at the time of the current line.
func (r *reader) visit(site int32, dwell time.Duration) (int64, error) {
	if r.t.Visitors == maxVisitors {
		return 0, &hint.Error{Text: fmt.Sprintf("%s: has more than %d visitors", r.in.name, maxVisitors),
			Do: "cut it, for example to a day"}
	}
	r.t.Visitors++
	r.t.Last = r.last.Sub(r.t.First)
	return r.t.spool.add(visit{at: r.t.Last, dwell: dwell, site: site})
}

// spread distributes the arrivals of one second evenly within it, or until the next line. A time in
// whole seconds has no more information, and a crowd at the start of each second would be an
// artifact.
func (r *reader) spread(next time.Duration) error {
	from, n := r.group, r.t.spool.n-r.group
	r.group = r.t.spool.n
	if n < 2 || !r.whole {
		return nil
	}
	begin, width := r.last.Sub(r.t.First), min(next, time.Second)
	for i := range n {
		at := begin + time.Duration(float64(width)*float64(i)/float64(n))
		if err := r.t.spool.setAt(from+i, at); err != nil {
			return err
		}
		r.t.Last = at
	}
	return nil
}

// end finishes the last second.
func (r *reader) end() error {
	if err := r.spread(time.Second); err != nil {
		return err
	}
	return r.t.spool.flush()
}

func show(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999") }

// pick finds a column: the requested one, or the first default name that exists.
func (r *reader) pick(columns [][]byte, asked, option string, names ...string) (int, error) {
	wanted := names
	if asked != "" {
		wanted = []string{asked}
	}
	for _, name := range wanted {
		for i, c := range columns {
			if bytes.EqualFold(bytes.TrimSpace(c), []byte(name)) {
				return i, nil
			}
		}
	}
	if asked == "" {
		return -1, nil
	}
	return -1, &hint.Error{Text: fmt.Sprintf("%s: %s has no column %s", option, r.in.name, hint.Quote(asked)),
		Do: "its columns are " + list(columns)}
}

// list names the columns of a table, or the first few of many.
func list(columns [][]byte) string {
	const most = 12 // chosen: some two lines of a terminal
	var b bytes.Buffer
	for i, c := range columns[:min(len(columns), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(hint.Quote(string(bytes.TrimSpace(c))))
	}
	if len(columns) > most {
		fmt.Fprintf(&b, " and %d more", len(columns)-most)
	}
	return b.String()
}
