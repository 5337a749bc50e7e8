package slot

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/codec"
)

// A Moved records that a place has moved to another device. Its ticket is valid only with this key.
// A number without a Moved has not moved.
type Moved struct {
	Number, Key uint64
	Held        Time // when it was last known to hold its place
}

// MaxMoved bounds the moved places in a record: 70 KB. Chosen.
const MaxMoved = 4096

// FindMoved returns the index of a number in a list that is sorted by number.
func FindMoved(all []Moved, number uint64) (at int, ok bool) {
	return slices.BinarySearchFunc(all, number, func(m Moved, n uint64) int {
		return cmp.Compare(m.Number, n)
	})
}

func appendMoved(b []byte, all []Moved) []byte {
	b = codec.AppendUint(b, uint64(len(all)))
	last := Moved{}
	for _, m := range all {
		b = codec.AppendUint(b, m.Number-last.Number, m.Key)
		b = codec.AppendInt(b, int64(m.Held-last.Held))
		last = m
	}
	return b
}

func (d *decoder) moved() (all []Moved) {
	last := Moved{}
	for range d.Count(MaxMoved) {
		m := Moved{Number: last.Number + d.Uint(), Key: d.Uint(), Held: last.Held + Time(d.Int())}
		if m.Number <= last.Number || m.Key == 0 {
			d.Fail()
			return nil
		}
		all = append(all, m)
		last = m
	}
	return all
}
