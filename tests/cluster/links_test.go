//go:build cluster

package cluster

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/loopback"
)

// A links stands between the nodes: each node's cluster ports are reached through
// it, so all links of a node can be cut. Whose link it is, the process that owns
// its other end tells, or the port that it came to.
type links struct {
	t      *testing.T
	pids   func() map[int]string // the nodes that run
	wg     sync.WaitGroup
	mu     sync.Mutex
	wake   *sync.Cond
	closed bool
	cut    map[string]cutHow
	apart  map[pair]cutHow
	open   map[*link]bool
	ways   []net.Listener
	real   map[int]string // the nodes' own ports, which nobody else may know
}

// A link is one connection from a node to another's cluster port.
type link struct {
	from, to string
	delay    time.Duration // one way
	ends     [2]net.Conn
}

func newLinks(t *testing.T, pids func() map[int]string) *links {
	l := &links{t: t, pids: pids, cut: map[string]cutHow{}, apart: map[pair]cutHow{},
		open: map[*link]bool{}, real: map[int]string{}}
	l.wake = sync.NewCond(&l.mu)
	t.Cleanup(l.close)
	return l
}

// way makes a port that leads to a node's own.
func (l *links) way(node string, port, own int) {
	l.t.Helper()
	l.mu.Lock()
	l.real[own] = node
	l.mu.Unlock()
	l.lead(port, own, func(c net.Conn) link {
		return link{from: l.owner(c.RemoteAddr(), c.LocalAddr()), to: node}
	})
}

// lead makes a port that leads to another, and asks of each connection whose it is.
func (l *links) lead(port, own int, whose func(net.Conn) link) {
	l.t.Helper()
	ln, err := net.Listen("tcp", loopback.Address(port))
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	l.ways = append(l.ways, ln)
	l.mu.Unlock()
	l.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return // closed
			}
			l.wg.Go(func() {
				defer c.Close()
				if k := whose(c); k.from != "" { // else it is over already, or a stranger knocks
					l.carry(c, &k, own)
				}
			})
		}
	})
}

func (l *links) close() {
	l.mu.Lock()
	l.closed = true
	for _, ln := range l.ways {
		ln.Close()
	}
	for k := range l.open {
		k.shut()
	}
	l.wake.Broadcast()
	l.mu.Unlock()
	l.wg.Wait()
}

func (k *link) shut() {
	for _, c := range k.ends {
		if c != nil {
			c.Close()
		}
	}
}

// sever cuts all links of a node.
func (l *links) sever(node string, how cutHow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut[node] = how
	n := 0
	for k := range l.open {
		if k.from == node || k.to == node {
			n++
			if how == closed {
				k.shut()
			}
		}
	}
	if n == 0 {
		l.t.Errorf("%s has no link to cut", node)
	}
}

// heal lets all nodes reach each other again.
func (l *links) heal() {
	l.mu.Lock()
	clear(l.cut)
	clear(l.apart)
	l.wake.Broadcast()
	l.mu.Unlock()
}

// pass waits while a link is silenced, and reports whether it may go on.
func (l *links) pass(k *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed {
		switch how := max(l.cut[k.from], l.cut[k.to], l.apart[between(k.from, k.to)]); how {
		case whole:
			return true
		case closed:
			return false
		}
		l.wake.Wait()
	}
	return false
}

// carry is one connection, from its beginning to its end.
func (l *links) carry(from net.Conn, k *link, own int) {
	if !l.pass(k) {
		return
	}
	to, err := net.Dial("tcp", loopback.Address(own))
	if err != nil {
		return
	}
	defer to.Close()
	k.ends = [2]net.Conn{from, to}
	l.mu.Lock()
	l.open[k] = true
	l.mu.Unlock()
	var both sync.WaitGroup
	copy := l.copy
	if k.delay > 0 {
		copy = l.late
	}
	both.Go(func() { copy(k, to, from) })
	both.Go(func() { copy(k, from, to) })
	both.Wait()
	l.mu.Lock()
	delete(l.open, k)
	l.mu.Unlock()
}

func (l *links) copy(k *link, to io.Writer, from io.Reader) {
	defer k.shut()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !l.pass(k) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A socket is one line of /proc/net/tcp.
type socket struct {
	local, remote int // ports
	inode         string
}

// sockets lists the established connections of this machine by IPv4.
func sockets() ([]socket, error) {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []socket
	for sc := bufio.NewScanner(f); sc.Scan(); {
		const established = "01"
		c := strings.Fields(sc.Text())
		if len(c) < 10 || c[3] != established {
			continue
		}
		s := socket{local: hexPort(c[1]), remote: hexPort(c[2]), inode: c[9]}
		all = append(all, s)
	}
	return all, nil
}

func hexPort(address string) int {
	_, port, _ := strings.Cut(address, ":")
	b, err := hex.DecodeString(port)
	if err != nil || len(b) != 2 {
		return 0
	}
	return int(b[0])<<8 | int(b[1])
}

// owner is the node whose process holds the socket that has these two ends.
func (l *links) owner(near, far net.Addr) string {
	all, err := sockets()
	if err != nil {
		l.t.Error(err)
	}
	i := slices.IndexFunc(all, func(s socket) bool {
		return s.local == near.(*net.TCPAddr).Port && s.remote == far.(*net.TCPAddr).Port
	})
	if i < 0 {
		return ""
	}
	for pid, node := range l.pids() {
		if slices.Contains(socketsOf(pid), all[i].inode) {
			return node
		}
	}
	return ""
}

// socketsOf lists the inodes of a process's sockets.
func socketsOf(pid int) (inodes []string) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		to, err := os.Readlink(dir + "/" + name.Name())
		if inode, ok := strings.CutPrefix(to, "socket:["); ok && err == nil {
			inodes = append(inodes, strings.TrimSuffix(inode, "]"))
		}
	}
	return inodes
}

// bypassed names the links that go past the harness: a node has told another its
// own port. Then cutting links would prove nothing.
func (l *links) bypassed() (found []string) {
	all, err := sockets()
	if err != nil {
		return []string{err.Error()}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for pid, node := range l.pids() {
		own := socketsOf(pid)
		for _, s := range all {
			if to, ok := l.real[s.remote]; ok && slices.Contains(own, s.inode) {
				found = append(found, node+" to "+to+" at port "+strconv.Itoa(s.remote))
			}
		}
	}
	return found
}
