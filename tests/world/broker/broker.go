// Package broker is a cluster of NATS servers in memory, with the part of JetStream that headgate
// uses. A test can make it fail in the ways of a real cluster.
//
// # The promise
//
// The unmodified nats.go client works with it. What it acknowledges is committed, in one order. The
// conformance tests of internal/store pass with it as they pass with nats-server. While a majority
// of servers reach each other, one of them leads all streams. When the leader is lost, nobody
// answers until another is elected, after a time that the test sets.
//
// # Concurrency
//
// All methods may be called by many goroutines at once. Each connection has a goroutine that reads
// and one that writes; they end with the connection.
//
// # What it does not do
//
// It stores nothing on disk: a stopped server loses its connections and readers, and the cluster
// remembers what was committed. There is no TLS, no user and no permission: an account is a
// namespace of subjects.
package broker

import (
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// These are the parameters of the cluster. Chosen to match nats-server: a follower waits 4 to 9 s
// before it requests votes, a leader without a quorum answers for 10 s more.
const (
	electLeast, electMost = 4 * time.Second, 9 * time.Second
	handover              = 50 * time.Millisecond
	staleFor              = 10 * time.Second
)

// Far sets the delay between two servers.
func (b *Broker) Far(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.far = d
}

// New returns a running cluster of servers.
func New(seed uint64, servers ...string) *Broker {
	b := &Broker{rng: rand.New(rand.NewPCG(seed, 2)), streams: map[string]*stream{},
		exact: map[string][]*sub{}}
	for _, name := range servers {
		b.servers = append(b.servers, &server{name: name, up: true, cut: map[*server]bool{},
			hold: map[*server]bool{}, held: map[*server][]func(){}, sent: map[*server][]func(){}})
	}
	b.leader, b.term = b.servers[b.rng.IntN(len(b.servers))], 1
	return b
}

func (b *Broker) serverLocked(name string) *server {
	i := slices.IndexFunc(b.servers, func(s *server) bool { return s.name == name })
	return b.servers[i]
}

// Up reports whether a server accepts connections.
func (b *Broker) Up(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.serverLocked(name).up
}

// Leader returns the leading server, or "" if there is none.
func (b *Broker) Leader() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leader == nil {
		return ""
	}
	return b.leader.name
}

// Commits returns the number of committed writes.
func (b *Broker) Commits() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commits
}

// Serve serves a client of a server until the connection ends.
func (b *Broker) Serve(name, account string, conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.serverLocked(name)
	if !s.up || b.closed {
		conn.Close()
		return
	}
	c := newClient(b, s, account, conn)
	s.clients = append(s.clients, c)
	go c.write()
	go c.read()
}

// Stop stops a server. In an orderly stop it hands over its leadership first. Otherwise its
// uncommitted writes are lost, or committed by the next leader.
func (b *Broker) Stop(name string, orderly bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.serverLocked(name)
	s.up, s.knew = false, nil
	for _, c := range slices.Clone(s.clients) {
		c.closeLocked()
	}
	s.clients = nil
	if b.leader == s && orderly {
		b.deposeLocked(handover)
		return
	}
	b.reviewLocked()
}

// Start starts a stopped server.
func (b *Broker) Start(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serverLocked(name).up = true
	b.reviewLocked()
}

// Cut blocks the link between two servers, in both directions, until Heal. With silent, messages
// are held and may arrive later.
func (b *Broker) Cut(from, to string, silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, y := b.serverLocked(from), b.serverLocked(to)
	x.cut[y], y.cut[x] = !silent, !silent
	x.hold[y], y.hold[x] = silent, silent
	b.reviewLocked()
}

// Mute holds what one server sends to another until Heal.
func (b *Broker) Mute(from, to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serverLocked(from).hold[b.serverLocked(to)] = true
	b.reviewLocked()
}

// Heal ends Cut and Mute. The held messages all arrive, or are all lost. A returning server may
// cause a new election.
func (b *Broker) Heal(from, to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x, y := b.serverLocked(from), b.serverLocked(to)
	was := x.hold[y] || x.cut[y] || y.hold[x] || y.cut[x]
	x.cut[y], y.cut[x], x.hold[y], y.hold[x] = false, false, false, false
	arrives := b.rng.IntN(2) == 0
	for _, way := range [][2]*server{{x, y}, {y, x}} {
		all := way[0].held[way[1]]
		way[0].held[way[1]] = nil
		if arrives {
			for _, deliver := range all {
				deliver()
			}
		}
	}
	x.knew, y.knew = nil, nil
	if was && b.leader != nil && b.rng.IntN(4) == 0 {
		b.deposeLocked(b.drawLocked(electLeast, electMost) / 2)
		return
	}
	b.reviewLocked()
}

// Elect makes the leader step down: nobody leads for a while.
func (b *Broker) Elect(wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deposeLocked(wait)
}

// LoseAcks loses the next n acknowledgments of writes that were committed.
func (b *Broker) LoseAcks(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unacked = n
}

// Slow adds a delay to each commit, so that writes may complete after their callers have given up.
func (b *Broker) Slow(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = d
}

// Fill makes the disks full, or empty again: writes are not answered, or rejected.
func (b *Broker) Fill(full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = full
}

// Close ends all connections.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.voting != nil {
		b.voting.Stop()
	}
	for _, s := range b.servers {
		for _, c := range slices.Clone(s.clients) {
			c.closeLocked()
		}
	}
}

func (b *Broker) quorumLocked(s *server) bool {
	n := 0
	for _, other := range b.servers {
		if s.up && other.up && passes(s, other) && passes(other, s) {
			n++
		}
	}
	return 2*n > len(b.servers)
}

// reviewLocked deposes a leader that has lost the majority.
func (b *Broker) reviewLocked() {
	switch l := b.leader; {
	case b.closed:
	case l != nil && !b.quorumLocked(l):
		b.deposeLocked(b.drawLocked(electLeast, electMost))
	case l == nil && b.voting == nil:
		b.voteLocked(b.drawLocked(electLeast, electMost))
	}
}

// deposeLocked ends a leadership. A former leader that still runs does not know, and continues to
// answer from its old state.
func (b *Broker) deposeLocked(wait time.Duration) {
	l := b.leader
	if l == nil || b.closed {
		return
	}
	if l.up && !b.quorumLocked(l) {
		l.knew, l.until = map[string]*stream{}, time.Now().Add(staleFor)
		for name, s := range b.streams {
			l.knew[name] = s.clone()
		}
	}
	b.leader = nil
	b.silent = b.rng.IntN(2) == 0
	for _, s := range b.streams {
		s.readers = map[string]*reader{}
	}
	if !l.up || l.knew != nil { // its uncommitted writes are lost, or go to the next leader
		keep := b.rng.IntN(len(b.queue) + 1)
		b.queue = b.queue[:keep]
	}
	b.voteLocked(wait)
}

func (b *Broker) voteLocked(wait time.Duration) {
	if b.voting != nil {
		b.voting.Stop()
	}
	b.voting = time.AfterFunc(wait, b.elect)
}

func (b *Broker) elect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.voting = nil
	if b.closed || b.leader != nil {
		return
	}
	var can []*server
	for _, s := range b.servers {
		if b.quorumLocked(s) {
			can = append(can, s)
		}
	}
	if len(can) == 0 {
		b.voteLocked(time.Second)
		return
	}
	b.leader = can[b.rng.IntN(len(can))]
	b.leader.knew = nil
	b.term++
	for _, p := range b.queue {
		p.reply = ""
		b.scheduleLocked(p)
	}
}
