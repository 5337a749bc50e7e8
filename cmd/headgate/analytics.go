package main

import (
	"cmp"
	"context"
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
