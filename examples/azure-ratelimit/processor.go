package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lease"
	"github.com/headgate/headgate/ratelimit"
)

// databaseLimit is the name of the leased capacity, and of the limit of a processor, which equals
// the sum of its leases.
const databaseLimit = "database"

// A processor takes the records of one type from their queue and inserts them into the database, at
// the rate of its leases.
type processor struct {
	name   string
	s      *story
	queue  *queue.Queue
	share  *lease.Share
	rate   *ratelimit.Limiter
	client *http.Client
	url    string          // of the database
	after  <-chan struct{} // when it starts to request leases
	began  chan struct{}   // closed after its first request
	picks  []int           // partitions to try first, as indexes among those it does not have
	asked  []asked         // its first requests
}

// An asked is a requested partition.
type asked struct {
	partition int
	given     bool
}

// open prepares the processor. It starts nothing.
func (p *processor) open(ctx context.Context, conn queue.Config) (err error) {
	p.client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	p.rate, err = ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{
		Name: databaseLimit, Rule: limit.Rule{Algorithm: limit.SlidingLog, Window: p.s.second}}}})
	if err != nil {
		return err
	}
	leases, err := lease.Open(ctx, lease.Config{
		Name: databaseLimit, NATS: conn.NATS, Partitioning: p.s.partitioning()})
	if err != nil {
		return err
	}
	p.share, err = lease.NewShare(lease.ShareConfig{
		Leases: leases, Need: p.need, Rate: p.keepTo, Pick: p.pick, Asked: p.note})
	if err != nil {
		return err
	}
	conn.Name, conn.Handler = p.name, p
	conn.Capacity, conn.Uses = queue.NewCapacity(p.rate), []queue.LimitUse{{Limit: databaseLimit}}
	p.queue, err = queue.Open(ctx, conn)
	return err
}

// run delivers the queue and leases what it needs, until ctx ends.
func (p *processor) run(ctx context.Context) error {
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = p.queue.Run(ctx) })
	defer p.client.CloseIdleConnections()
	select {
	case <-p.after:
		p.share.Run(ctx)
	case <-ctx.Done():
	}
	wg.Wait()
	return err
}

// need returns what the queue could use in the next second.
func (p *processor) need(ctx context.Context) int64 {
	status, err := p.queue.Status(ctx)
	if err != nil {
		return 0 // the queue has no host now
	}
	return int64(status.Depth)
}

// keepTo limits the processor to the sum of its leases.
func (p *processor) keepTo(rate int64) {
	_ = p.rate.Update(databaseLimit, func(c *ratelimit.Limit) error {
		c.Amount = rate
		return nil
	})
}

// pick picks one of n, the partitions of the page first.
func (p *processor) pick(n int) int {
	if len(p.picks) == 0 {
		return rand.IntN(n)
	}
	i := p.picks[0]
	p.picks = p.picks[1:]
	return min(i, n-1)
}

func (p *processor) note(partition int, given bool) {
	if len(p.asked) == 0 {
		close(p.began)
	}
	if len(p.asked) < 3 {
		p.asked = append(p.asked, asked{partition, given})
	}
}

// Deliver validates a record, enriches it and inserts it.
func (p *processor) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	var r record
	if err := json.Unmarshal(j.Body, &r); err != nil || r.ID == "" || r.Type != p.name || r.Count < 1 {
		return queue.Outcome{Err: fmt.Errorf("no record of type %s", p.name)} // dead: a retry cannot succeed
	}
	r.Price = price(r)
	body, err := json.Marshal(r)
	if err != nil {
		return queue.Outcome{Err: err}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return queue.Outcome{Err: err}
	}
	answer, err := p.client.Do(q)
	if err != nil {
		return queue.Outcome{Err: errors.New("the database does not answer"), Retry: true}
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	switch answer.StatusCode {
	case http.StatusCreated:
		return queue.Outcome{}
	case http.StatusTooManyRequests: // may still happen; the job is retried (E6)
		return queue.Outcome{Err: errors.New("refused"), Retry: true, Busy: true, RetryAfter: p.s.second}
	}
	return queue.Outcome{Err: fmt.Errorf("the database answered %d", answer.StatusCode)}
}
