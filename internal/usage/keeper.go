package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/store"
)

// A Log keeps entries in order; *store.Log is one.
type Log interface {
	Append(ctx context.Context, data []byte, after uint64) (uint64, error)
	Get(ctx context.Context, seq uint64) (store.Entry, error)
	Size(ctx context.Context) (store.LogSize, error)
	Truncate(ctx context.Context, before uint64) error
}

// A Per is the length of a period.
type Per int

// The periods.
const (
	Hour Per = iota
	Day
	periods
)

// String returns the name of the period in requests.
func (p Per) String() string { return [...]string{"hour", "day"}[p] }

func (p Per) length() time.Duration { return [...]time.Duration{time.Hour, 24 * time.Hour}[p] }

// kept is how long closed periods are kept: 40 days of hours, and 13 months of days.
func (p Per) kept() time.Duration {
	return [...]time.Duration{40 * 24 * time.Hour, 396 * 24 * time.Hour}[p]
}

// Of returns the period of a time, since 1970.
func (p Per) Of(t time.Time) int64 { return t.Unix() / int64(p.length()/time.Second) }

// begin returns when a period begins.
func (p Per) begin(n int64) time.Time { return time.Unix(n*int64(p.length()/time.Second), 0).UTC() }

// Config has the parts of a Keeper.
type Config struct {
	Store store.Store
	// OpenLog opens the log of a name, with at most so many bytes.
	OpenLog func(ctx context.Context, name string, maxBytes int64) (Log, error)
	Log     *slog.Logger
}

// Bounds. Chosen: entries fit into a message; the logs take no more of the disk, whatever is counted. What
// is too much for them is the oldest.
const (
	mostEntry    = 800 << 10
	mostLogBytes = 16 << 30
	mostLineages = 4
	stateFormat  = 1
)

// A Keeper has the records and logs of usage.
type Keeper struct {
	cfg Config

	mu   sync.Mutex // guards what follows, also while an entry is appended
	logs [periods]Log
	tail [periods]tail
}

// NewKeeper returns a Keeper. It opens nothing.
func NewKeeper(cfg Config) *Keeper { return &Keeper{cfg: cfg} }

// find returns the log, or nil if nothing was ever appended.
func (k *Keeper) find(ctx context.Context, p Per) (Log, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.logs[p] == nil {
		_, _, err := k.cfg.Store.Load(ctx, logKey(p))
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read usage: %w", err)
		}
	}
	return k.log(ctx, p)
}

// logKey is the key of the record that says that there is a log.
func logKey(p Per) string { return "usage." + p.String() + "s" }

// log opens a log, once, or makes it. The caller holds mu.
func (k *Keeper) log(ctx context.Context, p Per) (Log, error) {
	if k.logs[p] == nil {
		_, err := k.cfg.Store.CompareAndSwap(ctx, logKey(p), 0, []byte{stateFormat})
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, fmt.Errorf("write usage: %w", err)
		}
		l, err := k.cfg.OpenLog(ctx, "usage_"+p.String()+"s", mostLogBytes/(1+int64(p)))
		if err != nil {
			return nil, err
		}
		k.logs[p] = l
	}
	return k.logs[p], nil
}

// A Batch is what a slot has counted since its last write.
type Batch struct {
	lineage, seq uint64
	period       int64
	counted      *bucket
	bytes        []byte // a segment, if counted is nil
}

func (x *Batch) segment() []byte {
	if x.counted != nil {
		return x.counted.segment()
	}
	return x.bytes
}

// A state is the record of a slot: the counts of the open hour or day.
type state struct {
	revision uint64
	period   int64
	closing  bool   // nothing is added any more: it is being appended to the log
	label    int64  // the period under which it is appended
	from     uint64 // the log had this many entries when it was closed
	seen     []lineage
	bytes    []byte // a segment
}

// A lineage is one history of a Tally, and its last batch in the record.
type lineage struct{ id, seq uint64 }

func (s *state) has(b *Batch) bool {
	i := slices.IndexFunc(s.seen, func(x lineage) bool { return x.id == b.lineage })
	return i >= 0 && s.seen[i].seq >= b.seq
}

// note notes a batch. The lineage that was written longest ago is forgotten.
func (s *state) note(b *Batch) {
	s.seen = slices.DeleteFunc(s.seen, func(x lineage) bool { return x.id == b.lineage })
	s.seen = append(s.seen, lineage{b.lineage, b.seq})
	s.seen = s.seen[max(0, len(s.seen)-mostLineages):]
}

func (s *state) encode() []byte {
	b := codec.AppendInt([]byte{stateFormat}, s.period, int64(codec.Bit(s.closing)), s.label, int64(s.from))
	b = codec.AppendUint(b, uint64(len(s.seen)))
	for _, x := range s.seen {
		b = codec.AppendFixed(b, x.id, x.seq)
	}
	return append(b, s.bytes...)
}

func decodeState(b []byte) (*state, error) {
	d := codec.NewReader(b)
	if d.Byte() != stateFormat {
		return nil, errSegment
	}
	s := &state{period: d.Int(), closing: d.Int() == 1, label: d.Int(), from: uint64(d.Int())}
	for range d.Count(mostLineages) {
		s.seen = append(s.seen, lineage{d.Fixed(), d.Fixed()})
	}
	s.bytes = slices.Clone(d.Rest())
	if d.Bad() {
		return nil, errSegment
	}
	return s, nil
}

func stateKey(p Per, slot int) string { return fmt.Sprintf("usage.%s.%d", p, slot) }

func (k *Keeper) load(ctx context.Context, p Per, slot int) (*state, error) {
	b, rev, err := k.cfg.Store.Load(ctx, stateKey(p, slot))
	if errors.Is(err, store.ErrNotFound) {
		return &state{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	s, err := decodeState(b)
	if err != nil {
		s = &state{}
	} else if !isSegment(s.bytes) { // nothing could ever be added to it
		s.bytes, err = nil, errSegment
	}
	if err != nil {
		k.cfg.Log.Error("usage of keys in this record is lost", "record", stateKey(p, slot), "error", err)
	}
	s.revision = rev
	return s, nil
}

func (k *Keeper) save(ctx context.Context, p Per, slot int, s *state) error {
	rev, err := k.cfg.Store.CompareAndSwap(ctx, stateKey(p, slot), s.revision, s.encode())
	if err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	s.revision = rev
	return nil
}

// write adds a batch to the record of a slot, once. It returns the size of the record.
func (k *Keeper) write(ctx context.Context, p Per, slot int, b *Batch) (size int, err error) {
	for {
		s, err := k.load(ctx, p, slot)
		if err != nil || s.has(b) {
			return 0, err
		}
		if s.closing || len(s.bytes) > 0 && b.period > s.period {
			if err := k.Close(ctx, p, []int{slot}, b.period); err != nil {
				return 0, err
			}
			continue
		}
		if s.bytes, err = merge(s.bytes, b.segment()); err != nil {
			return 0, err
		}
		s.period = max(s.period, b.period)
		s.note(b)
		if err = k.save(ctx, p, slot, s); !errors.Is(err, store.ErrConflict) {
			return len(s.bytes), err
		}
	}
}

// Close closes the records of slots whose period is before the given one. A record that is empty stays.
func (k *Keeper) Close(ctx context.Context, p Per, slots []int, before int64) error {
	var parts []part
	states := map[int]*state{}
	for _, slot := range slots {
		s, err := k.mark(ctx, p, slot, before)
		if err != nil {
			return err
		}
		if s != nil {
			states[slot] = s
			parts = append(parts, part{slot: slot, label: s.label, from: s.from, bytes: pack(s.bytes)})
		}
	}
	for len(parts) > 0 {
		n, size := 0, 0
		for n < len(parts) && (n == 0 || size+len(parts[n].bytes) < mostEntry) {
			size += len(parts[n].bytes) + partHead
			n++
		}
		if err := k.append(ctx, p, parts[:n]); err != nil {
			return err
		}
		for _, x := range parts[:n] {
			if err := k.reset(ctx, p, x.slot, states[x.slot]); err != nil {
				return err
			}
		}
		parts = parts[n:]
	}
	return nil
}

// tooLate is how long after its end a period is appended under its own name. One that is later counts in
// the newest closed period: readers look no further. Chosen: longer than any takeover.
const tooLate = time.Hour

// mark marks the record of a slot as closed, if its period is over. It returns nil if not.
func (k *Keeper) mark(ctx context.Context, p Per, slot int, before int64) (*state, error) {
	for {
		s, err := k.load(ctx, p, slot)
		if err != nil {
			return nil, err
		}
		now, late := time.Now(), false
		if s.closing {
			late = now.Sub(p.begin(s.label+1)) > tooLate
		} else if len(s.bytes) == 0 || s.period >= before {
			return nil, nil
		}
		if s.closing && !late {
			return s, nil
		}
		if s.closing { // was it appended before the node died?
			has, err := k.appended(ctx, p, part{slot: slot, label: s.label, from: s.from})
			if err != nil || has {
				return s, err
			}
		}
		k.mu.Lock()
		l, err := k.log(ctx, p)
		k.mu.Unlock()
		if err != nil {
			return nil, err
		}
		size, err := l.Size(ctx)
		if err != nil {
			return nil, err
		}
		s.closing, s.label = true, s.period
		if now.Sub(p.begin(s.label+1)) > tooLate {
			s.label = max(s.label, p.Of(now)-1)
		}
		s.from = max(size.Last, s.from)
		if err = k.save(ctx, p, slot, s); err == nil {
			return s, nil
		} else if !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
}

// reset makes the record of a slot that is in the log empty. An hour counts in its day first.
func (k *Keeper) reset(ctx context.Context, p Per, slot int, s *state) error {
	if p == Hour {
		day := Day.Of(Hour.begin(s.label))
		// The hours of a slot are closed in order. The lineage of all is 0.
		_, err := k.write(ctx, Day, slot, &Batch{seq: uint64(s.label) + 1, period: day, bytes: s.bytes})
		if err != nil {
			return err
		}
	}
	next := &state{revision: s.revision, period: s.label + 1, seen: s.seen}
	if err := k.save(ctx, p, slot, next); !errors.Is(err, store.ErrConflict) {
		return err
	}
	return nil // another node has done it
}

// A part is one closed period of a slot in an entry of a log.
type part struct {
	slot  int
	label int64
	from  uint64
	bytes []byte // packed
}

const partHead = 20 // bytes besides the segment, at most

func appendParts(parts []part) []byte {
	b := []byte{stateFormat}
	for i := range parts {
		b = codec.AppendInt(b, int64(parts[i].slot), parts[i].label)
		b = codec.AppendText(b, parts[i].bytes)
	}
	return b
}

func parseParts(b []byte) (parts []part, err error) {
	d := codec.NewReader(b)
	if d.Byte() != stateFormat {
		return nil, errSegment
	}
	for d.Len() > 0 {
		x := part{slot: int(d.Int()), label: d.Int(), bytes: d.Bytes(store.MaxEntry)}
		if !d.Bad() {
			parts = append(parts, x)
		}
	}
	if d.Bad() {
		return nil, errSegment
	}
	return parts, nil
}

// A tail knows which parts the end of a log has.
type tail struct {
	from, next uint64 // entries from from to before next are known
	seen       map[[2]int64]bool
}

// mostSeen is how many parts a tail knows. Chosen: those of more than 30 hours.
const mostSeen = 1 << 13

// catchUp reads the entries behind from that are not known yet, and returns the number of the last entry.
// The caller holds mu.
func (k *Keeper) catchUp(ctx context.Context, p Per, from uint64) (last uint64, err error) {
	l, err := k.log(ctx, p)
	if err != nil {
		return 0, err
	}
	size, err := l.Size(ctx)
	if err != nil {
		return 0, err
	}
	if from > size.Last { // the log was made anew, for example after a backup was restored
		from = 0
	}
	t := &k.tail[p]
	if t.seen == nil || from+1 < t.from || len(t.seen) > mostSeen {
		*t = tail{from: from + 1, next: from + 1, seen: map[[2]int64]bool{}}
	}
	for t.next = max(t.next, size.First); t.next <= size.Last; t.next++ {
		e, err := l.Get(ctx, t.next)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		parts, err := parseParts(e.Data)
		if err != nil {
			continue // readers report it
		}
		for i := range parts {
			t.seen[[2]int64{int64(parts[i].slot), parts[i].label}] = true
		}
	}
	return size.Last, nil
}

// appended reports whether the log has a part.
func (k *Keeper) appended(ctx context.Context, p Per, x part) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.catchUp(ctx, p, x.from)
	return k.tail[p].seen[[2]int64{int64(x.slot), x.label}], err
}

// append appends parts to the log, except those that it has. Another node may append the same ones: so each
// writes directly behind what it has read.
func (k *Keeper) append(ctx context.Context, p Per, parts []part) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := slices.MinFunc(parts, func(a, b part) int { return cmp.Compare(a.from, b.from) }).from
	for {
		last, err := k.catchUp(ctx, p, from)
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(parts), func(x part) bool {
			return k.tail[p].seen[[2]int64{int64(x.slot), x.label}]
		})
		if len(rest) == 0 {
			return nil
		}
		_, err = k.logs[p].Append(ctx, appendParts(rest), last)
		switch {
		case errors.Is(err, store.ErrConflict):
		case errors.Is(err, store.ErrFull):
			if err = k.makeRoom(ctx, p); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("write usage: %w", err)
		default:
			return nil // the next catchUp reads it
		}
	}
}

// makeRoom deletes the oldest tenth of a log that is full. The caller holds mu.
func (k *Keeper) makeRoom(ctx context.Context, p Per) error {
	size, err := k.logs[p].Size(ctx)
	if err != nil {
		return err
	}
	before := size.First + (size.Last-size.First)/10 + 1
	e, err := k.logs[p].Get(ctx, before)
	if err != nil {
		return err
	}
	k.cfg.Log.Warn("the usage of keys is as large as it may be: the oldest is deleted", "per", p.String(),
		"before", e.At, "bytes", size.Bytes)
	return k.logs[p].Truncate(ctx, before)
}

// Trim deletes what is older than it may be.
func (k *Keeper) Trim(ctx context.Context, now time.Time) error {
	for p := range periods {
		l, err := k.find(ctx, p)
		if err != nil {
			return err
		}
		if l == nil {
			continue
		}
		size, err := l.Size(ctx)
		if err != nil {
			return err
		}
		first, err := firstAfter(ctx, l, size, now.Add(-p.kept()))
		if err == nil && first > size.First {
			err = l.Truncate(ctx, first)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// firstAfter returns the number of the first entry that was appended at a time or later; one behind the last
// if there is none.
func firstAfter(ctx context.Context, l Log, size store.LogSize, at time.Time) (uint64, error) {
	lo, hi := size.First, size.Last+1
	for lo < hi {
		mid := lo + (hi-lo)/2
		e, err := l.Get(ctx, mid)
		switch {
		case errors.Is(err, store.ErrNotFound): // just truncated
			lo = mid + 1
		case err != nil:
			return 0, err
		case e.At.Before(at):
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, nil
}
