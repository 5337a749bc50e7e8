package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func openLog(t *testing.T, d *disk, most int64) *Log {
	t.Helper()
	l, err := OpenLog(t.Context(), LogConfig{Conn: d.engine.Conn(), Name: "test", MaxBytes: most})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// all returns the entries of a log, as texts.
func all(t *testing.T, l *Log) (texts []string) {
	t.Helper()
	if _, err := l.ReadAll(t.Context(), func(e Entry) error {
		texts = append(texts, fmt.Sprintf("%d:%s", e.Seq, e.Data))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestALogKeepsItsOrderThroughARestart(t *testing.T) {
	withEngines(t, testALogKeepsItsOrderThroughARestart)
}

func testALogKeepsItsOrderThroughARestart(t *testing.T, d *disk) {
	l := openLog(t, d, 0)
	if got := all(t, l); got != nil {
		t.Errorf("an empty log has %v", got)
	}
	for i := range 5 {
		seq, err := l.Append(t.Context(), []byte{byte('a' + i)}, AnySequence)
		if err != nil || seq != uint64(i+1) {
			t.Fatal(seq, err)
		}
	}
	if err := l.Delete(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(t.Context(), 5); err != nil { // the last one: its number is not used again
		t.Fatal(err)
	}
	if err := l.Truncate(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	d.close()
	d.open()
	l = openLog(t, d, 0)
	if got := fmt.Sprint(all(t, l)); got != "[2:b 4:d]" {
		t.Errorf("got %v", got)
	}
	if _, err := l.Get(t.Context(), 3); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted entry: %v", err)
	}
	if seq, err := l.Append(t.Context(), []byte("f"), 5); seq != 6 || err != nil {
		t.Errorf("behind a deleted one: %d %v", seq, err)
	}
	stop := errors.New("enough")
	err := l.Follow(t.Context(), 4, func(e Entry) error {
		if e.Seq == 6 {
			return stop
		}
		return nil
	})
	if err != stop {
		t.Errorf("follow: %v", err)
	}
}

func TestOfTwoWhoAppendBehindTheSameEntryOneDoes(t *testing.T) {
	withEngines(t, testOfTwoWhoAppendBehindTheSameEntryOneDoes)
}

func testOfTwoWhoAppendBehindTheSameEntryOneDoes(t *testing.T, d *disk) {
	l := openLog(t, d, 0)
	seq, err := l.Append(t.Context(), []byte("a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), []byte("b"), seq); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), []byte("c"), seq); !errors.Is(err, ErrConflict) {
		t.Errorf("the second: %v", err)
	}
	if got := fmt.Sprint(all(t, l)); got != "[1:a 2:b]" {
		t.Errorf("got %v", got)
	}
}

func TestAFullLogRefuses(t *testing.T) { withEngines(t, testAFullLogRefuses) }

func testAFullLogRefuses(t *testing.T, d *disk) {
	l := openLog(t, d, 100<<10)
	if _, err := l.Append(t.Context(), make([]byte, MaxEntry+1), AnySequence); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	var err error
	for range 10 {
		if _, err = l.Append(t.Context(), make([]byte, 20<<10), AnySequence); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("a full log: %v", err)
	}
	if err := l.Truncate(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), make([]byte, 20<<10), AnySequence); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// A lossy server loses some of what it sends.
type lossy struct {
	nats.InProcessConnProvider
	lose atomic.Int64 // how many more times
	what string       // what the lost message contains
}

func (s *lossy) InProcessConn() (net.Conn, error) {
	c, err := s.InProcessConnProvider.InProcessConn()
	return &lossyConn{c, s}, err
}

type lossyConn struct {
	net.Conn
	s *lossy
}

// Read also loses what was sent together with the answer.
func (c *lossyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !bytes.Contains(b[:n], []byte(c.s.what)) || c.s.lose.Add(-1) < 0 {
			return n, err
		}
	}
}

func (s *lossy) openLog(t *testing.T) *Log {
	t.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	l, err := OpenLog(t.Context(), LogConfig{Conn: conn, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// When a leader dies its answers are lost, though it may have written the entry.
func TestAnEntryWhoseAnswerIsLostIsWrittenOnce(t *testing.T) {
	withEngines(t, testAnEntryWhoseAnswerIsLostIsWrittenOnce)
}

func testAnEntryWhoseAnswerIsLostIsWrittenOnce(t *testing.T, d *disk) {
	s := &lossy{InProcessConnProvider: d.engine, what: `"seq":`}
	l := s.openLog(t)
	for i, after := range []uint64{AnySequence, 1} {
		s.lose.Store(1)
		seq, err := l.Append(t.Context(), []byte{byte('a' + i)}, after)
		if err != nil || seq != uint64(i+1) {
			t.Errorf("behind %d: %d %v", after, seq, err)
		}
		if s.lose.Load() > 0 {
			t.Error("no answer was lost")
		}
	}
	if _, err := l.Append(t.Context(), []byte("c"), 1); !errors.Is(err, ErrConflict) {
		t.Errorf("behind one that is not the last: %v", err)
	}
	if got := fmt.Sprint(all(t, l)); got != "[1:a 2:b]" {
		t.Errorf("got %v", got)
	}
}

func TestAnEntryThatIsLostOnTheWayIsReadAgain(t *testing.T) {
	withEngines(t, testAnEntryThatIsLostOnTheWayIsReadAgain)
}

func testAnEntryThatIsLostOnTheWayIsReadAgain(t *testing.T, d *disk) {
	s := &lossy{InProcessConnProvider: d.engine, what: "the second"}
	l := s.openLog(t)
	var got []uint64
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	read := errors.New("all is read")
	for _, text := range []string{"the first", "the second", "the third"} {
		if _, err := l.Append(t.Context(), []byte(text), AnySequence); err != nil {
			t.Fatal(err)
		}
	}
	s.lose.Store(1)
	err := l.Follow(ctx, 1, func(e Entry) error {
		got = append(got, e.Seq)
		if e.Seq == 3 {
			return read
		}
		return nil
	})
	if err != read || !slices.Equal(got, []uint64{1, 2, 3}) || s.lose.Load() > 0 {
		t.Errorf("read %v, %v", got, err)
	}
}

// The server that has a reader may die.
func TestAReaderThatIsLostIsMadeAnew(t *testing.T) { withEngines(t, testAReaderThatIsLostIsMadeAnew) }

func testAReaderThatIsLostIsMadeAnew(t *testing.T, d *disk) {
	l := openLog(t, d, 0)
	put := func(text string) {
		t.Helper()
		if _, err := l.Append(t.Context(), []byte(text), AnySequence); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	read := make(chan string)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = l.Follow(ctx, 1, func(e Entry) error {
			select {
			case read <- string(e.Data):
			case <-ctx.Done():
			}
			return nil
		})
	})
	defer wg.Wait()
	defer stop()
	lost := 0
	for _, next := range []string{"a", "b", "c"} {
		if got := <-read; got != next {
			t.Errorf("read %q, want %q", got, next)
		}
		for name := range l.stream.ConsumerNames(t.Context()).Name() {
			if err := l.stream.DeleteConsumer(t.Context(), name); err == nil {
				lost++
			}
		}
		put(string(next[0] + 1))
	}
	if lost < 2 {
		t.Errorf("%d readers were lost", lost)
	}
}

func TestLogsThatHoldSomethingAreListed(t *testing.T) {
	withEngines(t, testLogsThatHoldSomethingAreListed)
}

func testLogsThatHoldSomethingAreListed(t *testing.T, d *disk) {
	l := openLog(t, d, 0)
	if all, err := LogSizes(t.Context(), d.engine.Conn()); err != nil || len(all) != 0 {
		t.Fatalf("of an empty log: %v %v", all, err)
	}
	if _, err := l.Append(t.Context(), []byte("x"), AnySequence); err != nil {
		t.Fatal(err)
	}
	if all, err := LogSizes(t.Context(), d.engine.Conn()); err != nil || len(all) != 1 || all["test"] == 0 {
		t.Errorf("got %v %v", all, err)
	}
}
