package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/rights"
)

// The subjects of messages. The digit is the format version of all that follows: messages of
// programs with another version are not received.
const (
	subjectAsk  = "headgate.1.ask."
	subjectTell = "headgate.1.tell."
)

// mostAnswers limits the requests that one Serve handles at a time; more wait in the buffer of the
// connection. Chosen: each request is a batch.
const mostAnswers = 256

// mostLong is the limit for requests of up to 1 MB. Chosen: 16 MB for requests, and as much for
// answers.
const mostLong = 16

// ErrNoResponder reports that no process serves that name now.
var ErrNoResponder = errors.New("nobody answers to that name")

// A Bus carries messages between the processes that share an engine. Messages may be lost,
// duplicated, delayed and reordered. A Bus may be used by many goroutines at once.
type Bus struct{ conn *nats.Conn }

// NewBus returns a Bus that uses a connection. The caller closes the connection.
func NewBus(conn *nats.Conn) *Bus { return &Bus{conn} }

// Request sends a request to a process that serves name, and returns the answer. It returns
// ErrNoResponder at once if no process serves it.
func (b *Bus) Request(ctx context.Context, name string, msg []byte) ([]byte, error) {
	m, err := b.conn.RequestWithContext(ctx, subjectAsk+escape(name), msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, ErrNoResponder
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", name, err)
	}
	return m.Data, nil
}

// Serve answers requests to name until stop is called. stop waits for the answers that are in
// progress. answer may block and is called for several messages at once; if it returns nil, no
// answer is sent.
//
// A message whose answer would not go to an inbox is dropped: see [rights.IsReply].
func (b *Bus) Serve(
	name string, answer func(ctx context.Context, msg []byte) []byte,
) (stop func(), err error) {
	return b.serve(name, "", mostAnswers, answer)
}

// ServeGroup is like Serve, for a name that many processes serve: one of them answers each message.
// It handles only a few messages at once, because each may have the maximum length.
func (b *Bus) ServeGroup(
	name string, answer func(ctx context.Context, msg []byte) []byte,
) (stop func(), err error) {
	return b.serve(name, "store", mostLong, answer)
}

// serve answers at most that many requests at once. Further ones wait in the connection, so that a
// slow store does not pile up goroutines.
func (b *Bus) serve(
	name, group string, most int, answer func(ctx context.Context, msg []byte) []byte,
) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var begin sync.Mutex // held from the check of ctx to the start of an answer
	var wg sync.WaitGroup
	room := make(chan struct{}, most)
	sub, err := b.conn.QueueSubscribe(subjectAsk+escape(name), group, func(m *nats.Msg) {
		if !rights.IsReply(m.Reply) {
			return
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		begin.Lock()
		defer begin.Unlock()
		if ctx.Err() != nil {
			return
		}
		wg.Go(func() {
			defer func() { <-room }()
			if a := answer(ctx, m.Data); a != nil {
				_ = m.Respond(a) // if the answer is lost, the caller retries
			}
		})
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve %s: %w", name, err)
	}
	return func() {
		_ = sub.Unsubscribe() // a closed connection has no subscriptions
		begin.Lock()
		cancel() // from now on no received message starts an answer
		begin.Unlock()
		wg.Wait()
	}, nil
}

// SelfTest sends a request to itself, to check that this process may send, receive and answer
// messages.
func (b *Bus) SelfTest(ctx context.Context, name string) error {
	stop, err := b.Serve("try."+name, func(_ context.Context, msg []byte) []byte { return msg })
	if err != nil {
		return err
	}
	defer stop()
	deaf, err := b.Subscribe("try."+name, func([]byte) {})
	if err != nil {
		return err
	}
	defer deaf()
	if err := b.Publish("try."+name, []byte("try")); err != nil {
		return err
	}
	_, err = b.Request(ctx, "try."+name, []byte("try"))
	if last := b.conn.LastError(); err == nil && errors.Is(last, nats.ErrPermissionViolation) {
		return last // the error of an earlier message arrives before the answer
	}
	return err
}

// Publish sends a message to all subscribers of name.
func (b *Bus) Publish(name string, msg []byte) error {
	return b.conn.Publish(subjectTell+escape(name), msg)
}

// Subscribe calls f with each message published to name, one after the other, until stop is called.
func (b *Bus) Subscribe(name string, f func(msg []byte)) (stop func(), err error) {
	sub, err := b.conn.Subscribe(subjectTell+escape(name), func(m *nats.Msg) { f(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("hear %s: %w", name, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
