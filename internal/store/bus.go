package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/rights"
)

// The subjects of messages. The digit is the format of all that follows: a program that
// speaks another one is not heard.
const (
	subjectAsk  = "headgate.1.ask."
	subjectTell = "headgate.1.tell."
)

// mostAnswers bounds the requests that one Serve works on at a time: more wait in the
// connection's buffer. Chosen: each is a batch.
const mostAnswers = 256

// mostLong bounds the same of messages of up to 1 MB. Chosen: 16 MB for questions, and as
// much for answers.
const mostLong = 16

// ErrNobody: nobody serves that name now.
var ErrNoResponder = errors.New("nobody answers to that name")

// A Bus carries messages between the processes that share an engine: lost, repeated,
// late and reordered as they may be. It may be used by many goroutines at once.
type Bus struct{ conn *nats.Conn }

// NewBus speaks over a connection, which stays the caller's.
func NewBus(conn *nats.Conn) *Bus { return &Bus{conn} }

// Ask sends a message to whoever serves name and returns the answer, or ErrNobody at
// once if nobody does.
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

// Serve answers what is asked of name until stop is called, which waits for the
// answers under way. answer may block, is called for several messages at once, and
// answers nothing with nil.
//
// A message whose answer would not go to an inbox is dropped: see [rights.IsReply].
func (b *Bus) Serve(
	name string, answer func(ctx context.Context, msg []byte) []byte,
) (stop func(), err error) {
	return b.serve(name, "", mostAnswers, answer)
}

// ServeOne is Serve for a name that many processes serve, each message answered by one of
// them. Only a few messages are answered at once, as each may be as long as a message can be.
func (b *Bus) ServeGroup(
	name string, answer func(ctx context.Context, msg []byte) []byte,
) (stop func(), err error) {
	return b.serve(name, "store", mostLong, answer)
}

func (b *Bus) serve(
	name, group string, most int, answer func(ctx context.Context, msg []byte) []byte,
) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var begin sync.Mutex // held from looking whether it has ended to the beginning of an answer
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
				_ = m.Respond(a) // a lost answer is asked for again
			}
		})
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serve %s: %w", name, err)
	}
	return func() {
		_ = sub.Unsubscribe() // of a connection that is closed there is nothing to leave
		begin.Lock()
		cancel() // a message that is here already begins no answer any more
		begin.Unlock()
		wg.Wait()
	}, nil
}

// Try asks itself once, to see that messages may be sent, heard and answered here.
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
		return last // said before the answer, of what was sent before
	}
	return err
}

// Tell sends a message to all who hear name.
func (b *Bus) Publish(name string, msg []byte) error {
	return b.conn.Publish(subjectTell+escape(name), msg)
}

// Hear calls f with each message told to name, one after the other, until stop.
func (b *Bus) Subscribe(name string, f func(msg []byte)) (stop func(), err error) {
	sub, err := b.conn.Subscribe(subjectTell+escape(name), func(m *nats.Msg) { f(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("hear %s: %w", name, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
