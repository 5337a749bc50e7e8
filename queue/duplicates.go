package queue

import (
	"context"
	"time"
)

// Only the host knows the keys of a queue, and that in the order of the log: of two jobs of a key
// the first counts, wherever and however close together they were put. So whoever has put jobs with
// keys asks it, once they are on the disk, which of them are not kept.

// A keyedJob is a job that was put, as the host is asked for it.
type keyedJob struct {
	Ref ref    `json:"ref"`
	Key []byte `json:"key"` // any bytes
}

// Bounds of asking. Chosen: a message carries a megabyte, with the keys in base64; and a host that
// has stopped to answer is replaced within five seconds, for which nobody who puts should wait.
const (
	askedKeys = 512 << 10
	askedFor  = 3 * time.Second
)

// settle says in the receipts of what was put which were there before. If the host does not say, or
// there is none now, they stay as if new: it lets go of them all the same.
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
	var of []int // the jobs of asked
	size := 0
	ask := func() (more bool) {
		if len(asked) == 0 {
			return true
		}
		r, err := q.do(ctx, command{Op: opTwins, Put: asked})
		for i, first := range r.Twins {
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

// settle is that of the queue at its host.
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
		if first, twin := h.index.twin(r, jobs[i].Key, now); twin {
			receipts[i] = Receipt{first.String(), true}
		}
	}
}

// twins finds for another node which of its jobs are not the first of their keys, and who is.
func (h *host) twins(ctx context.Context, put []keyedJob) (map[int]string, error) {
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
	twins := map[int]string{}
	for i, j := range put {
		if first, twin := h.index.twin(j.Ref, string(j.Key), now); twin {
			twins[i] = first.String()
		}
	}
	return twins, nil
}

// twin tells whether a job is not the first of its key, and which one is.
func (x *index) twin(r ref, key string, now time.Time) (first ref, twin bool) {
	if c := x.chunks[r.chunk()]; c != nil {
		now = time.Unix(0, c.at) // when the key was looked for
	}
	first, ok := x.seen(key, now)
	return first, ok && first < r
}

// reaches waits until the index has all jobs up to a chunk, for askedFor at most: what is written
// comes in a moment.
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

// readLocked notes that the index has a chunk, and all before it.
func (h *host) readLocked(seq uint64) {
	h.read = max(h.read, seq)
	if h.more != nil {
		close(h.more)
		h.more = nil
	}
}
