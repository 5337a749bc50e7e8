package broker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Version is the version that the servers report.
const Version = "2.15.0"

const maxPayload = 1 << 20

// A client is a connection to a server.
type client struct {
	broker  *Broker
	server  *server
	account string
	conn    net.Conn
	subs    []*sub // guarded by the broker's mutex, as what follows
	out     [][]byte
	closed  bool
	more    chan struct{} // has room for one
}

// A sub is a subscription of a client.
type sub struct {
	client  *client
	subject string
	group   string
	sid     string
	left    int // messages left before it ends; 0: no end
}

func newClient(b *Broker, s *server, account string, conn net.Conn) *client {
	c := &client{broker: b, server: s, account: account, conn: conn, more: make(chan struct{}, 1)}
	info, err := json.Marshal(map[string]any{
		"server_id": s.name, "server_name": s.name, "version": Version, "proto": 1, "headers": true,
		"max_payload": maxPayload, "jetstream": true, "client_id": 1, "host": "127.0.0.1", "port": 4222,
	})
	if err != nil {
		panic(err) // a map of strings and numbers
	}
	c.sendLocked(slices.Concat([]byte("INFO "), info, []byte("\r\n")))
	return c
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

func (c *client) close() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.closeLocked()
}

// write sends the queued data.
func (c *client) write() {
	for range c.more {
		c.broker.mu.Lock()
		out := c.out
		c.out = nil
		c.broker.mu.Unlock()
		if _, err := c.conn.Write(bytes.Join(out, nil)); err != nil {
			c.close()
		}
	}
}

// read processes the commands of the client.
func (c *client) read() {
	defer c.close()
	r := bufio.NewReader(c.conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		args := strings.Fields(rest)
		var body []byte
		verb = strings.ToUpper(verb)
		if verb == "PUB" || verb == "HPUB" {
			n, err := strconv.Atoi(args[len(args)-1])
			if err != nil || n > 2*maxPayload {
				return
			}
			body = make([]byte, n+2)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			body = body[:n]
		}
		c.obey(verb, args, body)
	}
}

func (c *client) obey(verb string, args []string, body []byte) {
	b := c.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	switch verb {
	case "PING":
		c.sendLocked([]byte("PONG\r\n"))
	case "SUB":
		s := &sub{client: c, subject: args[0], sid: args[len(args)-1]}
		if len(args) == 3 {
			s.group = args[1]
		}
		c.subs = append(c.subs, s)
		b.indexLocked(s)
	case "UNSUB":
		i := slices.IndexFunc(c.subs, func(s *sub) bool { return s.sid == args[0] })
		if i < 0 {
			return
		}
		if len(args) == 2 {
			if n, err := strconv.Atoi(args[1]); err == nil && n > 0 {
				c.subs[i].left = n
				return
			}
		}
		b.dropLocked(c.subs[i])
		c.subs = slices.Delete(c.subs, i, i+1)
	case "PUB":
		m := &message{subject: args[0], data: body}
		if len(args) == 3 {
			m.reply = args[1]
		}
		b.publishLocked(c, m)
	case "HPUB":
		n, err := strconv.Atoi(args[len(args)-2])
		if err != nil || n > len(body) {
			return
		}
		m := &message{subject: args[0], head: body[:n], data: body[n:]}
		if len(args) == 4 {
			m.reply = args[1]
		}
		b.publishLocked(c, m)
	}
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

// publishLocked delivers a message to its receivers.
func (b *Broker) publishLocked(from *client, m *message) {
	s := from.server
	switch {
	case from.account == "" && strings.HasPrefix(m.subject, apiHead):
		b.apiLocked(s, m)
		return
	case from.account == "" && b.streamOf(m.subject) != "":
		b.writeLocked(s, m)
		return
	}
	if !b.routeLocked(s, from.account, m) && m.reply != "" {
		b.routeLocked(s, from.account, &message{subject: m.reply, head: statusHead("503")})
	}
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
