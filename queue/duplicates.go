package queue

import (
	"context"
	"time"
)

// Only the host of a queue knows its keys, in the order of the log: of two jobs with one key the
// first counts, no matter where and how close together they were put. A node that has put jobs with
// keys therefore requests from the host which of them are duplicates, once they are on disk.

// A keyedJob is a job with a key, as sent to the host.
type keyedJob struct {
	Ref ref    `json:"ref"`
	Key []byte `json:"key"` // any bytes
}

// Bounds of the request for duplicates. Chosen: a message holds a megabyte, with the keys in
// base64. A host that stops answering is replaced within five seconds, and Put should not wait that
// long.
const (
	askedKeys = 512 << 10
	askedFor  = 3 * time.Second
)

// settle marks the duplicates in the receipts of the jobs in put. If there is no host or it does
// not answer, the receipts say that the jobs are new; the host drops duplicates all the same.
func (q *Queue) settle(ctx context.Context, jobs []Job, receipts []Receipt, put []int) {
	if q.set.Load().KeyWindow == 0 {
		return
	}
	if h := q.lead.Load(); h != nil {
		h.settle(ctx, jobs, receipts, put)
		return
	}
	ctx, stop := context.WithTimeout(ctx, askedFor)
	defer stop()
	var asked []keyedJob
	var of []int // indexes of the jobs in asked
	size := 0
	ask := func() (more bool) {
		if len(asked) == 0 {
			return true
		}
		r, err := q.do(ctx, command{Op: opDuplicates, Put: asked})
		for i, first := range r.Duplicates {
			if i >= 0 && i < len(of) && first != "" {
				receipts[of[i]] = Receipt{first, true}
			}
		}
		asked, of, size = asked[:0], of[:0], 0
		return err == nil
	}
	for _, i := range put {
		r, ok := parseRef(receipts[i].ID)
		if jobs[i].Key == "" || !ok {
			continue
		}
		n := len(jobs[i].Key)*4/3 + len(`{"ref":12345678901234567890,"key":"=="},`)
		if size+n > askedKeys && !ask() {
			return
		}
		asked, of, size = append(asked, keyedJob{r, []byte(jobs[i].Key)}), append(of, i), size+n
	}
	ask()
}

// settle does for the host what Queue.settle does for other nodes.
func (h *host) settle(ctx context.Context, jobs []Job, receipts []Receipt, put []int) {
	newest := ref(0)
	for _, i := range put {
		if r, ok := parseRef(receipts[i].ID); ok && jobs[i].Key != "" {
			newest = max(newest, r)
		}
	}
	if h.reaches(ctx, newest.chunk()) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, i := range put {
		r, ok := parseRef(receipts[i].ID)
		if !ok || jobs[i].Key == "" {
			continue
		}
		if first, duplicate := h.index.duplicate(r, jobs[i].Key, now); duplicate {
			receipts[i] = Receipt{first.String(), true}
		}
	}
}

// duplicates returns, for another node, which of its jobs are duplicates, and the ID of the first job of
// each.
func (h *host) duplicates(ctx context.Context, put []keyedJob) (map[int]string, error) {
	newest := uint64(0)
	for _, j := range put {
		newest = max(newest, j.Ref.chunk())
	}
	if err := h.reaches(ctx, newest); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	duplicates := map[int]string{}
	for i, j := range put {
		if first, duplicate := h.index.duplicate(j.Ref, string(j.Key), now); duplicate {
			duplicates[i] = first.String()
		}
	}
	return duplicates, nil
}

// duplicate reports whether a job is a duplicate, and which job was the first of its key.
func (x *index) duplicate(r ref, key string, now time.Time) (first ref, duplicate bool) {
	if c := x.chunks[r.chunk()]; c != nil {
		now = time.Unix(0, c.at) // when the key was looked up
	}
	first, ok := x.seen(key, now)
	return first, ok && first < r
}

// reaches waits until the index contains all jobs up to a chunk, for at most askedFor: a chunk that
// is written arrives within moments.
func (h *host) reaches(ctx context.Context, seq uint64) error {
	var late <-chan time.Time
	for {
		h.mu.Lock()
		if h.read >= seq {
			h.mu.Unlock()
			return nil
		}
		if h.more == nil {
			h.more = make(chan struct{})
		}
		more := h.more
		h.mu.Unlock()
		if late == nil {
			t := time.NewTimer(askedFor)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-more:
		case <-late:
			return context.DeadlineExceeded
		case <-h.left:
			return ErrNoHost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readLocked records that the index contains a chunk and all chunks before it.
func (h *host) readLocked(seq uint64) {
	h.read = max(h.read, seq)
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
}
