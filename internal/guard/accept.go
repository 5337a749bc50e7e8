package guard

import (
	"context"
	"net"
	"time"
)

// Accept accepts connections and starts each, until the listener is closed or ctx ends. While too many
// files are open, it tries again.
func Accept(ctx context.Context, lis net.Listener, start func(net.Conn)) error {
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
