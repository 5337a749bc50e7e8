package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// Kinds of rows: the units of a key, and the Sums of a limit.
const (
	Used       = "used"
	Unreported = "unreported"
	Dropped    = "dropped"
	Lost       = "lost"
)

// A Row is what a key has used in one hour or day, or a sum of its limit.
type Row struct {
	At     time.Time
	Kind   string
	Key    string // of Used
	N      int64
	Cursor string // after this row; "" in the open hour
}

// A Query asks for rows of a limit.
type Query struct {
	Limit    string
	Per      Per
	From, To time.Time
	Key      *string // nil: all keys
	Cursor   string
}

// ErrCursor is returned for a text that is no cursor of the query.
var ErrCursor = errors.New("this is no cursor of usage by this period")

// ErrGone is returned for a cursor behind which rows are deleted, or whose log is.
var ErrGone = errors.New("rows after this cursor were deleted, because they were too old or too many: read from a time")

// A place is a position in a log: an entry, a part of it, and a number of rows of the limit in that part.
type place struct {
	seq       uint64
	part, row int
}

// A position is a place, and that of the first part behind the last row which a query leaves for later.
type position struct {
	place
	later *place
}

func (x place) cursor(p Per) string { return fmt.Sprintf("%s.%d.%d.%d", p, x.seq, x.part, x.row) }

func parsePlace(p Per, s string) (x place, err error) {
	words := strings.Split(s, ".")
	if len(words) != 4 || words[0] != p.String() {
		return x, ErrCursor
	}
	seq, err := strconv.ParseUint(words[1], 10, 63)
	part, err2 := strconv.ParseUint(words[2], 10, 31)
	row, err3 := strconv.ParseUint(words[3], 10, 31)
	if errors.Join(err, err2, err3) != nil {
		return x, ErrCursor
	}
	return place{seq, int(part), int(row)}, nil
}

// slack is how far the clocks of nodes may be apart. Chosen.
const slack = 5 * time.Minute

// Read calls f with each row of closed hours or days, in the order of their closing, until f returns an
// error. It holds one entry of the log in memory. It returns the cursor behind what was read, also with an
// error, unless it has read nothing. Rows that q.To leaves out come after it, if no other rows did.
func (k *Keeper) Read(ctx context.Context, q *Query, f func(*Row) error) (next string, err error) {
	l, err := k.find(ctx, q.Per)
	if err == nil && l == nil && q.Cursor != "" {
		err = ErrGone
	}
	if l == nil || err != nil {
		return "", err
	}
	size, err := l.Size(ctx)
	if err != nil {
		return "", err
	}
	var at position
	if q.Cursor != "" {
		if at.place, err = parsePlace(q.Per, q.Cursor); err != nil {
			return "", err
		}
	} else if size.Count > 0 {
		at.seq, err = firstAfter(ctx, l, size, q.From.Add(q.Per.length()-slack))
		if err != nil {
			return "", err
		}
	}
	switch {
	case q.Cursor != "" && (at.seq < size.First || at.seq > size.Last+1): // of another log, if it is behind the end
		return "", ErrGone
	case at.seq < size.First:
		at.place = place{seq: size.First}
	}
	defer func() {
		if err == nil && at.later != nil {
			next = at.later.cursor(q.Per)
		}
	}()
	for ; at.seq <= size.Last; at.place = (place{seq: at.seq + 1}) {
		e, err := l.Get(ctx, at.seq)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return at.cursor(q.Per), err
		}
		if !q.To.IsZero() && e.At.After(q.To.Add(q.Per.length()+tooLate+slack)) {
			break
		}
		if err := readEntry(q, e.Data, &at, f); err != nil {
			return at.cursor(q.Per), err
		}
	}
	return at.cursor(q.Per), nil
}

// readEntry calls f with the rows of an entry from a place on, and moves the place on.
func readEntry(q *Query, data []byte, at *position, f func(*Row) error) error {
	parts, err := parseParts(data)
	if err != nil {
		return err
	}
	for ; at.part < len(parts); at.part, at.row = at.part+1, 0 {
		x := &parts[at.part]
		begin := q.Per.begin(x.label)
		if !q.To.IsZero() && !begin.Before(q.To) {
			if at.later == nil {
				later := at.place
				at.later = &later
			}
			continue
		}
		if begin.Before(q.From) {
			continue
		}
		b, err := unpack(x.bytes)
		if err != nil {
			return err
		}
		skip := at.row
		err = rowsOf(b, q, begin, func(row int, r *Row) error {
			if row <= skip {
				return nil
			}
			behind := place{at.seq, at.part, row}
			r.Cursor = behind.cursor(q.Per)
			err := f(r)
			if err == nil { // a row that was not taken is the next one
				*at = position{place: behind}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rowsOf calls f with the rows of a segment, and their numbers among all of the limit.
func rowsOf(b []byte, q *Query, at time.Time, f func(row int, r *Row) error) error {
	s, row := newScanner(b), 0
	for ; s.ok; s.next() {
		if s.cell.limit != q.Limit {
			continue
		}
		for _, r := range rowsOfCell(&s.cell, at) {
			if row++; q.Key != nil && (r.Kind != Used || r.Key != *q.Key) {
				continue
			}
			if err := f(row, &r); err != nil {
				return err
			}
		}
	}
	if s.bad() {
		return errSegment
	}
	return nil
}

func rowsOfCell(c *cell, at time.Time) []Row {
	if c.sums == nil {
		return []Row{{At: at, Kind: Used, Key: string(c.key), N: c.n}}
	}
	all := []Row{{At: at, Kind: Unreported, N: c.sums.Unreported}, {At: at, Kind: Dropped, N: c.sums.Dropped},
		{At: at, Kind: Lost, N: c.sums.Lost}}
	return slices.DeleteFunc(all, func(r Row) bool { return r.N == 0 })
}

// ReadOpen calls f with the rows of the hour or day that is not closed yet, as far as they are written. They
// change, so they have no cursor. Of a day, the present hour is not among them.
func (k *Keeper) ReadOpen(ctx context.Context, q *Query, f func(*Row) error) error {
	for slot := range 2 * Slots {
		s, err := k.load(ctx, q.Per, slot)
		if err != nil {
			return err
		}
		at := q.Per.begin(s.period)
		if len(s.bytes) == 0 || at.Before(q.From) || !q.To.IsZero() && !at.Before(q.To) {
			continue
		}
		if s.closing { // its node may have died before it emptied the record
			has, err := k.appended(ctx, q.Per, part{slot: slot, label: s.label, from: s.from})
			if err != nil {
				return err
			}
			if has {
				continue
			}
		}
		if err := rowsOf(s.bytes, q, at, func(_ int, r *Row) error { return f(r) }); err != nil {
			return err
		}
	}
	return nil
}
