package traffic

import (
	"bytes"
	"context"
	"math"
	"net/netip"
	"time"

	"github.com/headgate/headgate/internal/hint"
)

// late is how far a line of a log may lie behind an earlier one. Servers stamp a line when the
// request arrives and write it when the answer ends. Such a line counts as having the latest time.
// Chosen: a log's times are whole seconds.
const late = time.Second

// maxOpen limits the number of visitors with a session in progress. Chosen: about 300 MB.
const maxOpen = 5_000_000

// An accessLog finds visitors in requests: requests of one address with no more than a session
// duration between them are one visit.
type accessLog struct {
	open  map[uint64]session // by a hash of the address
	sweep int                // number of open sessions at which ended ones are removed
	many  bool               // more than one address was seen
	first uint64
	stamp [logStampSize]byte
	at    time.Time // of stamp
}

// A session is a visitor that may make more requests.
type session struct {
	visit       int64
	first, last time.Duration // since the first line
}

// readLog reads an access log that begins with line.
func (r *reader) readLog(ctx context.Context, line []byte) error {
	const few = 1 << 16 // chosen: below this, cleaning up is not worthwhile
	l := &accessLog{open: map[uint64]session{}, sweep: few}
	r.t.Dwells = true
	if r.o.Auto != nil {
		r.find = newFinder(r.o.Auto)
	}
	for ok := true; ok; line, ok = r.in.next() {
		if err := r.request(l, line); err != nil {
			return err
		}
		if err := r.look(ctx); err != nil {
			return err
		}
	}
	r.t.oneAddress = !l.many
	if r.find != nil {
		r.t.Found = r.find.result()
	}
	return r.ended(l, math.MaxInt64)
}

// request reads one line.
func (r *reader) request(l *accessLog, line []byte) error {
	client, text, wrong := logFields(line)
	if wrong != "" {
		return r.in.fault("lines begin like 192.0.2.7 - - [11/Sep/2023:11:45:54 +0000]; "+
			"a table is --format csv", "%s %s", hint.Quote(string(line)), wrong)
	}
	// Most lines of a busy server have the time of the line before: it is parsed once.
	if !bytes.Equal(text, l.stamp[:]) {
		at, ok := logStamp(text)
		if !ok {
			return r.in.fault("times are written like 11/Sep/2023:11:45:54 +0000",
				"%s is no time", hint.Quote(string(text)))
		}
		copy(l.stamp[:], text)
		l.at = at
	}
	at := l.at
	if r.t.Lines > 0 && at.Before(r.last) {
		if r.last.Sub(at) > late {
			return r.in.fault("sort the file by time: lines may lie out of order by a second at most",
				"%s is before an earlier line, %s", show(at), show(r.last))
		}
		at = r.last
	}
	if err := r.line(at); err != nil {
		return err
	}
	key, now := hash(client), at.Sub(r.t.First)
	s, known := l.open[key]
	again := known && now-s.last <= r.o.Session
	if r.find != nil {
		r.find.see(line, client, now, s.last, !again)
	}
	if again {
		s.last = now
		l.open[key] = s
		return nil
	} else if known {
		if err := r.stayed(s); err != nil {
			return err
		}
	}
	if r.t.Visitors == 0 {
		l.first = key
	}
	l.many = l.many || key != l.first
	number, err := r.visit(0, 0)
	if err != nil {
		return err
	}
	l.open[key] = session{visit: number, first: now, last: now}
	return r.bound(l, now)
}

// bound removes ended sessions when many are open.
func (r *reader) bound(l *accessLog, now time.Duration) error {
	if len(l.open) < l.sweep {
		return nil
	}
	if err := r.ended(l, now-r.o.Session); err != nil {
		return err
	}
	if len(l.open) > maxOpen {
		return r.in.fault("give a shorter --session-duration, or cut the file",
			"more than %d visitors are inside at once", maxOpen)
	}
	l.sweep = max(l.sweep, 2*len(l.open))
	return nil
}

// ended records the visits of all visitors last seen before a given time.
func (r *reader) ended(l *accessLog, before time.Duration) error {
	for key, s := range l.open {
		if s.last < before {
			if err := r.stayed(s); err != nil {
				return err
			}
			delete(l.open, key)
		}
	}
	return nil
}

// stayed records the length of a visit.
func (r *reader) stayed(s session) error {
	if s.first == s.last {
		return nil
	}
	return r.t.spool.setDwell(s.visit, s.last-s.first)
}

// logFields returns client and time of a line in the common or combined format. A host may precede
// the client, as in Apache's vhost_combined.
func logFields(line []byte) (client, stamp []byte, wrong string) {
	open := bytes.IndexByte(line, '[')
	for open >= 0 && (len(line) < open+logStampSize+2 || line[open+logStampSize+1] != ']') {
		next := bytes.IndexByte(line[open+1:], '[')
		if next < 0 {
			open = -1
			break
		}
		open += 1 + next
	}
	if open < 0 {
		return nil, nil, "has no [time]"
	}
	client, rest, _ := bytes.Cut(line[:open], []byte(" "))
	if second, _, ok := bytes.Cut(rest, []byte(" ")); ok && len(second) > 1 { // mostly -
		if _, err := netip.ParseAddr(string(second)); err == nil {
			client = second
		}
	}
	if len(client) == 0 {
		return nil, nil, "does not begin with an address"
	}
	return client, line[open+1 : open+1+logStampSize], ""
}

// hash is FNV-1a, the same on every machine. The probability that an address shares a hash with
// another of maxOpen addresses is about 1 in a million.
func hash(client []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range client {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
