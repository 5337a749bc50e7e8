package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/queue"
)

// Bounds of putting jobs. Chosen: maxBulks requests of this size may be in memory as a whole; a
// batch is written to the disk at once; the answer has only the first faults of many invalid lines.
const (
	maxBulks     = 8
	maxBulk      = 16 << 20
	maxBulkJobs  = 100_000
	batchJobs    = 4000
	batchBytes   = 1 << 20
	mostFaults   = 100
	mostReceipts = 1000
	linePatience = 30 * time.Second // for the next batch of a stream
)

// A putAnswer is the result of putting jobs.
type putAnswer struct {
	Put        int         `json:"put"`        // stored on the disk
	Duplicates int         `json:"duplicates"` // known already by their idempotency keys
	Broken     int         `json:"broken"`     // lines that are not a valid job
	Faults     []lineFault `json:"faults"`     // of the first invalid lines
	IDs        []string    `json:"ids,omitempty"`
}

// sendsLines reports whether a body is NDJSON. known is false if it is no JSON object either.
func sendsLines(r *http.Request) (lines, known bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return false, false
	}
	switch kind {
	case "application/x-ndjson", "application/ndjson", "application/jsonl":
		return true, true
	}
	return false, kind == "application/json"
}

// putJobs handles POST /v1/queues/{name}/jobs: one job as a JSON object, or many as NDJSON.
func (a *API) putJobs(c *call) (any, error) {
	c.quiet = true
	q, err := a.find(c)
	if err != nil {
		return nil, err
	}
	switch lines, known := sendsLines(c.r); {
	case lines:
		return a.putLines(c, q)
	case !known:
		return nil, badJob(http.StatusUnsupportedMediaType, "unknown_format",
			"send one job as application/json, or many as application/x-ndjson, one per line")
	}
	body, err := readBody(c, queue.MaxLine, "store the data elsewhere, and put a job with its address")
	if err != nil {
		return nil, err
	}
	j, err := queue.ParseJob(body)
	if err != nil {
		return nil, err
	}
	a.keepParent(c, &j)
	receipts, err := q.Put(c.r.Context(), []queue.Job{j})
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": receipts[0].ID, "duplicate": receipts[0].Duplicate}, nil
}

// putLines puts one job for each line.
func (a *API) putLines(c *call, q *queue.Queue) (any, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	broken := query.Get("broken")
	first, err2 := strconv.Atoi(query.Get("line"))
	if query.Get("line") == "" {
		first, err2 = 1, nil
	}
	if err != nil || err2 != nil || first < 1 || broken != "" && broken != "refuse" && broken != "keep" {
		return nil, badJob(http.StatusBadRequest, "invalid_query",
			"broken must be refuse (reject all lines if one is invalid) or keep (keep the valid lines); "+
				"line must be the number of the first line")
	}
	p := &putter{a: a, c: c, q: q, all: broken != "keep", line: first,
		answer: putAnswer{Faults: []lineFault{}}}
	if p.all { // nothing is put before everything is read
		select {
		case a.bulks <- struct{}{}:
			defer func() { <-a.bulks }()
		default:
			return nil, &problem{Status: http.StatusServiceUnavailable, Code: "busy",
				Detail: "too many requests with many jobs at the same time", Hint: "retry in a second, or send it with ?broken=keep"}
		}
	}
	if err := p.read(); err != nil {
		return nil, p.explain(err)
	}
	return p.answer, nil
}

// keepParent adds the trace context of the sender to a job, if it is traced and there is room for
// it.
func (a *API) keepParent(c *call, j *queue.Job) {
	const header = "traceparent"
	if a.cfg.ParentIn == nil {
		return
	}
	parent := a.cfg.ParentIn(c.r.Header)
	size := len(header) + len(parent)
	for name, value := range j.Headers {
		if size += len(name) + len(value); strings.EqualFold(name, header) {
			return
		}
	}
	if parent == "" || size > queue.MaxHeader || len(j.Headers) >= queue.MaxHeaders {
		return
	}
	if j.Headers == nil {
		j.Headers = map[string]string{}
	}
	j.Headers[header] = parent
}

// A putter puts the lines of one request.
type putter struct {
	a      *API
	c      *call
	q      *queue.Queue
	all    bool // all or none
	line   int
	jobs   []queue.Job
	bytes  int
	total  int
	answer putAnswer
}

// read reads the lines, and puts them: in batches as they arrive, or all at the end.
func (p *putter) read() error {
	patience := http.NewResponseController(p.c.w)
	patience.SetReadDeadline(time.Now().Add(linePatience)) // only servers in tests have no deadlines
	r := bufio.NewReaderSize(p.c.r.Body, 64<<10)
	for ; ; p.line++ {
		line, err := readLine(r, queue.MaxLine)
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLongLine) {
			return badJob(http.StatusBadRequest, "invalid_body", "cannot read the body: "+err.Error())
		}
		p.total += len(line) + 1
		if p.all && (p.total > maxBulk || len(p.jobs) > maxBulkJobs) {
			return &problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large",
				Detail: fmt.Sprintf("more than %d MB or %d jobs in one request that puts all or none",
					maxBulk>>20, maxBulkJobs),
				Hint: "send it in parts, or with ?broken=keep"}
		}
		last := errors.Is(err, io.EOF)
		p.add(line, err)
		// Lines of a slow sender are put as they arrive: then the buffer is empty after a line. The
		// buffer of a fast stream rarely ends exactly at the end of a line.
		slow := r.Buffered() == 0 && len(p.jobs) > 0
		if !p.all && (slow || len(p.jobs) >= batchJobs || p.bytes >= batchBytes) {
			if err := p.flush(); err != nil {
				return err
			}
			patience.SetReadDeadline(time.Now().Add(linePatience))
		}
		if last {
			break
		}
	}
	if p.all && p.answer.Broken > 0 {
		return queue.ErrJob
	}
	return p.flush()
}

// add parses a line and skips an empty one.
func (p *putter) add(line []byte, err error) {
	if len(bytes.TrimSpace(line)) == 0 && !errors.Is(err, errLongLine) {
		return
	}
	var j queue.Job
	if errors.Is(err, errLongLine) {
		err = fmt.Errorf("longer than %d bytes: store the data elsewhere, and put a job with its address", queue.MaxLine)
	} else {
		j, err = queue.ParseJob(line)
	}
	if err != nil {
		if p.answer.Broken++; len(p.answer.Faults) < mostFaults {
			p.answer.Faults = append(p.answer.Faults, lineFault{p.line, err.Error()})
		}
		return
	}
	p.a.keepParent(p.c, &j)
	p.jobs = append(p.jobs, j)
	p.bytes += len(line)
}

// flush puts the jobs read so far.
func (p *putter) flush() error {
	receipts, err := p.q.Put(p.c.r.Context(), p.jobs)
	for _, r := range receipts {
		switch {
		case r.ID == "":
			continue
		case r.Duplicate:
			p.answer.Duplicates++
		default:
			p.answer.Put++
		}
		if p.answer.IDs != nil || p.answer.Put+p.answer.Duplicates == 1 {
			p.answer.IDs = append(p.answer.IDs, r.ID)
		}
	}
	if len(p.answer.IDs) > mostReceipts {
		p.answer.IDs = nil
	}
	p.jobs, p.bytes = p.jobs[:0], 0
	return err
}

// explain adds to an error how much of the request was put.
func (p *putter) explain(err error) error {
	x := problemOf(err)
	x.Lines = p.answer.Faults
	if p.all && p.answer.Broken > 0 {
		x.Status, x.Code = http.StatusUnprocessableEntity, "broken_lines"
		x.Detail = fmt.Sprintf("%d lines are not valid jobs, so nothing was put; the first is line %d: %s",
			p.answer.Broken, x.Lines[0].Line, x.Lines[0].Detail)
		x.Hint = "correct them, or put the valid ones with ?broken=keep"
		return x
	}
	if n := p.answer.Put + p.answer.Duplicates; n > 0 {
		x.Detail += fmt.Sprintf(" (the first %d jobs are on disk, at most up to line %d)", n, p.line)
	}
	return x
}

var errLongLine = errors.New("the line is too long")

// readLine reads up to the next newline, which is not returned. It consumes all of a line that is
// too long and returns errLongLine.
func readLine(r *bufio.Reader, most int) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line) <= most {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) > most {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			return nil, errLongLine
		}
		return line, err
	}
}
