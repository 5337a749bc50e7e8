package sessions

import (
	"fmt"
	"slices"
	"strconv"
)

// A Source is where a request comes from: its network and its user agent, as hashes with a key that
// only this process has. No address is kept. 0 means unknown. A network whose hash equals one of a
// session's networks is taken for it, and is let in. With 32 bits and three networks, that is one
// network in 1.4 billion, and an IPv4 address has 24 bits of network. User agents are only counted.
type Source struct {
	network uint32
	agent   uint16
}

// short returns the low bits of a hash, never 0.
func short[H uint16 | uint32](h uint64) H { return max(1, H(h)) }

// MaxSeen is how many different networks and user agents of a session are counted; all further ones
// count as one more. Chosen: 54 bytes per session for both.
const MaxSeen = 8

// few is a set of hashes of bounded size.
type few[H uint16 | uint32] struct {
	of [MaxSeen]H
	n  uint8 // MaxSeen + 1: there were more
}

func (s *few[H]) has(h H) bool { return slices.Contains(s.of[:min(s.n, MaxSeen)], h) }

// add adds a hash that is not in the set yet.
func (s *few[H]) add(h H) {
	if s.n < MaxSeen {
		s.of[s.n] = h
	}
	s.n = min(s.n+1, MaxSeen+1)
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

// SharedText returns the end of a sentence about a pass that was used in several networks, or "".
func SharedText(networks, agents int) string {
	if networks <= 1 {
		return ""
	}
	return "; its pass was used in " + countText(networks) + " networks, with " + countText(agents) +
		" user agents, as far as this node has seen"
}

// countText formats a number that Shown returned.
func countText(n int) string {
	if n > MaxSeen {
		return "more than " + strconv.Itoa(MaxSeen)
	}
	return strconv.Itoa(n)
}
