package holders

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/chanmutex"
	"github.com/headgate/headgate/internal/store"
)

// The keys of the records: indexKey for the versions of all, and one for each shard. topic is that of a
// message that a record has changed.
const (
	indexKey  = "holders"
	shardHead = "holders."
	topic     = "holders"
)

// Parameters. Chosen: one attempt takes milliseconds; a record that was announced and not written for
// patience checks was announced by a process that has died; as many records are read at once as a slow link
// to the store needs to be busy.
const (
	editTry   = time.Second
	patience  = 3
	readers   = 8
	checkWait = 15 * time.Second
)

// A Config has the parts of a Book.
type Config struct {
	Store store.Store
	Bus   *store.Bus           // nil: no other process changes the records
	Boot  func() time.Duration // counts the time that the machine sleeps; nil: the clock of this machine
	Log   *slog.Logger
}

// A Book is the table of holders of this process.
type Book struct {
	cfg Config

	stale  atomic.Int64 // StaleAfter; 0: the book is closed
	shards [shardCount]atomic.Pointer[shard]
	fresh  [shardCount]atomic.Int64 // when the last check of a shard began, plus 1; 0: never

	turn   chanmutex.Mutex // of checks
	want   [shardCount]uint64
	behind [shardCount]int // checks that have found less than was announced

	put sync.Mutex // guards the order of what is stored in shards
}

// A shard is what Find needs of the holders of a record. It never changes.
type shard struct {
	version uint64
	ids     []ID // ascending
	keys    []secret
	plans   []string
	olds    []oldKey
}

// A secret is what Find needs of one holder: 40 bytes.
type secret struct {
	hash    [sha256.Size]byte
	old     int32 // position in olds, plus 1
	plan    uint16
	revoked bool
}

type oldKey struct {
	hash  [sha256.Size]byte
	until int64 // ms since 1970
}

// NewBook returns a closed Book. It reads nothing.
func NewBook(cfg Config) *Book {
	if cfg.Boot == nil {
		cfg.Boot = boot.New().Read
	}
	return &Book{cfg: cfg}
}

// Open sets for how long the table counts without a look at the store. 0 closes the book: it then reads
// nothing, and no key counts.
func (b *Book) Open(staleAfter time.Duration) { b.stale.Store(int64(staleAfter)) }

// IsOpen reports whether keys may count.
func (b *Book) IsOpen() bool { return b.stale.Load() > 0 }

// An Outcome is what is known of a key.
type Outcome int

// The outcomes.
const (
	Known     Outcome = iota
	Missing           // no key was sent
	Malformed         // the text is no key
	Unknown           // no holder has this key
	Revoked
	Unsure // the table is not known, or too old
	outcomes
)

// String returns the outcome as a label of metrics.
func (o Outcome) String() string {
	return [...]string{"known", "missing", "malformed", "unknown", "revoked", "unsure"}[o]
}

// Find looks for the holder of a key, and returns its plan.
func (b *Book) Find(key string) (plan string, o Outcome) {
	id, ok := Parse(key)
	if !ok {
		return "", Malformed
	}
	if !b.knows(id.shard()) {
		return "", Unsure
	}
	s, at := b.look(id)
	if at < 0 {
		return "", Unknown
	}
	k := &s.keys[at]
	var text [keyLength]byte // on the stack
	copy(text[:], key)
	hash := sha256.Sum256(text[:])
	is := subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1
	if !is && k.old > 0 {
		x := &s.olds[k.old-1]
		is = subtle.ConstantTimeCompare(hash[:], x.hash[:]) == 1 && time.Now().UnixMilli() < x.until
	}
	switch {
	case !is:
		return "", Unknown
	case k.revoked:
		return "", Revoked
	}
	return s.plans[k.plan], Known
}

// knows reports whether the table of a shard may be used. Without a bus nobody else changes it.
func (b *Book) knows(n int) bool {
	stale, at := b.stale.Load(), b.fresh[n].Load()
	return stale > 0 && at > 0 && (b.cfg.Bus == nil || int64(b.cfg.Boot())-(at-1) < stale)
}

// look returns the position of an ID in its shard, or -1. IDs are random, so an ID is near the place that
// its bits say.
func (b *Book) look(id ID) (s *shard, at int) {
	s = b.shards[id.shard()].Load()
	if s == nil || len(s.ids) == 0 {
		return nil, -1
	}
	const rest = idBits - shardBits // n·2^51 fits: a shard has fewer than 2^13 holders
	at = int(uint64(id) & (1<<rest - 1) * uint64(len(s.ids)) >> rest)
	for at > 0 && s.ids[at] > id {
		at--
	}
	for at < len(s.ids)-1 && s.ids[at] < id {
		at++
	}
	if s.ids[at] != id {
		return nil, -1
	}
	return s, at
}

// Len returns the number of holders, with the revoked ones.
func (b *Book) Len() (n int) {
	for i := range b.shards {
		if s := b.shards[i].Load(); s != nil {
			n += len(s.ids)
		}
	}
	return n
}

// IsReady reports whether the whole table may be used.
func (b *Book) IsReady() bool {
	for n := range shardCount {
		if !b.knows(n) {
			return false
		}
	}
	return true
}

func newShard(r *record) *shard {
	s := &shard{version: r.version, ids: make([]ID, len(r.holders)), keys: make([]secret, len(r.holders))}
	plans := map[string]uint16{}
	for i := range r.holders {
		h := &r.holders[i]
		plan, ok := plans[h.Plan]
		if !ok {
			plan = uint16(len(s.plans)) // fewer than the holders of a shard
			plans[h.Plan], s.plans = plan, append(s.plans, h.Plan)
		}
		s.ids[i], s.keys[i] = h.ID, secret{hash: h.hash, plan: plan, revoked: !h.Revoked.IsZero()}
		if !h.OldKey.IsZero() {
			s.olds = append(s.olds, oldKey{h.old, h.OldKey.UnixMilli()})
			s.keys[i].old = int32(len(s.olds))
		}
	}
	return s
}

// An index has the version that each shard has, or is about to have. A writer announces a version before it
// writes the record, so a reader finds by the index alone which records it must read, also when messages
// were lost.
type index struct {
	Versions [shardCount]uint64 `json:"versions"`
}

func (b *Book) index() *store.Doc[index] {
	return &store.Doc[index]{Store: b.cfg.Store, Key: indexKey, Try: editTry}
}

func (b *Book) doc(n int) *store.Doc[record] {
	return &store.Doc[record]{Store: b.cfg.Store, Key: shardHead + strconv.Itoa(n), Try: editTry,
		Encode: encodeRecord, Decode: decodeRecord, Bus: b.cfg.Bus, Topic: topic, Log: b.cfg.Log}
}

// set puts a record into the table, unless a newer one is there.
func (b *Book) set(n int, r *record) {
	s := newShard(r)
	b.put.Lock()
	defer b.put.Unlock()
	if old := b.shards[n].Load(); old == nil || old.version < s.version {
		b.shards[n].Store(s)
	}
}

func (b *Book) version(n int) uint64 {
	if s := b.shards[n].Load(); s != nil {
		return s.version
	}
	return 0
}

// errOld reports that the store returned something older than what is known. A suspended former leader of
// the store may do that.
var errOld = errors.New(
	"the store has an older version than the one that is known; if a backup was restored, restart this node")

// Check compares the table with the store, and reads what has changed. Everything that was acknowledged
// before it began is then in the table.
func (b *Book) Check(ctx context.Context) error {
	b.turn.Lock()
	defer b.turn.Unlock()
	began := int64(b.cfg.Boot()) + 1
	x, _, err := b.index().Load(ctx)
	if err != nil {
		return fmt.Errorf("read the versions of the holders: %w", err)
	}
	var reads []int
	for n, v := range x.Versions {
		if v < b.want[n] {
			return errOld
		}
	}
	for n, v := range x.Versions {
		if b.want[n] = v; b.version(n) < v {
			reads = append(reads, n)
			continue
		}
		b.behind[n] = 0
		b.fresh[n].Store(began)
	}
	return b.readAll(ctx, reads, began)
}

// readAll reads records, and returns the first error.
func (b *Book) readAll(ctx context.Context, reads []int, began int64) error {
	next, errs := make(chan int), make([]error, readers)
	var wg sync.WaitGroup
	for i := range min(readers, len(reads)) {
		wg.Go(func() {
			for n := range next {
				if err := b.read(ctx, n); err != nil {
					errs[i] = err
				} else {
					b.fresh[n].Store(began)
				}
			}
		})
	}
	for _, n := range reads {
		next <- n
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// read reads the record of a shard. If a writer has announced a version, and has not written it for some
// checks, the writer has died: then the version is written without a change, so that nobody reads the
// record again and again.
func (b *Book) read(ctx context.Context, n int) error {
	r, _, err := b.doc(n).Load(ctx)
	switch {
	case err != nil:
		return err
	case r.version < b.version(n):
		return errOld
	}
	b.set(n, &r)
	if b.behind[n]++; r.version >= b.want[n] {
		b.behind[n] = 0
	} else if b.behind[n] >= patience {
		_, err = b.doc(n).Edit(ctx, func(newest *record) (bool, error) {
			behind := newest.version < b.want[n]
			newest.version = max(newest.version, b.want[n])
			r = *newest
			return behind, nil
		})
		if errors.Is(err, store.ErrDenied) { // a worker: a store node does it
			return nil
		}
		if err == nil {
			b.set(n, &r)
		}
	}
	return err
}

// Follow keeps the table of an open book up to date until ctx ends. It checks with each message of a
// change, and each time that every has passed.
func (b *Book) Follow(ctx context.Context, every time.Duration) error {
	failed := false
	return store.Follow(ctx, b.cfg.Bus, topic, every, func([]byte) {
		if !b.IsOpen() { // without a bus too: a write of this process may have lost its acknowledgment
			return
		}
		try, stop := context.WithTimeout(ctx, checkWait) // what it has read by then stays
		err := b.Check(try)
		stop()
		if err != nil && ctx.Err() == nil && !failed {
			b.cfg.Log.Warn("holders of keys not read: calls with keys are answered with 503 when the table is too old",
				"error", err)
		}
		if err == nil && failed {
			b.cfg.Log.Info("holders of keys are read again")
		}
		failed = err != nil
	})
}
