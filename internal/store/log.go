package store

import (
	"bytes"
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

// MaxEntry is the greatest length of an entry of a Log: what NATS carries in one message,
// less its headers.
const MaxEntry = maxValue - 1024

// logStream begins the name of a log's stream.
const logStream = "HEADGATE_LOG_"

// Anywhere, as the place of an entry, is behind whatever is there.
const AnySequence = 1<<64 - 1

// readAhead is what a reader of a Log may have in memory that it has not looked at yet.
// Chosen: some entries of the greatest length.
const readAhead = 4 << 20

// While a cluster elects a leader a question is lost rather than refused, so each is asked
// again. Chosen: an answer takes milliseconds, and a write to a busy disk a second; who asks
// gives up after 10 s, and an entry that comes twice until then is known by its id.
const (
	askFor   = 2 * time.Second
	askAgain = 100 * time.Millisecond
	idsFor   = 20 * time.Second
)

// ErrFull: the log has no room for the entry.
var ErrFull = errors.New("the log is full")

// LogConfig describes a Log.
type LogConfig struct {
	Conn           *nats.Conn
	Name           string      // letters, digits, - and _
	Replicas       int         // on how many servers; 0 is one, and AsMany lets the engine say
	MaxBytes       int64       // beyond it Append answers ErrFull; 0 is no bound
	OnWriteFailure func(error) // is told when the engine refuses to write; must not block
	Log            *slog.Logger
}

// A Log keeps entries in the order in which they came, each under a number that is never
// given again. What Append has confirmed is on the disk. It may be used by many goroutines
// at once.
type Log struct {
	cfg     LogConfig
	js      jetstream.JetStream
	stream  jetstream.Stream
	name    string
	subject string
	far     *client // of a worker: it reads and writes by the store nodes

	replicated bool // the stream is kept by several servers
}

// An Entry is what a Log keeps under a number.
type Entry struct {
	Seq  uint64
	At   time.Time // when the engine took it
	Data []byte
}

// LogSize is what a Log holds. First is the number of the oldest entry, one more than Last
// if there is none.
type LogSize struct {
	First, Last, Count, Bytes uint64
}

// OpenLog finds the log of that name, or makes it. A worker makes none: the log of a queue
// that no store node has in its configuration is not found.
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

// LogSizes are the bytes of the logs that hold something, by name. It needs the right to list
// streams, which a user of a NATS of one's own may not have.
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

// asked calls f until it is answered, each time for a while, or ctx ends.
func asked(ctx context.Context, f func(context.Context) error) error {
	for {
		try, stop := context.WithTimeout(ctx, askFor)
		err := f(try)
		stop()
		if !unanswered(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

// unanswered reports whether nobody has said yes or no, so that asking again may help.
func unanswered(err error) bool {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return passes(e)
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, errAgain) || errors.Is(err, ErrNoResponder) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
}

// open finds the stream, makes it, or changes it to be as configured.
func (l *Log) open(ctx context.Context) (err error) {
	if l.far != nil {
		_, _, err = l.far.log(ctx, question{Op: opOpen, Name: l.cfg.Name}, nil)
		return err
	}
	c := jetstream.StreamConfig{
		Name: l.name, Subjects: []string{l.subject}, Storage: jetstream.FileStorage,
		Replicas: max(1, l.cfg.Replicas), Discard: jetstream.DiscardNew, MaxBytes: l.cfg.MaxBytes,
		AllowDirect: false, // reads go to the leader: who has written reads what it wrote
		Duplicates:  idsFor,
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = -1
	}
	if l.cfg.Replicas == AutoReplicas {
		c.Replicas = 3
	}
	open := func(c jetstream.StreamConfig) error {
		var err error
		l.stream, err = l.js.Stream(ctx, c.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			l.stream, err = l.js.CreateStream(ctx, c)
		case err != nil:
		default: // others that open it at the same time have nothing to write either
			is := &l.stream.CachedInfo().Config
			if is.MaxBytes != c.MaxBytes || is.Replicas != c.Replicas || is.Duplicates != c.Duplicates {
				l.stream, err = l.js.UpdateStream(ctx, c)
			}
		}
		return err
	}
	err = open(c)
	if l.cfg.Replicas == AutoReplicas && alone(err) {
		c.Replicas = 1
		err = open(c)
	}
	l.replicated = c.Replicas > 1
	return err
}

// SetMaxBytes changes the bound beyond which Append answers ErrFull. What is there stays. A
// worker changes nothing: the store nodes do when they read their configuration.
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

// Append writes an entry, behind the entry of number after and no other: when another
// one is there the answer is ErrConflict. Of any other error the entry may or may not be written.
// While nobody answers it tries again, and writes once; ctx should have an end.
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
			return e.Seq, nil // by an attempt whose answer was lost
		}
	}
	return 0, err
}

// publish tries once to write an entry. With the same id it is written once.
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
	case errors.Is(err, ErrConflict), errors.Is(err, ErrFull): // as a store node has told
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

// Get reads one entry, or ErrNotFound.
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

// Follow calls f with each entry from the number from on, in order, and goes on with those
// that come until ctx ends or f returns an error, which is returned. f owns the bytes.
func (l *Log) Follow(ctx context.Context, from uint64, f func(Entry) error) error {
	return l.read(ctx, max(1, from), f, func() error { return nil })
}

// read is Follow, and calls idle when nothing has come for a moment, or is known to come.
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

// stopFollow is an error of the reader, and not of the reading.
type stopFollow struct{ error }

// errGap: an entry was lost on the way, or who sends them has begun anew.
var errGap = errors.New("an entry is missing")

// Parameters of reading. Chosen: a server that sends nothing for twice the beat is gone; what a
// reader leaves behind there is forgotten when nobody asks for more; what is lost between
// servers, with nothing behind it, is found out after so many idle moments: 4 s.
const (
	readBeat = time.Second
	readIdle = 250 * time.Millisecond
	readLeft = 30 * time.Second
	readLook = 16
)

// pull reads by a reader in the engine, which one server keeps and any may lose.
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

// ReadAll calls f with each entry that is there now, in order. The server that sends them may
// lag behind: that all are read, and which are not there any more, the leader says.
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
				return nil // it comes, or the reading fails too
			}
		}
		return read
	})
	if errors.Is(err, read) {
		err = nil
	}
	return size, err
}

// has tells whether there is an entry of these numbers.
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

// Cut forgets all entries before a number.
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

// Delete forgets one entry, if it is there.
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

// Size tells what the log holds.
func (l *Log) Size(ctx context.Context) (LogSize, error) {
	size, _, err := l.look(ctx, false)
	return size, err
}

// look asks the leader what the log holds, and which numbers between the first and the last are
// deleted.
func (l *Log) look(ctx context.Context, deleted bool) (s LogSize, gone map[uint64]bool, err error) {
	if l.far != nil { // it reads by the leader, and so no entry that is gone
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
