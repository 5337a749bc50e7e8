package limit

import "strings"

// The keys of a table: open addressing over the numbers of entries, which lie in pages
// without a gap, so that growing copies four bytes a key.

func (t *Table) entry(i int) *entry { return &t.pages[i/pageSize][i%pageSize] }

// slot is where in the index a key is.
func (t *Table) slot(hash uint32, key string) (i int, ok bool) {
	mask := len(t.index) - 1
	for i = int(hash) & mask; t.index[i] != 0; i = (i + 1) & mask {
		if e := t.entry(int(t.index[i] - 1)); e.hash == hash && e.key == key {
			return i, true
		}
	}
	return i, false
}

func (t *Table) find(hash uint32, key string) *entry {
	if i, ok := t.slot(hash, key); ok {
		return t.entry(int(t.index[i] - 1))
	}
	return nil
}

// add makes an entry for a key that has none, nil if the table is full.
func (t *Table) add(hash uint32, key string) *entry {
	if t.n >= t.most {
		return nil
	}
	if t.n == len(t.pages)*pageSize {
		t.pages = append(t.pages, make([]entry, pageSize))
	}
	if 4*(t.n+1) > 3*len(t.index) {
		t.rehash(2 * len(t.index))
	}
	i, _ := t.slot(hash, key)
	e := t.entry(t.n)
	*e = entry{key: strings.Clone(key), hash: hash}
	t.n++
	t.index[i] = uint32(t.n)
	return e
}

// remove forgets the entry of an index slot. The last entry takes its place.
func (t *Table) remove(i int) {
	gone, last := int(t.index[i]-1), t.n-1
	t.empty(i)
	if gone != last {
		e := t.entry(last)
		at, _ := t.slot(e.hash, e.key)
		t.index[at] = uint32(gone + 1)
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
		home := int(t.entry(int(t.index[next]-1)).hash) & mask
		if (next-home)&mask >= (next-i)&mask { // it may stand at i
			t.index[i] = t.index[next]
			i = next
		}
	}
	t.index[i] = 0
}

func (t *Table) rehash(size int) {
	t.index = make([]uint32, size)
	mask := size - 1
	for n := range t.n {
		i := int(t.entry(n).hash) & mask
		for t.index[i] != 0 {
			i = (i + 1) & mask
		}
		t.index[i] = uint32(n + 1)
	}
}
