// Command azure-ratelimit runs the example of Microsoft's page on the rate limiting pattern with
// headgate. The numbers E1, E5 and E7 in the tests are those of the page's worked examples.
//
//	go run ./examples/azure-ratelimit         # some 25 s
//	go run ./examples/azure-ratelimit 250ms   # the same with shorter seconds
//
// A user sends 10,000 records of type A and 5,000 of type B to an API, which puts them into the
// queues A and B. They are durable before it answers. Processors A and B, which do not know each
// other, take them out, validate, enrich and insert them into one database. The database accepts
// 1,000 a second and rejects the rest. So its capacity is split into 10 partitions of 100 a second,
// and each processor leases as many as it needs, at random, for 15 s.
//
// For comparison, a naive process sends 10,000 records of 10 request units to a database that
// accepts 20,000 units a second, and resends what is rejected.
//
// # The promise
//
// All printed numbers were counted by the databases. The program fails if headgate's database ever
// received more than it accepts, or received a record twice or not at all.
//
// # Concurrency and cost
//
// Everything runs in one process, on loopback ports and in a folder that is removed. Each part
// could be a separate process: they share only the engine, which holds the queues and the leases.
//
// # What it does not do
//
// It kills nothing: the tests of the queues do.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "azure-ratelimit:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s := seed()
	if len(args) > 0 {
		second, err := time.ParseDuration(args[0])
		if err != nil || len(args) > 1 || second < 50*time.Millisecond || second > time.Minute {
			return fmt.Errorf("usage: azure-ratelimit [SECOND], how long a second of the story is: 50ms to 1m")
		}
		s.second = second
	}
	end, err := s.play(ctx, out)
	if err != nil {
		return err
	}
	return end.tell(out)
}
