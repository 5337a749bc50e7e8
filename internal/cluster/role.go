package cluster

import (
	"fmt"
	"hash/fnv"
	"slices"
)

// A Role is what one process does for a room, or for whatever else one process at a time hosts.
type Role uint8

// The roles.
const (
	Guest  Role = iota // another process hosts it, or should host it
	Heir               // this process should host it once the current host has released it
	Holder             // this process should host it now
)

// Role returns the role of this process for a room or whatever else has a name of its own. The host
// is the first, by rendezvous hashing, of the live nodes that may host it. A new node takes over from
// nobody.
func (m *Members) Role(room string) Role {
	m.mu.Lock()
	defer m.mu.Unlock()
	clk := m.boot()
	if !m.self.CanHost || m.self.Leaving || clk-m.began < silentFor {
		return Guest
	}
	best, taken := Score(room, m.self.Name), false
	for _, x := range m.others {
		if clk-x.heard >= silentFor || x.Leaving && !slices.Contains(x.Rooms, room) {
			continue
		}
		taken = taken || slices.Contains(x.Rooms, room)
		settled := clk-x.first >= settledFor ||
			x.first-m.began < settledFor // or it was there when we started
		if x.CanHost && !x.Leaving && settled && Score(room, x.Name) > best {
			return Guest
		}
	}
	if taken {
		return Heir
	}
	return Holder
}

// Rank returns how many live processes should rather host what is named than this one; ok is false
// while this process does not know the others yet. Processes that may host rooms come first.
func (m *Members) Rank(what string) (rank int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clk := m.boot()
	if m.self.Leaving || clk-m.began < silentFor {
		return 0, false
	}
	own := Score(what, m.self.Name)
	for _, x := range m.others {
		better := Score(what, x.Name) > own
		if x.CanHost != m.self.CanHost {
			better = x.CanHost
		}
		if better && !x.Leaving && clk-x.heard < silentFor {
			rank++
		}
	}
	return rank, true
}

// Score ranks a node for a room (highest random weight hashing, Thaler and Ravishankar 1998). Each
// node computes the ranking alone, and a node that leaves moves only its own rooms.
func Score(room, node string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", room, node)
	x := h.Sum64() // FNV alone spreads its last bytes badly: mix as in MurmurHash3
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
