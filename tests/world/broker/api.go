package broker

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

const apiHead = "$JS.API."

// apiLocked answers a JetStream API request.
func (b *Broker) apiLocked(from *server, m *message) {
	op := strings.TrimPrefix(m.subject, apiHead)
	if !b.ledLocked(from) {
		switch {
		case from.knew != nil && time.Now().Before(from.until):
			if answer, reads := b.readLocked(from.knew, from, op, m.data); reads {
				b.answerLocked(from, from, m.reply, answer)
			}
		case b.leader == nil && !b.silent:
			b.answerLocked(from, from, m.reply, map[string]any{"error": errNotNow()})
		}
		return
	}
	if name, ok := strings.CutPrefix(op, "CONSUMER."); ok {
		b.readerAPI(from, name, m)
		return
	}
	if answer, reads := b.readLocked(b.streams, b.leader, op, m.data); reads {
		b.answerLocked(b.leader, from, m.reply, answer)
		return
	}
	b.proposeLocked(from, m.reply, func() any { return b.change(op, m.data) })
}

// readLocked answers a request that changes nothing, and reports whether it is one.
func (b *Broker) readLocked(
	streams map[string]*stream, by *server, op string, data []byte,
) (answer any, reads bool) {
	if op == "INFO" {
		return map[string]any{"streams": len(streams)}, true
	}
	if op == "STREAM.LIST" || op == "STREAM.NAMES" {
		return b.list(streams, by, data), true
	}
	verb, name, _ := cutName(op)
	s := streams[name]
	switch {
	case verb != "STREAM.INFO" && verb != "STREAM.MSG.GET":
		return nil, false
	case s == nil:
		return map[string]any{"error": errNoStream()}, true
	case verb == "STREAM.INFO":
		var q struct {
			Deleted bool   `json:"deleted_details"`
			Filter  string `json:"subjects_filter"`
			Offset  int    `json:"offset"`
		}
		if len(data) > 0 && json.Unmarshal(data, &q) != nil {
			return map[string]any{"error": errBadRequest()}, true
		}
		return b.info(s, by, q.Deleted, q.Filter, q.Offset), true
	}
	var q struct {
		Seq  uint64 `json:"seq"`
		Last string `json:"last_by_subj"`
		Next string `json:"next_by_subj"`
	}
	if json.Unmarshal(data, &q) != nil {
		return map[string]any{"error": errBadRequest()}, true
	}
	e := s.all[q.Seq]
	switch {
	case q.Last != "":
		e = s.all[s.newest[q.Last]]
	case q.Next != "":
		e = s.next(q.Seq, q.Next)
	}
	if e == nil {
		return map[string]any{"error": errNoMessage()}, true
	}
	return map[string]any{"message": map[string]any{"subject": e.subject, "seq": e.seq, "data": e.data,
		"time": e.at}}, true
}

// cutName separates the operation of a request from its stream name.
func cutName(op string) (verb, name string, ok bool) {
	i := strings.LastIndexByte(op, '.')
	if i < 0 {
		return op, "", false
	}
	return op[:i], op[i+1:], true
}

func (b *Broker) list(streams map[string]*stream, by *server, data []byte) any {
	var q struct {
		Subject string `json:"subject"`
		Offset  int    `json:"offset"`
	}
	if len(data) > 0 && json.Unmarshal(data, &q) != nil {
		return map[string]any{"error": errBadRequest()}
	}
	all := []any{}
	for _, name := range slices.Sorted(maps.Keys(streams)) {
		s := streams[name]
		if q.Subject == "" || slices.ContainsFunc(s.cfg.Subjects, func(x string) bool {
			return matches(q.Subject, x)
		}) {
			all = append(all, b.info(s, by, false, "", 0))
		}
	}
	page := all[min(q.Offset, len(all)):]
	return map[string]any{"total": len(all), "offset": q.Offset, "limit": 256, "streams": page}
}

func (b *Broker) info(s *stream, by *server, deleted bool, filter string, offset int) map[string]any {
	state := map[string]any{"messages": len(s.all), "bytes": s.bytes, "first_seq": s.first,
		"last_seq": s.last, "consumer_count": len(s.readers), "num_subjects": len(s.newest)}
	if deleted {
		gone := []uint64{}
		for seq := s.first; seq <= s.last; seq++ {
			if s.all[seq] == nil {
				gone = append(gone, seq)
			}
		}
		state["deleted"], state["num_deleted"] = gone, len(gone)
	}
	x := map[string]any{"config": s.raw, "created": s.created, "state": state}
	if filter != "" {
		counts := map[string]uint64{}
		for subject := range s.newest {
			if matches(filter, subject) {
				counts[subject] = 1
			}
		}
		x["total"], x["limit"], x["offset"] = len(counts), len(counts), offset
		if offset == 0 {
			state["subjects"] = counts
		}
	}
	if len(b.servers) == 1 {
		return x
	}
	var others []any
	for _, o := range b.servers {
		if o != by {
			others = append(others, map[string]any{"name": o.name, "current": passes(by, o), "offline": !o.up,
				"active": 0})
		}
	}
	x["cluster"] = map[string]any{"name": "world", "leader": by.name, "replicas": others}
	return x
}

// change applies a committed change of streams.
func (b *Broker) change(op string, data []byte) any {
	verb, name, _ := cutName(op)
	s := b.streams[name]
	if verb == "STREAM.CREATE" || verb == "STREAM.UPDATE" {
		return b.configure(verb == "STREAM.CREATE", s, data)
	}
	if s == nil {
		return map[string]any{"error": errNoStream()}
	}
	switch verb {
	case "STREAM.DELETE":
		delete(b.streams, name)
		return map[string]any{"success": true}
	case "STREAM.PURGE":
		var q struct {
			Seq uint64 `json:"seq"`
		}
		if len(data) > 0 && json.Unmarshal(data, &q) != nil {
			return map[string]any{"error": errBadRequest()}
		}
		return map[string]any{"success": true, "purged": s.purge(q.Seq)}
	case "STREAM.MSG.DELETE":
		var q struct {
			Seq uint64 `json:"seq"`
		}
		if json.Unmarshal(data, &q) != nil {
			return map[string]any{"error": errBadRequest()}
		}
		if !s.drop(q.Seq) {
			return map[string]any{"error": errNoMessage()}
		}
		return map[string]any{"success": true}
	}
	return map[string]any{"error": errBadRequest()}
}

// configure creates a stream or changes it.
func (b *Broker) configure(makes bool, s *stream, data []byte) any {
	var cfg streamConfig
	if json.Unmarshal(data, &cfg) != nil {
		return map[string]any{"error": errBadRequest()}
	}
	switch {
	case cfg.Replicas > 1 && len(b.servers) == 1:
		return map[string]any{"error": errAlone()}
	case makes && s != nil && string(s.raw) != string(data):
		return map[string]any{"error": errNameInUse()}
	case makes && s == nil:
		s = newStream(slices.Clone(data), cfg)
		b.streams[cfg.Name] = s
	case s == nil:
		return map[string]any{"error": errNoStream()}
	}
	s.raw, s.cfg = slices.Clone(data), cfg
	by := b.leader
	return b.info(s, by, false, "", 0)
}
