package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/headgate/headgate/internal/rights"
	"github.com/headgate/headgate/internal/seldom"
)

// Parameters of requests from workers. Chosen: an answer arrives before the worker repeats its
// request, and a page is read at once and fits into a message.
const (
	answerFor = askFor
	pageAtA   = 8
	pageBytes = 512 << 10
	mostLogs  = 512 // open for workers: two for each of 100 queues, and webhooks
)

// logLetters are the letters that the name of a log may have.
const logLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// A Proxy reads and writes for workers, in a process that has access to the records.
type Proxy struct {
	Conn           *nats.Conn
	Records        *NATS
	OnWriteFailure func(error) // called when the engine rejects a write; must not block
	Log            *slog.Logger

	mu   sync.Mutex
	logs map[string]*Log
	said seldom.Lines
}

// Serve answers workers until stop is called.
func (d *Proxy) Serve() (stop func(), err error) {
	bus := NewBus(d.Conn)
	one, err := bus.ServeGroup(recordsName, d.answer(d.record))
	if err != nil {
		return nil, err
	}
	two, err := bus.ServeGroup(logsName, d.answer(d.log))
	if err != nil {
		one()
		return nil, err
	}
	return func() { one(); two() }, nil
}

// answer checks a request, lets do handle it, and encodes the result.
func (d *Proxy) answer(
	do func(ctx context.Context, q *question, value []byte) (result, []byte, error),
) func(context.Context, []byte) []byte {
	return func(ctx context.Context, msg []byte) []byte {
		ctx, stop := context.WithTimeout(ctx, answerFor)
		defer stop()
		var q question
		value, err := unpack(msg, &q)
		if err == nil && (len(q.Name) > mostName || len(q.ID) > mostName) {
			err = errors.New("the name is too long")
		}
		var x result
		var rest []byte
		if err == nil {
			x, rest, err = do(ctx, &q, value)
		}
		if errors.Is(err, ErrDenied) && d.said.Due("denied") {
			d.Log.Warn("a worker asked for something that it may not do", "what", q.Op, "name", q.Name)
		}
		if err != nil {
			x, rest = toldError(err), nil
		}
		b, err := pack(&x, rest)
		if err != nil {
			return nil
		}
		return b
	}
}

// record handles a request about a record.
func (d *Proxy) record(ctx context.Context, q *question, value []byte) (x result, rest []byte, err error) {
	switch q.Op {
	case opKept:
		k, err := Inspect(ctx, d.Conn)
		return result{Kept: &k}, nil, err
	case opLoad:
		if !rights.Reads(q.Name) {
			return x, nil, ErrDenied
		}
		rest, x.Seq, err = d.Records.Load(ctx, q.Name)
	case opSwap:
		if !rights.Writes(q.Name) {
			return x, nil, ErrDenied
		}
		x.Seq, err = d.Records.CompareAndSwap(ctx, q.Name, q.Seq, value)
	default:
		err = fmt.Errorf("%q is not known here", q.Op)
	}
	return x, rest, err
}

// find returns a log that a store node has made. It does not make logs, because a worker must not.
func (d *Proxy) find(ctx context.Context, name string) (*Log, error) {
	if name == "" || strings.Trim(name, logLetters) != "" || !rights.Logs(name) {
		return nil, ErrDenied
	}
	d.mu.Lock()
	l := d.logs[name]
	d.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l, err := newLog(LogConfig{Conn: d.Conn, Name: name, OnWriteFailure: d.OnWriteFailure, Log: d.Log})
	if err == nil {
		l.stream, err = l.js.Stream(ctx, l.name)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	l.replicated = l.stream.CachedInfo().Config.Replicas > 1
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs == nil || len(d.logs) >= mostLogs {
		d.logs = map[string]*Log{}
	}
	d.logs[name] = l
	return l, nil
}

// log handles a request about a log.
func (d *Proxy) log(ctx context.Context, q *question, value []byte) (x result, rest []byte, err error) {
	l, err := d.find(ctx, q.Name)
	if err != nil {
		return x, nil, err
	}
	switch q.Op {
	case opOpen:
	case opAppend:
		x.Seq, err = l.publish(ctx, value, q.Seq, q.ID)
		// Without an answer the entry may be in the log: then the worker asks again with the same
		// ID.
		if err != nil && !unanswered(err) {
			err = l.writeError(ctx, err)
		}
	case opGet:
		var e Entry
		e, err = l.Get(ctx, q.Seq)
		x.Seq, x.At, rest = e.Seq, e.At, e.Data
	case opHas:
		var yes bool
		if yes, err = l.has(ctx, q.Seq, q.To); err == nil && !yes {
			err = ErrNotFound
		}
	case opSize:
		var size LogSize
		size, err = l.Size(ctx)
		x.Size = &size
	case opCut:
		err = l.Truncate(ctx, q.Seq)
	case opDelete:
		err = l.Delete(ctx, q.Seq)
	case opPage:
		rest, err = l.page(ctx, q.Seq)
	default:
		err = fmt.Errorf("%q is not known here", q.Op)
	}
	return x, rest, err
}

// page returns the entries from a sequence number on, at least one if there is any. It reads from
// the leader, so no entry is missing.
func (l *Log) page(ctx context.Context, from uint64) ([]byte, error) {
	m, err := l.stream.GetMsg(ctx, max(1, from), jetstream.WithGetMsgSubject(l.subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]Entry, pageAtA)
	errs := make([]error, pageAtA)
	found[0] = Entry{Seq: m.Sequence, At: m.Time, Data: m.Data}
	var wg sync.WaitGroup
	for i := 1; i < pageAtA; i++ {
		wg.Go(func() { found[i], errs[i] = l.Get(ctx, m.Sequence+uint64(i)) })
	}
	wg.Wait()
	var b []byte
	for i := range found {
		// A sequence number may belong to another log of the stream, or be deleted.
		if errors.Is(errs[i], ErrNotFound) {
			continue
		}
		if errs[i] != nil || i > 0 && len(b)+entryHead+len(found[i].Data) > pageBytes {
			break // the next request gets the rest
		}
		b = appendEntry(b, &found[i])
	}
	return slices.Clip(b), nil
}
