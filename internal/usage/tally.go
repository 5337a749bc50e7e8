package usage

import (
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/codec"
)

// Slots is the number of parts of the keys of all limits.
const Slots = 256

// Bounds of a Tally. Chosen: with all 256 slots, four million keys and reservations between two writes.
const (
	mostKeys    = 1 << 14
	mostHeld    = 1 << 14
	mostBuckets = 3 // hours that wait while the store does not answer; later ones count in the last
	mostName    = 64
	mostKey     = 1024
)

// graceOfHolds is how long after its end a reservation that nobody has settled is counted with its
// estimate. Chosen: the limit has forgotten it by then.
const graceOfHolds = 2 * time.Second

// Sums are the units of a limit that are not recorded for a key.
type Sums struct {
	Unreported int64 // held by processes that were not heard again: some of them may have been used
	Dropped    int64 // of keys for which there was no room
	Lost       int64 // how often a slot began without what was counted in the seconds before
}

func (s *Sums) add(x Sums) {
	s.Unreported, s.Dropped, s.Lost = s.Unreported+x.Unreported, s.Dropped+x.Dropped, s.Lost+x.Lost
}

type counts struct {
	keys map[string]int64
	Sums
}

// A bucket is what was counted in one hour.
type bucket struct {
	hour   int64 // since 1970
	limits map[string]*counts
}

type holdID struct {
	limit string
	id    uint64
}

type held struct {
	key string
	n   int64
	end time.Duration // own clock
}

// A Tally counts one slot. A second Tally that applies the same changes is equal to it. The zero Tally is
// empty; Begin must come first.
type Tally struct {
	lineage, seq uint64 // of the last cut
	buckets      []bucket
	cut          *bucket // is being written
	held         map[holdID]held
}

// A change is one change of a Tally, in the form that a second one applies.
type change byte

const (
	changeBegin change = iota + 1
	changeHour
	changeSpend
	changeHold
	changeSettle
	changeSum
	changeCut
	changeWrote
)

// Begin makes the Tally empty, with a lineage of its own.
func (t *Tally) Begin() { *t = Tally{lineage: rand.Uint64() | 1} }

// IsUsed reports whether there is anything to copy.
func (t *Tally) IsUsed() bool {
	return t.lineage != 0 && (t.seq > 0 || len(t.buckets) > 0 || len(t.held) > 0)
}

// At sets the hour of what is counted next. It appends a change to b if the hour is new.
func (t *Tally) At(b []byte, hour int64) []byte {
	n := len(t.buckets)
	if n > 0 && (t.buckets[n-1].hour >= hour || n == mostBuckets) {
		return b
	}
	t.buckets = append(t.buckets, bucket{hour: hour, limits: map[string]*counts{}})
	return codec.AppendInt(append(b, byte(changeHour)), hour)
}

func (t *Tally) of(limit string) *counts {
	if len(t.buckets) == 0 {
		t.buckets = append(t.buckets, bucket{limits: map[string]*counts{}})
	}
	x := &t.buckets[len(t.buckets)-1]
	c := x.limits[limit]
	if c == nil {
		c = &counts{keys: map[string]int64{}}
		x.limits[limit] = c
	}
	return c
}

// Spend counts n units of a key; a negative n were given back.
func (t *Tally) Spend(b []byte, limit, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	c := t.of(limit)
	if _, known := c.keys[key]; known || len(c.keys) < mostKeys {
		c.keys[key] += n
	} else {
		c.Dropped += n
	}
	b = codec.AppendText(codec.AppendText(append(b, byte(changeSpend)), limit), key)
	return codec.AppendInt(b, n)
}

// Hold notes an estimate, which counts when it is settled or when its time is over.
func (t *Tally) Hold(b []byte, limit, key string, id uint64, n int64, ttl, now time.Duration) []byte {
	if len(t.held) >= mostHeld {
		return t.Spend(b, limit, key, n) // and nothing when it is settled
	}
	if t.held == nil {
		t.held = map[holdID]held{}
	}
	t.held[holdID{limit, id}] = held{key, n, now + ttl + graceOfHolds}
	b = codec.AppendText(codec.AppendText(append(b, byte(changeHold)), limit), key)
	return codec.AppendInt(b, int64(id), n, int64(ttl))
}

// Settle counts the cost of a reservation. One that is not known was counted before.
func (t *Tally) Settle(b []byte, limit string, id uint64, n int64) []byte {
	x, ok := t.held[holdID{limit, id}]
	if !ok {
		return b
	}
	delete(t.held, holdID{limit, id})
	t.Spend(nil, limit, x.key, n)
	return codec.AppendInt(codec.AppendText(append(b, byte(changeSettle)), limit), int64(id), n)
}

// Lapse counts the estimates of reservations whose time is over, in that hour. If there are many, it leaves
// some for the next time: what the standby is told must fit into a record of its stream.
func (t *Tally) Lapse(b []byte, now time.Duration, hour int64) []byte {
	for x, h := range t.held {
		if len(b) >= copyPart {
			break
		}
		if h.end <= now {
			b = t.Settle(t.At(b, hour), x.limit, x.id, h.n)
		}
	}
	return b
}

// Done reports whether nothing is left to be written of the time before an hour.
func (t *Tally) Done(hour int64) bool {
	return (t.cut == nil || t.cut.hour >= hour) && (len(t.buckets) == 0 || t.buckets[0].hour >= hour)
}

// Sum counts units that are not those of a key.
func (t *Tally) Sum(b []byte, limit string, x Sums) []byte {
	t.of(limit).add(x)
	b = codec.AppendText(append(b, byte(changeSum)), limit)
	return codec.AppendInt(b, x.Unreported, x.Dropped, x.Lost)
}

// Cut takes the oldest hour to be written, unless one is being written. It reports whether one is.
func (t *Tally) Cut(b []byte) ([]byte, bool) {
	if t.cut != nil {
		return b, true
	}
	if len(t.buckets) == 0 {
		return b, false
	}
	first := t.buckets[0]
	t.cut, t.buckets = &first, append([]bucket(nil), t.buckets[1:]...)
	t.seq++
	return append(b, byte(changeCut)), true
}

// Batch returns what is being written.
func (t *Tally) Batch() Batch {
	return Batch{lineage: t.lineage, seq: t.seq, period: t.cut.hour, counted: t.cut}
}

// Wrote forgets a batch that is written. It does nothing if the Tally has another one.
func (t *Tally) Wrote(b []byte, x *Batch) []byte {
	if t.cut == nil || t.lineage != x.lineage || t.seq != x.seq {
		return b
	}
	t.cut = nil
	return append(b, byte(changeWrote))
}

// AppendCopy appends the changes that make an equal Tally, in parts that emit gets.
func (t *Tally) AppendCopy(now time.Duration, emit func(changes []byte)) {
	seq := t.seq
	if t.cut != nil {
		seq--
	}
	b := codec.AppendFixed([]byte{byte(changeBegin)}, t.lineage, seq)
	flush := func(least int) {
		if len(b) > least {
			emit(b)
			b = nil
		}
	}
	one := func(x *bucket) {
		b = codec.AppendInt(append(b, byte(changeHour)), x.hour)
		for limit, c := range x.limits {
			b = codec.AppendText(append(b, byte(changeSum)), limit)
			b = codec.AppendInt(b, c.Unreported, c.Dropped, c.Lost)
			for key, n := range c.keys {
				b = codec.AppendText(codec.AppendText(append(b, byte(changeSpend)), limit), key)
				b = codec.AppendInt(b, n)
				flush(copyPart)
			}
		}
	}
	if t.cut != nil {
		one(t.cut)
		b = append(b, byte(changeCut))
	}
	for i := range t.buckets {
		one(&t.buckets[i])
	}
	for x, h := range t.held {
		b = codec.AppendText(codec.AppendText(append(b, byte(changeHold)), x.limit), h.key)
		b = codec.AppendInt(b, int64(x.id), h.n, int64(max(0, h.end-now-graceOfHolds)))
		flush(copyPart)
	}
	flush(0)
}

// copyPart is the length of a part of a copy. Chosen: well below what a message may have.
const copyPart = 128 << 10

// Apply applies changes of another Tally. It reports whether they could be read.
func (t *Tally) Apply(b []byte, now time.Duration) bool {
	d := codec.NewReader(b)
	for d.Len() > 0 {
		switch change(d.Byte()) {
		case changeBegin:
			*t = Tally{lineage: d.Fixed(), seq: d.Fixed()}
		case changeHour:
			if hour := d.Int(); !d.Bad() {
				t.At(nil, hour)
			}
		case changeSpend:
			if limit, key, n := d.Text(mostName), d.Text(mostKey), d.Int(); !d.Bad() {
				t.Spend(nil, limit, key, n)
			}
		case changeHold:
			limit, key := d.Text(mostName), d.Text(mostKey)
			if id, n, ttl := uint64(d.Int()), d.Int(), time.Duration(d.Int()); !d.Bad() {
				t.Hold(nil, limit, key, id, n, ttl, now)
			}
		case changeSettle:
			if limit, id, n := d.Text(mostName), uint64(d.Int()), d.Int(); !d.Bad() {
				t.Settle(nil, limit, id, n)
			}
		case changeSum:
			limit := d.Text(mostName)
			if x := (Sums{d.Int(), d.Int(), d.Int()}); !d.Bad() {
				t.Sum(nil, limit, x)
			}
		case changeCut:
			t.Cut(nil)
		case changeWrote:
			t.cut = nil
		default:
			d.Fail()
		}
	}
	return !d.Bad()
}
