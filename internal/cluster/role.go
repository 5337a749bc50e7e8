package cluster

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"
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

// Term waits until this process should host what is named, and returns a context that ends when
// another one should, or with ctx. The caller calls end when it has stopped hosting. Who hosts is a
// preference: the caller has a fence of its own against a host that does not know of its successor.
func (m *Members) Term(ctx context.Context, what string) (term context.Context, end func()) {
	term, cancel := context.WithCancel(ctx)
	changed, stop := m.Watch()
	m.while(term, changed, func() bool { return m.Role(what) == Guest })
	var wg sync.WaitGroup
	wg.Go(func() {
		m.while(term, changed, func() bool { return m.Role(what) != Guest })
		cancel()
	})
	return term, func() { cancel(); wg.Wait(); stop() }
}

// while returns when f is false or ctx ends.
func (m *Members) while(ctx context.Context, changed <-chan struct{}, f func() bool) {
	tick := time.NewTicker(beatEvery) // a member is silent or settled from some moment on
	defer tick.Stop()
	for ctx.Err() == nil && f() {
		select {
		case <-ctx.Done():
		case <-changed:
		case <-tick.C:
		}
	}
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
