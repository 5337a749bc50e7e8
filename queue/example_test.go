package queue_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/ratelimit"
)

// A database is the target of the queue.
type database struct{ saved chan string }

func (d *database) Deliver(ctx context.Context, j *queue.Job) queue.Outcome {
	select {
	case d.saved <- string(j.Body):
		return queue.Outcome{}
	case <-ctx.Done():
		return queue.Outcome{Err: ctx.Err(), Retry: true}
	}
}

// A queue in front of a database that takes 1,000 records in a second. Jobs are on disk when Put
// returns, and each is delivered even if the process ends meanwhile.
func Example() {
	dir, err := os.MkdirTemp("", "headgate-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := embedded.Open(ctx, embedded.Config{Dir: filepath.Join(dir, "engine")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	limits, err := ratelimit.New(ratelimit.Config{Limits: []ratelimit.Limit{{
		Name: "db",
		Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: 1000, Window: time.Second},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	db := &database{saved: make(chan string)}
	orders, err := queue.Open(ctx, queue.Config{
		Name: "orders", NATS: engine.Conn(), Handler: db,
		Capacity: queue.NewCapacity(limits), Uses: []queue.LimitUse{{Limit: "db"}},
		Concurrency: 1,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- orders.Run(ctx) }()
	defer func() { stop(); <-ended }()

	receipts, err := orders.Put(ctx, []queue.Job{
		{Key: "order-1", Body: []byte("two coffees")},
		{Key: "order-2", Body: []byte("one tea")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(receipts), "jobs on disk")
	for range receipts {
		fmt.Println("saved:", <-db.saved)
	}
	// Output:
	// 2 jobs on disk
	// saved: two coffees
	// saved: one tea
}

// Workers claim jobs instead of getting them: each has the job until it acknowledges it, or until its
// lease ends, and then another one gets it.
func ExampleQueue_Claim() {
	dir, err := os.MkdirTemp("", "headgate-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := embedded.Open(ctx, embedded.Config{Dir: filepath.Join(dir, "engine")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	orders, err := queue.Open(ctx, queue.Config{Name: "orders", NATS: engine.Conn(), Lease: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- orders.Run(ctx) }()
	defer func() { stop(); <-ended }()
	if _, err := orders.Put(ctx, []queue.Job{{Body: []byte("two coffees")}, {Body: []byte("no tea")}}); err != nil {
		fmt.Println(err)
		return
	}

	jobs, err := orders.Claim(ctx, queue.Want{Max: 10, Wait: 30 * time.Second, Worker: "waiter-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, j := range jobs {
		fmt.Printf("%s, attempt %d\n", j.Body, j.Attempt)
	}
	// A job that takes long: one more minute from now.
	if _, err := orders.Extend(ctx, time.Minute, jobs[0].Receipt); err != nil {
		fmt.Println(err)
		return
	}
	done, err := orders.Ack(ctx, jobs[0].Receipt)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("done:", done[0].Err())
	failed, err := orders.Nack(ctx, queue.Nack{Reason: "out of tea", Delay: time.Hour}, jobs[1].Receipt)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("given back:", failed[0].Err())
	again, err := orders.Ack(ctx, jobs[1].Receipt)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("too late:", again[0].Err())
	// Output:
	// two coffees, attempt 1
	// no tea, attempt 1
	// done: <nil>
	// given back: <nil>
	// too late: the lease of this claim is over
}
