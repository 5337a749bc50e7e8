package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MaxEntry is the maximum length of an entry of a Log in bytes: one NATS message, less its headers.
const MaxEntry = maxValue - 1024

// logStream is the prefix of the name of a log's stream.
const logStream = "HEADGATE_LOG_"

// AnySequence, as the sequence before a new entry, appends the entry to whatever is there.
const AnySequence = 1<<64 - 1

// readAhead limits the bytes that a reader of a Log holds in memory before it handles them. Chosen:
// some entries of the maximum length.
const readAhead = 4 << 20

// LogConfig describes a Log.
type LogConfig struct {
	Conn           *nats.Conn
	Name           string      // letters, digits, - and _
	Replicas       int         // number of servers; 0: one; AutoReplicas: the engine decides
	MaxBytes       int64       // above it Append returns ErrFull; 0: no limit
	OnWriteFailure func(error) // called when the engine rejects a write; must not block
	Log            *slog.Logger
}

// A Log stores entries in the order of their arrival. Each has a sequence number that is never
// reused. An entry that Append has confirmed is on disk. A Log may be used by many goroutines at
// once.
type Log struct {
	cfg     LogConfig
	js      jetstream.JetStream
	stream  jetstream.Stream
	name    string
	subject string
	far     *client // on a worker: it reads and writes through the store nodes

	replicated bool // several servers have the stream
}

// OpenLog finds the log of that name, or makes it. A worker does not make logs: it does not find
// the log of a queue that no store node has in its configuration.
func OpenLog(ctx context.Context, cfg LogConfig) (*Log, error) {
	l, err := newLog(cfg)
	if err != nil {
		return nil, err
	}
	if err := asked(ctx, l.open); err != nil {
		return nil, fmt.Errorf("open stream %s: %w", l.name, err)
	}
	return l, nil
}

func newLog(cfg LogConfig) (*Log, error) {
	if cfg.OnWriteFailure == nil {
		cfg.OnWriteFailure = func(error) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("speak to the engine: %w", err)
	}
	return &Log{cfg: cfg, js: js, name: logStream + cfg.Name, subject: "headgate.log." + cfg.Name,
		far: clientOf(cfg.Conn)}, nil
}

// LogSizes returns the bytes of the non-empty logs, by name. It needs the right to list streams.
// With an external NATS the user of headgate may not have that right.
func LogSizes(ctx context.Context, conn *nats.Conn) (map[string]uint64, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, fmt.Errorf("speak to the engine: %w", err)
	}
	all := map[string]uint64{}
	list := js.ListStreams(ctx, jetstream.WithStreamListSubject("headgate.log.>"))
	for info := range list.Info() {
		if name, ok := strings.CutPrefix(info.Config.Name, logStream); ok && info.State.Msgs > 0 {
			all[name] = info.State.Bytes
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the logs: %w", err)
	}
	return all, nil
}

// open finds the stream, makes it, or updates its configuration.
func (l *Log) open(ctx context.Context) (err error) {
	if l.far != nil {
		_, _, err = l.far.log(ctx, question{Op: opOpen, Name: l.cfg.Name}, nil)
		return err
	}
	c := jetstream.StreamConfig{
		Name: l.name, Subjects: []string{l.subject}, Storage: jetstream.FileStorage,
		Discard: jetstream.DiscardNew, MaxBytes: cmp.Or(l.cfg.MaxBytes, -1),
		AllowDirect: false, // reads go to the leader, so that a writer reads its own writes
		Duplicates:  idsFor,
	}
	err = replicate(l.cfg.Replicas, &c, func() (err error) {
		l.stream, err = l.js.Stream(ctx, c.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			l.stream, err = l.js.CreateStream(ctx, c)
		case err != nil:
		default: // other processes that open it have nothing to change either
			is := &l.stream.CachedInfo().Config
			if is.MaxBytes != c.MaxBytes || is.Replicas != c.Replicas || is.Duplicates != c.Duplicates {
				l.stream, err = l.js.UpdateStream(ctx, c)
			}
		}
		return err
	})
	l.replicated = c.Replicas > 1
	return err
}

// SetMaxBytes changes the limit above which Append returns ErrFull. Existing entries stay. On a
// worker it does nothing: the store nodes change the limit when they read their configuration.
func (l *Log) SetMaxBytes(ctx context.Context, most int64) error {
	if l.far != nil {
		return nil
	}
	info, err := l.stream.Info(ctx)
	if err == nil {
		c := info.Config
		c.MaxBytes = most
		_, err = l.js.UpdateStream(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("bound stream %s to %d bytes: %w", l.name, most, err)
	}
	return nil
}

// Append writes an entry directly after the entry with sequence number after. If another entry is
// there, it returns ErrConflict. After any other error the entry may or may not have been written.
// Append retries while it gets no answer, and writes the entry only once; ctx should have a
// deadline.
func (l *Log) Append(ctx context.Context, data []byte, after uint64) (uint64, error) {
	if len(data) > MaxEntry {
		return 0, ErrTooLarge
	}
	seq, tries, id := uint64(0), 0, rand.Text()
	err := asked(ctx, func(ctx context.Context) (err error) {
		tries++
		seq, err = l.publish(ctx, data, after, id)
		return err
	})
	if err == nil {
		return seq, nil
	}
	err = l.writeError(ctx, err)
	if tries > 1 && errors.Is(err, ErrConflict) {
		if e, err := l.Get(ctx, after+1); err == nil && bytes.Equal(e.Data, data) {
			return e.Seq, nil // written by an attempt whose answer was lost
		}
	}
	return 0, err
}

// publish makes one attempt to write an entry. Attempts with the same id write it once.
func (l *Log) publish(ctx context.Context, data []byte, after uint64, id string) (uint64, error) {
	if l.far != nil {
		x, _, err := l.far.log(ctx, question{Op: opAppend, Name: l.cfg.Name, Seq: after, ID: id}, data)
		return x.Seq, err
	}
	opts := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0), jetstream.WithMsgID(id)}
	if after != AnySequence {
		opts = append(opts, jetstream.WithExpectLastSequence(after))
	}
	ack, err := l.js.Publish(ctx, l.subject, data, opts...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func (l *Log) writeError(ctx context.Context, err error) error {
	e, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrFull): // as a store node has answered
		return err
	case ok && e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return ErrConflict
	case ok && e.ErrorCode == codeStoreFailed && e.Description == "maximum bytes exceeded":
		return ErrFull
	case broken(ctx, err, l.replicated):
		l.cfg.OnWriteFailure(err)
	}
	return fmt.Errorf("write: %w", err)
}

// Get returns one entry, or ErrNotFound.
func (l *Log) Get(ctx context.Context, seq uint64) (Entry, error) {
	var m *jetstream.RawStreamMsg
	var e Entry
	err := asked(ctx, func(ctx context.Context) (err error) {
		if l.far != nil {
			x, data, err := l.far.log(ctx, question{Op: opGet, Name: l.cfg.Name, Seq: seq}, nil)
			e = Entry{Seq: x.Seq, At: x.At, Data: data}
			return err
		}
		m, err = l.stream.GetMsg(ctx, seq)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, ErrNotFound):
		return Entry{}, ErrNotFound
	case err != nil:
		return Entry{}, fmt.Errorf("read entry %d: %w", seq, err)
	case l.far != nil:
		return e, nil
	}
	return Entry{Seq: m.Sequence, At: m.Time, Data: m.Data}, nil
}

// Follow calls f with each entry from the sequence number from on, in order, and continues with new
// entries. It returns when ctx ends or f returns an error, which Follow returns. f owns the bytes.
func (l *Log) Follow(ctx context.Context, from uint64, f func(Entry) error) error {
	return l.read(ctx, max(1, from), f, func() error { return nil })
}

// read does the work of Follow. It also calls idle when no entry has arrived for a moment, and when
// no more entries are known.
func (l *Log) read(ctx context.Context, next uint64, f func(Entry) error, idle func() error) error {
	for {
		err := l.pull(ctx, &next, f, idle)
		switch stop, stopped := errors.AsType[*stopFollow](err); {
		case stopped:
			return stop.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		l.cfg.Log.Debug("log read again", "stream", l.name, "from", next, "error", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(askAgain):
		}
	}
}

// A stopFollow is an error of the caller's function, not of the reading.
type stopFollow struct{ error }

// errGap reports that an entry was lost on its way, or that the server restarted its sequence.
var errGap = errors.New("an entry is missing")

// Parameters of reading. Chosen: a server that sends nothing for twice readBeat is down. The engine
// removes an unused reader after readLeft. A lost entry with no entry behind it is detected after
// readLook idle moments: 4 s.
const (
	readBeat = time.Second
	readIdle = 250 * time.Millisecond
	readLeft = 30 * time.Second
	readLook = 16
)

// pull reads through a consumer in the engine. Only one server has the consumer, and it may be
// lost.
func (l *Log) pull(ctx context.Context, next *uint64, f func(Entry) error, idle func() error) error {
	if l.far != nil {
		return l.pullFar(ctx, next, f, idle)
	}
	making, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	c, err := l.js.CreateConsumer(making, l.name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *next,
		AckPolicy: jetstream.AckNonePolicy, Replicas: 1, MemoryStorage: true, InactiveThreshold: readLeft,
	})
	if err != nil {
		return err
	}
	all, err := c.Messages(jetstream.PullMaxBytes(readAhead), jetstream.PullExpiry(readLeft/2),
		jetstream.PullHeartbeat(readBeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, all.Stop)()
	defer all.Stop()
	still := 0
	for n := uint64(1); ; {
		m, err := all.Next(jetstream.NextMaxWait(readIdle))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, nats.ErrTimeout):
			if err := idle(); err != nil {
				return &stopFollow{err}
			}
			// A consumer whose messages were lost looks like one without messages. The log itself
			// knows.
			if still++; still%readLook == 0 {
				if more, err := l.has(ctx, *next, AnySequence); err == nil && more {
					return errGap
				}
			}
			continue
		case err != nil:
			return err
		}
		still = 0
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		// The numbers of a consumer have no gaps, unlike those of the stream.
		if meta.Sequence.Consumer != n {
			return errGap
		}
		n++
		if err = f(Entry{meta.Sequence.Stream, meta.Timestamp, m.Data()}); err != nil {
			return &stopFollow{err}
		}
		*next = meta.Sequence.Stream + 1
		if meta.NumPending == 0 {
			if err := idle(); err != nil {
				return &stopFollow{err}
			}
		}
	}
}

// pullFar is the pull of a worker: it requests page after page.
func (l *Log) pullFar(ctx context.Context, next *uint64, f func(Entry) error, idle func() error) error {
	for {
		_, b, err := l.far.log(ctx, question{Op: opPage, Name: l.cfg.Name, Seq: *next}, nil)
		var all []Entry
		if err == nil {
			all, err = parsePage(b)
		}
		if err != nil {
			return err
		}
		for _, e := range all {
			if err := f(e); err != nil {
				return &stopFollow{err}
			}
			*next = e.Seq + 1
		}
		if len(all) > 0 {
			continue
		}
		if err := idle(); err != nil {
			return &stopFollow{err}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(readIdle):
		}
	}
}

// ReadAll calls f with each entry that is there now, in order. The server that sends the entries
// may be behind, so ReadAll asks the leader whether all have been read and which ones were deleted.
func (l *Log) ReadAll(ctx context.Context, f func(Entry) error) (LogSize, error) {
	size, gone, err := l.look(ctx, true)
	if err != nil || size.Count == 0 {
		return size, err
	}
	read := errors.New("all is read")
	next := size.First
	err = l.read(ctx, next, func(e Entry) error {
		if e.Seq > size.Last {
			return read
		}
		next = e.Seq + 1
		if gone[e.Seq] {
			return nil
		}
		return f(e)
	}, func() error {
		if next <= size.Last {
			more, err := l.has(ctx, next, size.Last)
			if err != nil || more {
				return nil // the entry will arrive, or the reading fails too
			}
		}
		return read
	})
	if errors.Is(err, read) {
		err = nil
	}
	return size, err
}

// has reports whether there is an entry with a sequence number in the range.
func (l *Log) has(ctx context.Context, from, to uint64) (bool, error) {
	if l.far != nil {
		_, _, err := l.far.log(ctx, question{Op: opHas, Name: l.cfg.Name, Seq: from, To: to}, nil)
		if errors.Is(err, ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	ctx, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	m, err := l.stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(l.subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil && m.Sequence <= to, err
}

// Truncate deletes all entries before a sequence number.
func (l *Log) Truncate(ctx context.Context, before uint64) error {
	var err error
	if l.far != nil {
		_, _, err = l.far.log(ctx, question{Op: opCut, Name: l.cfg.Name, Seq: before}, nil)
	} else {
		err = l.stream.Purge(ctx, jetstream.WithPurgeSequence(before))
	}
	if err != nil {
		return fmt.Errorf("cut the log: %w", err)
	}
	return nil
}

// Delete deletes one entry, if it exists.
func (l *Log) Delete(ctx context.Context, seq uint64) error {
	var err error
	if l.far != nil {
		_, _, err = l.far.log(ctx, question{Op: opDelete, Name: l.cfg.Name, Seq: seq}, nil)
	} else {
		err = l.stream.DeleteMsg(ctx, seq)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("delete entry %d: %w", seq, err)
	}
	return nil
}

// Size returns the size of the log.
func (l *Log) Size(ctx context.Context) (LogSize, error) {
	size, _, err := l.look(ctx, false)
	return size, err
}

// look asks the leader for the size of the log, and for the deleted sequence numbers between the
// first and the last entry.
func (l *Log) look(ctx context.Context, deleted bool) (s LogSize, gone map[uint64]bool, err error) {
	if l.far != nil { // a worker reads from the leader, so it gets no deleted entry
		err = asked(ctx, func(ctx context.Context) error {
			x, _, err := l.far.log(ctx, question{Op: opSize, Name: l.cfg.Name}, nil)
			if err == nil && x.Size != nil {
				s = *x.Size
			}
			return err
		})
		if err != nil {
			err = fmt.Errorf("look at the log: %w", err)
		}
		return s, nil, err
	}
	var opts []jetstream.StreamInfoOpt
	if deleted {
		opts = append(opts, jetstream.WithDeletedDetails(true))
	}
	var info *jetstream.StreamInfo
	err = asked(ctx, func(ctx context.Context) (err error) {
		info, err = l.stream.Info(ctx, opts...)
		return err
	})
	if err != nil {
		return s, nil, fmt.Errorf("look at the log: %w", err)
	}
	gone = make(map[uint64]bool, len(info.State.Deleted))
	for _, seq := range info.State.Deleted {
		gone[seq] = true
	}
	is := &info.State
	return LogSize{First: is.FirstSeq, Last: is.LastSeq, Count: is.Msgs, Bytes: is.Bytes}, gone, nil
}
