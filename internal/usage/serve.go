package usage

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/wire"
)

// A ParameterError says what is wrong with a parameter of a request.
type ParameterError struct{ Name, Problem, Do string }

func (e *ParameterError) Error() string { return e.Name + ": " + e.Problem + "; " + e.Do }

// Parameters returns the names of the parameters of a request, apart from the format.
func Parameters() []string {
	return []string{"limit", "per", "from", "to", "key", "cursor", "count", "open"}
}

// A Request is a parsed request for usage.
type Request struct {
	Query
	count int // rows at most; 0: all
	open  bool
	whole bool // nothing is written before everything is read
}

// Bounds of an answer. Chosen.
const (
	usualRows = 1000
	mostRows  = 10_000
	flushRows = 32 << 10 // bytes
)

// ParseRequest parses the parameters of a request in which each occurs once.
func ParseRequest(v url.Values, format string, now time.Time) (*Request, error) {
	q := &Request{Query: Query{Limit: v.Get("limit"), Cursor: v.Get("cursor")}}
	if q.Limit == "" {
		return nil, &ParameterError{"limit", "is missing", "write limit=NAME"}
	}
	past := 24 * time.Hour
	switch v.Get("per") {
	case "", "hour":
	case "day":
		q.Per, past = Day, 31*24*time.Hour
	default:
		return nil, &ParameterError{"per", "is no period", "write hour or day"}
	}
	if v.Has("key") {
		key := v.Get("key")
		q.Key = &key
	}
	var err error
	if q.From, err = timeOf(v.Get("from"), now); err != nil {
		return nil, &ParameterError{"from", "is no time", "write 2026-03-01T12:00:00Z, or -24h or -7d"}
	}
	if q.To, err = timeOf(v.Get("to"), now); err != nil {
		return nil, &ParameterError{"to", "is no time", "write 2026-03-01T12:00:00Z, or -24h or -7d"}
	}
	if q.Cursor != "" {
		if _, err = parsePlace(q.Per, q.Cursor); err != nil {
			return nil, &ParameterError{"cursor", "is no place in the usage by " + q.Per.String(),
				"send the cursor of a row, with the same limit and per"}
		}
	} else if q.From.IsZero() {
		q.From = q.Per.begin(q.Per.Of(now.Add(-past)))
	}
	if format == "json" {
		q.count = usualRows
	}
	if s := v.Get("count"); s != "" {
		if q.count, err = strconv.Atoi(s); err != nil || q.count < 1 || q.count > mostRows {
			return nil, &ParameterError{"count", "is no number of rows", "write 1 to " + strconv.Itoa(mostRows)}
		}
	}
	switch v.Get("open") {
	case "", "false":
	case "true":
		q.open = true
	default:
		return nil, &ParameterError{"open", "is neither true nor false", "write open=true, or nothing"}
	}
	return q, nil
}

// timeOf parses a time, or how long ago it was. "" is the zero time.
func timeOf(s string, now time.Time) (time.Time, error) {
	ago, is := strings.CutPrefix(s, "-")
	switch {
	case s == "":
		return time.Time{}, nil
	case !is:
		return time.Parse(time.RFC3339, s)
	}
	if days, ok := strings.CutSuffix(ago, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return now.Add(-time.Duration(n) * 24 * time.Hour), err
	}
	d, err := time.ParseDuration(ago)
	if err == nil && d < 0 {
		err = strconv.ErrRange
	}
	return now.Add(-d), err
}

// ContentType returns the type of an answer.
func ContentType(format string) string {
	return map[string]string{"json": "application/json", "csv": "text/csv; charset=utf-8",
		"ndjson": "application/x-ndjson"}[format]
}

// An answer writes rows, some at a time.
type answer struct {
	w      http.ResponseWriter
	q      *Request
	format string
	b      []byte
	rows   int
	begun  bool
}

var errEnough = errors.New("enough rows")

// Serve writes rows as json, csv or ndjson, as they are read. JSON whose time is over is a part. After the
// first bytes it aborts the connection on an error: an incomplete answer must not look complete.
func (k *Keeper) Serve(ctx context.Context, w http.ResponseWriter, q *Request, format string) error {
	a := &answer{w: w, q: q, format: format}
	next, err := k.Read(ctx, &q.Query, func(r *Row) error { return a.row(r) })
	more := errors.Is(err, errEnough) ||
		format == "json" && next != "" && errors.Is(ctx.Err(), context.DeadlineExceeded)
	if more {
		err = nil
	}
	if err == nil && q.open && !more {
		err = k.ReadOpen(ctx, &q.Query, func(r *Row) error { return a.row(r) })
		if errors.Is(err, errEnough) {
			err = nil
		}
	}
	if err == nil {
		err = a.end(next, more)
	}
	if err != nil && a.begun {
		panic(http.ErrAbortHandler)
	}
	return err
}

func (a *answer) begin() {
	if a.begun {
		return
	}
	a.begun = true
	a.w.Header().Set("Content-Type", ContentType(a.format))
	a.w.Header().Set("Cache-Control", "no-store")
}

// head appends what comes before the first row.
func (a *answer) head() {
	switch a.format {
	case "csv":
		a.b = append(a.b, "at,kind,key,units,cursor\n"...)
	case "json":
		a.b = wire.AppendJSONText(append(a.b, `{"limit":`...), a.q.Limit)
		a.b = append(a.b, `,"per":"`+a.q.Per.String()+`","usage":[`...)
	}
}

func (a *answer) row(r *Row) error {
	if a.q.count > 0 && a.rows == a.q.count {
		return errEnough
	}
	if a.rows == 0 {
		a.head()
	}
	if a.rows++; a.format == "json" && a.rows > 1 {
		a.b = append(a.b, ',')
	}
	if a.format == "csv" {
		a.b = r.At.AppendFormat(a.b, time.RFC3339)
		a.b = append(append(append(a.b, ','), r.Kind...), ',')
		a.b = appendCSV(a.b, r.Key)
		a.b = strconv.AppendInt(append(a.b, ','), r.N, 10)
		a.b = append(append(append(a.b, ','), r.Cursor...), '\n')
	} else {
		a.b = r.At.AppendFormat(append(a.b, `{"at":"`...), time.RFC3339)
		a.b = append(append(append(a.b, `","kind":"`...), r.Kind...), '"')
		if r.Kind == Used {
			a.b = wire.AppendJSONText(append(a.b, `,"key":`...), r.Key)
		}
		a.b = strconv.AppendInt(append(a.b, `,"units":`...), r.N, 10)
		if r.Cursor == "" {
			a.b = append(a.b, `,"open":true}`...)
		} else {
			a.b = append(append(append(a.b, `,"cursor":"`...), r.Cursor...), `"}`...)
		}
		if a.format == "ndjson" {
			a.b = append(a.b, '\n')
		}
	}
	if len(a.b) < flushRows || a.q.whole {
		return nil
	}
	return a.flush()
}

func (a *answer) flush() error {
	a.begin()
	_, err := a.w.Write(a.b)
	a.b = a.b[:0]
	return err
}

func (a *answer) end(next string, more bool) error {
	if a.rows == 0 {
		a.head()
	}
	if a.format == "json" {
		a.b = append(append(append(a.b, `],"next":"`...), next...), `","more":`...)
		a.b = append(strconv.AppendBool(a.b, more), "}\n"...)
	}
	return a.flush()
}

// appendCSV appends a field, in quotes if it needs them (RFC 4180).
func appendCSV(b []byte, s string) []byte {
	if !strings.ContainsAny(s, ",\"\r\n ") {
		return append(b, s...)
	}
	return append(append(append(b, '"'), strings.ReplaceAll(s, `"`, `""`)...), '"')
}
