//go:build unix

package http1

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/tests/yardstick"
)

// A dial goes on after its request has left: its failure is still seen, and its connection is kept.
func TestADialOutlivesItsRequest(t *testing.T) {
	p := newPeer(t, sayHello)
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
	p := newPeer(t, sayHello)
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

// A request that waits has a dial of its own in progress: another one's cannot leave it waiting for
// nothing.
func TestEachRequestHasADial(t *testing.T) {
	p := newPeer(t, sayHello)
	tr := p.transport()
	dial := tr.cfg.Dial
	failed := errors.New("unreachable")
	dials := make(chan chan error)
	tr.cfg.Dial = func(ctx context.Context) (net.Conn, error) {
		mine := make(chan error)
		dials <- mine
		if err := <-mine; err != nil {
			return nil, err
		}
		return dial(ctx)
	}
	ended := make(chan int)
	var errs [2]error
	var dialed [2]chan error
	for i := range 2 {
		r := newRequest(t, "GET", "/", nil)
		go func() {
			var res *http.Response
			if res, errs[i] = tr.RoundTrip(r); errs[i] == nil {
				defer res.Body.Close() // it is not read: its connection is not free for the other one
			}
			ended <- i
		}()
		dialed[i] = <-dials
	}
	dialed[1] <- nil
	if i := <-ended; i != 1 || errs[1] != nil {
		t.Errorf("request %d ended first: %v", i, errs[i])
	}
	dialed[0] <- failed
	<-ended
	if !errors.Is(errs[0], failed) {
		t.Error(errs[0])
	}
}

// A connection that was opened and not used is checked as well: a server that has seen no request
// in time may say so and close it.
func TestAnUnusedConnectionIsChecked(t *testing.T) {
	for name, says := range map[string]string{"closed": "", "timed out": "HTTP/1.1 408 Request Timeout\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(c *script, n int64) {
				if n == 1 {
					c.say(says)
					return
				}
				for c.request() != nil {
					c.say(hello)
				}
			})
			tr := p.transport()
			raw, err := tr.cfg.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c, err := newConn(raw, &tr.pool)
			if err != nil {
				t.Fatal(err)
			}
			tr.pool.put(c) // as for a request that has left
			await(t, c)
			r := newRequest(t, "POST", "/", strings.NewReader("once"))
			if res, body := ask(t, tr, r); body != "hello" || p.seen.Load() != 2 {
				t.Errorf("%s %q on connection %d", res.Status, body, p.seen.Load())
			}
		})
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

// A transport that is replaced keeps nothing, as net/http's.
func TestNothingIsKeptAfterTheEnd(t *testing.T) {
	p := newPeer(t, sayHello)
	tr := p.transport()
	res, err := tr.RoundTrip(newRequest(t, "GET", "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	tr.CloseIdleConnections()
	res.Body.Read(make([]byte, 9)) // to its end
	if n := len(tr.pool.idle); n != 0 {
		t.Errorf("%d connections", n)
	}
	ask(t, tr, newRequest(t, "GET", "/", nil))
	if n := len(tr.pool.idle); n != 1 {
		t.Errorf("%d connections after another request", n)
	}
}
