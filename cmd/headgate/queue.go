package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/queue"
)

// queueFlags are the flags of headgate queue.
type queueFlags struct {
	watch, keep, dead bool
	from, count       int

	// Of one job.
	key      bool
	wait     time.Duration
	at       string
	priority int

	// Of dead jobs and of a tenant.
	tenant        *string
	status, most  int
	since, before string

	// Of claims.
	max          int
	lease, delay time.Duration
	worker, why  string
	untried      bool
}

// queueCommand puts jobs into queues and shows the state of queues.
func queueCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f queueFlags
	flags := flag.NewFlagSet("queue", flag.ContinueOnError)
	flags.BoolVar(&f.watch, "watch", false, "")
	flags.BoolVar(&f.keep, "keep", false, "")
	flags.BoolVar(&f.dead, "dead", false, "")
	flags.IntVar(&f.from, "from", 1, "")
	flags.IntVar(&f.count, "count", math.MaxInt, "")
	flags.BoolVar(&f.key, "key", false, "")
	flags.DurationVar(&f.wait, "wait", 0, "")
	flags.StringVar(&f.at, "at", "", "")
	flags.IntVar(&f.priority, "priority", -1, "")
	flags.Func("tenant", "", func(name string) error { f.tenant = &name; return nil })
	flags.Func("status", "", positive(&f.status))
	flags.Func("most", "", positive(&f.most))
	flags.Func("since", "", notEmpty(&f.since))
	flags.Func("before", "", notEmpty(&f.before))
	flags.IntVar(&f.max, "max", 1, "")
	flags.DurationVar(&f.lease, "lease", 0, "")
	flags.DurationVar(&f.delay, "delay", 0, "")
	flags.StringVar(&f.worker, "worker", "", "")
	flags.StringVar(&f.why, "why", "", "")
	flags.BoolVar(&f.untried, "untried", false, "")
	o, words, err := operatorFlags(flags, "queue", args)
	if err != nil {
		return err
	}
	verb := ""
	if len(words) > 0 {
		verb, words = words[0], words[1:]
	}
	if err := strayFlag(flags, verb); err != nil {
		return err
	}
	switch n := len(words); {
	case verb == "status" && n < 2 && f.watch:
		return watch1s(ctx, stdout, func(ctx context.Context) (string, error) {
			all, err := o.queues(ctx, words)
			return queueTable(all, red(stdout)), err
		})
	case verb == "status" && n < 2:
		var all []queue.Status
		if all, err = o.queues(ctx, words); err == nil {
			fmt.Fprint(stdout, queueTable(all, red(stdout)))
		}
	case verb == "put" && n == 2 && f.from > 0:
		o.scope = "put"
		p := &putFile{queue: words[0], file: words[1], queueFlags: f, stdout: stdout, stderr: stderr}
		err = o.putFile(ctx, p)
	case verb == "save" && n == 2:
		o.scope = "write"
		err = o.saveFile(ctx, words[0], words[1], f.dead, stdout)
	case (verb == "pause" || verb == "resume") && n == 1:
		var s queue.Status
		path := queuePath(words[0]) + "/" + verb
		if f.tenant != nil {
			path += "?" + url.Values{"tenant": {*f.tenant}}.Encode()
		}
		if err = o.do(ctx, http.MethodPost, path, nil, &s); err == nil {
			fmt.Fprint(stdout, queueTable([]queue.Status{s}, red(stdout)))
		}
	case verb == "rate" && n == 2:
		var s queue.Status
		pairs := map[string]string{"rate": words[1]}
		if err = o.do(ctx, http.MethodPatch, queuePath(words[0]), pairs, &s); err == nil {
			fmt.Fprint(stdout, queueTable([]queue.Status{s}, red(stdout)))
		}
	case verb == "schedules" && n == 1:
		err = o.listSchedules(ctx, stdout, words[0])
	default:
		for _, part := range []func(context.Context, io.Writer, string, []string, *queueFlags) (bool, error){
			o.oneJob, o.deadJobs, o.claims,
		} {
			if known, err := part(ctx, stdout, verb, words, &f); known {
				return err
			}
		}
		return usageFault("queue: what is to be done?",
			"write headgate queue status, queue put QUEUE FILE, queue pause QUEUE, or see headgate help queue")
	}
	return err
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

// positive and notEmpty return parsers of flags that say which jobs are meant. The flag of a script whose
// variable is not set must be an error: without it, all jobs would be meant.
func positive(to *int) func(string) error {
	return func(text string) (err error) {
		if *to, err = strconv.Atoi(text); err != nil || *to < 1 {
			return errors.New("want a whole number above 0")
		}
		return nil
	}
}

func notEmpty(to *string) func(string) error {
	return func(text string) error {
		if *to = text; text == "" {
			return errors.New("want a time")
		}
		return nil
	}
}

// strayFlag returns an error for a flag that a command does not have: redrive --count 5 would redrive all.
func strayFlag(flags *flag.FlagSet, verb string) (err error) {
	const which = " tenant status since before "
	own, known := map[string]string{"status": "watch", "put": "keep from", "save": "dead", "pause": "tenant",
		"resume": "tenant", "rate": "", "job": "key wait", "cancel": "key", "change": "key at priority",
		"schedules": "", "tenant": "count", "dead": which + "count", "redrive": which + "most",
		"purge": which + "most dead", "claim": "max wait lease worker", "ack": "",
		"nack": "delay why dead untried", "extend": "lease"}[verb]
	flags.Visit(func(f *flag.Flag) {
		if known && !slices.Contains(append(strings.Fields(own), "admin", "token-file"), f.Name) {
			err = usageFault("queue "+verb+": the flag --"+f.Name+" does not exist here",
				"see headgate help queue")
		}
	})
	return err
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

// listDead lists up to count dead jobs of a filter, most recent first.
func (o *operator) listDead(ctx context.Context, w io.Writer, name string, count int, page url.Values) error {
	for after := ""; ; {
		var got struct {
			Jobs []queue.DeadJob `json:"jobs"`
			Next string          `json:"next"`
		}
		page.Set("count", strconv.Itoa(min(count, 1000)))
		page.Set("after", after)
		path := queuePath(name) + "/dead?" + page.Encode()
		if err := o.do(ctx, http.MethodGet, path, nil, &got); err != nil {
			return err
		}
		for i := range got.Jobs {
			j := &got.Jobs[i]
			fmt.Fprintf(w, "%-14s  %s  %3d attempts  %q  %s\n", j.ID,
				j.DiedAt.Format(time.RFC3339), j.Attempts, j.Key, plain(j.Reason))
		}
		count -= len(got.Jobs)
		if after = got.Next; after == "" || count <= 0 {
			return nil
		}
	}
}

// listSchedules lists the schedules of a queue: when each goes next, and which was its last job.
func (o *operator) listSchedules(ctx context.Context, w io.Writer, name string) error {
	var got struct {
		Schedules []queue.ScheduleStatus `json:"schedules"`
	}
	if err := o.do(ctx, http.MethodGet, queuePath(name)+"/schedules", nil, &got); err != nil {
		return err
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Format(time.RFC3339)
	}
	fmt.Fprintf(w, "%-20s %-20s %-20s %-9s %s\n", "schedule", "next", "last", "its job", "times")
	for i := range got.Schedules {
		s := &got.Schedules[i]
		fmt.Fprintf(w, "%-20s %-20s %-20s %-9s %s\n", s.Name, at(s.Next), at(s.Last), cmp.Or(s.LastID, "-"), s.Rule)
		if s.Reason != "" {
			fmt.Fprintf(w, "%s: %s\n", s.Name, s.Reason)
		}
	}
	return nil
}

// plain returns the words of a target or a worker without control characters, which would forge lines or
// steer the terminal.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// red returns a function that makes text red on a terminal, unless NO_COLOR is set (no-color.org).
func red(w io.Writer) func(string) string {
	if _, tty := height(w); !tty || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return func(s string) string { return s }
	}
	return func(s string) string { return "\x1b[31m" + s + "\x1b[0m" }
}

// queueTable formats queues in 80 columns, with the reason if one does not move.
func queueTable(all []queue.Status, red func(string) string) string {
	var b strings.Builder
	const format = "%-16s %-7s %8s %7s %6s %8s %9s %8s"
	row := func(v ...any) { fmt.Fprintf(&b, format+"\n", v...) }
	row("queue", "state", "jobs", "flying", "dead", "a second", "oldest", "empty in")
	var failing []string
	for i := range all {
		s := &all[i]
		state, empty, oldest, row := "runs", "-", "-", row
		switch {
		case s.Failing != nil:
			state, failing = "failing", append(failing, cut(s.Name, 16))
			row = func(v ...any) { b.WriteString(red(fmt.Sprintf(format, v...)) + "\n") }
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
	if n := len(failing); n > 0 {
		b.WriteString(red(fmt.Sprintf("%d of %d need attention: %s", n, len(all), strings.Join(failing, ", "))) + "\n")
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
	if s.Paused && s.Failing != nil { // the table has one state only
		lines = append(lines, "paused: nothing is sent until headgate queue resume")
	}
	if f := s.Failing; f != nil {
		lines = append(lines, fmt.Sprintf("all tries fail for %s, %s in a row; the last one: %s",
			about(max(0, now.Sub(f.Since).Seconds())), count(int64(f.Tries)), plain(f.Reason)))
	}
	if n := len(s.PausedTenants); n > 0 {
		names := fmt.Sprintf("%.40q", s.PausedTenants[:min(n, 5)])
		lines = append(lines, fmt.Sprintf("tenants that are paused: %d, such as %s", n, names))
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
	if s.Behind > 0 {
		lines = append(lines, fmt.Sprintf("%s of the jobs wait for others of their order keys",
			count(int64(s.Behind))))
	}
	if s.EndsError != "" {
		lines = append(lines, fmt.Sprintf("%s jobs have ended whose completions wait: %s", count(int64(s.Ended)),
			plain(s.EndsError)))
	}
	if n := s.Totals.EndsLost; n > 0 {
		lines = append(lines, fmt.Sprintf("%s completions are lost: too many waited", count(n)))
	}
	if f := s.LastFailure; f != nil && s.Failing == nil && (s.Later > 0 || s.Dead > 0) {
		ago := about(max(0, now.Sub(f.At).Seconds()))
		lines = append(lines, "the last failure, "+ago+" ago: "+plain(f.Reason))
	}
	return lines
}

// saveFile writes the jobs of a queue into a new file that only its owner can read.
func (o *operator) saveFile(
	ctx context.Context, queue, file string, dead bool, stdout io.Writer,
) (err error) {
	out := stdout
	if file != "-" {
		f, fault := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if fault != nil {
			return &hint.Error{Text: fault.Error(), Do: "name a file that is not there yet"}
		}
		defer func() {
			if err == nil {
				err = f.Sync()
			}
			if err = errors.Join(err, f.Close()); err != nil {
				os.Remove(file)
			}
		}()
		out = f
	}
	lines := &lineCounter{Writer: out}
	path := queuePath(queue) + "/jobs?dead=" + strconv.FormatBool(dead)
	if err := o.stream(ctx, path, lines); err != nil {
		return err
	}
	if file != "-" {
		fmt.Fprintf(stdout, "saved: %d jobs\n", lines.n)
	}
	return nil
}

// A lineCounter counts the lines that pass through it.
type lineCounter struct {
	io.Writer
	n int
}

func (c *lineCounter) Write(b []byte) (int, error) {
	c.n += bytes.Count(b, []byte("\n"))
	return c.Writer.Write(b)
}

// These constants are the parameters of putting a file. Chosen: a part is on disk within about 50
// ms, so that the progress line moves; and nobody reads more than ten broken lines.
const (
	partLines = 10_000
	partBytes = 4 << 20
	toldLines = 10
	drawEvery = 200 * time.Millisecond
)

// A putFile is a file that is being put into a queue.
type putFile struct {
	queue, file string
	queueFlags
	stdout, stderr io.Writer

	in     *os.File
	size   int64 // of the file, 0 if unknown
	read   int64
	put    int
	twice  int
	bad    int
	faults []string
	began  time.Time
	drawn  time.Time
}

// putFile puts the lines of a file in parts.
func (o *operator) putFile(ctx context.Context, p *putFile) error {
	if p.file == "-" {
		p.in = os.Stdin
	} else {
		f, err := os.Open(p.file)
		if err != nil {
			return &hint.Error{Text: err.Error(), Do: "name a file of jobs, one on a line"}
		}
		defer f.Close()
		p.in = f
	}
	if info, err := p.in.Stat(); err == nil && info.Mode().IsRegular() {
		p.size = info.Size()
	}
	if !p.keep {
		if p.size == 0 {
			if err := p.spool(); err != nil {
				return &hint.Error{Text: err.Error(), Do: "name a file, or write --keep to put the good lines as they come"}
			}
			defer p.in.Close()
		}
		if err := p.look(); err != nil {
			return err
		}
	}
	p.began = time.Now()
	err := p.parts(func(body []byte, first, lines int) error {
		if err := o.putPart(ctx, p, body, first); err != nil {
			if e, ok := errors.AsType[*adminclient.Refusal](err); ok && p.file != "-" {
				e.Told += fmt.Sprintf("; then go on with --from %d", first)
			}
			return err
		}
		p.draw(false)
		return nil
	})
	p.draw(true)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "put: %d jobs", p.put)
	if p.twice > 0 {
		fmt.Fprintf(p.stdout, ", and %d that were there before", p.twice)
	}
	fmt.Fprintln(p.stdout)
	if p.bad > 0 {
		return p.broken("left out")
	}
	return nil
}

// spool copies input that can be read only once, such as a pipe, into a file. All lines are checked
// before the first one is put.
func (p *putFile) spool() error {
	f, err := os.CreateTemp("", "headgate-put-")
	if err != nil {
		return err
	}
	err = os.Remove(f.Name()) // jobs are private: the file has no name, even after a kill
	if err == nil {
		p.size, err = io.Copy(f, p.in)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.in = f
	return nil
}

// look reads the whole file and checks for broken lines.
func (p *putFile) look() error {
	err := p.parts(func(body []byte, first, lines int) error {
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				if _, err := queue.ParseJob(line); err != nil {
					p.note(first, err.Error())
				}
			}
			first++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p.bad > 0 {
		return p.broken("nothing was put")
	}
	p.read = 0
	if _, err := p.in.Seek(0, io.SeekStart); err != nil {
		return &hint.Error{Text: err.Error(), Do: "write --keep to put the good lines as they come"}
	}
	return nil
}

func (p *putFile) note(line int, why string) {
	if p.bad++; len(p.faults) < toldLines {
		p.faults = append(p.faults, fmt.Sprintf("line %d: %s", line, why))
	}
}

// broken returns an error that lists the broken lines.
func (p *putFile) broken(then string) error {
	lines := strings.Join(p.faults, "\n  ")
	return &hint.Error{Text: fmt.Sprintf("%d lines are broken, %s:\n  %s", p.bad, then, lines),
		Do: "mend these lines; --keep puts the good ones alone"}
}

// parts calls f with groups of whole lines, and the number of the first one.
func (p *putFile) parts(f func(body []byte, first, lines int) error) error {
	r := bufio.NewReaderSize(p.in, 1<<16)
	var part []byte
	lines, number := 0, 1
	for {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return &hint.Error{Text: err.Error(), Do: "see that the file can be read"}
		}
		if p.read += int64(len(line)); number >= p.from {
			part = append(part, line...)
			lines++
		}
		number++
		end := errors.Is(err, io.EOF)
		slow := p.size == 0 && r.Buffered() == 0 // the pipe has no more data for now
		if len(part) > 0 && (end || slow || lines >= partLines || len(part) >= partBytes) {
			if err := f(part, number-lines, lines); err != nil {
				return err
			}
			part, lines = part[:0], 0
		}
		if end {
			return nil
		}
	}
}

// readLine reads a line. Of a line longer than any job it keeps only enough to be rejected as too
// long, because a file of another kind may have no line ends at all.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		some, err := r.ReadSlice('\n')
		if len(line) <= queue.MaxLine {
			line = append(line, some...)
		} else if err == nil {
			line = append(line, '\n')
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// putPart puts one part of the lines.
func (o *operator) putPart(ctx context.Context, p *putFile, body []byte, first int) error {
	q := url.Values{"line": {fmt.Sprint(first)}, "broken": {"refuse"}}
	if p.keep {
		q.Set("broken", "keep")
	}
	path := queuePath(p.queue) + "/jobs?" + q.Encode()
	var got struct {
		Put, Duplicates, Broken int
		Faults                  []struct {
			Line   int
			Detail string
		}
	}
	if err := o.Send(ctx, http.MethodPost, path, "application/x-ndjson", body, &got); err != nil {
		return o.explain(ctx, http.MethodPost, err)
	}
	p.put, p.twice = p.put+got.Put, p.twice+got.Duplicates
	for _, f := range got.Faults {
		p.note(f.Line, f.Detail)
	}
	p.bad += got.Broken - len(got.Faults)
	return nil
}

// draw shows the progress on a terminal.
func (p *putFile) draw(last bool) {
	_, tty := height(p.stderr)
	if !tty || !last && time.Since(p.drawn) < drawEvery {
		return
	}
	p.drawn = time.Now()
	n := p.put + p.twice
	bar := ""
	if p.size > 0 {
		const width = 30
		done := int(width * min(p.read, p.size) / p.size)
		bar = "[" + strings.Repeat("=", done) + strings.Repeat(" ", width-done) + "] "
	}
	fmt.Fprintf(p.stderr, "\r\x1b[K%s%d jobs, %.0f a second", bar, n,
		float64(n)/max(time.Since(p.began).Seconds(), 0.001))
	if last {
		fmt.Fprintln(p.stderr)
	}
}
