package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/rights"
)

// workerConn returns the connection of a worker to an engine whose process serves workers.
func workerConn(t testing.TB, d *disk) *nats.Conn {
	t.Helper()
	records, err := OpenNATS(t.Context(), NATSConfig{Conn: d.engine.Conn()})
	if err != nil {
		t.Fatal(err)
	}
	desk := &Proxy{Conn: d.engine.Conn(), Records: records, Log: slog.New(slog.DiscardHandler)}
	stop, err := desk.Serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	// otherwise the worker may send a request before the Proxy serves
	if err := d.engine.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect("", nats.InProcessServer(d.engine), nats.CustomInboxPrefix(rights.Inbox("w7")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// loadPatiently repeats a read whose attempt had no time to end, as callers do.
func loadPatiently(ctx context.Context, s Store, key string) (value []byte, revision uint64, err error) {
	for {
		value, revision, err = s.Load(ctx, key)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return value, revision, err
		}
	}
}

// A worker reads and writes the records that it may access, through a store node.
func TestWorkerReadsAndWritesByAStoreNode(t *testing.T) {
	conn := workerConn(t, newDisk(t))
	s, err := OpenNATS(t.Context(), NATSConfig{Conn: conn})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, _, err := s.Load(ctx, "live.shop"); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing is there: %v", err)
	}
	whole := bytes.Repeat([]byte{'x'}, maxValue-1024) // the longest possible value
	first, err := s.CompareAndSwap(ctx, "live.shop", 0, whole)
	if errors.Is(err, context.DeadlineExceeded) { // a busy machine took longer than one attempt may
		_, first, err = loadPatiently(ctx, s, "live.shop")
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CompareAndSwap(ctx, "live.shop", 0, nil); !errors.Is(err, ErrConflict) {
		t.Errorf("an old revision: %v", err)
	}
	value, revision, err := loadPatiently(ctx, s, "live.shop")
	if err != nil || revision != first || !bytes.Equal(value, whole) {
		t.Errorf("%d bytes of revision %d, %v", len(value), revision, err)
	}
	for _, key := range []string{"keys", "counter.shop", "revoked"} {
		if _, _, err := s.Load(ctx, key); !errors.Is(err, ErrDenied) {
			t.Errorf("%s read: %v", key, err)
		}
		if _, err := s.CompareAndSwap(ctx, key, 0, nil); !errors.Is(err, ErrDenied) {
			t.Errorf("%s written: %v", key, err)
		}
	}
	if _, err := s.Keys(ctx, ""); !errors.Is(err, ErrDenied) {
		t.Errorf("keys listed: %v", err)
	}
	if k, err := Inspect(ctx, conn); err != nil || k.Wanted != 1 {
		t.Errorf("%+v %v", k, err)
	}
}

// A worker uses the log of a queue like a store node, with deleted entries and entries of any
// length. It does not make logs.
func TestWorkerUsesTheLogOfAStoreNode(t *testing.T) { withEngines(t, testWorkerUsesTheLogOfAStoreNode) }

func testWorkerUsesTheLogOfAStoreNode(t *testing.T, d *disk) {
	conn := workerConn(t, d)
	if _, err := OpenLog(t.Context(), LogConfig{Conn: conn, Name: "test"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a log that no store node has made: %v", err)
	}
	near := openLog(t, d, 0)
	l, err := OpenLog(t.Context(), LogConfig{Conn: conn, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if got := all(t, l); got != nil {
		t.Errorf("an empty log has %v", got)
	}
	const entries = 60
	for i := range entries {
		at := uint64(AnySequence)
		if i%2 == 1 {
			at = uint64(i)
		}
		seq, err := l.Append(t.Context(), fmt.Appendf(nil, "%d", i), at)
		if err != nil || seq != uint64(i+1) {
			t.Fatal(seq, err)
		}
	}
	if _, err := l.Append(t.Context(), []byte("late"), 7); !errors.Is(err, ErrConflict) {
		t.Errorf("behind an old entry: %v", err)
	}
	for seq := uint64(20); seq < 45; seq++ { // more than a page
		if err := l.Delete(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Truncate(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if got, want := all(t, l), all(t, near); !slices.Equal(got, want) || len(got) != entries-27 {
		t.Errorf("the worker reads %v, a store node %v", got, want)
	}
	size, err := l.Size(t.Context())
	if err != nil || size.First != 3 || size.Last != entries || size.Count != entries-27 {
		t.Errorf("%+v %v", size, err)
	}
	e, err := l.Get(t.Context(), 60)
	if err != nil || string(e.Data) != "59" || time.Since(e.At) > time.Hour {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := l.Get(t.Context(), 20); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted entry: %v", err)
	}

	// Entries that arrive while it follows, of the maximum length.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	whole := bytes.Repeat([]byte{'x'}, MaxEntry)
	seen := 0
	for range 3 {
		if _, err := l.Append(ctx, whole, AnySequence); err != nil {
			t.Fatal(err)
		}
	}
	err = l.Follow(ctx, entries, func(e Entry) error {
		if seen++; e.Seq != uint64(entries+seen-1) || seen > 1 && !bytes.Equal(e.Data, whole) {
			t.Errorf("entry %d is number %d of %d bytes", seen, e.Seq, len(e.Data))
		}
		if seen == 2 {
			if _, err := near.Append(ctx, whole, AnySequence); err != nil {
				return err
			}
		}
		if seen == 5 {
			stop()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || seen != 5 {
		t.Errorf("it followed %d entries: %v", seen, err)
	}
}

// A duplicate request of a worker writes the entry once.
func TestRepeatedAppendOfAWorkerIsOneEntry(t *testing.T) {
	withEngines(t, testRepeatedAppendOfAWorkerIsOneEntry)
}

func testRepeatedAppendOfAWorkerIsOneEntry(t *testing.T, d *disk) {
	conn := workerConn(t, d)
	near := openLog(t, d, 0)
	far := clientOf(conn)
	q := question{Op: opAppend, Name: "test", Seq: AnySequence, ID: "same"}
	for range 3 {
		if _, _, err := far.log(t.Context(), q, []byte("once")); err != nil {
			t.Fatal(err)
		}
	}
	if got := all(t, near); !slices.Equal(got, []string{"1:once"}) {
		t.Errorf("the log has %v", got)
	}
}

// A request whose answer would go to the subject of a record gets no answer: a worker has no right
// to write there, but the process that answers has.
func TestNoAnswerGoesToARecord(t *testing.T) {
	d := newDisk(t)
	b := NewBus(d.engine.Conn())
	records, err := OpenNATS(t.Context(), NATSConfig{Conn: d.engine.Conn()})
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan string, 3)
	stop, err := b.Serve("who", func(_ context.Context, msg []byte) []byte {
		came <- string(msg)
		return msg
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, reply := range []string{subjectHead + "keys", "$JS.API.STREAM.DELETE.HEADGATE"} {
		if err := b.conn.PublishRequest(subjectAsk+"who", reply, []byte("mine")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Request(t.Context(), "who", []byte("last")); err != nil { // the earlier requests have been handled
		t.Fatal(err)
	}
	if got := <-came; got != "last" || len(came) > 0 {
		t.Errorf("%q was answered", got)
	}
	if _, _, err := records.Load(t.Context(), "keys"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the record: %v", err)
	}
}

func FuzzWorkerQuestion(f *testing.F) {
	for _, q := range []question{{Op: opLoad, Name: "live.shop"}, {Op: opSwap, Name: "keys", Seq: 1},
		{Op: opAppend, Name: "test", Seq: AnySequence, ID: "x"}, {Op: opPage, Name: "../x", Seq: 1 << 63}} {
		b, err := pack(q, []byte("value\n"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("{}"))
	f.Add([]byte("[]\n"))
	desk := &Proxy{Log: slog.New(slog.DiscardHandler)}
	f.Fuzz(func(t *testing.T, msg []byte) {
		var got *question
		b := desk.answer(func(_ context.Context, q *question, value []byte) (result, []byte, error) {
			got = q
			if len(value) > len(msg) || len(q.Name) > mostName || len(q.ID) > mostName {
				t.Errorf("a value of %d bytes of %d, a name of %d", len(value), len(msg), len(q.Name))
			}
			return result{}, value, nil
		})(t.Context(), msg)
		var x result
		rest, err := unpack(b, &x)
		if err != nil || (x.err() == nil) != (got != nil) || len(rest) > len(msg) {
			t.Errorf("%q: answered %q, %v", msg, b, err)
		}
	})
}

func FuzzPage(f *testing.F) {
	b := appendEntry(nil, &Entry{Seq: 1, At: time.Unix(0, 1), Data: []byte("one")})
	f.Add(b)
	f.Add(appendEntry(b, &Entry{Seq: 9, At: time.Unix(1, 1)}))
	f.Add(append(b, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := parsePage(b)
		if err != nil {
			return
		}
		var again []byte
		for i := range entries {
			if i > 0 && entries[i].Seq <= entries[i-1].Seq {
				t.Errorf("%d comes after %d", entries[i].Seq, entries[i-1].Seq)
			}
			again = appendEntry(again, &entries[i])
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x is read as %x", b, again)
		}
	})
}
