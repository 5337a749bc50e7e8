package kills

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A call is one system call of a trace. Its place in time is where it stands in
// the trace: the tracer sees one event at a time, and a thread waits until it has
// been seen.
type call struct {
	name        string
	file        string // what the descriptor stood for
	text        string // the arguments, quoted as the tracer does
	result      int64
	begun, done int // lines; done is far away for a call that never returned
}

const endless = 1 << 62

// readTrace reads what strace -f -ttt -yy wrote.
func readTrace(r io.Reader) ([]call, error) {
	var calls []call
	open := map[string]int{} // by thread: an unfinished call
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	n := 0
	for ; lines.Scan(); n++ {
		thread, rest, ok := strings.Cut(strings.TrimLeft(lines.Text(), " "), " ")
		_, rest, timed := strings.Cut(strings.TrimLeft(rest, " "), " ")
		if !ok || !timed || strings.HasPrefix(rest, "+++") || strings.HasPrefix(rest, "---") {
			continue
		}
		if after, ok := strings.CutPrefix(rest, "<... "); ok {
			i, was := open[thread]
			if !was {
				return nil, fmt.Errorf("line %d: %s resumes what was not begun", n+1, thread)
			}
			delete(open, thread)
			_, args, _ := strings.Cut(after, " resumed>")
			calls[i].finish(args, n)
			continue
		}
		name, args, ok := strings.Cut(rest, "(")
		if !ok {
			return nil, fmt.Errorf("line %d is not a system call: %.80q", n+1, rest)
		}
		c := call{name: name, begun: n, done: endless}
		if head, ok := strings.CutSuffix(args, " <unfinished ...>"); ok {
			c.text = head
			open[thread] = len(calls)
		} else {
			c.finish(args, n)
		}
		c.file = descriptor(c.text)
		calls = append(calls, c)
	}
	return calls, lines.Err()
}

// finish takes the rest of the arguments and the result.
func (c *call) finish(args string, line int) {
	c.text += args
	if i := strings.LastIndex(c.text, " = "); i >= 0 {
		result, _, _ := strings.Cut(c.text[i+len(" = "):], " ")
		c.result, _ = strconv.ParseInt(result, 10, 64)
		c.text = strings.TrimRight(c.text[:i], " )")
	}
	c.done = line
}

// descriptor gives what stands behind the first argument: 7</a/file> or
// 9<TCP:[127.0.0.1:8080->127.0.0.1:4000]>.
func descriptor(args string) string {
	digits := strings.TrimLeft(args, "0123456789")
	rest, ok := strings.CutPrefix(digits, "<")
	if !ok || digits == args {
		return ""
	}
	if strings.HasPrefix(rest, "TCP") {
		name, _, _ := strings.Cut(rest, "]>")
		return name + "]"
	}
	name, _, _ := strings.Cut(rest, ">")
	return name
}

func (c *call) writes() bool {
	switch c.name {
	case "write", "pwrite64", "writev", "pwritev":
		return true
	}
	return false
}

func (c *call) syncs() bool { return c.name == "fsync" || c.name == "fdatasync" }

func (c *call) socket() bool { return strings.HasPrefix(c.file, "TCP") }

// A claimProof is what the trace says of one claim.
type claimProof struct {
	asked, forwarded, told int // lines: the request was read, sent to the origin, answered
	written, synced        int // the record's write and its sync had returned
}

// proveClaim finds, of the one claim whose path is marked, the record's write
// and its sync after the request was read and before the origin or the visitor
// heard of it. folder is where the record must lie, record is in the text of its
// write. The answer to the visitor carries the mark too.
func proveClaim(calls []call, mark, folder, record string) (p claimProof, err error) {
	path := "/" + mark + " " // a request may be read in two parts: a G, and the rest
	for i := range calls {
		c := &calls[i]
		if !c.socket() || !strings.Contains(c.text, mark) {
			continue
		}
		asks := strings.Contains(c.text, path)
		switch {
		case c.name == "read" && asks && p.asked == 0:
			p.asked = c.done
		case c.writes() && asks && p.forwarded == 0:
			p.forwarded = c.begun
		case c.writes() && strings.Contains(c.text, "Set-Cookie") && p.told == 0:
			p.told = c.begun
		}
	}
	if p.asked == 0 || p.forwarded <= p.asked || p.told <= p.forwarded {
		return p, fmt.Errorf("%s: not read, forwarded and answered in this order: %+v", mark, p)
	}
	if p.written, p.synced = syncedBetween(calls, p.asked, p.forwarded, folder, record); p.synced > 0 {
		return p, nil
	}
	if p.written == 0 {
		return p, fmt.Errorf("%s: no record was written before the origin heard of it: %+v", mark, p)
	}
	return p, fmt.Errorf("%s: the record was not synced before the origin heard of it: %+v", mark, p)
}

// proveJoin finds, of the one join whose path is marked, the log's write and its sync after the request
// was read and before its connection was written to.
func proveJoin(calls []call, path, folder, record string) error {
	asked, told := 0, 0
	for i, c := range calls {
		if !c.socket() || asked != 0 || c.name != "read" || !strings.Contains(c.text, path) {
			continue
		}
		asked = c.done
		for _, w := range calls[i:] {
			if told == 0 && w.writes() && w.file == c.file && w.begun > asked {
				told = w.begun
			}
		}
	}
	if told == 0 {
		return fmt.Errorf("%s: not read and answered", path)
	}
	if written, synced := syncedBetween(calls, asked, told, folder, record); synced == 0 {
		return fmt.Errorf("%s: not synced before the answer: read in line %d, written in %d, told in %d",
			path, asked, written, told)
	}
	return nil
}

// syncedBetween returns the lines in which a write that contains record had returned, and its sync, both
// between two lines; 0 is none.
func syncedBetween(calls []call, from, to int, folder, record string) (written, synced int) {
	for i := range calls {
		w := &calls[i]
		if !w.writes() || w.result <= 0 || w.begun < from || w.done > to ||
			!strings.HasPrefix(w.file, folder) || !strings.Contains(w.text, record) {
			continue
		}
		written = w.done
		for j := range calls[i:] {
			s := &calls[i+j]
			if s.syncs() && s.file == w.file && s.result == 0 && s.begun > w.done && s.done < to {
				return written, s.done
			}
		}
	}
	return written, 0
}
