package guard

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/exclude"
)

// sayEvery is the minimum interval between log lines that name a rejected address. Chosen.
const sayEvery = time.Minute

// Connections counts the open connections of each address over all listeners. An address is one of
// IPv4, or 64 bits of one of IPv6. Max and Log must be set before the first Listen.
type Connections struct {
	// Max returns how many connections an address may have; 0 is any number.
	Max func(netip.Addr) int
	Log *slog.Logger

	mu      sync.Mutex
	open    map[netip.Addr]int
	refused int64
	said    time.Time
}

// Listen wraps l and closes connections of addresses that have too many.
func (c *Connections) Listen(l net.Listener) net.Listener { return &listener{l, c} }

// Refused returns how many connections were closed because their address had too many.
func (c *Connections) Refused() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func (c *Connections) enter(peer, key netip.Addr) bool {
	most := c.Max(peer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if most > 0 && c.open[key] >= most {
		c.refused++
		if now := time.Now(); now.Sub(c.said) >= sayEvery {
			c.said = now
			c.Log.Warn("connections refused: an address has too many", "address", key, "open", most,
				"refused_total", c.refused, "hint",
				"if it is a proxy of yours, list it in trusted_proxies; else see max_connections_per_address")
		}
		return false
	}
	if c.open == nil {
		c.open = map[netip.Addr]int{}
	}
	c.open[key]++
	return true
}

func (c *Connections) leave(key netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[key]--; c.open[key] <= 0 {
		delete(c.open, key)
	}
}

type listener struct {
	net.Listener
	all *Connections
}

// Accept waits for the next connection of an address that is below its maximum.
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok { // a Unix socket has no address
			return c, nil
		}
		peer := tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		key := exclude.Subscriber(peer)
		if l.all.enter(peer, key) {
			return &conn{TCPConn: tcp, leave: func() { l.all.leave(key) }}, nil
		}
		_ = tcp.SetLinger(0) // reset it, so that not even TIME_WAIT is kept
		tcp.Close()
	}
}

// A conn embeds the TCPConn, because the server uses other methods of it, such as CloseWrite.
type conn struct {
	*net.TCPConn
	once  sync.Once
	leave func()
}

// Close closes the connection and subtracts it from the count.
func (c *conn) Close() error {
	c.once.Do(c.leave)
	return c.TCPConn.Close()
}
