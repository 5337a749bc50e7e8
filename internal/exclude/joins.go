package exclude

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
)

// A JoinLimit limits how many newcomers one network may send in a window, and twice as many for the
// next wider network: a /24 around a /32, a /48 around a /64.
type JoinLimit struct {
	Amount   int           // 0 is off
	Window   time.Duration // default 1 m
	PrefixV4 int           // default 32
	PrefixV6 int           // default 64
	Refuse   bool          // newcomers above the limit get no place

	DrawWeight int // see Network
}

// The prefix of the wider network is this many bits shorter.
const (
	widerV4 = 8
	widerV6 = 16
)

// maxNetworks limits the networks that are counted in a window. Beyond it the window ends early,
// and its counts become those of the previous window. Chosen: 10 MB for both windows.
const maxNetworks = 100_000

// Joins counts the newcomers of networks. The rate of a network is its count in this window plus a
// part of its count in the previous window: the part that a window ending now still covers, as if
// the newcomers had come evenly. Newcomers above the limit count too, so a network that keeps
// sending stays above it.
type Joins struct {
	Limit JoinLimit // defaults filled in

	mu          sync.Mutex
	since       time.Duration
	now, before map[netip.Prefix]int
	all, most   int // newcomers in this window, and the number from the address that sent most
	lone        bool
}

// NewJoins returns a Joins without any counts.
func NewJoins(c JoinLimit) *Joins {
	if c.Window == 0 {
		c.Window = time.Minute
	}
	if c.PrefixV4 == 0 {
		c.PrefixV4 = 32
	}
	if c.PrefixV6 == 0 {
		c.PrefixV6 = 64
	}
	return &Joins{Limit: c, now: map[netip.Prefix]int{}}
}

// Over counts a newcomer and reports whether its network has sent more than the limit. alone
// reports, once, that nearly all newcomers come from one address; see Lone.
func (j *Joins) Over(a netip.Addr, clk time.Duration) (over, alone bool) {
	own, around, ok := j.networks(a)
	if !ok {
		return false, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	was := j.lone
	j.turn(clk)
	alone = j.lone && !was
	n := j.add(own, clk)
	j.all++
	j.most = max(j.most, j.now[own])
	if local(a.Unmap()) { // a proxy in front that trusted_proxies does not list, or a developer
		return false, alone
	}
	wide := j.add(around, clk)
	return n > j.Limit.Amount || wide > 2*j.Limit.Amount, alone
}

// IsOver reports whether the network of an address has sent more than the limit. It counts nothing.
func (j *Joins) IsOver(a netip.Addr, clk time.Duration) bool {
	own, around, ok := j.networks(a)
	if !ok || local(a.Unmap()) {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.turn(clk)
	return j.rate(own, clk) > j.Limit.Amount || j.rate(around, clk) > 2*j.Limit.Amount
}

// Rate returns how many newcomers the network of an address has sent in the last window.
func (j *Joins) Rate(a netip.Addr, clk time.Duration) int {
	own, _, ok := j.networks(a)
	if !ok {
		return 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.turn(clk)
	return j.rate(own, clk)
}

// Forget takes back the last count of a newcomer: the same request comes once more.
func (j *Joins) Forget(a netip.Addr) {
	own, around, ok := j.networks(a)
	if !ok {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now[own] = max(0, j.now[own]-1)
	j.all = max(0, j.all-1)
	if !local(a.Unmap()) {
		j.now[around] = max(0, j.now[around]-1)
	}
}

// Network returns a number that stands for the network of an address at every node: a hash, and not 0.
// The life of the line is its key: visitors do not know it, so nobody can look for networks whose number
// is that of somebody else. In a draw the places of one network have together the chances of DrawWeight
// places. It returns 0 if that has no bound.
func (j *Joins) Network(a netip.Addr, life uint64) uint32 {
	own, _, ok := j.networks(a)
	if !ok || j.Limit.DrawWeight <= 0 || local(a.Unmap()) {
		return 0
	}
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, life), own.Addr().AsSlice()...))
	return binary.BigEndian.Uint32(sum[:]) | 1
}

// networks returns the network of an address and the wider one around it.
func (j *Joins) networks(a netip.Addr) (own, around netip.Prefix, ok bool) {
	if a = a.Unmap(); j.Limit.Amount <= 0 || !a.IsValid() {
		return own, around, false
	}
	bits, wider := j.Limit.PrefixV4, max(0, j.Limit.PrefixV4-widerV4)
	if a.Is6() {
		bits, wider = j.Limit.PrefixV6, max(0, j.Limit.PrefixV6-widerV6)
	}
	own, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return own, around, false
	}
	around, _ = own.Addr().Prefix(wider)
	return own, around, true
}

// local reports whether an address belongs to this machine itself.
func local(a netip.Addr) bool {
	return a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || a == netip.IPv6Loopback()
}

// add counts one more newcomer of a network and returns the network's rate.
func (j *Joins) add(p netip.Prefix, clk time.Duration) int {
	j.now[p]++
	return j.rate(p, clk)
}

func (j *Joins) rate(p netip.Prefix, clk time.Duration) int {
	left := max(0, j.Limit.Window-(clk-j.since))
	return j.now[p] + int(int64(j.before[p])*int64(left)/int64(j.Limit.Window))
}

// turn begins the next window if this one is over or full.
func (j *Joins) turn(clk time.Duration) {
	over := clk - j.since
	if over < j.Limit.Window && len(j.now) < maxNetworks {
		return
	}
	if j.before = j.now; over >= 2*j.Limit.Window {
		j.before = nil
	}
	j.lone = j.all >= loneLeast && j.most*100 >= j.all*lonePart
	j.now, j.since, j.all, j.most = map[netip.Prefix]int{}, clk, 0, 0
}

// Minimum number of newcomers in a window, and minimum percentage of them, for one address to count
// as that of nearly all visitors. Chosen.
const (
	loneLeast = 50
	lonePart  = 95
)

// Lone reports whether nearly all newcomers of the last complete window came from one address: most
// likely a proxy that trusted_proxies does not list.
func (j *Joins) Lone(clk time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.turn(clk)
	return j.lone
}
