package sessions

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"strconv"

	"github.com/headgate/headgate/internal/slot"
)

// A From is where a request comes from: its network and its user agent, as hashes with a key that
// only this process has. No address is kept. 0 is unknown.
type Source struct{ network, agent uint16 }

// From returns where a request comes from. A network is a /24 of IPv4 or a /48 of IPv6: what one
// line or one site has.
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

// short is 16 bits of a hash, never 0.
func short(h uint64) uint16 { return max(1, uint16(h)) }

// MostSeen is how many networks and user agents of a visit are told apart; more count as one more.
// Chosen: 36 bytes a visit for both.
const MaxSeen = 8

// few is a set of hashes of bounded size.
type few struct {
	of [MaxSeen]uint16
	n  uint8 // MostSeen + 1: there were more
}

func (s *few) has(h uint16) bool { return slices.Contains(s.of[:min(s.n, MaxSeen)], h) }

// add adds a hash that is not in the set.
func (s *few) add(h uint16) {
	if s.n < MaxSeen {
		s.of[s.n] = h
	}
	s.n = min(s.n+1, MaxSeen+1)
}

// note notes where a request of a visit comes from. It reports false, and notes nothing, if the
// network is one too many.
func (v *Set) note(x *visit, y *Session) bool {
	if x.last == y.Source { // as nearly always
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

// Allows reports whether a request of a stay may come from where it comes. It notes nothing.
func (v *Set) Allows(y *Session) bool {
	s := v.shard(y.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	x, n := s.stay[y.ID], y.Source.network
	return x == nil || n == 0 || y.Sharing.Action == Mark || x.networks.has(n) ||
		int(x.networks.n) < y.Sharing.Networks
}

// Sharing says what becomes of a pass that is used from more than so many networks.
type Sharing struct {
	Networks int    // default 3, at most MostSeen
	Action   string // default Mark
}

// The actions.
const (
	Mark = "mark" // it is counted
	Wait = "wait" // a request from one network more is a newcomer's
	End  = "end"  // the visit ends
)

// Fill fills in the defaults. It returns an error of a kind if s is impossible.
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

// Shown returns how many networks and user agents a visit has been seen with, at most MostSeen + 1
// of each, which stands for more; 0 if the visit is not known here.
func (v *Set) Shown(id slot.StayID) (networks, agents int) {
	s := v.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.stay[id]; x != nil {
		return int(x.networks.n), int(x.agents.n)
	}
	return 0, 0
}

// Few is a number that Shown returned, in words.
func CountText(n int) string {
	if n > MaxSeen {
		return "more than " + strconv.Itoa(MaxSeen)
	}
	return strconv.Itoa(n)
}
