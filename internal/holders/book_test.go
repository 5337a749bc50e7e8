package holders

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// A shared store can fail, lose acknowledgments and show what was before. It keeps all that was written.
type shared struct {
	store.Memory
	down      atomic.Bool  // no request gets through
	dies      atomic.Bool  // writes of holders do not get through
	forgetful atomic.Int64 // one in so many writes is not acknowledged
	loads     atomic.Int64 // of records of holders
	slow      func()       // called by each Load, if not nil
	announced func()       // called once by the next write of the index, after it

	mu      sync.Mutex
	all     [][]byte
	frozen  map[string][]byte // if not nil: what a former leader says
	numbers map[string]uint64
}

var errDown = errors.New("the store does not answer")

func (s *shared) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	if s.down.Load() {
		return nil, 0, errDown
	}
	if strings.HasPrefix(key, shardHead) {
		s.loads.Add(1)
	}
	if s.slow != nil {
		s.slow()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen != nil {
		if s.frozen[key] == nil {
			return nil, 0, store.ErrNotFound
		}
		return bytes.Clone(s.frozen[key]), s.numbers[key], nil
	}
	return s.Memory.Load(ctx, key)
}

func (s *shared) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	if s.down.Load() || s.dies.Load() && strings.HasPrefix(key, shardHead) {
		return 0, errDown
	}
	s.mu.Lock()
	s.all = append(s.all, bytes.Clone(value))
	s.mu.Unlock()
	next, err := s.Memory.CompareAndSwap(ctx, key, revision, value)
	if do := s.announced; do != nil && key == indexKey && err == nil {
		s.announced = nil
		do()
	}
	if n := s.forgetful.Load(); n > 0 && err == nil && rand.Int64N(n) == 0 {
		return 0, errDown
	}
	return next, err
}

// freeze makes the store say from now on what the records are now.
func (s *shared) freeze() {
	said, numbers := map[string][]byte{}, map[string]uint64{}
	for n := range shardCount + 1 {
		key := indexKey
		if n < shardCount {
			key = fmt.Sprint(shardHead, n)
		}
		if b, at, err := s.Memory.Load(context.Background(), key); err == nil {
			said[key], numbers[key] = b, at
		}
	}
	s.frozen, s.numbers = said, numbers
}

func (s *shared) thaw() { s.frozen = nil }

// A clock that only the test moves.
type clock struct{ now atomic.Int64 }

func (c *clock) boot() time.Duration  { return time.Duration(c.now.Load()) }
func (c *clock) pass(d time.Duration) { c.now.Add(int64(d)) }
func discard() *slog.Logger           { return slog.New(slog.DiscardHandler) }
func plans() []string                 { return []string{"free", "pro"} }
func drafts(n int, plan string) (all []Holder) {
	for i := range n {
		all = append(all, Holder{Name: fmt.Sprint("holder ", i), Plan: plan})
	}
	return all
}

// node returns the book of a node whose messages are all lost.
func node(t testing.TB, s store.Store, c *clock) *Book {
	t.Helper()
	b := NewBook(Config{Store: s, Bus: store.NewBus(nil), Boot: c.boot, Log: discard()})
	b.Open(time.Minute)
	check(t, b)
	return b
}

func check(t testing.TB, b *Book) {
	t.Helper()
	if err := b.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func one(t testing.TB, b *Book, plan string) Made {
	t.Helper()
	made, err := b.Add(t.Context(), drafts(1, plan), plans())
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	return made[0]
}

func want(t testing.TB, b *Book, key, plan string, o Outcome) {
	t.Helper()
	if p, got := b.Find(key); p != plan || got != o {
		t.Errorf("%.20s…: %q %v, want %q %v", key, p, got, plan, o)
	}
}

func TestTheLifeOfAHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := &shared{}, &clock{}
		here, there := node(t, s, c), node(t, s, c)
		both := func(key, plan string, o Outcome) {
			t.Helper()
			check(t, there)
			want(t, here, key, plan, o)
			want(t, there, key, plan, o)
		}
		m := one(t, here, "pro")
		want(t, there, m.Key, "", Unknown)
		both(m.Key, "pro", Known)
		if h, err := there.Get(t.Context(), m.ID); err != nil || h.Name != "holder 0" || h.Plan != "pro" {
			t.Errorf("%+v %v", h, err)
		}
		other, _ := newKey(m.ID)
		both(other, "", Unknown) // the ID is no secret
		_, _, err := there.Edit(t.Context(), m.ID, plans(), func(h *Holder) { h.Plan = "free" })
		if err != nil {
			t.Fatal(err)
		}
		check(t, here)
		both(m.Key, "free", Known)
		_, _, err = here.Edit(t.Context(), m.ID, plans(), func(h *Holder) { h.Plan = "none" })
		if err == nil {
			t.Error("a plan that does not exist")
		}

		next, before, err := here.Rotate(t.Context(), m.ID, time.Hour)
		if err != nil || before.ID != m.ID || next.ID != m.ID || next.Key == m.Key {
			t.Fatal(next.ID, err)
		}
		both(next.Key, "free", Known)
		both(m.Key, "free", Known)
		time.Sleep(time.Hour)
		both(m.Key, "", Unknown)
		both(next.Key, "free", Known)

		if _, after, err := there.Revoke(t.Context(), m.ID); err != nil || after.Revoked.IsZero() {
			t.Fatal(err)
		}
		check(t, here)
		both(next.Key, "", Revoked)
		third, _, err := here.Rotate(t.Context(), m.ID, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		both(next.Key, "", Unknown) // it was revoked: it does not count for another hour
		both(third.Key, "free", Known)
		last, _, err := here.Rotate(t.Context(), m.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		both(third.Key, "", Unknown)

		if _, err := here.Remove(t.Context(), m.ID); err != nil {
			t.Fatal(err)
		}
		both(last.Key, "", Unknown)
		for what, err := range map[string]error{
			"remove": func() error { _, err := here.Remove(t.Context(), m.ID); return err }(),
			"revoke": func() error { _, _, err := here.Revoke(t.Context(), m.ID); return err }(),
			"rotate": func() error { _, _, err := here.Rotate(t.Context(), m.ID, 0); return err }(),
			"get":    func() error { _, err := here.Get(t.Context(), m.ID); return err }(),
		} {
			if !errors.Is(err, ErrNone) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, b := range s.all {
			for _, key := range []string{m.Key, next.Key, third.Key, last.Key} {
				if bytes.Contains(b, []byte(key[secretAt:sumAt])) {
					t.Error("a key is in the store")
				}
			}
		}
	})
}

// A node that cannot read the holders goes by what it knows for a while, and then by nothing.
func TestATableThatIsTooOldDoesNotCount(t *testing.T) {
	s, c := &shared{}, &clock{}
	here, there := node(t, s, c), node(t, s, c)
	m := one(t, here, "pro")
	check(t, there)
	if _, _, err := here.Revoke(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	s.down.Store(true)
	c.pass(time.Minute - 1)
	if there.Check(t.Context()) == nil {
		t.Fatal("a store that is down was read")
	}
	want(t, there, m.Key, "pro", Known)
	c.pass(1)
	want(t, there, m.Key, "", Unsure)
	want(t, there, m.Key[:10], "", Malformed)
	if there.IsReady() {
		t.Error("ready without knowing")
	}
	s.down.Store(false)
	check(t, there)
	want(t, there, m.Key, "", Revoked)

	// A check is as old as its beginning.
	s.slow = func() { c.pass(50 * time.Second) }
	check(t, there)
	s.slow = nil
	want(t, there, m.Key, "", Revoked)
	c.pass(10 * time.Second)
	want(t, there, m.Key, "", Unsure)
	check(t, there)

	never := NewBook(Config{Store: s, Bus: store.NewBus(nil), Boot: c.boot, Log: discard()})
	want(t, never, m.Key, "", Unsure)
	never.Open(time.Minute)
	want(t, never, m.Key, "", Unsure)
	for what, err := range map[string]error{
		"add": func() error { never.Open(0); _, err := never.Add(t.Context(), drafts(1, ""), plans()); return err }(),
		"get": func() error { _, err := never.Get(t.Context(), m.ID); return err }(),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What a suspended former leader of the store says is older than what is known: it neither makes a revoked
// key count again, nor keeps a table fresh.
func TestAFormerLeaderIsNotBelieved(t *testing.T) {
	s, c := &shared{}, &clock{}
	here, there := node(t, s, c), node(t, s, c)
	m := one(t, here, "pro")
	check(t, there)
	s.freeze()
	frozen := s.frozen
	s.thaw()
	if _, _, err := here.Revoke(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	check(t, there)
	want(t, there, m.Key, "", Revoked)
	s.frozen = frozen
	if err := there.Check(t.Context()); !errors.Is(err, errOld) {
		t.Errorf("an old index: %v", err)
	}
	want(t, there, m.Key, "", Revoked)
	c.pass(time.Minute)
	if err := there.Check(t.Context()); !errors.Is(err, errOld) {
		t.Errorf("an old index: %v", err)
	}
	want(t, there, m.Key, "", Unsure)
}

// A writer that dies between its announcement and its write leaves tables fresh, and readers with nothing to
// read again and again.
func TestAnAnnouncementWithoutAWrite(t *testing.T) {
	s, c := &shared{}, &clock{}
	here, there := node(t, s, c), node(t, s, c)
	m := one(t, here, "pro")
	check(t, there)
	s.dies.Store(true)
	if _, _, err := here.Revoke(t.Context(), m.ID); err == nil {
		t.Fatal("a write was lost, and acknowledged")
	}
	for range 2 * patience {
		c.pass(50 * time.Second)
		if err := there.Check(t.Context()); err != nil && !errors.Is(err, errDown) {
			t.Fatal(err)
		}
	}
	s.dies.Store(false)
	check(t, there)
	want(t, there, m.Key, "pro", Known)
	before := s.loads.Load()
	for range 10 {
		c.pass(50 * time.Second)
		check(t, there)
		want(t, there, m.Key, "pro", Known)
	}
	if n := s.loads.Load() - before; n != 0 {
		t.Errorf("the record was read %d times more", n)
	}
	if _, _, err := here.Revoke(t.Context(), m.ID); err != nil { // the former version is used
		t.Fatal(err)
	}
	check(t, there)
	want(t, there, m.Key, "", Revoked)
}

// A dying store writes what it is sent, and then answers nothing more.
type dying struct {
	*shared
	ends atomic.Bool
}

func (s *dying) CompareAndSwap(
	ctx context.Context, key string, revision uint64, value []byte,
) (uint64, error) {
	next, err := s.shared.CompareAndSwap(ctx, key, revision, value)
	if s.ends.Load() && strings.HasPrefix(key, shardHead) {
		s.down.Store(true)
		return 0, errDown
	}
	return next, err
}

// A node without others finds what it has written itself without an acknowledgment: GET shows that the holder
// is revoked, so the key must not count until the next start.
func TestAloneWithALostAcknowledgment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &dying{shared: &shared{}}
		b := NewBook(Config{Store: s, Log: discard()})
		b.Open(time.Minute)
		check(t, b)
		m := one(t, b, "pro")
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { b.Follow(ctx, 5*time.Second) })
		s.ends.Store(true)
		if _, _, err := b.Revoke(t.Context(), m.ID); err == nil {
			t.Error("acknowledged by a store that is down")
		}
		time.Sleep(20 * time.Second)
		want(t, b, m.Key, "pro", Known) // it is not known whether it was revoked
		s.ends.Store(false)
		s.down.Store(false)
		if h, err := b.Get(t.Context(), m.ID); err != nil || h.Revoked.IsZero() {
			t.Errorf("the change was not written: %v", err)
		}
		time.Sleep(10 * time.Second)
		want(t, b, m.Key, "", Revoked)
		stop()
		wg.Wait()
	})
}

// A writer that is overtaken between its announcement and its write announces again: otherwise its change
// would have a version that readers have already read.
func TestAWriterThatIsOvertaken(t *testing.T) {
	s, c := &shared{}, &clock{}
	here, there := node(t, s, c), node(t, s, c)
	slow, fast := one(t, here, "pro"), one(t, here, "pro")
	check(t, there)
	if slow.ID.shard() != fast.ID.shard() {
		t.Fatal("in two records")
	}
	s.announced = func() {
		if _, _, err := there.Revoke(t.Context(), fast.ID); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := here.Revoke(t.Context(), slow.ID); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Book{here, there} {
		check(t, b)
		want(t, b, slow.Key, "", Revoked)
		want(t, b, fast.Key, "", Revoked)
	}
}

// Several nodes change holders of the same records at the same time, and acknowledgments are lost. In the
// end each node knows of each key what was acknowledged last.
func TestWritersAtTheSameTime(t *testing.T) {
	s, c := &shared{}, &clock{}
	s.forgetful.Store(7)
	var books []*Book
	for range 4 {
		books = append(books, node(t, s, c))
	}
	type fate struct {
		key  string
		plan string
		o    Outcome
	}
	fates := make([][]fate, len(books))
	var wg sync.WaitGroup
	for i, b := range books {
		wg.Go(func() {
			for range 40 {
				made, err := b.Add(t.Context(), drafts(1, "pro"), plans())
				if err != nil { // nobody has the key
					continue
				}
				m := made[0]
				f := fate{m.Key, "pro", Known}
				switch rand.IntN(4) {
				case 0:
					if _, _, err = b.Revoke(t.Context(), m.ID); err == nil {
						f.plan, f.o = "", Revoked
					}
				case 1:
					if _, err = b.Remove(t.Context(), m.ID); err == nil {
						f.plan, f.o = "", Unknown
					}
				case 2:
					var next Made
					if next, _, err = b.Rotate(t.Context(), m.ID, 0); err == nil {
						fates[i] = append(fates[i], fate{f.key, "", Unknown})
						f.key = next.Key
					}
				}
				if err == nil { // otherwise it is not certain
					fates[i] = append(fates[i], f)
				}
			}
		})
	}
	wg.Wait()
	for i, b := range books {
		if len(fates[i]) < 10 {
			t.Errorf("only %d of 40 changes are certain", len(fates[i]))
		}
		check(t, b)
		for _, f := range slices.Concat(fates...) {
			want(t, b, f.key, f.plan, f.o)
		}
	}
}

// A few holders are in few records, many in all, and none has much more than the others.
func TestHoldersAreSpread(t *testing.T) {
	c := &clock{}
	b := node(t, &store.Memory{}, c)
	for range 20 {
		one(t, b, "")
	}
	sizes := func() (used, most int) {
		for i := range b.shards {
			if x := b.shards[i].Load(); x != nil && len(x.ids) > 0 {
				used, most = used+1, max(most, len(x.ids))
			}
		}
		return used, most
	}
	if used, _ := sizes(); used != 1 {
		t.Errorf("20 holders are in %d records", used)
	}
	made, err := b.Add(t.Context(), drafts(60_000, "pro"), plans())
	if err != nil || len(made) != 60_000 {
		t.Fatal(len(made), err)
	}
	more, err := b.Add(t.Context(), drafts(100_000, "free"), plans())
	if err != nil {
		t.Fatal(err)
	}
	if used, most := sizes(); used != shardCount || most > 3*160_020/shardCount || b.Len() != 160_020 {
		t.Errorf("%d holders are in %d records, up to %d in one", b.Len(), used, most)
	}
	for i := range made {
		want(t, b, made[i].Key, "pro", Known)
	}
	for i := range more {
		want(t, b, more[i].Key, "free", Known)
	}
	seen := 0
	for after, first := ID(0), true; ; first = false {
		all, more, _, err := b.List(t.Context(), after, first, 777)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if !first && all[i].ID <= after {
				t.Fatal("out of order")
			}
			after, first = all[i].ID, false
		}
		if seen += len(all); !more {
			break
		}
	}
	if seen != b.Len() {
		t.Errorf("%d of %d holders are listed", seen, b.Len())
	}
}

// A damaged record makes its own holders unsure, and no others.
func TestADamagedRecordIsAlone(t *testing.T) {
	s, c := &shared{}, &clock{}
	here := node(t, s, c)
	made, err := here.Add(t.Context(), drafts(fillAhead*2+perShard, "pro"), plans())
	if err != nil {
		t.Fatal(err)
	}
	other := one(t, here, "free")
	if made[0].ID.shard() == other.ID.shard() {
		t.Fatal("all are in one record")
	}
	name := fmt.Sprint(shardHead, other.ID.shard())
	_, at, err := s.Load(t.Context(), name)
	if err == nil {
		_, err = s.CompareAndSwap(t.Context(), name, at, []byte("damaged"))
	}
	if err != nil {
		t.Fatal(err)
	}
	there := NewBook(Config{Store: s, Bus: store.NewBus(nil), Boot: c.boot, Log: discard()})
	there.Open(time.Minute)
	if err := there.Check(t.Context()); !errors.Is(err, errRecord) {
		t.Error(err)
	}
	want(t, there, made[0].Key, "pro", Known)
	want(t, there, other.Key, "", Unsure)
	all, more, damaged, err := there.List(t.Context(), 0, true, 1_000_000)
	lost := slices.ContainsFunc(all, func(h Holder) bool { return h.ID.shard() == other.ID.shard() })
	if err != nil || more || damaged != 1 || len(all) < fillAhead*2 || lost {
		t.Errorf("%d are listed, %d records are damaged: %v", len(all), damaged, err)
	}
	for range 2 * fillAhead { // new holders go elsewhere
		want(t, there, one(t, there, "pro").Key, "pro", Known)
	}
}

// If the only record in use is damaged, new holders go into another one.
func TestTheOnlyRecordIsDamaged(t *testing.T) {
	s, c := &shared{}, &clock{}
	if _, err := s.CompareAndSwap(t.Context(), shardHead+"0", 0, []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(index{Versions: [shardCount]uint64{1}})
	if err == nil {
		_, err = s.CompareAndSwap(t.Context(), indexKey, 0, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	there := NewBook(Config{Store: s, Bus: store.NewBus(nil), Boot: c.boot, Log: discard()})
	there.Open(time.Minute)
	if err := there.Check(t.Context()); !errors.Is(err, errRecord) {
		t.Error(err)
	}
	want(t, there, one(t, there, "pro").Key, "pro", Known)
}
