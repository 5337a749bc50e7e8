package guard

import (
	"context"
	"net"
	"sync"
	"time"
)

// Serve accepts connections until ctx ends, closes lis, and waits for the connections, but no longer
// than drain: then it cancels hard. If accepting fails earlier, it cancels hard at once and returns
// the error. begin returns what takes a connection; that returns what serves it, or nil if it has
// refused it.
func Serve(ctx context.Context, lis net.Listener, drain time.Duration,
	begin func(hard context.Context) (take func(net.Conn) (serve func())),
) error {
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { lis.Close() })()
	take := begin(hard)
	var all sync.WaitGroup
	err := accept(ctx, lis, func(nc net.Conn) {
		if serve := take(nc); serve != nil {
			all.Go(serve)
		}
	})
	lis.Close()
	if ctx.Err() == nil {
		cut()
	} else {
		err = nil
		defer time.AfterFunc(drain, cut).Stop()
	}
	all.Wait()
	return err
}

// accept accepts connections and starts each, until the listener is closed or ctx ends. While too many
// files are open, it tries again.
func accept(ctx context.Context, lis net.Listener, start func(net.Conn)) error {
	const shortest, longest = 5 * time.Millisecond, time.Second // chosen, as in net/http
	for pause := shortest; ; {
		nc, err := lis.Accept()
		if err == nil {
			pause = shortest
			start(nc)
			continue
		}
		if e, ok := err.(interface{ Temporary() bool }); !ok || !e.Temporary() || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, longest)
		case <-ctx.Done():
		}
	}
}
