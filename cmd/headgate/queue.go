package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/queue"
)

const queueHelp = `usage: headgate queue status [QUEUE] [--watch]
       headgate queue put QUEUE FILE [--keep] [--from LINE]
       headgate queue save QUEUE FILE [--dead]
       headgate queue pause|resume QUEUE
       headgate queue rate QUEUE JOBS_A_SECOND
       headgate queue dead QUEUE [--count N]
       headgate queue redrive QUEUE [ID...]
       headgate queue purge QUEUE
       headgate queue purge QUEUE --dead [ID...]

A queue stores jobs and delivers them at the pace that their target can handle:
see docs/queues.md.

put adds the lines of a file as jobs. Each line is a job such as
{"key": "order-17", "tenant": "acme", "body": {"order": 17}}
- is standard input. If a line is invalid, put adds nothing and lists the
invalid lines. It reads a pipe to its end first; with --keep it adds jobs as
they arrive.

save writes the jobs that are not done to a new file, in the form that put
reads; with --dead it writes the dead jobs. - is standard output.

pause stops deliveries, resume continues them. rate sets a maximum number of
jobs per second in addition to the limits; 0 removes it. dead lists the jobs
that are no longer tried, most recent first; redrive puts them back into the
queue. purge deletes all waiting jobs, or with --dead all dead jobs or those
with these IDs.

  headgate queue put orders orders.ndjson
  headgate queue status --watch

  --watch            repeat each second, until an interrupt
  --keep             put the valid lines although others are invalid
  --from LINE        begin with this line; 1 is the first
  --dead             purge or save the dead jobs instead of the waiting ones
  --count N          list at most N dead jobs; default all

put needs a token with the scope put. All others except status and dead need the
scope write: see headgate help token.
` + operatorHelp

// queueFlags are the flags of headgate queue.
type queueFlags struct {
	watch, keep, dead bool
	from, count       int
}

// queueCommand puts jobs into queues and shows the state of queues.
func queueCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var f queueFlags
	flags := flag.NewFlagSet("queue", flag.ContinueOnError)
	flags.BoolVar(&f.watch, "watch", false, "")
	flags.BoolVar(&f.keep, "keep", false, "")
	flags.BoolVar(&f.dead, "dead", false, "")
	flags.IntVar(&f.from, "from", 1, "")
	flags.IntVar(&f.count, "count", math.MaxInt, "")
	o, words, err := operatorFlags(flags, "queue", args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, queueHelp)
		return exitOK
	}
	if err != nil {
		return printFaults(stderr, err)
	}
	verb, scope := "", "write"
	if len(words) > 0 {
		verb, words = words[0], words[1:]
	}
	switch n := len(words); {
	case verb == "status" && n < 2 && f.watch:
		return watch1s(ctx, stdout, func(ctx context.Context) (string, error) {
			all, err := o.queues(ctx, words)
			return queueTable(all), err
		})
	case verb == "status" && n < 2:
		var all []queue.Status
		scope = "read"
		if all, err = o.queues(ctx, words); err == nil {
			fmt.Fprint(stdout, queueTable(all))
		}
	case verb == "put" && n == 2 && f.from > 0:
		scope = "put"
		p := &putFile{queue: words[0], file: words[1], queueFlags: f, stdout: stdout, stderr: stderr}
		err = o.putFile(ctx, p)
	case verb == "save" && n == 2:
		err = o.saveFile(ctx, words[0], words[1], f.dead, stdout)
	case (verb == "pause" || verb == "resume") && n == 1:
		var s queue.Status
		if err = o.do(ctx, http.MethodPost, queuePath(words[0])+"/"+verb, nil, &s); err == nil {
			fmt.Fprint(stdout, queueTable([]queue.Status{s}))
		}
	case verb == "rate" && n == 2:
		var s queue.Status
		pairs := map[string]string{"rate": words[1]}
		if err = o.do(ctx, http.MethodPatch, queuePath(words[0]), pairs, &s); err == nil {
			fmt.Fprint(stdout, queueTable([]queue.Status{s}))
		}
	case verb == "dead" && n == 1 && f.count > 0:
		scope = "read"
		err = o.listDead(ctx, stdout, words[0], f.count)
	case verb == "redrive" && n >= 1:
		q := url.Values{"id": words[1:]}
		err = o.counted(ctx, stdout, http.MethodPost, queuePath(words[0])+"/redrive?"+q.Encode())
	case verb == "purge" && n == 1 && !f.dead:
		err = o.counted(ctx, stdout, http.MethodDelete, queuePath(words[0])+"/jobs")
	case verb == "purge" && n >= 1 && f.dead:
		q := url.Values{"id": words[1:]}
		err = o.counted(ctx, stdout, http.MethodDelete, queuePath(words[0])+"/dead?"+q.Encode())
	default:
		return usageFault(stderr, "queue: what is to be done?",
			"write headgate queue status, queue put QUEUE FILE, queue pause QUEUE, or see headgate help queue")
	}
	if err != nil {
		return o.fail(ctx, stderr, err, scope)
	}
	return exitOK
}

func queuePath(name string) string { return "/v1/queues/" + url.PathEscape(name) }

// queues returns the state of all queues, or of the named one.
func (o *operator) queues(ctx context.Context, name []string) ([]queue.Status, error) {
	if len(name) == 1 {
		var s queue.Status
		err := o.do(ctx, http.MethodGet, queuePath(name[0]), nil, &s)
		return []queue.Status{s}, err
	}
	var all struct {
		Queues []queue.Status `json:"queues"`
	}
	err := o.do(ctx, http.MethodGet, "/v1/queues", nil, &all)
	return all.Queues, err
}

// counted applies an action to some jobs, and prints how many were affected.
func (o *operator) counted(ctx context.Context, w io.Writer, method, path string) error {
	var got map[string]int
	if err := o.do(ctx, method, path, nil, &got); err != nil {
		return err
	}
	for what, n := range got {
		fmt.Fprintf(w, "%s: %d jobs\n", what, n)
	}
	return nil
}

// listDead lists up to count dead jobs, most recent first.
func (o *operator) listDead(ctx context.Context, w io.Writer, name string, count int) error {
	for after := ""; ; {
		var got struct {
			Jobs []queue.DeadJob `json:"jobs"`
			Next string          `json:"next"`
		}
		page := url.Values{"count": {strconv.Itoa(min(count, 1000))}, "after": {after}}
		path := queuePath(name) + "/dead?" + page.Encode()
		if err := o.do(ctx, http.MethodGet, path, nil, &got); err != nil {
			return err
		}
		for i := range got.Jobs {
			j := &got.Jobs[i]
			fmt.Fprintf(w, "%-14s  %s  %3d attempts  %q  %s\n", j.ID,
				j.DiedAt.Format(time.RFC3339), j.Attempts, j.Key, j.Reason)
		}
		count -= len(got.Jobs)
		if after = got.Next; after == "" || count <= 0 {
			return nil
		}
	}
}

// queueTable formats queues in 80 columns, with the reason if one does not move.
func queueTable(all []queue.Status) string {
	var b strings.Builder
	row := func(v ...any) { fmt.Fprintf(&b, "%-16s %-7s %8s %7s %6s %8s %9s %8s\n", v...) }
	row("queue", "state", "jobs", "flying", "dead", "a second", "oldest", "empty in")
	for i := range all {
		s := &all[i]
		state, empty, oldest := "runs", "-", "-"
		switch {
		case s.Paused:
			state = "paused"
		case strings.HasPrefix(s.Reason, queue.ErrNoHost.Error()): // so nothing is known about it
			row(cut(s.Name, 16), "no host", "-", "-", "-", "-", "-", "-")
			continue
		}
		if s.Depth > 0 {
			empty, oldest = about(s.EmptyIn), about(s.OldestAge)
		}
		row(cut(s.Name, 16), state, count(int64(s.Depth)), count(int64(s.InFlight)), count(int64(s.Dead)),
			strconv.FormatFloat(s.PerSecond, 'f', 1, 64), oldest, empty)
	}
	for i := range all {
		for _, line := range queueNotes(&all[i], time.Now()) {
			fmt.Fprintf(&b, "%s: %s\n", cut(all[i].Name, 16), line)
		}
	}
	if len(all) == 0 {
		b.WriteString("no queues: see docs/queues.md\n")
	}
	return b.String()
}

// queueNotes returns what helps a person to find out why jobs are late.
func queueNotes(s *queue.Status, now time.Time) (lines []string) {
	if s.Reason != "" {
		lines = append(lines, s.Reason)
	}
	if s.Rate > 0 {
		lines = append(lines, "held to "+strconv.FormatFloat(s.Rate, 'g', -1, 64)+" jobs a second")
	}
	if s.AtOnce > 0 && s.InFlight >= s.AtOnce && s.Depth > s.InFlight {
		lines = append(lines, fmt.Sprintf("its concurrency is used up: %d under way at once", s.AtOnce))
	}
	if s.Later > 0 {
		lines = append(lines, fmt.Sprintf("%s of the jobs go later, the next in %s", count(int64(s.Later)),
			about(s.NextIn)))
	}
	if f := s.LastFailure; f != nil && (s.Later > 0 || s.Dead > 0) {
		ago := about(max(0, now.Sub(f.At).Seconds()))
		lines = append(lines, "the last failure, "+ago+" ago: "+f.Reason)
	}
	return lines
}
