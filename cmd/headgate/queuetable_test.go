package main

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/queue"
)

func TestTheTableOfQueuesSaysWhatHoldsJobs(t *testing.T) {
	failed := &queue.Failure{At: time.Now().Add(-time.Hour / 2), Reason: "the target answered 500"}
	got := queueTable([]queue.Status{
		{Name: "lost", Reason: queue.ErrNoHost.Error() + ": it is asked for"},
		{Name: "slow", Depth: 70, InFlight: 64, AtOnce: 64, PerSecond: 7, OldestAge: 5, EmptyIn: 10},
		{Name: "ends", Depth: 64, InFlight: 64, AtOnce: 64, PerSecond: 64, OldestAge: 1, EmptyIn: 1},
		{Name: "fails", Depth: 1200, Later: 1200, Behind: 7, NextIn: 90, Rate: 0.5, OldestAge: 7200, EmptyIn: -1,
			AtOnce: 64, LastFailure: failed},
		{Name: "went", AtOnce: 64, LastFailure: failed}, // all is done: no matter
		{Name: "down", Depth: 3, AtOnce: 64, EmptyIn: -1, LastFailure: failed, PausedTenants: []string{"a", "b\n"},
			Failing: &queue.Failing{Since: time.Now().Add(-time.Hour), Tries: 12, Status: 500,
				Reason: "the target answered 500\x1b[2J"}},
		{Name: "off", Paused: true, Dead: 1, AtOnce: 64,
			Failing: &queue.Failing{Since: time.Now().Add(-time.Hour), Tries: 12, Reason: "no"}},
		{Name: "full", AtOnce: 64, Ended: 7, EndsError: "queue \"ended\": the queue is full\x1b",
			Totals: queue.Totals{EndsLost: 3}},
		{Name: "says", Dead: 1, AtOnce: 64,
			LastFailure: &queue.Failure{At: time.Now().Add(-time.Hour / 2), Reason: "no\nlost: all is well"}},
	}, func(s string) string { return "<" + s + ">" })
	want := `queue            state       jobs  flying   dead a second    oldest empty in
lost             no host        -       -      -        -         -        -
slow             runs          70      64      0      7.0       5 s     10 s
ends             runs          64      64      0     64.0       1 s      1 s
fails            runs        1200       0      0      0.0       2 h  unknown
went             runs           0       0      0      0.0         -        -
<down             failing        3       0      0      0.0       0 s  unknown>
<off              failing        0       0      1      0.0         -        ->
full             runs           0       0      0      0.0         -        -
says             runs           0       0      1      0.0         -        -
lost: no node hosts the queue now: it is asked for
slow: its concurrency is used up: 64 under way at once
fails: held to 0.5 jobs a second
fails: 1200 of the jobs go later, the next in 90 s
fails: 7 of the jobs wait for others of their order keys
fails: the last failure, 30 min ago: the target answered 500
down: all tries fail for 60 min, 12 in a row; the last one: the target answered 500?[2J
down: tenants that are paused: 2, such as ["a" "b\n"]
off: paused: nothing is sent until headgate queue resume
off: all tries fail for 60 min, 12 in a row; the last one: no
full: 7 jobs have ended whose completions wait: queue "ended": the queue is full?
full: 3 completions are lost: too many waited
says: the last failure, 30 min ago: no?lost: all is well
<2 of 9 need attention: down, off>
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestALineWithoutAnEndTakesNoMemory(t *testing.T) {
	long := io.LimitReader(zeros{}, 100<<20)
	in := io.MultiReader(strings.NewReader("{}\n"), long, strings.NewReader("\n[]"))
	r := bufio.NewReaderSize(in, 1<<16)
	first, err := readLine(r)
	if string(first) != "{}\n" || err != nil {
		t.Fatalf("%q %v", first, err)
	}
	line, err := readLine(r)
	if len(line) <= queue.MaxLine || cap(line) > 3*queue.MaxLine || err != nil ||
		bytes.Count(line, []byte("\n")) != 1 {
		t.Fatalf("%d bytes in %d of a line of 100 MB: %v", len(line), cap(line), err)
	}
	if _, err := queue.ParseJob(line); err == nil || !strings.Contains(err.Error(), "are the most") {
		t.Errorf("it is told as %v", err)
	}
	if last, err := readLine(r); string(last) != "[]" || err != io.EOF {
		t.Errorf("%q %v", last, err)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
