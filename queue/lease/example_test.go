package lease_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/queue/lease"
)

// A processor that needs 40 requests a second gets two partitions of 25.
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
	leases, err := lease.Open(ctx, lease.Config{
		Name: "db", NATS: engine.Conn(), Partitioning: lease.Partitioning{Count: 20, Amount: 25},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	rates := make(chan int64, 10)
	share, err := lease.NewShare(lease.ShareConfig{
		Leases: leases,
		Need:   func(context.Context) int64 { return 40 },
		Rate:   func(rate int64) { rates <- rate },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan struct{})
	go func() { defer close(ended); share.Run(ctx) }()
	defer func() { stop(); <-ended }()

	for rate := range rates {
		if rate >= 40 {
			fmt.Println("may send", rate, "requests a second")
			return
		}
	}
	// Output: may send 50 requests a second
}
