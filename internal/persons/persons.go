// Package persons remembers which ticket each person has, so that a person finds the same
// place on each device, at each node, and after each takeover.
//
// # The promise
//
// What Await has confirmed is on disk, and every later host of the room reads it. Two processes that
// both believe to be the host never give one person two tickets: each write names the entry of the
// log that it follows, so the write of a host that has not read the newest entry fails, and that
// host reads the log again.
//
// # What is kept
//
// For each person with a place or a session 8 bytes of an HMAC of the person's ID, and the number of
// the ticket. The key of the HMAC is drawn by the first host of the room and stored in the log.
// Entries of places and sessions that are over are removed from memory within seconds, of a million within
// minutes, and from the log within RewriteAfter or as soon as they are more than half of it.
//
// An ID of an invitation counts once and is kept for longer: once its ticket was claimed, its
// entry stays until CodeMargin after the invitation's end. There are at most MaxCodes of them. If several
// visitors come in by one code, each has an ID of its own, and the entry of each names the code: the number
// of these entries is the number of uses that are taken, in each process that has read the log.
//
// # Concurrency and cost
//
// Many goroutines may use a Registry at once. Run owns the only goroutine. All tickets that are
// noted while a write is in flight share the next write. A person takes about 60 bytes of memory.
package persons

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/store"
)

// An ID identifies a person of a site in one room. It is a hash, and the zero ID is nobody.
type ID [16]byte

// IDOf returns the ID of a person. The same person has another ID in another room.
func IDOf(room, person string) (id ID) {
	if person == "" {
		return id
	}
	b := codec.AppendText(codec.AppendText([]byte("headgate person "), room), person)
	sum := sha256.Sum256(b)
	return ID(sum[:len(id)])
}

// A Log stores the entries. *store.Log implements it.
type Log interface {
	Append(ctx context.Context, data []byte, after uint64) (uint64, error)
	ReadAll(ctx context.Context, f func(store.Entry) error) (store.LogSize, error)
	Truncate(ctx context.Context, before uint64) error
}

// Opener returns what opens the log of a room, nil if nothing is stored.
func Opener(c store.LogConfig, room string) func(context.Context) (Log, error) {
	if c.Conn == nil {
		return nil
	}
	c.Name = room + "_persons"
	return func(ctx context.Context) (Log, error) { return store.OpenLog(ctx, c) }
}

// Config describes a Registry.
type Config struct {
	Room  string
	Life  uint64                               // of the line: tickets of other lives are over
	Open  func(context.Context) (Log, error)   // nil: in memory only
	Lives func(numbers []uint64) (live []bool) // which tickets have a place or a session; called by Run
	Now   func() time.Time                     // default time.Now
	Log   *slog.Logger
}

// Parameters of the log. Chosen: a batch stays below a message of 1 MB; a small log is not rewritten
// for its size; what is over is gone from the disk within an hour and some seconds.
const (
	RewriteAfter = time.Hour
	batchMost    = 28_000 // of 33 bytes at most
	parseMost    = 50_000 // older batches had no ends
	rewriteMost  = 10_000 // batches at once
	smallLog     = 8192
	sweepMost    = 4096 // or a sweepPart of them, if that is more: each is looked at about once in a minute
	sweepPart    = 64
	sweepEvery   = time.Second
	tryFor       = 5 * time.Second
	tryAgain     = 250 * time.Millisecond
	format       = 2
	withoutEnds  = 1 // the format of older batches
	withCodes    = 3 // the format of batches with codes of several uses
)

// CodeMargin is how long an invitation that was used is remembered after its end: the clock of a node
// may be behind by as much. MaxCodes limits the invitations of a room that are in use or remembered.
// Chosen: a million take 70 MB of memory, and a log of 30 MB at most.
const (
	CodeMargin = time.Hour
	MaxCodes   = 1_000_000
)

// ErrChanged reports that the log has to be read again: another process has written to it, or a
// write failed. Look the person up again.
var ErrChanged = errors.New("the tickets of people are read again")

// A Registry knows the tickets of the people of one room.
type Registry struct {
	cfg  Config
	wake chan struct{}
	log  Log // used by Run only

	mu      sync.Mutex
	used    bool // somebody has asked
	ready   bool // the log is read
	key     [32]byte
	table           // what people have
	next    []entry // not written yet
	read    uint64  // how often the log was read
	noted   uint64  // revision of the newest entry of next
	written uint64  // revision of the newest entry in the log
	news    chan struct{}

	// Used by Run only.
	last    uint64 // sequence number of the newest entry of the log
	batches []batch
	total   int // entries of all batches
}

// A Hold is what a person has.
type Hold struct {
	Number uint64 // of the ticket; 0: its ticket is over
	Until  uint32 // the ID is of an invitation that ends then, in Unix seconds; 0: of a person
	Used   bool   // the invitation has let somebody in
	Code   uint64 // what Taken has returned for the code, if several visitors come in by it
}

// An Invitation is what an ID stands for that lets somebody in once.
type Invitation struct {
	Until uint32 // its end, in Unix seconds; 0: the ID is of a person
	Uses  uint16 // how many visitors come in by the code; each has an ID of its own
	Code  ID     // the zero ID if it is for one
}

// InvitationOf returns the invitation that an ID stands for in a room, and whether somebody joins by the ID:
// it is not "", and the invitation has not ended. A nil of is for people.
func InvitationOf(
	room, id string, of func(id string) (code string, uses int, until time.Time), now time.Time,
) (x Invitation, counts bool) {
	if of == nil || id == "" {
		return x, id != ""
	}
	code, uses, until := of(id)
	x = Invitation{Until: uint32(until.Unix()), Uses: uint16(uses)}
	if uses > 1 {
		x.Code = IDOf(room, code)
	}
	return x, now.Before(until)
}

type held struct {
	Hold
	revision uint64
}

// An entry says what a person has. The zero Hold is nothing.
type entry struct {
	person uint64
	Hold
}

// A batch is one entry of the log.
type batch struct {
	seq, revision uint64
	at            time.Time
	people        []uint64
}

// A Mark is a point in the order of the changes, to wait for.
type Mark struct{ read, revision uint64 }

// New returns a registry. It knows nothing until Run has read the log.
func New(cfg Config) *Registry {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Registry{cfg: cfg, wake: make(chan struct{}, 1), news: make(chan struct{}), table: newTable()}
	if cfg.Open == nil {
		r.ready = true
		rand.Read(r.key[:])
	}
	return r
}

// IsReady reports whether the log is read. If it is not, it asks Run to read it.
func (r *Registry) IsReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.used {
		r.used = true
		r.poke()
	}
	return r.ready
}

// Find returns what a person has. IsReady must have been true.
func (r *Registry) Find(id ID) (Hold, Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.of[r.hash(id)]
	return h.Hold, Mark{r.read, h.revision}
}

// Set notes what a person has. found is the mark of the Find that h follows from: if the log
// was read again since then, Set notes nothing, because the person may have another ticket by now. The
// caller waits for the mark that Set returns before it tells anybody.
func (r *Registry) Set(id ID, h Hold, found Mark) Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read != found.read {
		return found // for Await it has changed
	}
	return Mark{r.read, r.set(r.hash(id), h)}
}

func (r *Registry) set(person uint64, h Hold) (revision uint64) {
	r.noted++
	r.put(person, held{h, r.noted})
	if r.cfg.Open == nil {
		r.written = r.noted
		return r.noted
	}
	r.next = append(r.next, entry{person, h})
	r.poke()
	return r.noted
}

// A table says what people have.
type table struct {
	of    map[uint64]held
	codes int               // entries of of with an end
	taken map[uint64]uint32 // entries of of with a code, by the code
}

func newTable() table { return table{of: map[uint64]held{}, taken: map[uint64]uint32{}} }

// put changes what a person has.
func (t *table) put(person uint64, h held) {
	was := t.of[person]
	if was.Until != 0 {
		t.codes--
	}
	if h.Until != 0 {
		t.codes++
	}
	if h.Code != 0 {
		t.taken[h.Code]++
	}
	if was.Code != 0 {
		if t.taken[was.Code]--; t.taken[was.Code] == 0 {
			delete(t.taken, was.Code)
		}
	}
	if t.of[person] = h; h.Hold == (Hold{}) {
		delete(t.of, person)
	}
}

// Taken returns the name of a code of several uses in a Hold, and how many uses are taken: by visitors who
// have a place or a session by it, or had a session. A place that was lost is given back within a minute.
func (r *Registry) Taken(code ID) (name uint64, n int) {
	if code == (ID{}) {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name = r.hash(code)
	return name, int(r.taken[name])
}

// IsFull reports whether there are MaxCodes invitations.
func (r *Registry) IsFull() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.codes >= MaxCodes
}

// Await waits until what m marks is on disk. With the zero Mark it waits until the log is read.
func (r *Registry) Await(ctx context.Context, m Mark) error {
	for {
		r.mu.Lock()
		done, changed := r.ready && r.written >= m.revision, m != Mark{} && r.read != m.read
		news := r.news
		r.mu.Unlock()
		switch {
		case changed:
			return ErrChanged
		case done:
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Len returns how many people have a ticket, as far as it is known.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.of)
}

// hash returns the keyed hash under which a person is kept.
func (r *Registry) hash(id ID) uint64 {
	h := hmac.New(sha256.New, r.key[:])
	h.Write(id[:])
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

func (r *Registry) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // Run looks soon
	}
}

// tell wakes all who wait. The lock is held.
func (r *Registry) tell() {
	close(r.news)
	r.news = make(chan struct{})
}

// Run reads and writes the log until ctx ends. It does nothing before the registry is used.
func (r *Registry) Run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		sweep := false
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-tick.C:
			sweep = true
		}
		if err := r.round(ctx, sweep); err != nil && ctx.Err() == nil {
			level := slog.LevelWarn
			if errors.Is(err, store.ErrConflict) {
				level = slog.LevelInfo // another node has taken over the room
			}
			r.cfg.Log.Log(ctx, level, "tickets of people are read again", "room", r.cfg.Room, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(tryAgain):
			}
			r.poke()
		}
	}
}

// round reads the log if it is not read, and writes what is to be written.
func (r *Registry) round(ctx context.Context, sweep bool) (err error) {
	r.mu.Lock()
	used, ready := r.used, r.ready
	r.mu.Unlock()
	if !used {
		return nil
	}
	if sweep && ready {
		r.sweep()
	}
	if r.cfg.Open == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, tryFor)
	defer stop()
	if !ready {
		if err = r.load(ctx); err != nil {
			return err
		}
	}
	for more := true; more && err == nil; {
		more, err = r.flush(ctx, false)
	}
	if err == nil && sweep {
		err = r.rewrite(ctx)
	}
	if err != nil {
		r.mu.Lock()
		r.ready, r.next = false, nil
		r.read++
		r.tell()
		r.mu.Unlock()
	}
	return err
}

// load reads the log. If an earlier host still writes, the next write of this one fails, and the log
// is read again.
func (r *Registry) load(ctx context.Context) (err error) {
	if r.log == nil {
		if r.log, err = r.cfg.Open(ctx); err != nil {
			return err
		}
	}
	people, batches, total, revision := newTable(), []batch{}, 0, uint64(0)
	key, keyed, damaged := [32]byte{}, false, 0
	size, err := r.log.ReadAll(ctx, func(e store.Entry) error {
		k, life, entries, ok := parse(e.Data)
		if !ok {
			damaged++
			return nil
		}
		key, keyed = k, true
		revision++
		x := batch{seq: e.Seq, revision: revision, at: e.At}
		for _, y := range entries {
			x.people = append(x.people, y.person)
			if life != r.cfg.Life { // the ticket is over, and a used invitation stays used
				if y.Number = 0; !y.Used {
					y.Hold = Hold{}
				}
			}
			people.put(y.person, held{y.Hold, revision})
		}
		batches, total = append(batches, x), total+len(x.people)
		return nil
	})
	if err != nil {
		return err
	}
	if damaged > 0 {
		r.cfg.Log.Error("tickets of people are lost: a person with a second device may get a second place",
			"room", r.cfg.Room, "damaged", damaged)
	}
	if !keyed {
		rand.Read(key[:])
	}
	r.last, r.batches, r.total = size.Last, batches, total
	r.mu.Lock()
	defer r.mu.Unlock()
	r.key, r.table, r.next = key, people, nil
	r.noted, r.written, r.ready = revision, revision, true
	r.read++
	r.tell()
	return nil
}

// flush writes one batch. With force it writes one without entries too. more: there is another.
func (r *Registry) flush(ctx context.Context, force bool) (more bool, err error) {
	r.mu.Lock()
	n := min(len(r.next), batchMost)
	now := r.next[:n:n]
	revision, key := r.noted-uint64(len(r.next)-n), r.key
	r.mu.Unlock()
	if n == 0 && !force {
		return false, nil
	}
	seq, err := r.log.Append(ctx, r.encode(&key, now), r.last)
	if err != nil {
		return false, err
	}
	x := batch{seq: seq, revision: revision, at: r.cfg.Now()}
	for _, e := range now {
		x.people = append(x.people, e.person)
	}
	r.last, r.batches, r.total = seq, append(r.batches, x), r.total+n
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next = r.next[n:]; len(r.next) == 0 {
		r.next = nil
	}
	r.written = revision
	r.tell()
	return len(r.next) > 0, nil
}

// sweep forgets people whose place and session are over. The order of a map is random, so each
// entry is looked at soon.
func (r *Registry) sweep() {
	var all, numbers []uint64
	r.mu.Lock()
	most, now := max(sweepMost, len(r.of)/sweepPart), r.cfg.Now().Unix()
	for person, h := range r.of {
		switch {
		case h.Number != 0:
			all, numbers = append(all, person), append(numbers, h.Number)
		case now > int64(h.Until)+int64(CodeMargin/time.Second):
			r.set(person, Hold{})
		}
		if most--; most == 0 {
			break
		}
	}
	r.mu.Unlock()
	if len(all) == 0 {
		return
	}
	live := r.cfg.Lives(numbers)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, person := range all {
		switch h := r.of[person]; {
		case live[i] || !r.ready || h.Number != numbers[i]:
		case h.Used: // known without being written: Lives says the same again
			h.Number = 0
			r.of[person] = h
		default:
			r.set(person, Hold{})
		}
	}
}

// rewrite writes the valid entries of the oldest batches again and deletes these batches, if they are old
// or most of the log is over.
func (r *Registry) rewrite(ctx context.Context) error {
	r.mu.Lock()
	n, people, total := 0, 0, r.total
	for n < min(len(r.batches), rewriteMost) && people < batchMost {
		x := &r.batches[n]
		due := total > 2*len(r.of)+smallLog || r.cfg.Now().Sub(x.at) > RewriteAfter
		if !due || len(r.batches) == 1 && len(x.people) == 0 {
			break
		}
		for _, person := range x.people {
			if h, ok := r.of[person]; ok && h.revision <= x.revision {
				r.set(person, h.Hold)
			}
		}
		n, people, total = n+1, people+len(x.people), total-len(x.people)
	}
	r.mu.Unlock()
	if n == 0 {
		return nil
	}
	for more := true; more; {
		var err error
		if more, err = r.flush(ctx, true); err != nil {
			return err
		}
	}
	if err := r.log.Truncate(ctx, r.batches[n].seq); err != nil {
		return err
	}
	r.total -= people
	r.batches = r.batches[n:]
	return nil
}

// encode returns a batch as it is stored.
func (r *Registry) encode(key *[32]byte, entries []entry) []byte {
	form := uint64(format)
	if slices.ContainsFunc(entries, func(e entry) bool { return e.Code != 0 }) {
		form = withCodes // only then: an older process reads all others
	}
	b := append(codec.AppendUint(nil, form, r.cfg.Life), key[:]...)
	b = codec.AppendUint(b, uint64(len(entries)))
	for _, e := range entries {
		b = codec.AppendUint(codec.AppendFixed(b, e.person), e.Number, uint64(e.Until)<<1|flag(e.Used))
		if form == withCodes {
			b = codec.AppendUint(b, e.Code)
		}
	}
	return b
}

func parse(b []byte) (key [32]byte, life uint64, entries []entry, ok bool) {
	d := codec.NewReader(b)
	form := d.Uint()
	if form < withoutEnds || form > withCodes {
		d.Fail()
	}
	life = d.Uint()
	copy(key[:], d.Take(len(key)))
	for range d.Count(parseMost) {
		e := entry{person: d.Fixed(), Hold: Hold{Number: d.Uint()}}
		if form != withoutEnds {
			end := d.UpTo(math.MaxUint32<<1 | 1)
			e.Until, e.Used = uint32(end>>1), end&1 == 1
		}
		if form == withCodes {
			e.Code = d.Uint()
		}
		entries = append(entries, e)
	}
	return key, life, entries, d.Done()
}

func flag(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}
