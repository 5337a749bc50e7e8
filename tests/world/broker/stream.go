package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// A stream stores numbered messages.
type stream struct {
	raw     json.RawMessage // its configuration, as the client wrote it
	cfg     streamConfig
	created time.Time
	first   uint64
	last    uint64
	bytes   int64
	all     map[uint64]*stored
	newest  map[string]uint64 // by subject
	ids     map[string]known
	readers map[string]*reader
}

type streamConfig struct {
	Name       string        `json:"name"`
	Subjects   []string      `json:"subjects"`
	Replicas   int           `json:"num_replicas"`
	MaxBytes   int64         `json:"max_bytes"`
	PerSubject int64         `json:"max_msgs_per_subject"`
	Discard    string        `json:"discard"`
	Window     time.Duration `json:"duplicate_window"`
}

// A known is an entry that a retry may write again.
type known struct {
	seq uint64
	at  time.Time
}

type stored struct {
	seq     uint64
	subject string
	data    []byte
	at      time.Time
	size    int64
}

func newStream(raw json.RawMessage, cfg streamConfig) *stream {
	return &stream{raw: raw, cfg: cfg, created: time.Now(), first: 1, all: map[uint64]*stored{},
		newest: map[string]uint64{}, ids: map[string]known{}, readers: map[string]*reader{}}
}

// clone returns the state from which a former leader continues to answer.
func (s *stream) clone() *stream {
	c := *s
	c.all, c.newest, c.ids = maps.Clone(s.all), maps.Clone(s.newest), maps.Clone(s.ids)
	c.readers = map[string]*reader{}
	return &c
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

// A failure is an error answer.
type failure struct {
	Code int    `json:"code"`
	Err  int    `json:"err_code"`
	Text string `json:"description"`
}

// The codes are those of nats-server (jetstream_errors_generated.go).
func errNotNow() *failure { return &failure{503, 10008, "JetStream system temporarily unavailable"} }
func errWrongLast(n uint64) *failure {
	return &failure{400, 10071, fmt.Sprintf("wrong last sequence: %d", n)}
}
func errStorage() *failure   { return &failure{500, 10047, "insufficient storage resources available"} }
func errFull() *failure      { return &failure{503, 10077, "maximum bytes exceeded"} }
func errNoStream() *failure  { return &failure{404, 10059, "stream not found"} }
func errNoMessage() *failure { return &failure{404, 10037, "no message found"} }
func errNameInUse() *failure {
	return &failure{400, 10058, "stream name already in use with a different configuration"}
}
func errNoReader() *failure   { return &failure{404, 10014, "consumer not found"} }
func errBadRequest() *failure { return &failure{400, 10003, "bad request"} }
func errAlone() *failure {
	return &failure{500, 10074, "replicas > 1 not supported in non-clustered mode"}
}

// A proposal is an uncommitted change of the streams.
type proposal struct {
	from  *server
	reply string
	do    func() any // applies the change and returns the answer
	term  int
}

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

// answerLocked sends an answer to the server of the requesting client.
func (b *Broker) answerLocked(by, to *server, reply string, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err) // our own types
	}
	if !to.up || by != to && by.cut[to] {
		return
	}
	send := func() { b.routeLocked(to, "", &message{subject: reply, data: data}) }
	b.carryLocked(by, to, send)
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

// drop removes an entry, and reports whether it existed.
func (s *stream) drop(seq uint64) bool {
	e := s.all[seq]
	if e == nil {
		return false
	}
	delete(s.all, seq)
	s.bytes -= e.size
	if s.newest[e.subject] == seq {
		delete(s.newest, e.subject)
		for n, other := range s.all {
			if other.subject == e.subject {
				s.newest[e.subject] = max(n, s.newest[e.subject])
			}
		}
	}
	for s.first <= s.last && s.all[s.first] == nil {
		s.first++
	}
	return true
}

// purge removes all entries before a number, or all.
func (s *stream) purge(before uint64) (n int) {
	if before == 0 {
		before = s.last + 1
	}
	for seq := s.first; seq < before && seq <= s.last; seq++ {
		if s.drop(seq) {
			n++
		}
	}
	if len(s.all) == 0 {
		s.first = max(s.first, min(before, s.last+1))
	}
	return n
}

// next returns the first entry from a number on, of a subject if one is given.
func (s *stream) next(from uint64, subject string) *stored {
	for seq := max(from, s.first); seq <= s.last; seq++ {
		if e := s.all[seq]; e != nil && (subject == "" || matches(subject, e.subject)) {
			return e
		}
	}
	return nil
}
