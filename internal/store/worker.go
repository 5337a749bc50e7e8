package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/headgate/headgate/internal/rights"
)

// A worker has no access to JetStream: see package rights. It sends its reads and writes to the
// store nodes, which check each request. Its Store and Logs have the same types as those of a store
// node, with far set.

// The names of requests to the store nodes.
const (
	recordsName = "records"
	logsName    = "logs"
)

// Operations on records and on logs.
const (
	opLoad, opSwap, opKept           = "load", "swap", "kept"
	opOpen, opAppend, opGet, opPage  = "open", "append", "get", "page"
	opHas, opSize, opCut, opDelete   = "has", "size", "cut", "delete"
	mostHead                         = 900 // with the longest value it fits into a message
	mostName                         = 256 // of a key or a log
	codeAnswered, codeNone, codeRace = "", "not found", "conflict"
	codeDenied, codeBig, codeFull    = "denied", "too large", "full"
	codeAgain, codeFailed            = "again", "failed"
)

// A question is a request of a worker. A value may follow it.
type question struct {
	Op   string `json:"op"`
	Name string `json:"name"`          // of the key or the log
	Seq  uint64 `json:"seq,omitempty"` // the revision, or the sequence number of an entry
	To   uint64 `json:"to,omitempty"`
	ID   string `json:"id,omitempty"` // of an entry: a repeated request writes it once
}

// A result is the answer to a question. A value or entries may follow it.
type result struct {
	Code string     `json:"code,omitempty"`
	Text string     `json:"text,omitempty"`
	Seq  uint64     `json:"seq,omitempty"`
	At   time.Time  `json:"at,omitzero"`
	Size *LogSize   `json:"size,omitempty"`
	Kept *Placement `json:"kept,omitempty"`
}

// pack joins a head and the bytes that follow it.
func pack(head any, value []byte) ([]byte, error) {
	b, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	return append(append(b, '\n'), value...), nil
}

// unpack decodes a head of at most mostHead bytes, and returns the bytes that follow it.
func unpack(b []byte, head any) ([]byte, error) {
	line, value, ok := bytes.Cut(b, []byte{'\n'})
	if !ok || len(line) > mostHead || json.Unmarshal(line, head) != nil {
		return nil, errors.New("the message is damaged")
	}
	return value, nil
}

// codes returns the errors that a worker distinguishes, by code.
func codes() map[string]error {
	return map[string]error{codeNone: ErrNotFound, codeRace: ErrConflict, codeDenied: ErrDenied,
		codeBig: ErrTooLarge, codeFull: ErrFull, codeAgain: errAgain}
}

// toldError returns the result that carries an error to a worker.
func toldError(err error) result {
	for code, is := range codes() {
		if errors.Is(err, is) {
			return result{Code: code}
		}
	}
	if unanswered(err) {
		return result{Code: codeAgain}
	}
	text := err.Error()
	return result{Code: codeFailed, Text: text[:min(len(text), mostHead/2)]}
}

// err returns the error of a result.
func (x *result) err() error {
	switch err := codes()[x.Code]; {
	case err != nil:
		return err
	case x.Code != codeAnswered:
		return fmt.Errorf("a store node says: %q", x.Text)
	}
	return nil
}

// A client sends requests to the store nodes.
type client struct{ bus *Bus }

// clientOf returns a client for the connection of a worker, nil for a connection that may use
// JetStream itself.
func clientOf(conn *nats.Conn) *client {
	if !rights.ByBus(conn.Opts.InboxPrefix) {
		return nil
	}
	return &client{NewBus(conn)}
}

func (c *client) ask(
	ctx context.Context, name string, q question, value []byte,
) (x result, rest []byte, err error) {
	msg, err := pack(q, value)
	if err != nil {
		return x, nil, err
	}
	ctx, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	b, err := c.bus.Request(ctx, name, msg)
	if err == nil {
		rest, err = unpack(b, &x)
	}
	if err == nil {
		err = x.err()
	}
	return x, rest, err
}

func (c *client) load(ctx context.Context, key string) ([]byte, uint64, error) {
	x, value, err := c.ask(ctx, recordsName, question{Op: opLoad, Name: key}, nil)
	if err != nil {
		return nil, 0, clientError("read", key, err)
	}
	return value, x.Seq, nil
}

func (c *client) swap(ctx context.Context, key string, revision uint64, value []byte) (uint64, error) {
	x, _, err := c.ask(ctx, recordsName, question{Op: opSwap, Name: key, Seq: revision}, value)
	if err != nil {
		return 0, clientError("write", key, err)
	}
	return x.Seq, nil
}

func (c *client) kept(ctx context.Context) (Placement, error) {
	x, _, err := c.ask(ctx, recordsName, question{Op: opKept}, nil)
	if err == nil && x.Kept == nil {
		err = errAgain
	}
	if err != nil {
		return Placement{}, clientError("look at", "the records", err)
	}
	return *x.Kept, nil
}

// clientError adds context to an error, but returns the errors of a Store unchanged.
func clientError(verb, key string, err error) error {
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrTooLarge) {
		return err
	}
	return fmt.Errorf("%s %s: %w", verb, key, err)
}

func (c *client) log(ctx context.Context, q question, value []byte) (result, []byte, error) {
	return c.ask(ctx, logsName, q, value)
}

// entryHead is the number of bytes before each entry of a page: its sequence number, its time in
// nanoseconds since 1970, and its length.
const entryHead = 8 + 8 + 4

func appendEntry(b []byte, e *Entry) []byte {
	b = binary.BigEndian.AppendUint64(b, e.Seq)
	b = binary.BigEndian.AppendUint64(b, uint64(e.At.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Data)))
	return append(b, e.Data...)
}

// parsePage decodes the entries of a page. Their sequence numbers must rise.
func parsePage(b []byte) (all []Entry, err error) {
	last := uint64(0)
	for len(b) > 0 {
		if len(b) < entryHead {
			return nil, errors.New("a page of entries is cut off")
		}
		e := Entry{Seq: binary.BigEndian.Uint64(b), At: time.Unix(0, int64(binary.BigEndian.Uint64(b[8:])))}
		n := binary.BigEndian.Uint32(b[16:])
		b = b[entryHead:]
		if uint64(n) > uint64(len(b)) || e.Seq <= last {
			return nil, errors.New("a page of entries is damaged")
		}
		e.Data, b, last = b[:n:n], b[n:], e.Seq
		all = append(all, e)
	}
	return all, nil
}
