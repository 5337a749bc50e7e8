package queue

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of claims.
const (
	MaxClaim  = 1000 // jobs of one Claim, and receipts of one Ack, Nack or Extend; chosen
	MinLease  = time.Second
	MaxLease  = 12 * time.Hour
	MaxWorker = 64 // bytes of the name of a worker
)

// A Want says what a worker wants to claim.
type Want struct {
	Max    int           `json:"max"`              // at most so many jobs, 1 to MaxClaim; default 1
	Lease  time.Duration `json:"lease"`            // MinLease to MaxLease; default that of the queue
	Wait   time.Duration `json:"wait"`             // for the first job, if there is none now
	Worker string        `json:"worker,omitempty"` // shown to people
}

// A Claimed is a job that a worker has, until its lease ends. Its Attempt counts the claim.
type Claimed struct {
	Job
	Receipt string    // for Ack, Nack and Extend; a secret
	Until   time.Time // the end of the lease, by the clock of the node that hosts the queue
}

// A Nack says that a worker has not done its jobs.
type Nack struct {
	Delay   time.Duration `json:"delay,omitempty"`   // to the next try at least; it is never below the backoff
	Reason  string        `json:"why,omitempty"`     // at most one line
	Dead    bool          `json:"dead,omitempty"`    // do not try again
	Untried bool          `json:"untried,omitempty"` // the worker has not begun: no attempt is used up
}

// A Settled is the answer about one receipt.
type Settled struct {
	ID    string    `json:"id,omitempty"`    // of the job
	Code  string    `json:"code,omitempty"`  // "": all is well
	State string    `json:"state,omitempty"` // with CodeLease: where the job is now; "": unknown, or forgotten
	Until time.Time `json:"until,omitzero"`  // of Extend: the new end of the lease
}

// Codes of a Settled.
const (
	CodeLease   = "lease_over"      // ErrLease
	CodeReceipt = "invalid_receipt" // ErrReceipt
)

// Err returns nil, ErrLease or ErrReceipt.
func (s *Settled) Err() error {
	switch s.Code {
	case "":
		return nil
	case CodeLease:
		return ErrLease
	}
	return ErrReceipt
}

const (
	secretBytes = 16
	// claimBytes bounds the jobs of one claim, so that they fit into one message, in base64. One job always
	// fits.
	claimBytes = 512 << 10
	// gather is how long jobs that come one by one, at the pace of a limit, are gathered for one answer.
	// Chosen: short beside what a worker needs for a request.
	gather = 20 * time.Millisecond
	// farAsks bounds the workers of one node that wait at a host on another one. The host has 256 places
	// for all nodes. Further workers wait in their node.
	farAsks = 24
	// farWait is how long a host on another node lets a worker wait: so long it does not notice that the
	// worker has left.
	farWait   = 2 * time.Second
	claimNow  = time.Second // for a claim that does not wait, while the host is busy
	maxAskers = 4096
)

// A secret makes a receipt unguessable. Each claim has a new one, so no receipt counts for a later claim.
type secret [secretBytes]byte

func (q *Queue) claimName() string { return q.hostName() + ".claims" }

// check returns an error if a want is invalid.
func (w *Want) check() error {
	w.Max = cmp.Or(w.Max, 1)
	switch {
	case w.Max < 1 || w.Max > MaxClaim:
		return fmt.Errorf("%w: %d jobs are claimed, want 1 to %d", ErrClaim, w.Max, MaxClaim)
	case w.Wait < 0:
		return fmt.Errorf("%w: the wait is %v", ErrClaim, w.Wait)
	case !legible(w.Worker, MaxWorker):
		return fmt.Errorf("%w: the name of a worker is text of up to %d bytes in one line", ErrClaim, MaxWorker)
	}
	return checkLease(w.Lease)
}

// checkLease returns an error if no lease may be that long. 0 is the lease of the queue: its host fills it
// in, because this node may not know the newest configuration.
func checkLease(d time.Duration) error {
	if d != 0 && (d < MinLease || d > MaxLease) {
		return fmt.Errorf("%w: the lease is %v, want %v to %v", ErrClaim, d, MinLease, MaxLease)
	}
	return nil
}

// legible reports whether text can be shown to people.
func legible(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Claim returns jobs that may go now, for a worker that does them before the end of their lease. If there
// is none, it returns when there is one, and no job after w.Wait. A job counts at the limits of the queue
// and is under way until Ack, Nack, or the end of its lease: then it is tried again as if its delivery had
// failed. That a worker has a job is on disk before Claim returns, so a lease is valid at the next host too.
//
// If ctx ends, jobs that were claimed meanwhile wait again, at the end of their lease at the latest. The
// error is ErrPush if the queue delivers its jobs, ErrBusy if too many workers wait, and ErrNoHost if no
// node has answered within the wait.
func (q *Queue) Claim(ctx context.Context, w Want) ([]Claimed, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	end := time.Now().Add(w.Wait)
	for {
		now := w
		now.Wait = max(0, time.Until(end))
		var jobs []Claimed
		var err error
		h := q.lead.Load()
		if h != nil {
			jobs, err = h.claim(ctx, now)
		} else {
			jobs, err = q.claimFar(ctx, now)
		}
		left := time.Until(end)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case len(jobs) > 0, err != nil && !errors.Is(err, ErrNoHost), left <= 0:
			return jobs, err
		case err == nil:
			continue
		}
		select { // another node may begin
		case <-time.After(min(hostAgain, left)):
		case <-q.ended:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claimFar claims jobs at a host on another node. It waits for less than w.Wait: the host does not notice
// that the worker leaves.
func (q *Queue) claimFar(ctx context.Context, w Want) ([]Claimed, error) {
	if q.bus == nil {
		return nil, ErrNoHost
	}
	end := time.Now().Add(w.Wait)
	select {
	case q.asks <- struct{}{}:
		defer func() { <-q.asks }()
	case <-time.After(max(w.Wait, claimNow)):
		return nil, ErrBusy
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w.Wait = max(0, min(time.Until(end), farWait))
	// The answer is waited for even if the worker leaves: it may have jobs, and they must wait again.
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), max(w.Wait, claimNow)+askedFor)
	defer stop()
	r, err := q.ask(asking, q.claimName(), command{Op: opClaim, Want: &w})
	if err != nil {
		return nil, err
	}
	jobs := make([]Claimed, 0, len(r.Claims))
	var receipts []string
	for i := range r.Claims {
		c, err := r.Claims[i].claimed(q.cfg.Name)
		if err != nil {
			return nil, err
		}
		jobs, receipts = append(jobs, c), append(receipts, c.Receipt)
	}
	if ctx.Err() != nil && len(jobs) > 0 {
		back, stop := context.WithTimeout(context.WithoutCancel(ctx), askedFor)
		defer stop()
		_, _ = q.Nack(back, Nack{Untried: true}, receipts...) // otherwise they wait for the end of the lease
	}
	return jobs, nil
}

// A sentClaim is a Claimed in a message to another node.
type sentClaim struct {
	Receipt string    `json:"receipt"`
	Job     []byte    `json:"job"` // as stored
	Attempt int       `json:"attempt"`
	Put     time.Time `json:"put"`
	Until   time.Time `json:"until"`
}

func (s *sentClaim) claimed(queue string) (Claimed, error) {
	j, ok := parseJob(s.Job)
	r, _, isReceipt := parseReceipt(s.Receipt)
	if !ok || !isReceipt {
		return Claimed{}, fmt.Errorf("the host's answer: %w", errChunk)
	}
	j.ID, j.Queue, j.Attempt, j.Enqueued = r.String(), queue, s.Attempt, s.Put
	return Claimed{j, s.Receipt, s.Until}, nil
}

// Ack says that jobs are done, and returns when that is on disk. There is an answer for each receipt, in
// order. A receipt whose lease is over does not count: somebody else may have the job. If err is not nil,
// it is not certain what counts: send the receipts again. Those that have counted are answered with
// ErrLease and StateDelivered then.
func (q *Queue) Ack(ctx context.Context, receipts ...string) ([]Settled, error) {
	return q.settleJobs(ctx, command{Op: opAck, Receipts: receipts})
}

// Nack says that jobs are not done, and returns when that is on disk. They are tried again as if their
// delivery had failed, or die. The answers are those of Ack.
func (q *Queue) Nack(ctx context.Context, n Nack, receipts ...string) ([]Settled, error) {
	switch {
	case n.Delay < 0 || n.Delay > MaxWait:
		return nil, fmt.Errorf("%w: the delay is %v, want 0 to ten years", ErrClaim, n.Delay)
	case n.Dead && (n.Untried || n.Delay > 0):
		return nil, fmt.Errorf("%w: a job that is dead is not tried again", ErrClaim)
	case !legible(n.Reason, maxReason):
		return nil, fmt.Errorf("%w: a reason is text of up to %d bytes in one line", ErrClaim, maxReason)
	}
	return q.settleJobs(ctx, command{Op: opNack, Receipts: receipts, Nack: n})
}

// Extend sets the end of leases to a time from now, and returns when that is on disk. A lease of 0 is that
// of the queue. The answers are those of Ack.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, receipts ...string) ([]Settled, error) {
	if err := checkLease(lease); err != nil {
		return nil, err
	}
	return q.settleJobs(ctx, command{Op: opExtend, Receipts: receipts, Lease: lease})
}

func (q *Queue) settleJobs(ctx context.Context, c command) ([]Settled, error) {
	if n := len(c.Receipts); n < 1 || n > MaxClaim {
		return nil, fmt.Errorf("%w: %d receipts, want 1 to %d", ErrClaim, n, MaxClaim)
	}
	r, err := q.doInTime(ctx, c)
	switch {
	case errors.Is(err, errNoAnswer):
		return nil, fmt.Errorf("%w: %v", ErrUnsure, err)
	case err != nil:
		return nil, err
	case len(r.Settled) != len(c.Receipts):
		return nil, ErrUnsure
	}
	return r.Settled, nil
}

// receipt returns the receipt of a claim of a job.
func receipt(r ref, s *secret) string {
	return r.String() + "." + base64.RawURLEncoding.EncodeToString(s[:])
}

func parseReceipt(text string) (r ref, s secret, ok bool) {
	const longest = 64 // of an ID and a secret
	id, key, cut := strings.Cut(text, ".")
	r, isID := parseRef(id)
	if !cut || !isID || len(text) > longest || len(key) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return 0, s, false
	}
	_, err := base64.RawURLEncoding.Strict().Decode(s[:], []byte(key))
	return r, s, err == nil
}
