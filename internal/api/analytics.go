package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/analytics"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/queue"
)

// Bounds of one request. Chosen: a year of days, or a month of minutes, is one answer.
const (
	autoPoints   = 500
	mostPoints   = 1500
	mostExported = 50_000
	chunkPoints  = 1000 // per message between nodes
	mostRange    = 4000 * 24 * time.Hour
	usualRange   = 24 * time.Hour
	adviceStep   = 300
)

// A pastQuery is a parsed request for statistics.
type pastQuery struct {
	analytics.Query
	metrics []analytics.Metric
	format  string // json, csv or ndjson
}

func badParameter(name, problem, hint string) error {
	return manage.Faults{{Pointer: "/" + name, Code: manage.CodeValue, Problem: problem, Hint: hint}}
}

// analytics handles GET /v1/analytics: one room, limit or queue over time.
func (a *API) analytics(c *call) (any, error) {
	q, err := pastQueryOf(c.r, time.Now())
	if err != nil {
		return nil, err
	}
	if err := a.mayKnow(c, q.Series); err != nil {
		return nil, err
	}
	if q.format != "json" {
		return nil, a.export(c, q)
	}
	rows, missing, err := a.rows(c.r.Context(), q, nil)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 && !a.known(q.Series) {
		return nil, nothingKnown(q.Series)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Write(q.appendJSON(nil, rows, missing)) // an error means that the client is gone
	return nil, nil
}

func nothingKnown(s analytics.Series) error {
	return &problem{Status: http.StatusNotFound, Code: "nothing_known",
		Detail: "there is no " + s.Kind.String() + " of that name, and no data of one in that time",
		Hint:   "GET /v1/rooms, /v1/limits and /v1/queues list them; for one that was removed, choose an earlier time"}
}

// known reports whether a series exists now.
func (a *API) known(s analytics.Series) bool {
	switch s.Kind {
	case analytics.Room:
		_, ok := a.cfg.History.Facts(s.Name)
		return ok
	case analytics.Limit:
		return slices.ContainsFunc(a.limitNames(), func(name string) bool { return name == s.Name })
	}
	return slices.ContainsFunc(a.cfg.Queues(), func(q *queue.Queue) bool { return q.Name() == s.Name })
}

func (a *API) limitNames() (all []string) {
	if a.cfg.Limits.Keys == nil {
		return nil
	}
	for _, l := range a.cfg.Limits.Keys.Limits() {
		all = append(all, l.Name)
	}
	return all
}

// mayKnow rejects a token that may not read a series. For rooms their zone counts, for queues their
// name; limits need a token for all rooms.
func (a *API) mayKnow(c *call, s analytics.Series) error {
	room := s.Name
	if s.Kind == analytics.Limit {
		room = ""
	}
	if c.who.may(scopeRead, room) || s.Kind == analytics.Room && a.mayByZone(c, room) {
		return nil
	}
	return a.refused(c, strings.TrimSuffix(scopeRead+":"+room, ":"))
}

// mayByZone reports whether a token of a zone may read a room.
func (a *API) mayByZone(c *call, room string) bool {
	b, err := a.cfg.Rooms.Book(c.r.Context())
	if err != nil {
		return false
	}
	for _, r := range b.Rooms("") {
		if r.Name == room {
			return c.who.mayZone(scopeRead, r.Own.Zone, room)
		}
	}
	return false
}

// rows requests the data from all nodes, one part of the time range after the other. It passes each
// part to f, or returns all if f is nil.
func (a *API) rows(
	ctx context.Context, q *pastQuery, f func([]analytics.Row, []string) error,
) (all []analytics.Row, missing []string, err error) {
	for from := q.From; from < q.To; from += chunkPoints * q.Step {
		part := q.Query
		part.From, part.To = from, min(q.To, from+chunkPoints*q.Step)
		rows, silent, err := a.cfg.History.Rows(ctx, &part)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range silent {
			if !slices.Contains(missing, n) {
				missing = append(missing, n)
			}
		}
		if f == nil {
			all = append(all, rows...)
		} else if err := f(rows, missing); err != nil {
			return nil, nil, err
		}
	}
	return all, missing, nil
}

// export writes one line for each step, as the data arrive.
func (a *API) export(c *call, q *pastQuery) error {
	if !a.known(q.Series) {
		if rows, _, err := a.rows(c.r.Context(), q, nil); err != nil || len(rows) == 0 {
			return cmp.Or(err, nothingKnown(q.Series))
		}
	}
	begun, b := false, []byte(nil)
	begin := func(missing []string) {
		begun = true
		h := c.w.Header()
		h.Set("Content-Type", map[string]string{"csv": "text/csv; charset=utf-8",
			"ndjson": "application/x-ndjson"}[q.format])
		file := q.Kind.String() + "-" + plainName(q.Name) + "." + q.format
		h.Set("Content-Disposition", `attachment; filename="`+file+`"`)
		if len(missing) > 0 {
			h.Set("Headgate-Missing-Nodes", strings.Join(missing, ", "))
		}
		if q.format == "csv" {
			b = append(b, "at"...)
			for i := range q.metrics {
				b = append(append(b, ','), q.metrics[i].Name...)
			}
			b = append(b, '\n')
		}
	}
	_, _, err := a.rows(c.r.Context(), q, func(rows []analytics.Row, missing []string) error {
		if !begun {
			begin(missing)
		}
		for i := range rows {
			b = q.appendLine(b, &rows[i])
		}
		_, err := c.w.Write(b)
		b = b[:0]
		return err
	})
	if err != nil && begun {
		panic(http.ErrAbortHandler) // an incomplete export must not look complete
	}
	return err
}

// plainName converts a name to one that is valid for a file.
func plainName(s string) string {
	return strings.Map(func(r rune) rune {
		plain := r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if plain {
			return r
		}
		return '_'
	}, s)
}

func (q *pastQuery) appendLine(b []byte, r *analytics.Row) []byte {
	if q.format == "ndjson" {
		return append(q.appendPoint(b, r), '\n')
	}
	b = time.Unix(r.At, 0).UTC().AppendFormat(b, time.RFC3339)
	for i := range q.metrics {
		b = append(b, ',')
		if v, ok := q.metrics[i].Value(r, q.Step); ok {
			b = strconv.AppendFloat(b, v, 'f', -1, 64)
		}
	}
	return append(b, '\n')
}

// appendPoint appends {"at": …, "admitted": …}. Missing values are null.
func (q *pastQuery) appendPoint(b []byte, r *analytics.Row) []byte {
	b = append(b, `{"at":"`...)
	b = time.Unix(r.At, 0).UTC().AppendFormat(b, time.RFC3339)
	b = append(b, '"')
	return q.appendMetrics(b, r, q.Step)
}

// appendMetrics appends the metrics of a row and closes the object.
func (q *pastQuery) appendMetrics(b []byte, r *analytics.Row, step int64) []byte {
	for i := range q.metrics {
		b = append(append(append(b, `,"`...), q.metrics[i].Name...), `":`...)
		if v, ok := q.metrics[i].Value(r, step); ok {
			b = strconv.AppendFloat(b, v, 'f', -1, 64)
		} else {
			b = append(b, "null"...)
		}
	}
	return append(b, '}')
}

// appendJSON appends the whole answer.
func (q *pastQuery) appendJSON(b []byte, rows []analytics.Row, missing []string) []byte {
	day := func(at int64) string { return `"` + time.Unix(at, 0).UTC().Format(time.RFC3339) + `"` }
	text := func(s string) []byte { return wire.AppendJSONText(nil, s) }
	b = append(b, `{"`+q.Kind.String()+`":`...)
	b = append(b, text(q.Name)...)
	b = append(b, `,"from":`+day(q.From)+`,"to":`+day(q.To)+`,"step_seconds":`...)
	b = strconv.AppendInt(b, q.Step, 10)
	b = append(b, `,"missing_nodes":[`...)
	for i, n := range missing {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text(n)...)
	}
	b = append(b, `],"points":[`...)
	for i := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = q.appendPoint(b, &rows[i])
	}
	b = append(b, `],"total":`...)
	whole := analytics.Merge(q.Kind, q.From, q.To, q.To-q.From, rows)
	if len(whole) == 0 {
		return append(b, "null}\n"...)
	}
	b = append(b, `{"from":`+day(q.From)...)
	b = q.appendMetrics(b, &whole[0], q.To-q.From)
	return append(b, "}\n"...)
}

// pastQueryOf parses the query.
func pastQueryOf(r *http.Request, now time.Time) (*pastQuery, error) {
	values, err := queryOf(r, "room", "limit", "queue", "from", "to", "step", "metrics", "format")
	if err != nil {
		return nil, err
	}
	q := &pastQuery{}
	for _, k := range []analytics.Kind{analytics.Room, analytics.Limit, analytics.Queue} {
		name := values.Get(k.String())
		switch {
		case !values.Has(k.String()):
		case q.Kind != 0:
			return nil, badParameter(k.String(), "cannot be used with another one",
				"ask for one room, limit or queue")
		case name == "" || len(name) > 256:
			return nil, badParameter(k.String(), "is not a valid name", "write "+k.String()+"=NAME")
		default:
			q.Kind, q.Name = k, name
		}
	}
	if q.Kind == 0 {
		return nil, badParameter("room", "no room, limit or queue is named", "write room=NAME, limit=NAME or queue=NAME")
	}
	if q.format, err = formatOf(values, r.Header); err != nil {
		return nil, err
	}
	var wrong string
	var ok bool
	if q.metrics, wrong, ok = analytics.Find(q.Kind, values.Get("metrics")); !ok || len(q.metrics) > 100 {
		return nil, badParameter("metrics", "a "+q.Kind.String()+" has no "+strconv.Quote(clip(wrong)),
			"docs/analytics.md lists them; leave it out for all")
	}
	return q, q.timesOf(values, now)
}

// queryOf parses a query that may contain only these parameters, each at most once.
func queryOf(r *http.Request, names ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badParameter("", "the query is invalid", "write room=NAME&from=-24h")
	}
	for name, all := range values {
		if !slices.Contains(names, name) {
			return nil, badParameter(clip(name), "this parameter does not exist",
				"use "+strings.Join(names, ", "))
		}
		if len(all) > 1 {
			return nil, badParameter(name, "occurs twice", "write it once")
		}
	}
	return values, nil
}

func formatOf(values url.Values, h http.Header) (string, error) {
	switch f := values.Get("format"); f {
	case "json", "csv", "ndjson":
		return f, nil
	case "":
	default:
		return "", badParameter("format", "is not a format", "write json, csv or ndjson")
	}
	formats := []string{"json", "csv", "ndjson", "ndjson", "ndjson"}
	return formats[max(0, wire.Prefers(h, "application/json", "text/csv",
		"application/x-ndjson", "application/ndjson", "application/jsonl"))], nil
}

// timesOf parses from, to and step, and aligns the times to steps.
func (q *pastQuery) timesOf(values url.Values, now time.Time) error {
	from, to, err := rangeOf(values, now)
	if err != nil {
		return err
	}
	steps, most := analytics.Steps(), int64(mostPoints)
	if q.format != "json" {
		most = mostExported
	}
	points := func(step int64) int64 { return (to+step-1)/step - from/step }
	switch s := values.Get("step"); {
	case s == "" || s == "auto":
		i := slices.IndexFunc(steps, func(step int64) bool { return points(step) <= autoPoints })
		if i < 0 {
			i = len(steps) - 1
		}
		q.Step = steps[i]
	default:
		d, err := durationOf(s)
		if err != nil || !slices.Contains(steps, int64(d/time.Second)) || d%time.Second != 0 {
			return badParameter("step", "is not a step",
				"write auto, 1m, 5m, 15m, 30m, 1h, 2h, 3h, 6h, 12h, 1d or 7d")
		}
		q.Step = int64(d / time.Second)
	}
	// Whole steps: the same question a minute later gives the same points, and one more.
	q.From, q.To = from/q.Step*q.Step, (to+q.Step-1)/q.Step*q.Step
	if n := (q.To - q.From) / q.Step; n > most {
		return badParameter("step", "gives "+strconv.FormatInt(n, 10)+" points; the maximum is "+
			strconv.FormatInt(most, 10),
			"use a longer step, a shorter time, or format=csv for up to "+strconv.Itoa(mostExported))
	}
	return nil
}

// rangeOf parses from and to, Unix seconds. The second of to is included, so that a minute that has
// just begun is not left out.
func rangeOf(values url.Values, now time.Time) (from, to int64, err error) {
	times := [2]time.Time{now.Add(-usualRange), now}
	if s := values.Get("to"); s != "" {
		if times[1], err = momentOf(s, now); err != nil {
			return 0, 0, badParameter("to", "is not a time", timeHint)
		}
		times[0] = times[1].Add(-usualRange)
	}
	if s := values.Get("from"); s != "" {
		if times[0], err = momentOf(s, now); err != nil {
			return 0, 0, badParameter("from", "is not a time", timeHint)
		}
	}
	switch {
	case times[0].Unix() < 0:
		return 0, 0, badParameter("from", "is before 1970", timeHint)
	case !times[0].Before(times[1]):
		return 0, 0, badParameter("from", "is not before to", "swap them")
	case times[1].Sub(times[0]) > mostRange:
		return 0, 0, badParameter("from", "is too far before to", "choose ten years at most")
	}
	return times[0].Unix(), times[1].Add(time.Second - 1).Unix(), nil
}

const timeHint = "write 2026-03-01T12:00:00Z, seconds since 1970, or -24h for a day ago"

func momentOf(s string, now time.Time) (time.Time, error) {
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		d, err := durationOf(ago)
		return now.Add(-d), err
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && n < 1<<38 {
		return time.Unix(n, 0), nil
	}
	return time.Parse(time.RFC3339, s)
}

// durationOf parses 5m, 24h or 7d, above 0.
func durationOf(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 12)
		if err != nil {
			return 0, err
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err == nil && d <= 0 {
		err = errors.New("not above 0")
	}
	return d, err
}

// advice handles GET /v1/analytics/advice: recommended changes for the rooms that the caller may
// read.
func (a *API) advice(c *call) (any, error) {
	values, err := queryOf(c.r, "room", "from", "to")
	if err != nil {
		return nil, err
	}
	from, to, err := rangeOf(values, time.Now())
	if err != nil {
		return nil, err
	}
	step := int64(adviceStep)
	for (to-from)/step > chunkPoints {
		step *= 2
	}
	if i := slices.IndexFunc(analytics.Steps(), func(s int64) bool { return s >= step }); i >= 0 {
		step = analytics.Steps()[i]
	} else {
		step = analytics.Steps()[len(analytics.Steps())-1]
	}
	q := &pastQuery{}
	q.From, q.To, q.Step = from/step*step, (to+step-1)/step*step, step
	var rooms []string
	if values.Has("room") {
		rooms = []string{values.Get("room")}
		if err := a.mayKnow(c, analytics.Series{Kind: analytics.Room, Name: rooms[0]}); err != nil {
			return nil, err
		}
	} else {
		for _, s := range a.cfg.Process.Rooms() {
			if c.who.may(scopeRead, s.Name) || !c.who.local && a.mayByZone(c, s.Name) {
				rooms = append(rooms, s.Name)
			}
		}
	}
	all, silent := []analytics.Advice{}, []string{}
	for _, room := range rooms {
		f, ok := a.cfg.History.Facts(room)
		if !ok {
			return nil, ErrNoRoom
		}
		q.Series = analytics.Series{Kind: analytics.Room, Name: room}
		rows, missing, err := a.rows(c.r.Context(), q, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, analytics.Advise(&f, rows)...)
		silent = append(silent, missing...)
	}
	slices.Sort(silent)
	return map[string]any{"from": time.Unix(q.From, 0).UTC(), "to": time.Unix(q.To, 0).UTC(), "rooms": rooms,
		"advice": all, "missing_nodes": slices.Compact(silent)}, nil
}
