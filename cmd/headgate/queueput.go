package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/queue"
)

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
			return &refusal{Detail: err.Error(), Told: "name a file of jobs, one on a line"}
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
				return &refusal{Detail: err.Error(), Told: "name a file, or write --keep to put the good lines as they come"}
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
			if e, ok := errors.AsType[*refusal](err); ok && p.file != "-" {
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
		return &refusal{Detail: err.Error(), Told: "write --keep to put the good lines as they come"}
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
	return &refusal{Detail: fmt.Sprintf("%d lines are broken, %s:\n  %s", p.bad, then, lines),
		Told: "mend these lines; --keep puts the good ones alone"}
}

// parts calls f with groups of whole lines, and the number of the first one.
func (p *putFile) parts(f func(body []byte, first, lines int) error) error {
	r := bufio.NewReaderSize(p.in, 1<<16)
	var part []byte
	lines, number := 0, 1
	for {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			return &refusal{Detail: err.Error(), Told: "see that the file can be read"}
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
	path := o.admin + queuePath(p.queue) + "/jobs?" + q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-ndjson")
	var got struct {
		Put, Duplicates, Broken int
		Faults                  []struct {
			Line   int
			Detail string
		}
	}
	if err := o.send(r, &got); err != nil {
		return err
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
