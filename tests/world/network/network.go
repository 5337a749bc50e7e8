// Package network is a network in memory that a test owns. It has hosts, listeners and connections.
// Bytes take time, wait while a link is cut, and are lost when a process is killed.
//
// # The promise
//
// The bytes of one connection arrive in order, each after the delay of its link. Bytes of different
// connections may overtake each other. All waiting uses channels and timers, so that a network
// works in a bubble of testing/synctest.
//
// # Concurrency
//
// All methods may be called by many goroutines at once. A write never blocks: unread data is kept
// in memory. No method starts a goroutine.
//
// # What it does not do
//
// It has only loopback addresses and no names: each port belongs to one host of the network, which
// the listener names.
package network

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// firstPort and lastPort limit the ports of outgoing connections, as on Linux. A port is reused
// only when its connection has ended.
const firstPort, lastPort = 32768, 60999

// A Network connects hosts. Make one with New.
type Network struct {
	mu        sync.Mutex
	rng       *rand.Rand
	delay     [2]time.Duration
	listeners map[int]*Listener
	conns     map[*Conn]bool
	held      map[link]bool // bytes wait
	refused   map[link]bool // connections are closed, new ones refused
	frozen    map[string]bool
	dead      map[string]bool
	healed    chan struct{} // closed and replaced at each change
	port      int           // the last port used
	made      int           // ends of connections
	ports     map[int]*Conn // ports of outgoing connections
}

// machine returns the machine of a host: n1#2 is the second process of n1. Links are cut between
// machines, but processes are killed.
func machine(host string) string {
	name, _, _ := strings.Cut(host, "#")
	return name
}

// A link is one direction between two hosts.
type link struct{ from, to string }

// A Conn is one end of a connection.
type Conn struct {
	network       *Network
	host, peer    string
	local, remote *net.TCPAddr
	in, out       *half
	other         *Conn
	number        int       // one more for each end
	opened        time.Time // of Pipe; else long ago
}

// A half is the bytes that go one way.
type half struct {
	mu       sync.Mutex
	chunks   []chunk
	end      bool // nothing more is written
	deaf     bool // the reader has stopped
	broken   bool // nothing arrives in either direction
	closed   bool // by the reader itself
	deadline time.Time
	changed  chan struct{}
}

type chunk struct {
	data []byte
	at   time.Time
}

// New returns a network whose random choices come from the seed. Bytes take between least and most
// from one host to another, and no time within a host.
func New(seed uint64, least, most time.Duration) *Network {
	return &Network{
		rng: rand.New(rand.NewPCG(seed, 1)), delay: [2]time.Duration{least, most},
		listeners: map[int]*Listener{}, conns: map[*Conn]bool{}, held: map[link]bool{},
		refused: map[link]bool{}, frozen: map[string]bool{}, dead: map[string]bool{},
		healed: make(chan struct{}), port: lastPort, ports: map[int]*Conn{},
	}
}

func (n *Network) drawLocked(from, to string) time.Duration {
	if machine(from) == machine(to) {
		return 0
	}
	return n.delay[0] + time.Duration(n.rng.Int64N(int64(n.delay[1]-n.delay[0])+1))
}

func (n *Network) heldLocked(from, to string) bool {
	from, to = machine(from), machine(to)
	return from != to && (n.held[link{from, to}] || n.frozen[from] || n.frozen[to])
}

// holds reports whether bytes from one host to another are held now.
func (n *Network) holds(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heldLocked(from, to)
}

// A Listener accepts the connections of one address.
type Listener struct {
	network *Network
	host    string
	addr    *net.TCPAddr

	waiting []*Conn // guarded by the network's mutex, as what follows
	shut    bool
	changed chan struct{}
}
