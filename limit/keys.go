package limit

import (
	"slices"
	"strings"
)

// The keys of a table: open addressing over hashes and numbers of entries, which lie in
// pages without a gap. Looking a key up reads two places in memory, its slot and its entry,
// for a key is known by its hash; growing copies eight bytes a key.

// A place is one slot of the index: the low half of the hash of a key, and the number of its
// entry + 1; 0 is empty.
type place uint64

func placeOf(hash uint64, n int) place { return place(hash)<<32 | place(n+1) }

func (p place) hash() uint32 { return uint32(p >> 32) }
func (p place) number() int  { return int(uint32(p)) - 1 }

func (t *Table) entry(i int) *entry { return &t.pages[uint(i)/pageSize][uint(i)%pageSize] }

// slot is where in the index a key is, and its entry; nil and where it would be if it has
// none.
func (t *Table) slot(hash uint64) (i int, e *entry) {
	mask := len(t.index) - 1
	for i = int(uint32(hash)) & mask; ; i = (i + 1) & mask {
		p := t.index[i]
		if p == 0 {
			return i, nil
		}
		if p.hash() == uint32(hash) {
			if e = t.entry(p.number()); e.hash == hash {
				return i, e
			}
		}
	}
}

// full reports whether a key that has no entry gets none. Those with an amount of their own
// always do.
func (t *Table) full(key string) bool {
	if t.n < t.most {
		return false
	}
	_, own := t.rules.over[key]
	return !own
}

// begin is what a new key has used: nothing, or what all keys have that had no entry before,
// for it may be one of them. Calls under way are not inherited: nobody could end them.
func (t *Table) begin(e *entry, key string, now Time) {
	e.key = key
	if rest := &t.rest; !t.rules.calls && (rest.b != 0 || rest.c != 0 || rest.more != nil) &&
		t.rules.law.idle(rest) > now {
		e.a, e.b, e.c = rest.a, rest.b, rest.c
		if m := rest.more; m != nil {
			e.more = &more{cells: slices.Clone(m.cells), log: slices.Clone(m.log), head: m.head}
		}
	}
}

// add makes an entry for a key that has none, nil if the table is full.
func (t *Table) add(hash uint64, key string, now Time) *entry {
	if t.full(key) {
		return nil
	}
	if t.n == len(t.pages)*pageSize {
		t.pages = append(t.pages, new([pageSize]entry))
	}
	if 4*(t.n+1) > 3*len(t.index) {
		t.rehash(2 * len(t.index))
	}
	i, _ := t.slot(hash)
	e := t.entry(t.n)
	*e = entry{hash: hash}
	t.begin(e, strings.Clone(key), now)
	t.index[i] = placeOf(hash, t.n)
	t.n++
	return e
}

// remove forgets the entry of an index slot. The last entry takes its place.
func (t *Table) remove(i int) {
	gone, last := t.index[i].number(), t.n-1
	t.empty(i)
	if gone != last {
		e := t.entry(last)
		at, _ := t.slot(e.hash)
		t.index[at] = placeOf(e.hash, gone)
		*t.entry(gone) = *e
	}
	*t.entry(last) = entry{}
	t.n--
	if pages := t.n/pageSize + 2; pages < len(t.pages) { // one is kept: keys come and go
		t.pages[len(t.pages)-1] = nil
		t.pages = t.pages[:len(t.pages)-1]
	}
	if len(t.index) > 64 && 8*t.n < len(t.index) {
		t.rehash(len(t.index) / 2)
	}
}

// empty empties an index slot, and moves up those that it stood in the way of.
func (t *Table) empty(i int) {
	mask := len(t.index) - 1
	for next := (i + 1) & mask; t.index[next] != 0; next = (next + 1) & mask {
		home := int(t.index[next].hash()) & mask
		if (next-home)&mask >= (next-i)&mask { // it may stand at i
			t.index[i] = t.index[next]
			i = next
		}
	}
	t.index[i] = 0
}

func (t *Table) rehash(size int) {
	old := t.index
	t.index = make([]place, size)
	mask := size - 1
	for _, p := range old {
		if p == 0 {
			continue
		}
		i := int(p.hash()) & mask
		for t.index[i] != 0 {
			i = (i + 1) & mask
		}
		t.index[i] = p
	}
}
