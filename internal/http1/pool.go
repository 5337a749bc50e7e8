package http1

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"
)

// A pool keeps the unused connections. A request without one waits for whichever comes first: a new
// connection, or one that another request has finished with.
type pool struct {
	cfg *Config

	mu      sync.Mutex
	idle    []*conn   // the last used is the last
	waiting list.List // of *waiter, the first came first
	sweep   *time.Timer
	swept   uint64 // how often sweep has run
	set     bool   // sweep will run
	over    bool   // closeIdle was called, and no request has come since

	lastWrite time.Duration // tests have another one

	heads  sync.Pool // of *buffer
	chunks sync.Pool // of *chunk
}

// A waiter is a request that waits for a connection.
type waiter struct {
	got  chan found    // buffer of one
	here *list.Element // in waiting; nil: it has been answered
}

type found struct {
	conn *conn
	err  error
}

func (p *pool) init(cfg *Config) {
	p.cfg = cfg
	p.lastWrite = lastWrite
	p.waiting.Init()
	p.heads.New = func() any { return new(buffer) }
	p.chunks.New = func() any { return new(chunk) }
}

// get returns a connection, new or kept.
func (p *pool) get(ctx context.Context) (*conn, error) {
	p.mu.Lock()
	p.over = false
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	w := &waiter{got: make(chan found, 1)}
	w.here = p.waiting.PushBack(w)
	p.mu.Unlock()
	go p.dial(context.WithoutCancel(ctx), w)
	select {
	case f := <-w.got:
		return f.conn, f.err
	case <-ctx.Done():
		p.leave(w)
		return nil, context.Cause(ctx)
	}
}

// dial opens a connection because w found none. It outlives w's request: many clients wait less than
// a dial takes to fail, and the failure must be seen. The connection is w's before anybody else's:
// each request that waits has a dial of its own in progress, so none waits for nothing.
func (p *pool) dial(ctx context.Context, w *waiter) {
	var c *conn
	raw, err := p.cfg.Dial(ctx)
	if err == nil {
		if c, err = newConn(raw, p); err != nil {
			raw.Close()
			c = nil
		}
	}
	p.mu.Lock()
	waits := w.here != nil
	if waits {
		p.answer(w, found{c, err})
	}
	p.mu.Unlock()
	if !waits && c != nil {
		p.put(c)
	}
}

// answer must be called with p.mu, once for each waiter.
func (p *pool) answer(w *waiter, f found) {
	p.waiting.Remove(w.here)
	w.here = nil
	w.got <- f
}

// leave removes the waiter of a canceled request.
func (p *pool) leave(w *waiter) {
	p.mu.Lock()
	if w.here != nil {
		p.waiting.Remove(w.here)
		w.here = nil
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	if f := <-w.got; f.conn != nil {
		p.put(f.conn)
	}
}

// put gives a connection to the request that has waited longest, or keeps it.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first := p.waiting.Front(); first != nil {
		p.answer(first.Value.(*waiter), found{conn: c})
		return
	}
	if len(p.idle) >= p.cfg.MaxIdle || p.over {
		c.Close()
		return
	}
	c.since, c.used = p.swept, true
	p.idle = append(p.idle, c)
	if !p.set {
		p.set = true
		if p.sweep == nil {
			p.sweep = time.AfterFunc(p.cfg.IdleTimeout/2, p.clean)
		} else {
			p.sweep.Reset(p.cfg.IdleTimeout / 2)
		}
	}
}

// clean closes connections that have been unused since the last time but one. Counting the calls
// saves reading the clock for each request.
func (p *pool) clean() {
	p.mu.Lock()
	p.swept++
	var old []net.Conn
	kept := p.idle[:0]
	for _, c := range p.idle {
		if p.swept-c.since >= 2 {
			old = append(old, c)
		} else {
			kept = append(kept, c)
		}
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	if p.set = len(kept) > 0; p.set {
		p.sweep.Reset(p.cfg.IdleTimeout / 2)
	}
	p.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}

func (p *pool) closeIdle() {
	p.mu.Lock()
	old := p.idle
	p.idle, p.over = nil, true
	p.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}
