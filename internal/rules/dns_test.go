package rules

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// A zone is a DNS server with a few names.
type zone struct {
	mu     sync.Mutex
	names  map[netip.Addr][]string // PTR
	addrs  map[string][]netip.Addr // A and AAAA, by name with its dot
	silent bool                    // SERVFAIL to everything
	asked  int
	hold   chan struct{} // answers wait until it is closed, nil: they do not
}

func (z *zone) set(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f()
}

func (z *zone) questions() (n int) {
	z.set(func() { n = z.asked })
	return n
}

// answer answers one message.
func (z *zone) answer(query []byte) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		panic(err)
	}
	q, err := p.Question()
	if err != nil {
		panic(err)
	}
	var hold chan struct{}
	if z.set(func() { hold = z.hold }); hold != nil {
		<-hold
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.asked++
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: head.ID, Response: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q}}
	found := false
	add := func(body dnsmessage.ResourceBody) {
		m.Answers = append(m.Answers, dnsmessage.Resource{Body: body,
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}})
	}
	for addr, names := range z.names {
		if q.Type == dnsmessage.TypePTR && reverse(addr) == q.Name.String() {
			found = true
			for _, n := range names {
				add(&dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(n)})
			}
		}
	}
	for name, addrs := range z.addrs {
		if name != strings.ToLower(q.Name.String()) {
			continue
		}
		found = true
		for _, a := range addrs {
			switch {
			case a.Is4() && q.Type == dnsmessage.TypeA:
				add(&dnsmessage.AResource{A: a.As4()})
			case a.Is6() && q.Type == dnsmessage.TypeAAAA:
				add(&dnsmessage.AAAAResource{AAAA: a.As16()})
			}
		}
	}
	switch {
	case z.silent:
		m.Answers, m.RCode = nil, dnsmessage.RCodeServerFailure
	case !found:
		m.RCode = dnsmessage.RCodeNameError
	}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// reverse is the name under which the names of an address are found.
func reverse(a netip.Addr) string {
	b, parts, zone := a.AsSlice(), []string(nil), "in-addr.arpa."
	for i := len(b) - 1; i >= 0; i-- {
		if a.Is4() {
			parts = append(parts, netip.AddrFrom4([4]byte{0, 0, 0, b[i]}).String()[6:])
			continue
		}
		const hex = "0123456789abcdef"
		parts, zone = append(parts, hex[b[i]&15:][:1], hex[b[i]>>4:][:1]), "ip6.arpa."
	}
	return strings.Join(append(parts, zone), ".")
}

// onLoopback serves a zone by UDP and returns a resolver that asks it.
func (z *zone) onLoopback(t *testing.T) Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		b := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			query := append([]byte(nil), b[:n]...)
			all.Go(func() {
				_, _ = conn.WriteTo(z.answer(query), from) // who asked may be gone
			})
		}
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// inBubble serves a zone on pipes, which a bubble can see: DNS as over TCP, with the length
// before each message.
func (z *zone) inBubble(all *sync.WaitGroup) Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		all.Go(func() {
			defer there.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(there, size[:]); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(there, query); err != nil {
					return
				}
				b := z.answer(query)
				length := binary.BigEndian.AppendUint16(nil, uint16(len(b)))
				if _, err := there.Write(append(length, b...)); err != nil {
					return
				}
			}
		})
		return here, nil
	}}
}
