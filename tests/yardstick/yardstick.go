// Package yardstick holds what tests know about real time.
//
// No test judges by the wall clock alone: a busy machine would fail it without a fault of
// the program. A test that waits for something waits with [Await], as long as go test lets
// it. A test whose subject is a time (how long a restart takes) starts a [Stick] and
// judges with [Stick.Judge]: the bound is what the program waits for by design, plus a
// multiple of what this machine needed for the same elementary steps while the test ran.
// Both are printed.
package yardstick

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Await reports its failure this long before go test would kill the process without a
// word about what was awaited, or a fifth of the time that is left, if that is less.
const spare = 10 * time.Second

// A Waiter is what Await needs of a *testing.T. Of a *testing.B it knows no deadline.
type Waiter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A Test is what a Stick needs of a *testing.T or *testing.B.
type Test interface {
	Waiter
	TempDir() string
	Cleanup(func())
	Logf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
}

// Await calls ok until it returns true, and returns how long that took. It fails the test
// when the time that go test gives the process is nearly over: no earlier, because how
// long anything takes depends on what else the machine does.
func Await(t Waiter, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var end time.Time
	d, bounded := t.(interface{ Deadline() (time.Time, bool) })
	if bounded {
		end, bounded = d.Deadline()
		end = end.Add(-min(spare, time.Until(end)/5))
	}
	for !ok() {
		if bounded && time.Now().After(end) {
			t.Fatalf("not %s in the %v until go test ends", what, time.Since(begin))
		}
		<-tick.C
	}
	return time.Since(begin)
}

// each is how often a Stick measures: often enough that a test of some 100 ms has several
// measurements, seldom enough to use less than 1 % of a processor.
const each = 50 * time.Millisecond

// least is the least that a step counts as. Chosen: below a millisecond, the clock and the
// scheduler of an idle machine are most of what is measured.
const least = time.Millisecond

// A Stick measures, while a test runs, how long this machine takes for three steps that
// most others are made of, and keeps the slowest of each.
type Stick struct {
	mu                   sync.Mutex
	delay, sync, request time.Duration
}

// A Bound says how long something may take.
type Bound struct {
	Design   time.Duration // what the program itself waits for, on any machine
	Delays   int           // how many wake-ups of a goroutine are in it, one after another
	Syncs    int           // how many writes to the disk, with fsync
	Requests int           // how many HTTP requests
}

// Start measures until the test ends.
func Start(t Test) *Stick {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "yardstick"))
	if err != nil {
		t.Fatalf("make the file to sync: %v", err)
	}
	empty := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s := &Stick{delay: least, sync: least, request: least}
	s.measure(t, f, empty.URL) // Judge has something to go by from the first moment
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(each)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				s.measure(t, f, empty.URL)
			}
		}
	})
	t.Cleanup(func() { close(end); done.Wait(); empty.Close(); f.Close() })
	return s
}

func (s *Stick) measure(t Test, f *os.File, url string) {
	begin := time.Now()
	<-time.After(least)
	delay := time.Since(begin) - least
	begin = time.Now()
	if _, err := f.WriteAt(make([]byte, 4096), 0); err != nil {
		t.Error(err)
	}
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	synced := time.Since(begin)
	begin = time.Now()
	if res, err := http.Get(url); err != nil {
		t.Error(err)
	} else {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	took := time.Since(begin)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay, s.sync, s.request = max(s.delay, delay), max(s.sync, synced), max(s.request, took)
}

// Most returns the longest time that b allows on this machine, judged by the slowest
// steps so far.
func (s *Stick) Most(b Bound) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.Design + time.Duration(b.Delays)*s.delay + time.Duration(b.Syncs)*s.sync +
		time.Duration(b.Requests)*s.request
}

// Judge fails the test when something took longer than b allows. It prints both.
func (s *Stick) Judge(t Test, what string, took time.Duration, b Bound) {
	t.Helper()
	most := s.Most(b)
	t.Logf("%s: %v, at most %v (%s)", what, took, most, s.terms(b))
	if took > most {
		t.Errorf("%s took %v, at most %v may be: %s", what, took, most, s.terms(b))
	}
}

func (s *Stick) terms(b Bound) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%v by design, %d wake-ups of %v, %d syncs of %v, %d requests of %v",
		b.Design, b.Delays, s.delay, b.Syncs, s.sync, b.Requests, s.request)
}
