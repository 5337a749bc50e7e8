package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/analytics"
)

// analyticsFlags are the flags of headgate analytics.
type analyticsFlags struct {
	limit, queue, csv, advice bool
	from, to, step            string
}

// analyticsCommand prints the analytics of a room, a limit or a queue.
func analyticsCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f analyticsFlags
	flags := flag.NewFlagSet("analytics", flag.ContinueOnError)
	flags.BoolVar(&f.limit, "limit", false, "")
	flags.BoolVar(&f.queue, "queue", false, "")
	flags.BoolVar(&f.csv, "csv", false, "")
	flags.BoolVar(&f.advice, "advice", false, "")
	flags.StringVar(&f.from, "from", "", "")
	flags.StringVar(&f.to, "to", "", "")
	flags.StringVar(&f.step, "step", "", "")
	o, words, err := operatorFlags(flags, "analytics", args)
	switch {
	case err != nil:
		return err
	case len(words) > 1 || len(words) == 0 && !f.advice:
		return usageFault("analytics: of what?", "write headgate analytics NAME, or headgate analytics --advice")
	case f.limit && f.queue, f.advice && (f.csv || f.limit || f.queue || f.step != ""):
		return usageFault("analytics: these flags cannot stand together", "see headgate help analytics")
	}
	q := url.Values{}
	for name, v := range map[string]string{"from": f.from, "to": f.to, "step": f.step} {
		if v != "" {
			q.Set(name, v)
		}
	}
	switch {
	case f.advice:
		err = o.advice(ctx, stdout, words, q)
	case f.csv:
		q.Set(f.kind().String(), words[0])
		q.Set("format", "csv")
		err = o.stream(ctx, "/v1/analytics?"+q.Encode(), stdout)
	default:
		q.Set(f.kind().String(), words[0])
		err = o.analyticsTable(ctx, stdout, f.kind(), q)
	}
	return err
}

func (f *analyticsFlags) kind() analytics.Kind {
	switch {
	case f.limit:
		return analytics.Limit
	case f.queue:
		return analytics.Queue
	}
	return analytics.Room
}

// shownFigures returns the columns of the table: heading, metric, and format.
func shownFigures(k analytics.Kind) [][3]string {
	switch k {
	case analytics.Limit:
		return [][3]string{{"allowed", "allowed", ""}, {"refused", "refused", ""},
			{"exceeded", "exceeded", ""}}
	case analytics.Queue:
		return [][3]string{{"jobs", "depthMax", ""}, {"delivered", "delivered", ""},
			{"retried", "retried", ""},
			{"died", "died", ""}, {"dead", "dead", ""}}
	}
	return [][3]string{{"inside", "totalActiveUsersMax", ""}, {"waiting", "totalQueuedUsersMax", ""},
		{"came in", "admitted", ""}, {"left", "abandoned", ""}, {"wait p90", "totalTimeWaitedP90", "s"},
		{"requests", "requests", ""}, {"page p95", "originLatencyP95", "s"}, {"failed", "origin5xx", ""}}
}

// analyticsTable prints the most important figures in 80 columns.
func (o *operator) analyticsTable(ctx context.Context, w io.Writer, k analytics.Kind, q url.Values) error {
	if q.Get("from") == "" && q.Get("to") == "" && q.Get("step") == "" {
		q.Set("step", "30m")
	}
	figures := shownFigures(k)
	var names []string
	for _, f := range figures {
		names = append(names, f[1])
	}
	q.Set("metrics", strings.Join(names, ","))
	var got struct {
		Missing []string         `json:"missing_nodes"`
		Points  []map[string]any `json:"points"`
		Total   map[string]any   `json:"total"`
	}
	if err := o.do(ctx, http.MethodGet, "/v1/analytics?"+q.Encode(), nil, &got); err != nil {
		return err
	}
	if len(got.Points) == 0 {
		fmt.Fprintln(w, "nothing is known of that time")
		return nil
	}
	row := func(at string, cells func(f [3]string) string) {
		var b strings.Builder
		fmt.Fprintf(&b, "%-12s", at)
		for _, f := range figures {
			fmt.Fprintf(&b, " %8s", cells(f))
		}
		fmt.Fprintln(w, b.String())
	}
	row("from", func(f [3]string) string { return f[0] })
	for _, p := range append(got.Points, got.Total) {
		at, err := time.Parse(time.RFC3339, fmt.Sprint(p["at"]))
		head := at.Local().Format("Jan _2 15:04")
		if err != nil {
			head = "all"
		}
		row(head, func(f [3]string) string {
			v, ok := p[f[1]].(float64)
			switch {
			case !ok:
				return "-"
			case f[2] == "s" && v < 10:
				return strconv.FormatFloat(v, 'f', 2, 64) + " s"
			case f[2] == "s":
				return about(v)
			}
			return count(int64(v))
		})
	}
	if len(got.Missing) > 0 {
		fmt.Fprintf(w, "did not answer, and is missing: %s\n", strings.Join(got.Missing, ", "))
	}
	return nil
}

// advice prints which settings could be better.
func (o *operator) advice(ctx context.Context, w io.Writer, room []string, q url.Values) error {
	if len(room) == 1 {
		q.Set("room", room[0])
	}
	var got struct {
		Rooms  []string           `json:"rooms"`
		Advice []analytics.Advice `json:"advice"`
	}
	if err := o.do(ctx, http.MethodGet, "/v1/analytics/advice?"+q.Encode(), nil, &got); err != nil {
		return err
	}
	for i := range got.Advice {
		x := &got.Advice[i]
		fmt.Fprintf(w, "%s: %s: %s\n  %s\n", x.Room, x.Code, x.Text, x.Action)
	}
	if len(got.Advice) == 0 {
		fmt.Fprintf(w, "nothing to say about %s\n", cmp.Or(strings.Join(got.Rooms, ", "), "no room"))
	}
	return nil
}

// usageCommand prints what the keys of a limit have used.
func usageCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("usage", flag.ContinueOnError)
	output := flags.String("output", "table", "")
	open := flags.Bool("open", false, "")
	q := url.Values{}
	for _, name := range []string{"per", "from", "to", "key", "cursor"} {
		flags.Func(name, "", func(s string) error { q.Set(name, s); return nil })
	}
	o, words, err := operatorFlags(flags, "usage", args)
	if err != nil {
		return err
	}
	format, ok := map[string]string{"table": "ndjson", "json": "ndjson", "csv": "csv"}[*output]
	if len(words) != 1 || !ok {
		return usageFault("usage: of which limit?", "write headgate usage LIMIT [--output table|json|csv]")
	}
	q.Set("limit", words[0])
	q.Set("format", format)
	if *open {
		q.Set("open", "true")
	}
	path := "/v1/usage?" + q.Encode()
	if *output != "table" {
		return o.stream(ctx, path, stdout)
	}
	t := &usageTable{w: stdout, day: q.Get("per") == "day"}
	if err = o.stream(ctx, path, t); err == nil && t.rows == 0 {
		fmt.Fprintln(stdout, "nothing is recorded in that time; a limit records with usage: true alone,\n"+
			"and the hour or day that still runs is shown with --open")
	}
	return err
}

// A usageTable prints lines of JSON as a table, as they arrive.
type usageTable struct {
	w    io.Writer
	day  bool
	rest []byte
	rows int
}

// Write implements io.Writer.
func (t *usageTable) Write(b []byte) (int, error) {
	t.rest = append(t.rest, b...)
	for {
		line, rest, ok := bytes.Cut(t.rest, []byte{'\n'})
		if !ok {
			return len(b), nil
		}
		t.rest = rest
		var row struct {
			At    time.Time `json:"at"`
			Kind  string    `json:"kind"`
			Key   string    `json:"key"`
			Units int64     `json:"units"`
			Open  bool      `json:"open"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return 0, fmt.Errorf("a line of the answer is not JSON: %w", err)
		}
		if t.rows++; t.rows == 1 {
			fmt.Fprintf(t.w, "%-17s %15s  %s\n", "UTC", "units", "key")
		}
		layout := "2006-01-02 15:04"
		if t.day {
			layout = time.DateOnly
		}
		name := strconv.Quote(row.Key)
		if name = name[1 : len(name)-1]; row.Kind != "used" { // a key may have any letters
			name = "(" + row.Kind + ")"
		}
		if row.Open {
			name += "  (not closed)"
		}
		fmt.Fprintf(t.w, "%-17s %15d  %s\n", row.At.Format(layout), row.Units, name)
	}
}
