package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// A Receipt confirms that a job is on disk.
type Receipt struct {
	ID        string
	Duplicate bool // the key was put before: ID is that of the first job, see Put
}

// A piece is a group of jobs to be written, small enough for one chunk.
type piece struct {
	jobs [][]byte
	size int
	done chan error // capacity 1
	seq  uint64     // the chunk, valid when done returns nil
	from int        // index of the first job in the chunk
}

const writeWait = 10 * time.Second // chosen: a slow disk takes a second

// Put stores jobs and returns when all of them are on disk. The receipts are in the order of jobs.
//
// If err is not nil, the jobs without an ID may or may not be stored; it is safe to put them again
// with the same Key. Errors wrap ErrJob, in which case nothing is stored, or ErrFull or ErrWrite.
//
// The node that hosts the queue decides whether a job is a duplicate. Put waits for its answer for
// up to 3 s. While there is no host, receipts do not report duplicates, but duplicates are dropped
// all the same.
func (q *Queue) Put(ctx context.Context, jobs []Job) ([]Receipt, error) {
	now := time.Now()
	var all []error
	for i := range jobs {
		if err := jobs[i].check(now); err != nil {
			all = append(all, fmt.Errorf("job %d: %w", i+1, err))
		}
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	receipts := make([]Receipt, len(jobs))
	fresh, duplicates := q.known(jobs, receipts, now)
	if err := q.hasRoom(len(fresh)); err != nil {
		return receipts, err
	}
	err := q.write(ctx, jobs, fresh, receipts)
	q.settle(ctx, jobs, receipts, fresh)
	for i, first := range duplicates {
		if id := receipts[first].ID; id != "" {
			receipts[i] = Receipt{id, true}
		}
	}
	return receipts, err
}

// write stores some of the jobs, and sets the IDs of the stored ones in the receipts.
func (q *Queue) write(ctx context.Context, jobs []Job, which []int, receipts []Receipt) error {
	var pieces []sent
	for _, i := range which {
		b := appendJob(nil, &jobs[i])
		n := len(pieces)
		if n == 0 || len(pieces[n-1].jobs) >= chunkJobs || pieces[n-1].size+len(b) > chunkBytes {
			pieces = append(pieces, sent{&piece{done: make(chan error, 1)}, nil})
			n++
		}
		p := &pieces[n-1]
		p.piece.jobs, p.jobs = append(p.piece.jobs, b), append(p.jobs, i)
		p.size += len(b) + 4
	}
	if room := q.cfg.Space; room != nil {
		size := 0
		for _, p := range pieces {
			size += p.size
		}
		if err := room(int64(size)); err != nil {
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return q.send(ctx, pieces, receipts)
}

// A sent is a piece with some of the jobs of a Put.
type sent struct {
	*piece
	jobs []int
}

// send writes pieces one after the other, and sets the IDs of the stored jobs in the receipts.
func (q *Queue) send(ctx context.Context, pieces []sent, receipts []Receipt) error {
	for _, p := range pieces {
		select {
		case q.puts <- p.piece:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrWrite, context.Cause(ctx))
		case <-q.ended:
			return fmt.Errorf("%w: %w", ErrWrite, ErrClosed)
		}
		select {
		case err := <-p.done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrWrite, context.Cause(ctx))
		}
		for k, i := range p.jobs {
			receipts[i].ID = refOf(p.seq, p.from+k).String()
		}
	}
	return nil
}

// known finds the duplicates that this node already knows, so that they are not written again;
// settle finds the others. It returns the jobs to write, and the first job of each duplicate within
// jobs.
func (q *Queue) known(
	jobs []Job, receipts []Receipt, now time.Time,
) (fresh []int, duplicates map[int]int) {
	h, window := q.lead.Load(), q.set.Load().KeyWindow
	first := map[string]int{}
	duplicates = map[int]int{}
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	for i := range jobs {
		key := jobs[i].Key
		if key == "" || window == 0 {
			fresh = append(fresh, i)
			continue
		}
		if j, twice := first[key]; twice {
			duplicates[i] = j
			continue
		}
		first[key] = i
		if h != nil {
			if r, ok := h.index.seen(key, now); ok {
				receipts[i] = Receipt{r.String(), true}
				continue
			}
		}
		fresh = append(fresh, i)
	}
	return fresh, duplicates
}

// hasRoom returns an error if n more jobs do not fit. Only the host knows how many jobs wait; other
// nodes are limited by the maximum bytes of the log.
func (q *Queue) hasRoom(n int) error {
	h := q.lead.Load()
	if h == nil {
		return nil
	}
	h.mu.Lock()
	left := h.index.left
	h.mu.Unlock()
	if most := q.set.Load().MaxWaiting; left+n > most {
		return fmt.Errorf("%w: %d jobs are in it, %d more are put, and %d are the most", ErrFull, left, n, most)
	}
	return nil
}

// writePuts writes the jobs that are put. One write takes all that have arrived since the write
// before.
func (q *Queue) writePuts(ctx context.Context) {
	var next *piece
	for {
		p := next
		if next = nil; p == nil {
			select {
			case p = <-q.puts:
			case <-ctx.Done():
				return
			}
		}
		var c chunker
		group := []*piece{p}
		p.into(&c)
		for more := true; more; {
			select {
			case p := <-q.puts:
				if c.n+len(p.jobs) > chunkJobs || len(c.b)+p.size > chunkBytes {
					next, more = p, false
					break
				}
				p.into(&c)
				group = append(group, p)
			default:
				more = false
			}
		}
		seq, err := q.append(ctx, c.bytes())
		for _, p := range group {
			p.seq = seq
			p.done <- err
		}
		if err == nil {
			q.totals.put.Add(int64(c.n))
		}
	}
}

func (p *piece) into(c *chunker) {
	p.from = c.n
	for _, b := range p.jobs {
		c.add(b)
	}
}

func (q *Queue) append(ctx context.Context, chunk []byte) (uint64, error) {
	// A write that has begun is waited for, even while the process ends.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), writeWait)
	defer stop()
	seq, err := q.jobs.Append(ctx, chunk, store.AnySequence)
	switch {
	case errors.Is(err, store.ErrFull):
		return 0, fmt.Errorf("%w: what is kept of it has the %d bytes that it may have; what is done counts "+
			"as long as its keys are known", ErrFull, q.set.Load().MaxBytes)
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return seq, nil
}
