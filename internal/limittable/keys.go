package limittable

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// The keys of a table use open addressing, with the entries in the table itself. A lookup reads one
// place in memory, because a key is identified by its hash and its entry lies at the place of the
// hash or just behind it. Between 60 and 75 % of the places are taken while keys are added, so that
// a lookup checks two places on average.

// home returns where the entry of a hash would be if it were alone. The low half of the hash
// decides, because the caller may have chosen the table by the high half. Entries lie roughly in
// the order of the low half, whatever the table's size, so that a table of another size is written
// from end to end.
func (t *Table) home(hash uint64) int {
	return int(uint64(uint32(hash)) * uint64(len(t.entries)) >> 32)
}

// known returns the hash that identifies a key. It is never 0, which marks an empty place.
func known(hash uint64) uint64 {
	if hash == 0 {
		return math.MaxUint64
	}
	return hash
}

// slot returns the place of a key and its entry, or nil and the place where the entry would be.
func (t *Table) slot(hash uint64) (i int, e *entry) {
	hash, entries := known(hash), t.entries
	for i = t.home(hash); i < len(entries); {
		switch e = &entries[i]; e.hash {
		case hash:
			return i, e
		case 0:
			return i, nil
		}
		if i++; i == len(entries) {
			i = 0
		}
	}
	return 0, nil
}

// Places returns the places of keys, for AppendKey and CommittedAt. They are valid until a key is
// added or removed.
func (t *Table) Places() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range t.entries {
			if t.entries[i].hash != 0 && !yield(i) {
				return
			}
		}
	}
}

// full reports whether a key without an entry gets none. Keys with an amount of their own always
// get one.
func (t *Table) full(key string) bool {
	if t.n < t.most {
		return false
	}
	_, own := t.rules.over[key]
	return !own
}

// begin sets what a new key has used: nothing, or the usage shared by all keys that had no entry,
// because the key may be one of them. Calls in progress are not copied, because they could never be
// ended.
func (t *Table) begin(e *entry, key string, now Time) {
	e.key = key
	t.presume(e, now)
	if rest := &t.rest; !t.rules.calls && (rest.b != 0 || rest.c != 0 || rest.more != nil) &&
		t.rules.rest.law.idle(rest) > now {
		e.a, e.b, e.c = rest.a, rest.b, rest.c
		if m := rest.more; m != nil {
			e.more = &more{cells: slices.Clone(m.cells), log: slices.Clone(m.log), head: m.head}
		}
	}
}

// add makes an entry for a key that has none. It returns nil if the table is full.
func (t *Table) add(hash uint64, key string, now Time) *entry {
	if t.full(key) {
		return nil
	}
	if 4*(t.n+1) > 3*len(t.entries) {
		t.resize(len(t.entries) + len(t.entries)/4)
	}
	i, _ := t.slot(hash)
	e := &t.entries[i]
	e.hash = known(hash)
	t.begin(e, strings.Clone(key), now)
	t.n++
	return e
}

// remove deletes the entry of a place. The entries behind it, up to the next empty place, move up
// as far as possible. Those of them that have not been busy since idle are deleted too.
func (t *Table) remove(i int, idle Time) {
	t.entries[i] = entry{}
	t.n--
	for {
		if i++; i == len(t.entries) {
			i = 0
		}
		e := &t.entries[i]
		if e.hash == 0 {
			break
		}
		if t.busy(e) <= idle {
			*e = entry{}
			t.n--
		} else if to, _ := t.slot(e.hash); to != i {
			t.entries[to], *e = *e, entry{}
		}
	}
	// The table shrinks late, because copying it into another one may allocate memory from the
	// system.
	if size := len(t.entries); size > 2*fewest && 8*t.n < size {
		t.resize(max(fewest, 2*t.n))
	}
}

func (t *Table) resize(size int) {
	old := t.entries
	t.entries = make([]entry, size)
	for i := range old {
		if old[i].hash != 0 {
			to, _ := t.slot(old[i].hash)
			t.entries[to] = old[i]
		}
	}
	t.hand = int(uint64(t.hand) * uint64(size) / uint64(len(old)))
}
