package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// readerAPI answers API requests about consumers.
func (b *Broker) readerAPI(from *server, op string, m *message) {
	parts := strings.Split(op, ".")
	at := 0
	switch {
	case parts[0] == "CREATE" || parts[0] == "DELETE" || parts[0] == "INFO" || parts[0] == "NAMES":
		at = 1
	case parts[0] == "MSG" && len(parts) == 4 && parts[1] == "NEXT":
		at = 2
	}
	if at == 0 || len(parts) < at+1 {
		b.answerLocked(b.leader, from, m.reply, map[string]any{"error": errBadRequest()})
		return
	}
	s, name := b.streams[parts[at]], parts[len(parts)-1]
	var r *reader
	if s != nil {
		r = s.readers[name]
	}
	switch {
	case at == 2 && r == nil:
		b.routeLocked(from, "", &message{subject: m.reply, head: statusHead("503")})
	case at == 2:
		r.ask(from, m)
	case s == nil:
		b.answerLocked(b.leader, from, m.reply, map[string]any{"error": errNoStream()})
	case parts[0] == "NAMES":
		all := slices.Sorted(maps.Keys(s.readers))
		b.answerLocked(b.leader, from, m.reply, map[string]any{"total": len(all), "limit": 1024,
			"consumers": all})
	case parts[0] == "CREATE":
		b.answerLocked(b.leader, from, m.reply, b.newReader(s, name, m.data))
	case r == nil:
		b.answerLocked(b.leader, from, m.reply, map[string]any{"error": errNoReader()})
	case parts[0] == "DELETE":
		r.endLocked()
		b.answerLocked(b.leader, from, m.reply, map[string]any{"success": true})
	default:
		b.answerLocked(b.leader, from, m.reply, r.info(nil))
	}
}

func (b *Broker) newReader(s *stream, name string, data []byte) any {
	var q struct {
		Config json.RawMessage `json:"config"`
	}
	var cfg struct {
		Start uint64 `json:"opt_start_seq"`
	}
	if json.Unmarshal(data, &q) != nil || json.Unmarshal(q.Config, &cfg) != nil {
		return map[string]any{"error": errBadRequest()}
	}
	r := &reader{broker: b, stream: s, name: name, next: max(1, cfg.Start)}
	s.readers[name] = r
	return r.info(q.Config)
}

func (r *reader) info(cfg json.RawMessage) any {
	if cfg == nil {
		cfg = json.RawMessage("{}")
	}
	return map[string]any{"stream_name": r.stream.cfg.Name, "name": r.name, "config": cfg,
		"created": time.Now(), "num_pending": r.pending()}
}

// pending returns 0 if there are no more entries, else at least their number.
func (r *reader) pending() uint64 {
	if r.stream.next(r.next, "") == nil {
		return 0
	}
	return r.stream.last - r.next + 1
}

func (r *reader) endLocked() {
	delete(r.stream.readers, r.name)
	for _, p := range r.asks {
		p.end()
	}
	r.asks = nil
}

func (p *pull) end() {
	p.gone = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// ask processes a pull.
func (r *reader) ask(from *server, m *message) {
	var q struct {
		Expires time.Duration `json:"expires"`
		Batch   int           `json:"batch"`
		Bytes   int           `json:"max_bytes"`
		Beat    time.Duration `json:"idle_heartbeat"`
		NoWait  bool          `json:"no_wait"`
	}
	if len(m.data) > 0 && json.Unmarshal(m.data, &q) != nil {
		return
	}
	p := &pull{from: from, reply: m.reply, batch: max(1, q.Batch), bytes: q.Bytes, beat: q.Beat}
	r.asks = append(r.asks, p)
	if q.Expires == 0 {
		q.Expires = 30 * time.Second
	}
	r.beat(p, time.Now().Add(q.Expires))
	r.broker.feedLocked()
}

// beat sends heartbeats to a reader until its pull ends.
func (r *reader) beat(p *pull, end time.Time) {
	wait := time.Until(end)
	if p.beat > 0 {
		wait = min(wait, p.beat)
	}
	p.timer = time.AfterFunc(wait, func() {
		b := r.broker
		b.mu.Lock()
		defer b.mu.Unlock()
		if p.gone || b.closed || r.stream.readers[r.name] != r {
			return
		}
		if time.Until(end) > 0 {
			b.statusLocked(p, "100 Idle Heartbeat")
			r.beat(p, end)
			return
		}
		b.statusLocked(p, fmt.Sprintf("408 Request Timeout\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d",
			p.batch, max(0, p.bytes)))
		r.forget(p)
	})
}

func (r *reader) forget(p *pull) {
	p.end()
	for i, x := range r.asks {
		if x == p {
			r.asks = append(r.asks[:i:i], r.asks[i+1:]...)
			return
		}
	}
}

func (b *Broker) statusLocked(p *pull, status string) {
	if b.leader == nil || !passes(b.leader, p.from) {
		return
	}
	b.routeLocked(p.from, "", &message{subject: p.reply, head: statusHead(status)})
}

// feedLocked sends new entries to all readers.
func (b *Broker) feedLocked() {
	if b.leader == nil {
		return
	}
	for _, s := range b.streams {
		for _, r := range s.readers {
			for len(r.asks) > 0 {
				e := s.next(r.next, "")
				if e == nil {
					break
				}
				r.give(r.asks[0], e)
			}
		}
	}
}

// give sends an entry as the answer to a pull.
func (r *reader) give(p *pull, e *stored) {
	b := r.broker
	r.next, r.given = e.seq+1, r.given+1
	m := &message{subject: e.subject, data: e.data, reply: fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.%d",
		r.stream.cfg.Name, r.name, e.seq, r.given, e.at.UnixNano(), r.pending())}
	if passes(b.leader, p.from) {
		for _, c := range p.from.clients {
			for _, s := range c.subs {
				if s.subject == p.reply {
					c.sendLocked(m.bytes(s.sid))
				}
			}
		}
	}
	p.batch--
	if p.bytes > 0 {
		p.bytes -= len(e.data) + len(e.subject) + len(m.reply)
	}
	if p.batch > 0 && p.bytes < 0 {
		b.statusLocked(p, fmt.Sprintf("409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: %d\r\n"+
			"Nats-Pending-Bytes: 0", p.batch))
	}
	if p.batch <= 0 || p.bytes < 0 {
		r.forget(p)
	}
}
