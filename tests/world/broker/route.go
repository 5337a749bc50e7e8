package broker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

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

// routeLocked delivers a message to all subscriptions of its subject, and to one of each group. It
// reports whether there were any.
func (b *Broker) routeLocked(from *server, account string, m *message) bool {
	groups := map[string][]*sub{}
	heard := false
	for _, s := range b.heardBy(m.subject) {
		c := s.client
		if c.account != account || !c.server.up || from.cut[c.server] {
			continue
		}
		heard = true
		if s.group != "" {
			groups[s.group] = append(groups[s.group], s)
			continue
		}
		b.deliverLocked(from, s, m)
	}
	for _, all := range groups {
		near := slices.DeleteFunc(slices.Clone(all), func(s *sub) bool { return s.client.server != from })
		if len(near) > 0 {
			all = near
		}
		b.deliverLocked(from, all[b.rng.IntN(len(all))], m)
	}
	return heard
}

// heardBy returns the subscriptions of a subject.
func (b *Broker) heardBy(subject string) []*sub {
	all := slices.Clone(b.exact[subject])
	for _, s := range b.wild {
		if matches(s.subject, subject) {
			all = append(all, s)
		}
	}
	return all
}

func (b *Broker) indexLocked(s *sub) {
	if strings.ContainsAny(s.subject, "*>") {
		b.wild = append(b.wild, s)
		return
	}
	b.exact[s.subject] = append(b.exact[s.subject], s)
}

func (b *Broker) dropLocked(s *sub) {
	is := func(x *sub) bool { return x == s }
	b.wild = slices.DeleteFunc(b.wild, is)
	if left := slices.DeleteFunc(b.exact[s.subject], is); len(left) > 0 {
		b.exact[s.subject] = left
	} else {
		delete(b.exact, s.subject)
	}
}

// deliverLocked delivers a message to a subscription, at once or when the link is healed.
func (b *Broker) deliverLocked(from *server, s *sub, m *message) {
	to := s.client.server
	give := func() {
		s.client.sendLocked(m.bytes(s.sid))
		if s.left > 0 {
			if s.left--; s.left == 0 {
				b.dropLocked(s)
				s.client.subs = slices.DeleteFunc(s.client.subs, func(x *sub) bool { return x == s })
			}
		}
	}
	b.carryLocked(from, to, give)
}

// carryLocked runs arrive when the message arrives: at once, after the delay, or when the link is
// healed.
func (b *Broker) carryLocked(from, to *server, arrive func()) {
	switch {
	case from == to:
		arrive()
	case from.hold[to]:
		from.held[to] = append(from.held[to], arrive)
	case b.far == 0:
		arrive()
	default:
		from.sent[to] = append(from.sent[to], arrive)
		time.AfterFunc(b.far, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			first := from.sent[to][0] // in order, whichever timer came first
			from.sent[to] = from.sent[to][1:]
			switch {
			case b.closed || !to.up || from.cut[to]:
			case from.hold[to]:
				from.held[to] = append(from.held[to], first)
			default:
				first()
			}
		})
	}
}

func (c *client) sendLocked(b []byte) {
	if c.closed {
		return
	}
	c.out = append(c.out, b)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *client) closeLocked() {
	if c.closed {
		return
	}
	c.closed = true
	for _, s := range c.subs {
		c.broker.dropLocked(s)
	}
	close(c.more)
	c.conn.Close()
	c.server.clients = slices.DeleteFunc(c.server.clients, func(x *client) bool { return x == c })
}

// A message is a message in flight.
type message struct {
	subject, reply string
	head, data     []byte // head with its first line and the empty one
}

// header returns a field of the head.
func (m *message) header(name string) (string, bool) {
	for line := range strings.SplitSeq(string(m.head), "\r\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v), true
		}
	}
	return "", false
}

// bytes returns a message as a subscription receives it.
func (m *message) bytes(sid string) []byte {
	reply := m.reply
	if reply != "" {
		reply += " "
	}
	if m.head == nil {
		return fmt.Appendf(nil, "MSG %s %s %s%d\r\n%s\r\n", m.subject, sid, reply, len(m.data), m.data)
	}
	return fmt.Appendf(nil, "HMSG %s %s %s%d %d\r\n%s%s\r\n", m.subject, sid, reply, len(m.head),
		len(m.head)+len(m.data), m.head, m.data)
}

func statusHead(text string) []byte { return []byte("NATS/1.0 " + text + "\r\n\r\n") }

// matches reports whether a subject matches a pattern.
func matches(pattern, subject string) bool {
	for {
		p, morePattern, more := strings.Cut(pattern, ".")
		if p == ">" {
			return subject != ""
		}
		t, moreSubject, left := strings.Cut(subject, ".")
		if p != "*" && p != t || more != left {
			return false
		}
		if !more {
			return true
		}
		pattern, subject = morePattern, moreSubject
	}
}
