package signals

import (
	"sync/atomic"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/codec"
)

// slots is how many groups of networks are told apart. Chosen: few of a busy site's answers are in one, so
// that leaving the excess of one out changes nothing, and a report stays short.
const slots = 64

// groups counts the answers of groups of networks: the same networks are in one group at all nodes.
type groups [slots]uint64

// excess returns how many more the greatest group has than the second. A single network adds to one group.
func (g *groups) excess() int64 {
	first, second := uint64(0), uint64(0)
	for _, n := range g {
		if n > first {
			first, second = n, first
		} else if n > second {
			second = n
		}
	}
	return int64(first - second)
}

// A sketch says how much of what was measured one network can have made, with the names of none.
type sketch struct{ counted, failed, slow groups }

// Excess returns what one network has more than any other.
func (x *Report) Excess() adaptive.Excess {
	return adaptive.Excess{Counted: x.by.counted.excess(), Failed: x.by.failed.excess(),
		Slow: x.by.slow.excess()}
}

func (s *sketch) all() []*groups { return []*groups{&s.counted, &s.failed, &s.slow} }

func (s *sketch) add(o *sketch) {
	of := o.all()
	for i, g := range s.all() {
		for k := range g {
			g[k] += of[i][k]
		}
	}
}

func (s *sketch) append(b []byte) []byte {
	for _, g := range s.all() {
		used := uint64(0)
		for _, n := range g {
			used += codec.Bit(n > 0)
		}
		b = codec.AppendUint(b, used)
		for k, n := range g {
			if n > 0 {
				b = codec.AppendUint(b, uint64(k), n)
			}
		}
	}
	return b
}

func (s *sketch) read(d *codec.Reader) {
	for _, g := range s.all() {
		for range d.Count(slots) {
			k := d.UpTo(slots - 1)
			g[k] = d.UpTo(most)
		}
	}
}

// A tally counts the answers of one interval by groups of networks.
type tally struct{ counted, failed, slow [slots]atomic.Uint64 }

func (t *tally) add(network uint64, failed, slow bool) {
	k := mix(network) >> 58
	t.counted[k].Add(1)
	if failed {
		t.failed[k].Add(1)
	}
	if slow {
		t.slow[k].Add(1)
	}
}

// read returns the sketch of the interval, and begins the next.
func (t *tally) read() (s sketch) {
	for k := range slots {
		s.counted[k], s.failed[k], s.slow[k] = t.counted[k].Swap(0), t.failed[k].Swap(0), t.slow[k].Swap(0)
	}
	return s
}
