package sessions

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strconv"

	"github.com/headgate/headgate/internal/slot"
)

// A Source is where a request comes from: its network and its user agent, as hashes with a key that
// only this process has. No address is kept. 0 means unknown.
type Source struct{ network, agent uint16 }

// Source returns where a request comes from. A network is a /24 of IPv4 or a /48 of IPv6: the
// addresses of one connection or one location.
func (v *Set) Source(a netip.Addr, agent string) (f Source) {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		f.network = short(maphash.Bytes(v.seed, b[:3]))
	} else if a.Is6() {
		b := a.As16()
		f.network = short(maphash.Bytes(v.seed, b[:6]))
	}
	f.agent = short(maphash.String(v.seed, agent))
	return f
}

// short returns 16 bits of a hash, never 0.
func short(h uint64) uint16 { return max(1, uint16(h)) }

// MaxSeen is how many different networks and user agents of a session are counted; all further ones
// count as one more. Chosen: 36 bytes per session for both.
const MaxSeen = 8

// few is a set of hashes of bounded size.
type few struct {
	of [MaxSeen]uint16
	n  uint8 // MaxSeen + 1: there were more
}

func (s *few) has(h uint16) bool { return slices.Contains(s.of[:min(s.n, MaxSeen)], h) }

// add adds a hash that is not in the set yet.
func (s *few) add(h uint16) {
	if s.n < MaxSeen {
		s.of[s.n] = h
	}
	s.n = min(s.n+1, MaxSeen+1)
}

// note records where a request of a session comes from. If the network is one too many, it returns
// false and records nothing.
func (v *Set) note(x *visit, y *Session) bool {
	if x.last == y.Source { // nearly always the case
		return true
	}
	if n := y.Source.network; n != 0 && !x.networks.has(n) {
		over := y.Sharing.Networks > 0 && int(x.networks.n) >= y.Sharing.Networks
		if over && !x.shared {
			x.shared = true
			v.Shared.Add(1)
		}
		if over && y.Sharing.Action != Mark {
			v.Refused.Add(1)
			return false
		}
		x.networks.add(n)
	}
	if a := y.Source.agent; a != 0 && !x.agents.has(a) {
		x.agents.add(a)
	}
	x.last = y.Source
	return true
}

// Allows reports whether a request of a session may come from its source. It records nothing.
func (v *Set) Allows(y *Session) bool {
	s := v.shard(y.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	x, n := s.stay[y.ID], y.Source.network
	return x == nil || n == 0 || y.Sharing.Action == Mark || x.networks.has(n) ||
		int(x.networks.n) < y.Sharing.Networks
}

// Sharing defines what happens to a pass that is used from too many networks.
type Sharing struct {
	Networks int    // default 3, at most MaxSeen
	Action   string // default Mark
}

// The actions.
const (
	Mark = "mark" // count it
	Wait = "wait" // treat a request from one more network as a newcomer's
	End  = "end"  // end the session
)

// SetDefaults fills in the defaults. If s is invalid, it returns an error that wraps kind.
func (s *Sharing) SetDefaults(kind error) error {
	if s.Networks == 0 {
		s.Networks = 3
	}
	if s.Action == "" {
		s.Action = Mark
	}
	if s.Networks < 1 || s.Networks > MaxSeen || !slices.Contains([]string{Mark, Wait, End}, s.Action) {
		return fmt.Errorf("%w: a pass in more than %d networks is to %q: the number is 1 to %d, the action "+
			"%q, %q or %q", kind, s.Networks, s.Action, MaxSeen, Mark, Wait, End)
	}
	return nil
}

// Shown returns how many networks and user agents a session has been seen with. Each is at most
// MaxSeen + 1, which means more than MaxSeen. Both are 0 if the session is not known here.
func (v *Set) Shown(id slot.SessionID) (networks, agents int) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		return int(x.networks.n), int(x.agents.n)
	}
	return 0, 0
}

// CountText formats a number that Shown returned.
func CountText(n int) string {
	if n > MaxSeen {
		return "more than " + strconv.Itoa(MaxSeen)
	}
	return strconv.Itoa(n)
}
