package holders

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// The errors of changes.
var (
	ErrNone   = errors.New("there is no such holder")
	ErrClosed = errors.New("this headgate gives out no keys")
	ErrFull   = errors.New("there is no room for another holder")

	errAgain = errors.New("another writer was faster")
)

// MostAtOnce is how many holders one Add may make. Chosen: they are in 20 records.
const MostAtOnce = 5000

// perShard is how many holders of one Add are in one record. Chosen: a write of a record costs the same for
// one as for some hundreds.
const perShard = 250

// A Made is a new holder, or a new key, and the only copy of the key.
type Made struct {
	Holder
	Key string
}

// Add makes holders with the names, plans and notes of all. It writes them in parts: if it fails, those it
// returns have been made, and the others have not, or nobody has their keys. plans are the plans that a
// holder may have.
func (b *Book) Add(ctx context.Context, all []Holder, plans []string) (made []Made, err error) {
	if !b.IsOpen() {
		return nil, ErrClosed
	}
	for i := range all {
		if err := all[i].Check(plans); err != nil {
			return nil, err
		}
	}
	at := time.Now().UTC().Truncate(time.Millisecond)
	for rest := all; len(rest) > 0; {
		if err := ctx.Err(); err != nil {
			return made, err
		}
		part := rest[:min(len(rest), perShard)]
		n := b.roomiest(len(part))
		if n < 0 {
			return made, ErrFull
		}
		fresh := make([]Made, len(part))
		for i, h := range part {
			x := Holder{ID: newID(n), Name: h.Name, Plan: h.Plan, Note: h.Note, Created: at}
			key, hash := newKey(x.ID)
			x.hash = hash
			fresh[i] = Made{x, key}
		}
		err := b.change(ctx, n, func(r *record) error { return r.add(fresh) })
		if errors.Is(err, errAgain) { // an ID is taken, or others have filled the record
			continue
		}
		if err != nil {
			return made, err
		}
		made, rest = append(made, fresh...), rest[len(part):]
	}
	return made, nil
}

// newID returns a random ID of a shard.
func newID(shard int) ID {
	var b [8]byte
	rand.Read(b[:]) // never fails
	const rest = idBits - shardBits
	return ID(shard)<<rest | ID(binary.LittleEndian.Uint64(b[:]))&(1<<rest-1)
}

// roomiest returns the shard with the fewest holders of those in use, or -1 if none has room for more. A
// shard that cannot be read looks empty: it is the last choice, after those that are not in use.
func (b *Book) roomiest(more int) int {
	used := min(shardCount, b.Len()/fillAhead+1)
	best, fewest, known := -1, mostInShard-more+1, false
	for n := range shardCount {
		if n >= used && known {
			break
		}
		count, knows := 0, b.knows(n)
		if s := b.shards[n].Load(); s != nil {
			count = len(s.ids)
		}
		if knows && !known && count <= mostInShard-more || knows == known && count < fewest {
			best, fewest, known = n, count, knows
		}
	}
	return best
}

// add adds holders to a record. It may be called again for what it has added.
func (r *record) add(all []Made) error {
	if len(r.holders)+len(all) > mostInShard+perShard {
		return errAgain
	}
	next := record{holders: slices.Grow(slices.Clone(r.holders), len(all))}
	for i := range all {
		h := &all[i].Holder
		at, there := next.find(h.ID)
		switch {
		case !there:
			next.holders = slices.Insert(next.holders, at, *h)
		case next.holders[at].hash != h.hash:
			return errAgain
		}
	}
	r.holders = next.holders
	return nil
}

// change changes a record by calling edit, which may be called several times, also for what it has changed.
// The record is in the table of this process when change returns.
func (b *Book) change(ctx context.Context, n int, edit func(*record) error) error {
	r, _, err := b.doc(n).Load(ctx)
	if err == nil { // a change that is refused announces nothing
		b.set(n, &r)
		err = edit(&r)
	}
	for err == nil {
		var version uint64
		var newest record
		if version, err = b.announce(ctx, n, r.version); err != nil {
			return err
		}
		_, err = b.doc(n).Edit(ctx, func(r *record) (bool, error) {
			newest = *r
			if r.version >= version {
				return false, errLate
			}
			if err := edit(r); err != nil {
				return false, err
			}
			r.version = version
			newest = *r
			return true, nil
		})
		if errors.Is(err, errLate) {
			r, err = newest, nil
			continue
		}
		if err == nil {
			b.set(n, &newest)
			return nil
		}
	}
	return err
}

// errLate reports that another writer has used the version, or a later one.
var errLate = errors.New("the version is written")

// announce returns a version for the next write of a shard that no reader has missed, and nobody else has.
func (b *Book) announce(ctx context.Context, n int, newest uint64) (version uint64, err error) {
	_, err = b.index().Edit(ctx, func(x *index) (bool, error) {
		version = max(x.Versions[n], newest) + 1
		x.Versions[n] = version
		return true, nil
	})
	return version, err
}

// Get reads a holder from the store.
func (b *Book) Get(ctx context.Context, id ID) (Holder, error) {
	if !b.IsOpen() {
		return Holder{}, ErrClosed
	}
	r, _, err := b.doc(id.shard()).Load(ctx)
	if err != nil {
		return Holder{}, err
	}
	at, found := r.find(id)
	if !found {
		return Holder{}, ErrNone
	}
	return r.holders[at], nil
}

// List returns up to count holders with greater IDs than after, or from the first one, in the order of their
// IDs. more is false after the last one. Holders whose record is damaged are left out; damaged is the number
// of such records that were looked at.
func (b *Book) List(
	ctx context.Context, after ID, first bool, count int,
) (all []Holder, more bool, damaged int, err error) {
	if !b.IsOpen() {
		return nil, false, 0, ErrClosed
	}
	x, _, err := b.index().Load(ctx)
	if err != nil {
		return nil, false, 0, err
	}
	for n := after.shard(); n < shardCount; n++ {
		if x.Versions[n] == 0 {
			continue
		}
		r, _, err := b.doc(n).Load(ctx)
		if errors.Is(err, errRecord) || errors.Is(err, store.ErrDamaged) {
			damaged++
			continue
		}
		if err != nil {
			return nil, false, 0, err
		}
		for i := range r.holders {
			switch h := &r.holders[i]; {
			case h.ID <= after && !first:
			case len(all) == count:
				return all, true, damaged, nil
			default:
				all = append(all, *h)
			}
		}
	}
	return all, false, damaged, nil
}

// Edit changes name, plan and note of a holder by calling set, and returns the holder before and after.
func (b *Book) Edit(
	ctx context.Context, id ID, plans []string, set func(*Holder),
) (before, after Holder, err error) {
	return b.edit(ctx, id, func(h *Holder) error {
		plan := h.Plan
		set(h)
		if h.Plan == plan { // it may have lost its amounts since
			return h.Check([]string{plan})
		}
		return h.Check(plans)
	})
}

// Revoke makes the keys of a holder count no more.
func (b *Book) Revoke(ctx context.Context, id ID) (before, after Holder, err error) {
	at := time.Now().UTC().Truncate(time.Millisecond)
	return b.edit(ctx, id, func(h *Holder) error {
		if h.Revoked.IsZero() {
			h.Revoked = at
		}
		h.OldKey = time.Time{}
		return nil
	})
}

// Rotate gives a holder a new key. The present one counts for as long as keep says. The holder is revoked no
// more.
func (b *Book) Rotate(ctx context.Context, id ID, keep time.Duration) (m Made, before Holder, err error) {
	key, hash := newKey(id)
	until := time.Now().UTC().Truncate(time.Millisecond).Add(keep)
	before, after, err := b.edit(ctx, id, func(h *Holder) error {
		if h.hash == hash {
			return nil
		}
		h.old, h.OldKey = h.hash, until
		if keep <= 0 || !h.Revoked.IsZero() {
			h.OldKey = time.Time{}
		}
		h.hash, h.Revoked = hash, time.Time{}
		return nil
	})
	return Made{after, key}, before, err
}

// edit changes a holder. do may be called several times, also for what it has changed.
func (b *Book) edit(
	ctx context.Context, id ID, do func(*Holder) error,
) (before, after Holder, err error) {
	if !b.IsOpen() {
		return before, after, ErrClosed
	}
	first := true
	err = b.change(ctx, id.shard(), func(r *record) error {
		at, found := r.find(id)
		if !found {
			return ErrNone
		}
		if first {
			before, first = r.holders[at], false
		}
		r.holders = slices.Clone(r.holders)
		if err := do(&r.holders[at]); err != nil {
			return err
		}
		after = r.holders[at]
		return nil
	})
	return before, after, err
}

// Remove removes a holder.
func (b *Book) Remove(ctx context.Context, id ID) (before Holder, err error) {
	if !b.IsOpen() {
		return before, ErrClosed
	}
	removed := false
	err = b.change(ctx, id.shard(), func(r *record) error {
		at, found := r.find(id)
		switch {
		case found:
			before, removed = r.holders[at], true
			r.holders = slices.Delete(slices.Clone(r.holders), at, at+1)
		case !removed:
			return ErrNone
		}
		return nil
	})
	return before, err
}
