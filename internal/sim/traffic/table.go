package traffic

import (
	"bytes"
	"context"

	"github.com/headgate/headgate/internal/hint"
)

// maxSites is the maximum number of data centers in a file. Chosen: more than any network has.
const maxSites = 1000

// A table holds the positions of the columns of a CSV file.
type table struct {
	comma             byte
	time, site, dwell int // column numbers; −1: none
	fields            [][]byte
	sites             map[string]int32
}

// readTable reads a CSV file whose header is line.
func (r *reader) readTable(ctx context.Context, line []byte) error {
	t := &table{comma: comma(line), sites: map[string]int32{}}
	if err := r.header(t, line); err != nil {
		return err
	}
	for {
		line, ok := r.in.next()
		if !ok {
			return nil
		}
		if err := r.row(t, line); err != nil {
			return err
		}
		if err := r.look(ctx); err != nil {
			return err
		}
	}
}

// header finds the columns.
func (r *reader) header(t *table, line []byte) error {
	columns, ok := t.split(line)
	if !ok {
		return r.in.fault(quoteHint, "%s begins with a quote that does not end", hint.Quote(string(line)))
	}
	var err error
	t.time, err = r.pick(columns, r.o.TimeColumn, "--time-column", "time", "timestamp", "ts", "date", "at")
	if err == nil {
		t.site, err = r.pick(columns, r.o.DatacenterColumn, "--datacenter-column", "site", "colo", "datacenter")
	}
	if err == nil {
		t.dwell, err = r.pick(columns, "", "", "dwell")
	}
	if err != nil {
		return err
	}
	if t.time >= 0 {
		r.t.Dwells = t.dwell >= 0
		return nil
	}
	if _, ok := stamp(columns[0]); ok {
		return r.in.fault("write a first line with the names of the columns, such as time,site",
			"%s is no header", hint.Quote(string(line)))
	}
	return r.in.fault("name the column of times with --time-column; the columns are "+list(columns),
		"no column is named time, timestamp, ts, date or at")
}

// row reads one visitor.
func (r *reader) row(t *table, line []byte) error {
	fields, ok := t.split(line)
	switch {
	case !ok:
		return r.in.fault(quoteHint, "a quote does not end on its line")
	case len(fields) <= max(t.time, t.site, t.dwell):
		return r.in.fault("write as many fields as the first line has",
			"%s has too few fields: %d", hint.Quote(string(line)), len(fields))
	}
	at, ok := stamp(fields[t.time])
	if !ok {
		return r.in.fault(stampHint, "%s is no time", hint.Quote(string(fields[t.time])))
	}
	if r.t.Lines > 0 && at.Before(r.last) {
		return r.in.fault("sort the file by time", "%s is before the line above, %s",
			show(at), show(r.last))
	}
	var v visit
	if t.dwell >= 0 {
		if v.dwell, ok = span(fields[t.dwell]); !ok {
			return r.in.fault("write seconds such as 90, or 1m30s, up to a year",
				"%s is no length of a visit", hint.Quote(string(fields[t.dwell])))
		}
	}
	if t.site >= 0 {
		name := bytes.TrimSpace(fields[t.site])
		if v.site, ok = t.sites[string(name)]; !ok {
			if len(t.sites) == maxSites {
				return r.in.fault("name the column of data centers with --datacenter-column",
					"%s is data center %d, which is too many", hint.Quote(string(name)), maxSites+1)
			}
			v.site = int32(len(t.sites))
			t.sites[string(name)] = v.site
			r.t.Datacenters = append(r.t.Datacenters, string(name))
		}
	}
	if err := r.line(at); err != nil {
		return err
	}
	_, err := r.visit(v.site, v.dwell)
	return err
}

const quoteHint = "write a quote within quotes twice, and no line break within them"

// comma returns the separator: the most frequent of the usual three in the header.
func comma(header []byte) byte {
	best, most := byte(','), 0
	for _, c := range []byte{',', ';', '\t'} {
		if n := bytes.Count(header, []byte{c}); n > most {
			best, most = c, n
		}
	}
	return best
}

// split splits a line of CSV (RFC 4180, but without line breaks in quotes: an unclosed quote would
// swallow the whole file). The fields are valid until the next call. It reports whether all quotes
// are closed.
func (t *table) split(line []byte) ([][]byte, bool) {
	t.fields = t.fields[:0]
	for {
		var field []byte
		if len(line) > 0 && line[0] == '"' {
			var ok bool
			if field, line, ok = unquote(line[1:]); !ok {
				return nil, false
			}
		}
		end := bytes.IndexByte(line, t.comma)
		rest := line
		if end >= 0 {
			rest = line[:end]
		}
		if field == nil {
			field = rest
		}
		t.fields = append(t.fields, field)
		if end < 0 {
			return t.fields, true
		}
		line = line[end+1:]
	}
}

// unquote reads up to the quote that ends a field. Two quotes stand for one.
func unquote(line []byte) (field, rest []byte, ok bool) {
	first := bytes.IndexByte(line, '"')
	if first < 0 {
		return nil, nil, false
	}
	if first+1 >= len(line) || line[first+1] != '"' {
		return line[:first:first], line[first+1:], true
	}
	field = []byte{}
	for i := 0; i < len(line); i++ {
		if line[i] == '"' {
			if i+1 >= len(line) || line[i+1] != '"' {
				return field, line[i+1:], true
			}
			i++
		}
		field = append(field, line[i])
	}
	return nil, nil, false
}
