// Package cron knows when a cron line fires, in a time zone.
//
// The line is read by a parser that others keep (docs/adr/0073). The times are computed here, because that
// parser, like most, has another rule for the hours that a clock misses or has twice:
//
//   - A line that names hours fires once for each of its times. A time that the clock misses fires at the
//     first moment after the gap, one that it has twice fires the first time.
//   - A line of all hours fires whenever the clock shows one of its times: nothing is made up for after a
//     gap, as the line fires again within the hour, and an hour that comes twice has its times twice.
package cron

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	parser "github.com/netresearch/go-cron"
)

// MaxLine is the maximum length of a line. Chosen: each hour and minute by itself has 230 bytes.
const MaxLine = 256

// A Line is a cron line in a time zone.
type Line struct {
	minutes, hours, days, months, weekdays uint64

	anyDay   bool // of days and weekdays both name some: a day needs one of the two
	allHours bool
	zone     *time.Location
}

// Parse parses a line of five fields (minute, hour, day of the month, month, day of the week) or one such as
// @daily. A line that never fires is an error.
func Parse(line string, zone *time.Location) (*Line, error) {
	// The parser has a field for the zone in the line, and intervals without a wall clock.
	switch {
	case len(line) > MaxLine:
		return nil, fmt.Errorf("it has %d bytes, and %d are the most", len(line), MaxLine)
	case strings.Contains(line, "="):
		return nil, errors.New("a time zone has no place in it")
	case strings.HasPrefix(strings.TrimSpace(line), "@every"):
		return nil, errors.New("@every has no clock time to count from")
	case strings.Contains(line, "*-") || strings.Contains(line, "?-"): // the parser ignores what follows
		return nil, errors.New("a range begins with a number or a name")
	}
	p, err := parser.TryNewParser(parser.Minute | parser.Hour | parser.Dom | parser.Month | parser.Dow |
		parser.Descriptor)
	if err != nil {
		return nil, err
	}
	s, err := p.Parse(line)
	if err != nil {
		return nil, err
	}
	spec, ok := s.(*parser.SpecSchedule)
	if !ok {
		return nil, errors.New("it is no line of times")
	}
	const hours = 1<<24 - 1
	l := &Line{minutes: spec.Minute, hours: spec.Hour & hours, days: spec.Dom, months: spec.Month,
		weekdays: spec.Dow | spec.Dow>>7&1, allHours: spec.Hour&hours == hours, zone: zone}
	if f := strings.Fields(line); len(f) == 5 {
		l.anyDay = !isStar(f[2]) && !isStar(f[4])
		for part := range strings.SplitSeq(f[4], ",") {
			days, _, steps := strings.Cut(part, "/")
			from, to, isRange := strings.Cut(days, "-")
			// The parser counts Sunday twice there, as 7 and as 0.
			if steps && isRange && weekday(&p, from) > weekday(&p, to) {
				return nil, errors.New("write the days out in place of a step over the end of the week")
			}
		}
	}
	if l.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("it never fires: no year has such a day")
	}
	return l, nil
}

// weekday returns the number of a day of the week, 7 for a Sunday that is written so.
func weekday(p *parser.Parser, day string) int {
	s, _ := p.Parse("* * * * " + day)
	spec, ok := s.(*parser.SpecSchedule)
	if !ok || strings.TrimLeft(day, "+0") == "7" {
		return 7
	}
	return bits.TrailingZeros64(spec.Dow)
}

// isStar reports whether a field leaves the day to the other one: */2 does so too, as in other crons.
func isStar(field string) bool { return field[0] == '*' || field[0] == '?' }

// Next returns when the line fires next after a time.
func (l *Line) Next(after time.Time) time.Time {
	for at := after.In(l.zone); ; {
		begin, end := at.ZoneBounds() // the time around at in which the offset is the same
		w := clock(at)
		from := w.Truncate(time.Minute)
		if at.Equal(after) || !from.Equal(w) { // it is over already
			from = from.Add(time.Minute)
		}
		if shown := clock(begin.Add(-1)).Add(1); !l.allHours && !begin.IsZero() && from.Before(shown) {
			// The clock was set back, and has shown these before.
			from = shown.Add(time.Minute - 1).Truncate(time.Minute)
		}
		next := l.next(from)
		if next.IsZero() {
			return next
		}
		if t := at.Add(next.Sub(w)); end.IsZero() || t.Before(end) {
			return t.UTC()
		}
		// A gap is over at end. The clock shows more then than the offset before would.
		if !l.allHours && next.Before(clock(end)) {
			return end.UTC()
		}
		at = end
	}
}

// clock returns what the clock in the zone of t shows, as a time in UTC.
func clock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// next returns the first of the line's times that is not before a time, without a zone. The calendar is the
// same every 400 years: what is not in 400 years is never.
func (l *Line) next(from time.Time) time.Time {
	t := from
	for end := from.AddDate(400, 0, 1); t.Before(end); {
		switch {
		case l.months>>t.Month()&1 == 0:
			t = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		case !l.day(t):
			t = time.Date(t.Year(), t.Month(), t.Day()+1, 0, 0, 0, 0, time.UTC)
		case l.hours>>t.Hour()&1 == 0:
			t = t.Truncate(time.Hour).Add(time.Hour)
		case l.minutes>>t.Minute()&1 == 0:
			t = t.Add(time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

// day reports whether the line names the day of a time.
func (l *Line) day(t time.Time) bool {
	month, week := l.days>>t.Day()&1 == 1, l.weekdays>>t.Weekday()&1 == 1
	if l.anyDay {
		return month || week
	}
	return month && week
}
