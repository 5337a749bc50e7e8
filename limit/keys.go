package limit

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// The keys of a table: open addressing, with the entries themselves in the table. Looking a
// key up reads one place in memory, for a key is known by its hash and its entry lies where
// the hash says, or just behind. Between 60 and 75 % of the places are taken while keys come,
// so that a key is in the second place looked at on average.

// home is where the entry of a hash would be if it were alone. Its low half decides: the
// caller may have chosen the table by the high one. Entries lie in the order of that half,
// about, whatever size the table has: a table of another size is written from end to end.
func (t *Table) home(hash uint64) int {
	return int(uint64(uint32(hash)) * uint64(len(t.entries)) >> 32)
}

// known is the hash that a key is known by: not 0, which says that a place is empty.
func known(hash uint64) uint64 {
	if hash == 0 {
		return math.MaxUint64
	}
	return hash
}

// slot is where a key is, and its entry; nil and where it would be if it has none.
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

// Places are where keys are, for AppendKey and ClaimedAt, as long as none comes or goes.
func (t *Table) Places() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range t.entries {
			if t.entries[i].hash != 0 && !yield(i) {
				return
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
	t.presume(e, now)
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

// remove forgets the entry of a place. Those behind it, up to the next empty place, move up as
// far as they may; of them those are forgotten too that have not been busy since a time.
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
	// Late: what a table is copied into is memory that may have to be got from the machine.
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
