package broker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Version is the version that the servers report.
const Version = "2.15.0"

const maxPayload = 1 << 20

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
