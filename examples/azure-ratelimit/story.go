package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lease"
)

// A story defines the run, in seconds that may be shorter than real ones.
type story struct {
	second     time.Duration
	a, b       int   // records of each type
	partitions int   // of the database…
	amount     int64 // …and what each takes in a second
	term       int   // of a lease, in seconds
	picks      map[string][]int

	naive, naiveLimit, naiveCost int
}

// seed returns the story of the page. The partitions that A and B try first are those of its
// diagram: 2, 6, 0 and 2, 3, 1. Here they are indexes among the partitions that the processor does
// not have: 3 has index 2 for a processor that has 2.
func seed() *story {
	return &story{
		second: time.Second, a: 10_000, b: 5_000, partitions: 10, amount: 100, term: 15,
		picks: map[string][]int{"A": {2, 6, 0}, "B": {2, 2, 1}},
		naive: 10_000, naiveLimit: 20_000, naiveCost: 10,
	}
}

// answered is how long an answer of the database, and a change of a limit, may take. A returned
// partition is not lent for this long, in addition to the second in which the database counts.
const answered = time.Second

func (s *story) partitioning() lease.Partitioning {
	return lease.Partitioning{Count: s.partitions, Amount: s.amount, Window: s.second,
		Term: time.Duration(s.term) * s.second, Rest: s.second + answered}
}

// An ending is what the databases have counted.
type ending struct {
	s         *story
	passes    []int // of the naive process
	naive     counts
	paced     counts
	naiveTook time.Duration
	pacedTook time.Duration
	asked     map[string][]asked
	rates     []rates // per second
}

// A rates is what the two processors may send in a second, and what they have done.
type rates struct{ A, B, doneA, doneB int }

// A stage holds the parts of a run.
type stage struct {
	*story
	naiveDB, pacedDB *database
	engine           *embedded.Server
	a, b             *processor
	api              *api
	start            chan struct{} // closed when the records are in the queues
	began            time.Time
}

// play runs the story and prints a line each second.
func (s *story) play(ctx context.Context, out io.Writer) (end *ending, err error) {
	st := &stage{story: s}
	closing, err := st.open(ctx)
	defer func() { err = errors.Join(err, closing()) }()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop(nil)
	spawn := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				stop(err)
			}
		})
	}
	for _, p := range []*processor{st.a, st.b} {
		spawn(func() error { return p.run(ctx) })
	}
	for name, n := range map[string]int{"A": s.a, "B": s.b} {
		if err := st.submit(ctx, name, records(name, n)); err != nil {
			return nil, err
		}
	}
	if err := st.hosted(ctx); err != nil {
		return nil, err
	}
	end = &ending{s: s}
	st.began = time.Now()
	close(st.start)
	naiveDone := make(chan struct{})
	spawn(func() (err error) {
		defer close(naiveDone)
		end.passes, err = naive(ctx, http.DefaultClient, st.naiveDB.url, records("N", s.naive), s.second)
		end.naiveTook = time.Since(st.began)
		return err
	})
	if err := st.watch(ctx, end, out); err != nil {
		return nil, err
	}
	select {
	case <-naiveDone:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	end.naive, end.paced = st.naiveDB.look(), st.pacedDB.look()
	stop(nil)
	wg.Wait()
	end.asked = map[string][]asked{"A": st.a.asked, "B": st.b.asked}
	return end, nil
}

// open starts all parts. closing is never nil.
func (st *stage) open(ctx context.Context) (closing func() error, err error) {
	var opened []func() error
	closing = func() error {
		var all []error
		for i := len(opened) - 1; i >= 0; i-- {
			all = append(all, opened[i]())
		}
		return errors.Join(all...)
	}
	folder, err := os.MkdirTemp("", "azure-ratelimit-")
	if err != nil {
		return closing, err
	}
	opened = append(opened, func() error { return os.RemoveAll(folder) })
	if st.naiveDB, err = openDatabase(st.naiveLimit, st.naiveCost, st.second); err != nil {
		return closing, err
	}
	opened = append(opened, st.naiveDB.close)
	st.pacedDB, err = openDatabase(st.partitions*int(st.amount), 1, st.second)
	if err != nil {
		return closing, err
	}
	opened = append(opened, st.pacedDB.close)
	if st.engine, err = embedded.Open(ctx, embedded.Config{Dir: folder}); err != nil {
		return closing, err
	}
	opened = append(opened, func() error { st.engine.Close(); return nil })
	st.start = make(chan struct{})
	st.b = st.processor("B", st.start)
	st.a = st.processor("A", st.b.began) // both want the same partition, and B requests it first
	if st.story.b == 0 {
		st.a.after = st.start
	}
	for _, p := range []*processor{st.a, st.b} {
		if err := p.open(ctx, queue.Config{NATS: st.engine.Conn()}); err != nil {
			return closing, err
		}
	}
	st.api, err = openAPI(map[string]*queue.Queue{"A": st.a.queue, "B": st.b.queue})
	if err == nil {
		opened = append(opened, st.api.close)
	}
	return closing, err
}

func (st *stage) processor(name string, after <-chan struct{}) *processor {
	return &processor{name: name, s: st.story, url: st.pacedDB.url, after: after,
		began: make(chan struct{}), picks: st.picks[name]}
}

// records returns generated records.
func records(kind string, n int) []record {
	all := make([]record, n)
	for i := range all {
		all[i] = record{ID: fmt.Sprintf("%s-%d", kind, i+1), Type: kind, Count: 1 + i%9}
	}
	return all
}

// submit acts as a user that sends records to the API.
func (st *stage) submit(ctx context.Context, kind string, all []record) error {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for _, r := range all {
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, st.api.url+"/"+kind, &body)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the API answered %s", answer.Status)
	}
	return nil
}

// hosted waits until both queues have a host and hold all records.
func (st *stage) hosted(ctx context.Context) error {
	for {
		if left, err := st.left(ctx); err == nil && left == st.story.a+st.story.b {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watch prints a line each second until both queues are empty.
func (st *stage) watch(ctx context.Context, end *ending, out io.Writer) error {
	fmt.Fprintf(out, "%d records of type A and %d of type B are in the queues, on the disk.\n\n",
		st.story.a, st.story.b)
	wide := st.story.partitions
	fmt.Fprintf(out, "       naive, in all   | processor %-*s  | processor %-*s  | queues\n", wide+3, "A", wide+3, "B")
	fmt.Fprintf(out, "second   sent  refused | rate  %-*s  done  | rate  %-*s  done  |   left  refused\n",
		wide-2, "leases", wide-2, "leases")
	tick := time.NewTicker(st.second)
	defer tick.Stop()
	var before counts
	for second := 0; ; second++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		left, err := st.left(ctx)
		if err != nil {
			return err
		}
		n, c := st.naiveDB.look(), st.pacedDB.look()
		rateA, hasA := st.a.share.Has()
		rateB, hasB := st.b.share.Has()
		r := rates{int(rateA), int(rateB), c.A - before.A, c.B - before.B}
		end.rates, before = append(end.rates, r), c
		fmt.Fprintf(out, "%6d %6d %8d |%5d  %s %5d  |%5d  %s %5d  |%7d %8d\n", second, n.Sends, n.Refused,
			r.A, st.strip(hasA), r.doneA, r.B, st.strip(hasB), r.doneB, left, c.Refused)
		if left == 0 {
			end.pacedTook = time.Since(st.began)
			return nil
		}
	}
}

// left returns the number of records in the queues.
func (st *stage) left(ctx context.Context) (left int, err error) {
	for _, p := range []*processor{st.a, st.b} {
		s, err := p.queue.Status(ctx)
		if err != nil {
			return 0, err
		}
		left += s.Depth
	}
	return left, nil
}

// strip shows which partitions are held.
func (s *story) strip(held []int) string {
	text := bytes.Repeat([]byte("."), s.partitions)
	for _, i := range held {
		text[i] = byte('0' + i%10)
	}
	return string(text)
}

// tell prints the totals, and fails if a promise was broken.
func (e *ending) tell(out io.Writer) error {
	sums := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(e.passes)), " + "), "[]")
	fmt.Fprintf(out, "\nThe naive process has sent %s = %d.\n\n", sums, e.naive.Sends)
	fmt.Fprintln(out, "                                          most asked for   it takes")
	fmt.Fprintln(out, "            records    sends  refused  in a second  200 ms   a second  seconds")
	row := func(name string, records int, c counts, limit int, took time.Duration) {
		fmt.Fprintf(out, "%-10s %8d %8d %8d %12d %7d %10d %8.1f\n", name, records, c.Sends, c.Refused,
			c.MostAsked, c.MostFifth, limit, took.Seconds()/e.s.second.Seconds())
	}
	limit := e.s.partitions * int(e.s.amount)
	row("naive", e.s.naive, e.naive, e.s.naiveLimit/e.s.naiveCost, e.naiveTook)
	row("headgate", e.s.a+e.s.b, e.paced, limit, e.pacedTook)
	c := e.paced
	if c.Refused > 0 || c.Twice > 0 || c.Stored != e.s.a+e.s.b || c.MostAsked > limit {
		return fmt.Errorf("a promise is broken: %+v", c)
	}
	return nil
}
