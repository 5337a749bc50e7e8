//go:build unix

package http1

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/headgate/headgate/internal/yardstick"
)

// A dial goes on after its request has left: its failure is still seen, and its connection is kept.
func TestADialOutlivesItsRequest(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		for c.request() != nil {
			c.say(hello)
		}
	})
	tr := p.transport()
	dial := tr.cfg.Dial
	dialing, goOn := make(chan struct{}), make(chan struct{})
	tr.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		close(dialing)
		<-goOn
		if ctx.Err() != nil {
			t.Error("the dial was canceled")
		}
		return dial(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-dialing; cancel() }()
	if _, err := tr.RoundTrip(newRequest(t, "GET", "/", nil).WithContext(ctx)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(goOn)
	yardstick.Await(t, "the connection", func() bool {
		tr.pool.mu.Lock()
		defer tr.pool.mu.Unlock()
		return len(tr.pool.idle) == 1
	})
	if _, body := ask(t, tr, newRequest(t, "GET", "/", nil)); body != "hello" || p.seen.Load() != 1 {
		t.Errorf("%q on connection %d", body, p.seen.Load())
	}
}

// A request whose dial hangs takes the connection that another has finished with.
func TestAWaitingRequestTakesWhatIsFree(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		for c.request() != nil {
			c.say(hello)
		}
	})
	tr := p.transport()
	first, err := tr.RoundTrip(newRequest(t, "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	failed := errors.New("unreachable")
	tr.cfg.Dial = func(context.Context) (net.Conn, error) { <-hang; return nil, failed }
	second := make(chan string, 1)
	go func() {
		_, body := ask(t, tr, newRequest(t, "GET", "/", nil))
		second <- body
	}()
	yardstick.Await(t, "the second request", func() bool {
		tr.pool.mu.Lock()
		defer tr.pool.mu.Unlock()
		return tr.pool.waiting.Len() == 1
	})
	first.Body.Read(make([]byte, 9)) // to its end
	if body := <-second; body != "hello" || p.seen.Load() != 1 {
		t.Errorf("%q on connection %d", body, p.seen.Load())
	}
	close(hang)
	tr.CloseIdleConnections()
	if _, err := tr.RoundTrip(newRequest(t, "GET", "/", nil)); !errors.Is(err, failed) {
		t.Error(err)
	}
}

func TestIdleConnectionsAreBounded(t *testing.T) {
	p := newPeer(t, func(c *script, _ int64) {
		for c.request() != nil {
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
			c.br.Peek(1) // the client closes, or goes on when all have been asked
		}
	})
	tr := p.transport()
	for range tr.cfg.MaxIdle + 3 {
		raw, err := tr.cfg.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c, err := newConn(raw, &tr.pool)
		if err != nil {
			t.Fatal(err)
		}
		tr.pool.put(c)
	}
	if n := len(tr.pool.idle); n != tr.cfg.MaxIdle {
		t.Errorf("%d connections", n)
	}
	tr.pool.clean()
	young, err := tr.pool.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tr.pool.put(young)
	if tr.pool.clean(); len(tr.pool.idle) != 1 || tr.pool.idle[0] != young {
		t.Errorf("%d connections, want the one that was used", len(tr.pool.idle))
	}
	if tr.pool.clean(); len(tr.pool.idle) != 0 || tr.pool.set {
		t.Errorf("%d connections, and the timer runs: %v", len(tr.pool.idle), tr.pool.set)
	}
}

// The kind of connection that cannot be checked before it is used again is an error, not a risk.
func TestOtherConnectionsAreRefused(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	tr := New(config(func(context.Context) (net.Conn, error) { return ours, nil }))
	if _, err := tr.RoundTrip(newRequest(t, "GET", "/", nil)); !errors.Is(err, errNotChecked) {
		t.Error(err)
	}
}
