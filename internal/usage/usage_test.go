package usage

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/store"
)

// A memoryLog is a Log in memory. lose makes the answer of the next Append get lost.
type memoryLog struct {
	mu      sync.Mutex
	first   uint64
	entries []store.Entry
	lose    bool
	full    int // entries at most; 0: no limit
}

func (l *memoryLog) Append(_ context.Context, data []byte, after uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.first + uint64(len(l.entries)) - 1
	if after != last {
		return 0, store.ErrConflict
	}
	if l.full > 0 && len(l.entries) >= l.full {
		return 0, store.ErrFull
	}
	l.entries = append(l.entries, store.Entry{Seq: last + 1, At: time.Now(), Data: slices.Clone(data)})
	if l.lose {
		l.lose = false
		return 0, context.DeadlineExceeded
	}
	return last + 1, nil
}

func (l *memoryLog) Get(_ context.Context, seq uint64) (store.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq < l.first || seq >= l.first+uint64(len(l.entries)) {
		return store.Entry{}, store.ErrNotFound
	}
	return l.entries[seq-l.first], nil
}

func (l *memoryLog) Size(context.Context) (s store.LogSize, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := uint64(len(l.entries))
	s = store.LogSize{First: l.first, Last: l.first + n - 1, Count: n}
	for _, e := range l.entries {
		s.Bytes += uint64(len(e.Data))
	}
	return s, nil
}

func (l *memoryLog) Truncate(_ context.Context, before uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := int(before - l.first); n > 0 {
		l.first, l.entries = before, l.entries[n:]
	}
	return nil
}

// A rig is a store that several keepers share.
type rig struct {
	*store.Memory
	logs map[string]*memoryLog
}

func newRig() *rig {
	return &rig{&store.Memory{}, map[string]*memoryLog{"usage_hours": {first: 1}, "usage_days": {first: 1}}}
}

func (r *rig) keeper() *Keeper {
	return NewKeeper(Config{Store: r, Log: slog.New(slog.DiscardHandler),
		OpenLog: func(_ context.Context, name string, _ int64) (Log, error) { return r.logs[name], nil }})
}

// rows returns all rows of a limit, and the units of each key.
func rows(t *testing.T, k *Keeper, q Query) (all []Row, sum map[string]int64) {
	t.Helper()
	sum = map[string]int64{}
	_, err := k.Read(t.Context(), &q, func(r *Row) error {
		all = append(all, *r)
		if r.Kind == Used {
			sum[r.Key] += r.N
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, sum
}

// write cuts what a tally has and writes it.
func write(t *testing.T, k *Keeper, slot int, y *Tally) Batch {
	t.Helper()
	if _, ok := y.Cut(nil); !ok {
		t.Fatal("nothing to write")
	}
	b := y.Batch()
	if _, err := k.write(t.Context(), Hour, slot, &b); err != nil {
		t.Fatal(err)
	}
	y.Wrote(nil, &b)
	return b
}

func TestABatchCountsOnce(t *testing.T) {
	r := newRig()
	k, y := r.keeper(), &Tally{}
	y.Begin()
	hour := Hour.Of(time.Now())
	y.At(nil, hour)
	y.Spend(nil, "api", "bob", 5)
	b := write(t, k, 3, y)
	for range 3 { // the answer was lost; another keeper is that of the standby
		if _, err := r.keeper().write(t.Context(), Hour, 3, &b); err != nil {
			t.Fatal(err)
		}
	}
	y.Spend(nil, "api", "bob", 2)
	y.Spend(nil, "api", "ann", -1)
	write(t, k, 3, y)
	if err := k.Close(t.Context(), Hour, []int{3}, hour+1); err != nil {
		t.Fatal(err)
	}
	_, sum := rows(t, k, Query{Limit: "api"})
	if want := map[string]int64{"bob": 7, "ann": -1}; !maps.Equal(sum, want) {
		t.Errorf("%v, want %v", sum, want)
	}
}

// TestClosingSurvivesADeathAnywhere stops closing at each operation in turn, and lets another keeper go on.
func TestClosingSurvivesADeathAnywhere(t *testing.T) {
	for after := range 14 {
		r := newRig()
		y := &Tally{}
		y.Begin()
		hour := Hour.Of(time.Now()) - 1
		y.At(nil, hour)
		y.Spend(nil, "api", "bob", 5)
		write(t, r.keeper(), 1, y)
		mortal := &mortal{Store: r, left: after}
		dying := NewKeeper(Config{Store: mortal, Log: slog.New(slog.DiscardHandler),
			OpenLog: func(_ context.Context, name string, _ int64) (Log, error) {
				return &mortalLog{r.logs[name], mortal}, nil
			}})
		died := dying.Close(t.Context(), Hour, []int{1}, hour+1)
		for range 2 {
			if err := r.keeper().Close(t.Context(), Hour, []int{1}, hour+1); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.keeper().Close(t.Context(), Day, []int{1}, Day.Of(Hour.begin(hour))+1); err != nil {
			t.Fatal(err)
		}
		for p := range periods {
			if all, _ := rows(t, r.keeper(), Query{Limit: "api", Per: p}); len(all) != 1 || all[0].N != 5 {
				t.Errorf("died after %d operations (%v): by %s %+v, want 5 units once", after, died, p, all)
			}
		}
		if after == 13 && died != nil {
			t.Errorf("closing takes more operations than this test knows: %v", died)
		}
	}
}

// A mortal store performs some operations, then one whose answer is lost, and then none.
type mortal struct {
	store.Store
	left int
}

func (m *mortal) dies() (before, after bool) {
	m.left--
	return m.left < -1, m.left < 0
}

func (m *mortal) CompareAndSwap(ctx context.Context, key string, rev uint64, b []byte) (uint64, error) {
	before, after := m.dies()
	if before {
		return 0, context.Canceled
	}
	rev, err := m.Store.CompareAndSwap(ctx, key, rev, b)
	if after {
		return 0, context.Canceled
	}
	return rev, err
}

type mortalLog struct {
	*memoryLog
	m *mortal
}

func (l *mortalLog) Append(ctx context.Context, data []byte, after uint64) (uint64, error) {
	before, dies := l.m.dies()
	if before {
		return 0, context.Canceled
	}
	seq, err := l.memoryLog.Append(ctx, data, after)
	if dies {
		return 0, context.Canceled
	}
	return seq, err
}

// TestTwoKeepersCloseOnce lets two nodes close the same slots at the same time.
func TestTwoKeepersCloseOnce(t *testing.T) {
	r := newRig()
	hour, slots := Hour.Of(time.Now())-1, []int{}
	for slot := range 20 {
		y := &Tally{}
		y.Begin()
		y.At(nil, hour)
		y.Spend(nil, "api", fmt.Sprint("key-", slot), int64(slot)+1)
		write(t, r.keeper(), slot, y)
		slots = append(slots, slot)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := r.keeper().Close(t.Context(), Hour, slots, hour+1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	all, sum := rows(t, r.keeper(), Query{Limit: "api"})
	if len(all) != 20 || len(sum) != 20 {
		t.Errorf("%d rows of %d keys, want 20", len(all), len(sum))
	}
}

// TestAnEqualTally applies random changes to a tally, and to a second one that began with a copy.
func TestAnEqualTally(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	a, b := &Tally{}, &Tally{}
	a.Begin()
	copied, now := false, time.Duration(0)
	for i := range 5000 {
		if i == 2000 {
			copied = true
			a.AppendCopy(now, func(part []byte) {
				if !b.Apply(part, now) {
					t.Fatal("the copy cannot be read")
				}
			})
		}
		var p []byte
		limit, key := fmt.Sprint("l", dice.IntN(3)), fmt.Sprint("k", dice.IntN(50))
		switch dice.IntN(9) {
		case 0:
			p = a.At(nil, int64(100+i/500))
		case 1, 2, 3:
			p = a.Spend(nil, limit, key, dice.Int64N(100)-20)
		case 4:
			ttl := time.Duration(dice.IntN(9)) * time.Second
			p = a.Hold(nil, limit, key, uint64(i), dice.Int64N(100), ttl, now)
		case 5:
			p = a.Settle(nil, limit, uint64(i-dice.IntN(100)), dice.Int64N(50))
		case 6:
			p, _ = a.Cut(nil)
		case 7:
			if a.cut != nil {
				x := a.Batch()
				p = a.Wrote(nil, &x)
			}
		case 8:
			p = a.Lapse(a.Sum(nil, limit, Sums{Unreported: 1}), now, int64(100+i/500))
		}
		if now += 50 * time.Millisecond; copied && !b.Apply(p, now) {
			t.Fatal("a change cannot be read")
		}
		if !copied {
			continue
		}
		shape := func(t *Tally) [5]uint64 {
			return [5]uint64{t.lineage, t.seq, uint64(len(t.buckets)), uint64(len(t.held)),
				codec.Bit(t.cut != nil)}
		}
		if shape(a) != shape(b) {
			t.Fatalf("step %d: %v and %v", i, shape(a), shape(b))
		}
		if a.cut != nil && !slices.Equal(a.cut.segment(), b.cut.segment()) {
			t.Fatalf("step %d: what is cut differs", i)
		}
		for n := range a.buckets {
			if !slices.Equal(a.buckets[n].segment(), b.buckets[n].segment()) {
				t.Fatalf("step %d: hour %d differs", i, a.buckets[n].hour)
			}
		}
	}
}

// TestTheCursorCountsOnce reads while hours close, in pieces of random length, each from the cursor of any
// row.
func TestTheCursorCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		k := r.keeper()
		want, got := map[string]int64{}, map[string]int64{}
		var y [4]Tally
		for i := range y {
			y[i].Begin()
		}
		q := Query{Limit: "api"}
		stop := fmt.Errorf("enough")
		read := func(most int) {
			n := 0
			_, err := k.Read(t.Context(), &q, func(row *Row) error {
				if n++; n > most {
					return stop
				}
				got[row.Key] += row.N
				q.Cursor = row.Cursor
				return nil
			})
			if err != nil && err != stop {
				t.Fatal(err)
			}
		}
		for hour := range 30 {
			for i := range y {
				for range 20 {
					key := fmt.Sprintf("key-%d-%d", i, rand.IntN(30))
					y[i].At(nil, Hour.Of(time.Now()))
					y[i].Spend(nil, "api", key, 3)
					y[i].Spend(nil, "other", key, 1)
					want[key] += 3
				}
				write(t, k, i, &y[i])
			}
			time.Sleep(time.Hour)
			if err := k.Close(t.Context(), Hour, []int{0, 1, 2, 3}, Hour.Of(time.Now())); err != nil {
				t.Fatal(err)
			}
			read(rand.IntN(100) * hour % 100)
		}
		read(1 << 30)
		read(1 << 30)
		if !maps.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
		// Days have the same sums, and a range of hours those of its hours only.
		for i := range y {
			y[i].At(nil, Hour.Of(time.Now()))
		}
		if err := k.Close(t.Context(), Day, []int{0, 1, 2, 3}, Day.Of(time.Now())+1); err != nil {
			t.Fatal(err)
		}
		if _, sum := rows(t, k, Query{Limit: "api", Per: Day}); !maps.Equal(sum, want) {
			t.Errorf("by day %v, want %v", sum, want)
		}
		from := Hour.begin(Hour.Of(time.Now()) - 10)
		some, _ := rows(t, k, Query{Limit: "api", From: from, To: from.Add(3 * time.Hour)})
		hours := map[time.Time]bool{}
		for _, row := range some {
			hours[row.At] = true
		}
		if len(hours) != 3 || !hours[from] {
			t.Errorf("rows of the hours %v, want 3 from %v", hours, from)
		}
	})
}

// TestAnEstimateCountsWhenItIsSettled covers settlements in time, late, twice, and not at all.
func TestAnEstimateCountsWhenItIsSettled(t *testing.T) {
	y := &Tally{}
	y.Begin()
	y.At(nil, 10)
	y.Hold(nil, "api", "bob", 1, 100, time.Minute, 0)
	y.Hold(nil, "api", "bob", 2, 50, time.Minute, 0)
	if n := y.of("api").keys["bob"]; n != 0 {
		t.Errorf("%d units before anything is settled, want 0", n)
	}
	y.At(nil, 11)
	y.Settle(nil, "api", 1, 7)
	y.Settle(nil, "api", 1, 7)
	y.Lapse(nil, time.Minute, 11)
	if n := y.of("api").keys["bob"]; n != 7 {
		t.Errorf("%d units, want 7: one is settled, and one may still be", n)
	}
	y.Lapse(nil, time.Minute+graceOfHolds, 11)
	y.Settle(nil, "api", 2, 3)
	if n := y.of("api").keys["bob"]; n != 57 {
		t.Errorf("%d units, want 57: the estimate of the second counts", n)
	}
	if len(y.buckets[0].limits["api"].keys) != 0 {
		t.Errorf("hour 10 has %v, want nothing: both were settled in hour 11", y.buckets[0].limits["api"].keys)
	}
}

// TestChangesFitIntoARecord: after a time without an answer of the store, many reservations lapse together.
// What is told to the standby must fit into one record of its stream.
func TestChangesFitIntoARecord(t *testing.T) {
	y, x := &Tally{}, &Tally{}
	y.Begin()
	y.AppendCopy(0, func(b []byte) { x.Apply(b, 0) })
	limit := strings.Repeat("l", mostName)
	for id := range uint64(mostHeld) {
		x.Apply(y.Hold(y.At(nil, 1), limit, "bob", id<<48|id, 1, time.Minute, 0), 0)
	}
	for n := 0; len(y.held) > 0; n++ {
		b := y.Lapse(nil, time.Hour, 2)
		if len(b) > copyPart+1<<10 || n > mostHeld {
			t.Fatalf("%d bytes in turn %d, want at most %d", len(b), n, copyPart)
		}
		if !x.Apply(b, 0) {
			t.Fatal("the changes cannot be applied")
		}
	}
	if got := x.buckets[1].limits[limit].keys["bob"]; got != mostHeld || len(x.held) > 0 {
		t.Errorf("%d units and %d reservations, want %d and none", got, len(x.held), mostHeld)
	}
}

func TestWhatHasNoRoomIsCounted(t *testing.T) {
	total := int64(0)
	var a []byte
	for i := range 8 {
		x := bucket{limits: map[string]*counts{"api": {keys: map[string]int64{}}}}
		for j := range 10_000 {
			x.limits["api"].keys[fmt.Sprintf("%d-%050d", i, j*7919)] = 1
			total++
		}
		var err error
		if a, err = merge(a, x.segment()); err != nil {
			t.Fatal(err)
		}
	}
	if len(a) > mostSegment {
		t.Errorf("a segment of %d bytes, want at most %d", len(a), mostSegment)
	}
	sum, dropped := int64(0), int64(0)
	for s := newScanner(a); s.ok; s.next() {
		if s.cell.sums != nil {
			dropped = s.cell.sums.Dropped
		}
		sum += s.cell.n
	}
	if sum+dropped != total || dropped == 0 || sum == 0 {
		t.Errorf("%d units recorded and %d dropped of %d", sum, dropped, total)
	}
}

// TestARecordThatIsFullCanBeWritten: the numbers of keys grow after there is no room for new keys.
func TestARecordThatIsFullCanBeWritten(t *testing.T) {
	var all []byte
	spent := int64(0)
	for _, n := range []int64{1, 1 << 40} {
		x := bucket{limits: map[string]*counts{"api": {keys: map[string]int64{}}}}
		for i := range 70_000 {
			x.limits["api"].keys[fmt.Sprintf("%07d-%04d", i*131, i)] = n
			spent += n
		}
		var err error
		if all, err = merge(all, x.segment()); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) > store.MaxEntry-1<<10 {
		t.Errorf("a segment of %d bytes does not fit into a record", len(all))
	}
	got, dropped := int64(0), int64(0)
	for s := newScanner(all); s.ok; s.next() {
		if s.cell.sums != nil {
			dropped = s.cell.sums.Dropped
		}
		got += s.cell.n
	}
	if got+dropped != spent || dropped < 1<<40 || got < 1<<40 {
		t.Errorf("%d units and %d dropped, want %d in all", got, dropped, spent)
	}
}

// TestACursorOfAnotherLog: a log that was made anew, for example after a backup was restored, has other rows
// under the numbers of the old one.
func TestACursorOfAnotherLog(t *testing.T) {
	r := newRig()
	k, hour := r.keeper(), Hour.Of(time.Now())-1
	put := func(slot int, from uint64, key string, n int64) {
		t.Helper()
		x := bucket{limits: map[string]*counts{"api": {keys: map[string]int64{key: n}}}}
		p := part{slot: slot, label: hour, from: from, bytes: pack(x.segment())}
		err := k.append(t.Context(), Hour, []part{p})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(2, 0, "bob", 1)
	put(3, 0, "eve", 1)
	all, _ := rows(t, k, Query{Limit: "api"})
	next, err := k.Read(t.Context(), &Query{Limit: "api", Cursor: all[1].Cursor}, nil)
	if err != nil {
		t.Fatal(err)
	}
	*r.logs["usage_hours"] = memoryLog{first: 1}
	k = r.keeper()
	for _, cursor := range []string{all[1].Cursor, next} {
		_, err := newRig().keeper().Read(t.Context(), &Query{Limit: "api", Cursor: cursor}, nil)
		if !errors.Is(err, ErrGone) {
			t.Errorf("%q without any log: %v, want %v", cursor, err, ErrGone)
		}
		if _, err := k.Read(t.Context(), &Query{Limit: "api", Cursor: cursor}, nil); !errors.Is(err, ErrGone) {
			t.Errorf("%q behind the end: %v, want %v", cursor, err, ErrGone)
		}
	}
	// The records say that the log had more entries. What is appended is recognized all the same.
	for range 2 {
		put(4, 7, "ada", 5)
		k = r.keeper() // the node died before it emptied the record
	}
	if _, sum := rows(t, k, Query{Limit: "api"}); sum["ada"] != 5 {
		t.Errorf("%d units, want 5", sum["ada"])
	}
}

// TestAReportThatEndsCanBeContinued: whoever reads up to a time continues behind the rows that were read.
func TestAReportThatEndsCanBeContinued(t *testing.T) {
	r := newRig()
	k, hour := r.keeper(), Hour.Of(time.Now())-3
	for n := range int64(3) {
		var parts []part
		for slot := range 2 {
			x := bucket{limits: map[string]*counts{"api": {keys: map[string]int64{fmt.Sprint(slot): n + 1}}}}
			parts = append(parts, part{slot: slot, label: hour + n, bytes: pack(x.segment())})
		}
		if err := k.append(t.Context(), Hour, parts); err != nil {
			t.Fatal(err)
		}
	}
	next, got := "", []int64{}
	for n := range int64(3) {
		var err error
		q := Query{Limit: "api", From: Hour.begin(hour), To: Hour.begin(hour + n + 1), Cursor: next}
		next, err = k.Read(t.Context(), &q, func(r *Row) error { got = append(got, r.N); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, []int64{1, 1, 2, 2, 3, 3}) {
		t.Errorf("%v, want each row once", got)
	}
}

// TestADamagedRecordStopsNothing: what is in it is lost, and what is counted afterwards is not.
func TestADamagedRecordStopsNothing(t *testing.T) {
	r := newRig()
	k, y := r.keeper(), &Tally{}
	y.Begin()
	hour := Hour.Of(time.Now()) - 1
	for p := range periods {
		s := &state{period: p.Of(Hour.begin(hour)), seen: []lineage{{1, 2}}, bytes: []byte{3, 'a'}}
		if err := k.save(t.Context(), p, 3, s); err != nil {
			t.Fatal(err)
		}
	}
	y.At(nil, hour)
	y.Spend(nil, "api", "bob", 5)
	write(t, k, 3, y)
	for p, before := range []int64{hour + 1, Day.Of(Hour.begin(hour)) + 1} {
		if err := k.Close(t.Context(), Per(p), []int{3}, before); err != nil {
			t.Fatal(err)
		}
		if _, sum := rows(t, k, Query{Limit: "api", Per: Per(p)}); sum["bob"] != 5 {
			t.Errorf("%d units by %s, want 5", sum["bob"], Per(p))
		}
	}
}

// TestWhatIsAppendedIsNotOpen: a node dies after it has appended a part and before it empties the record.
func TestWhatIsAppendedIsNotOpen(t *testing.T) {
	r := newRig()
	k, y := r.keeper(), &Tally{}
	y.Begin()
	hour := Hour.Of(time.Now()) - 1
	y.At(nil, hour)
	y.Spend(nil, "api", "bob", 5)
	write(t, k, 3, y)
	s, err := k.mark(t.Context(), Hour, 3, hour+1)
	if err != nil {
		t.Fatal(err)
	}
	open := func() (n int64) {
		err := r.keeper().ReadOpen(t.Context(), &Query{Limit: "api"}, func(r *Row) error { n += r.N; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := open()
	err = k.append(t.Context(), Hour, []part{{slot: 3, label: s.label, from: s.from, bytes: pack(s.bytes)}})
	if err != nil {
		t.Fatal(err)
	}
	_, closed := rows(t, k, Query{Limit: "api"})
	if after := open(); before != 5 || closed["bob"] != 5 || after != 0 {
		t.Errorf("%d open, then %d closed and %d open; want 5, 5, 0", before, closed["bob"], after)
	}
}

func TestTheOldestIsDeletedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		k := r.keeper()
		r.logs["usage_hours"].full = 100
		y := &Tally{}
		y.Begin()
		for range 120 {
			y.At(nil, Hour.Of(time.Now()))
			y.Spend(nil, "api", "bob", 1)
			write(t, k, 1, y)
			time.Sleep(time.Hour)
		}
		if _, err := k.Read(t.Context(), &Query{Limit: "api", Cursor: "hour.3.0.1"}, nil); !errors.Is(err, ErrGone) {
			t.Errorf("a cursor before the oldest row: %v, want ErrGone", err)
		}
		all, _ := rows(t, k, Query{Limit: "api"})
		if n := len(all); n < 90 || n > 100 || all[n-1].At.Before(time.Now().Add(-2*time.Hour)) {
			t.Errorf("%d hours to %v, want the newest 90 to 100", n, all[n-1].At)
		}
		if err := k.Trim(t.Context(), time.Now().Add(40*24*time.Hour-10*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if all, _ = rows(t, k, Query{Limit: "api"}); len(all) > 11 || len(all) < 8 {
			t.Errorf("%d hours after 40 days less 10 hours, want 10", len(all))
		}
	})
}

func FuzzApply(f *testing.F) {
	y := &Tally{}
	y.Begin()
	y.At(nil, 1)
	y.Spend(nil, "api", "bob", 5)
	y.Hold(nil, "api", "bob", 1, 100, time.Minute, 0)
	y.AppendCopy(0, func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &Tally{}
		x.Apply(b, 0)
		if len(x.held) > mostHeld || len(x.buckets) > mostBuckets+1 {
			t.Errorf("%d reservations, %d hours", len(x.held), len(x.buckets))
		}
	})
}

func FuzzSegment(f *testing.F) {
	x := bucket{limits: map[string]*counts{"api": {keys: map[string]int64{"a": 1, "ab": -3}, Sums: Sums{Lost: 1}}}}
	f.Add(x.segment(), x.segment())
	f.Fuzz(func(t *testing.T, a, b []byte) {
		c, err := merge(a, b)
		if err != nil {
			return
		}
		if !isSegment(c) {
			t.Error("a segment that merge wrote cannot be read")
		}
		if _, err := decodeState(a); err == nil {
			_, _ = parseParts(b)
		}
	})
}

// A oneTally is the tallies of a process that uses one slot.
type oneTally struct {
	mu sync.Mutex
	y  Tally
}

func (o *oneTally) Cut(_ context.Context, slot int) (b Batch, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slot != 5 {
		return b, false
	}
	if _, ok = o.y.Cut(nil); ok {
		b = o.y.Batch()
	}
	return b, ok
}

func (o *oneTally) Wrote(_ int, b *Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.y.Wrote(nil, b)
}

func (o *oneTally) Lapse() {}

func (o *oneTally) Done(int, int64) bool { return false }

// TestAProcessThatStopsWritesAll: at the end, a batch may be unwritten from before, and hours behind it.
func TestAProcessThatStopsWritesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, o := newRig(), &oneTally{}
		o.y.Begin()
		hour := Hour.Of(time.Now())
		o.y.At(nil, hour-1)
		o.y.Spend(nil, "api", "bob", 1)
		o.y.Cut(nil) // and its write was interrupted
		o.y.Spend(nil, "api", "bob", 2)
		o.y.At(nil, hour)
		o.y.Spend(nil, "api", "bob", 4)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		k := r.keeper()
		k.Flush(ctx, o, 0)
		if err := k.Close(t.Context(), Hour, []int{5}, hour+1); err != nil {
			t.Fatal(err)
		}
		if _, sum := rows(t, k, Query{Limit: "api"}); sum["bob"] != 7 {
			t.Errorf("%d units are written, want 7", sum["bob"])
		}
	})
}

// TestHoldersTakeTurns: a holder waits between two answers, and many holders cannot read more at once.
func TestHoldersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewHolderServer(newRig().keeper())
		ask := func(holder string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			o.ServeHolder(w, httptest.NewRequest("GET", "/?limit=api", nil), holder, func(string) bool { return true })
			return w
		}
		if w := ask("ada"); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w := ask("ada"); w.Code != 429 || w.Header().Get("Retry-After") != "2" {
			t.Errorf("%d %v at once, want 429", w.Code, w.Header())
		}
		time.Sleep(ownEach)
		if w := ask("ada"); w.Code != 200 {
			t.Errorf("%d after %s, want 200", w.Code, ownEach)
		}
		for range ownTurns {
			o.turns <- struct{}{}
		}
		time.Sleep(ownEach)
		if w := ask("ada"); w.Code != 429 {
			t.Errorf("%d while others read, want 429", w.Code)
		}
	})
}

// A slowClient reads nothing.
type slowClient struct {
	http.ResponseWriter
	stop <-chan struct{}
}

func (c slowClient) Write(b []byte) (int, error) {
	<-c.stop
	return len(b), nil
}

// TestASlowHolderKeepsNobodyWaiting: clients that do not read their answers do not use up the turns of
// others.
func TestASlowHolderKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewHolderServer(newRig().keeper())
		stop := make(chan struct{})
		ask := func(w http.ResponseWriter, holder string) {
			r := httptest.NewRequest("GET", "/?limit=api", nil)
			o.ServeHolder(w, r, holder, func(string) bool { return true })
		}
		for i := range ownTurns {
			go ask(slowClient{httptest.NewRecorder(), stop}, fmt.Sprint("slow ", i))
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		ask(w, "ada")
		if w.Code != 200 || w.Header().Get("Content-Type") != ContentType("json") || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%d %v %s while others read slowly, want 200", w.Code, w.Header(), w.Body)
		}
		close(stop)
	})
}

// TestAnAnswerInPages reads pages of JSON by their next, and CSV with keys that need quotes.
func TestAnAnswerInPages(t *testing.T) {
	r := newRig()
	k, y := r.keeper(), &Tally{}
	y.Begin()
	hour := Hour.Of(time.Now()) - 1
	y.At(nil, hour)
	for i := range 25 {
		y.Spend(nil, "api", fmt.Sprintf("key %02d, \"odd\"", i), int64(i+1))
	}
	y.Sum(nil, "api", Sums{Unreported: 4, Dropped: 2, Lost: 1})
	write(t, k, 9, y)
	if err := k.Close(t.Context(), Hour, []int{9}, hour+1); err != nil {
		t.Fatal(err)
	}
	serve := func(format string, v url.Values) *httptest.ResponseRecorder {
		t.Helper()
		v.Set("limit", "api")
		q, err := ParseRequest(v, format, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		if err := k.Serve(t.Context(), w, q, format); err != nil {
			t.Fatal(err)
		}
		return w
	}
	seen, next := map[string]int64{}, ""
	for page := 0; ; page++ {
		var got struct {
			Usage []struct {
				Kind, Key string
				Units     int64
			}
			Next string
			More bool
		}
		w := serve("json", url.Values{"count": {"10"}, "cursor": {next}})
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		for _, x := range got.Usage {
			seen[x.Kind+x.Key] += x.Units
		}
		if next = got.Next; !got.More {
			if page != 2 || len(got.Usage) != 8 {
				t.Errorf("page %d is the last, with %d rows; want page 2 with 8", page, len(got.Usage))
			}
			break
		}
	}
	if len(seen) != 28 || seen["unreported"] != 4 || seen["dropped"] != 2 || seen["lost"] != 1 ||
		seen[`usedkey 24, "odd"`] != 25 {
		t.Errorf("%v", seen)
	}
	all, err := csv.NewReader(serve("csv", url.Values{}).Body).ReadAll()
	if err != nil || len(all) != 29 || all[28][2] != `key 24, "odd"` || all[28][3] != "25" {
		t.Errorf("%v %v", all, err)
	}
	if w := serve("ndjson", url.Values{"key": {`key 03, "odd"`}}); strings.Count(w.Body.String(), "\n") != 1 {
		t.Errorf("%s, want one line", w.Body)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("limit=api&per=day&from=-7d&to=2026-01-01T00:00:00Z&cursor=day.1.2.3&count=5&open=true")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		q, err := ParseRequest(v, "json", time.Now())
		if err == nil && (q.count < 1 || q.count > mostRows) {
			t.Errorf("%d rows", q.count)
		}
	})
}
