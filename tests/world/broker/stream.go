package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

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
