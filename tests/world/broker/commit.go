package broker

import (
	"slices"
	"strconv"
	"time"
)

// A write takes an fsync. Chosen.
const commitLeast, commitMost = 500 * time.Microsecond, 3 * time.Millisecond

// proposeLocked sends a change to the leader, if one is reachable. Changes are committed one after
// the other.
func (b *Broker) proposeLocked(from *server, reply string, do func() any) {
	p := &proposal{from: from, reply: reply, do: do}
	b.queue = append(b.queue, p)
	b.scheduleLocked(p)
}

func (b *Broker) scheduleLocked(p *proposal) {
	at := time.Now().Add(b.drawLocked(commitLeast, commitMost) + b.slow)
	if at.Before(b.last) {
		at = b.last
	}
	b.last, p.term = at, b.term
	time.AfterFunc(time.Until(at), func() { b.commit(p) })
}

func (b *Broker) commit(p *proposal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || p.term != b.term || b.leader == nil || !slices.Contains(b.queue, p) {
		return
	}
	for len(b.queue) > 0 { // in order, whichever timer came first
		next := b.queue[0]
		b.queue = b.queue[1:]
		answer := next.do()
		b.commits++
		if next.reply != "" {
			if b.unacked > 0 {
				b.unacked--
			} else {
				b.answerLocked(b.leader, next.from, next.reply, answer)
			}
		}
		if next == p {
			break
		}
	}
	b.feedLocked()
}

// writeLocked proposes an entry of a stream.
func (b *Broker) writeLocked(from *server, m *message) {
	if !b.ledLocked(from) {
		if b.leader == nil && !b.silent && m.reply != "" && from.knew == nil {
			b.routeLocked(from, "", &message{subject: m.reply, head: statusHead("503")})
		}
		return
	}
	if b.full {
		if m.reply != "" && b.rng.IntN(2) == 0 {
			b.answerLocked(b.leader, from, m.reply, map[string]any{"error": errStorage()})
		}
		return
	}
	b.proposeLocked(from, m.reply, func() any { return b.store(m) })
}

// ledLocked reports whether a server and the leader reach each other.
func (b *Broker) ledLocked(from *server) bool {
	return b.leader != nil && passes(from, b.leader) && passes(b.leader, from)
}

// store writes an entry, and returns the answer.
func (b *Broker) store(m *message) any {
	s := b.streams[b.streamOf(m.subject)]
	if s == nil {
		return map[string]any{"error": errNoStream()}
	}
	now := time.Now()
	id, hasID := m.header("Nats-Msg-Id")
	if k, ok := s.ids[id]; ok && hasID && now.Sub(k.at) < s.cfg.Window {
		return map[string]any{"stream": s.cfg.Name, "seq": k.seq, "duplicate": true}
	}
	if text, ok := m.header("Nats-Expected-Last-Sequence"); ok && text != strconv.FormatUint(s.last, 10) {
		return map[string]any{"error": errWrongLast(s.last)}
	}
	text, ok := m.header("Nats-Expected-Last-Subject-Sequence")
	if was := s.newest[m.subject]; ok && text != strconv.FormatUint(was, 10) {
		return map[string]any{"error": errWrongLast(was)}
	}
	e := &stored{subject: m.subject, data: slices.Clone(m.data), at: now,
		size: int64(len(m.subject)+len(m.head)+len(m.data)) + 34}
	if s.cfg.MaxBytes > 0 && s.cfg.Discard == "new" && s.bytes+e.size > s.cfg.MaxBytes {
		return map[string]any{"error": errFull()}
	}
	s.last++
	e.seq = s.last
	if was := s.newest[m.subject]; s.cfg.PerSubject == 1 && was > 0 {
		s.drop(was)
	}
	s.all[e.seq], s.newest[e.subject] = e, e.seq
	s.bytes += e.size
	if hasID {
		s.ids[id] = known{e.seq, now}
	}
	return map[string]any{"stream": s.cfg.Name, "seq": e.seq}
}

// streamOf returns the stream of a subject, or "" if there is none.
func (b *Broker) streamOf(subject string) string {
	for name, s := range b.streams {
		if slices.ContainsFunc(s.cfg.Subjects, func(p string) bool { return matches(p, subject) }) {
			return name
		}
	}
	return ""
}
