package quota

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/limittable"
	"github.com/headgate/headgate/internal/usage"
)

// Parameters of a link. Chosen: a standby that is slower is useless.
const (
	linkTry      = 300 * time.Millisecond
	linkPatience = 900 * time.Millisecond
	linkAgain    = 20 * time.Millisecond
	linkIdle     = 500 * time.Millisecond // interval of checks whether the standby is there
	linkBytes    = 512 << 10              // in one message
)

// A link replicates the changes of this process at another one, in order and without duplicates.
type link struct {
	to     string // the process: its name and life
	stream uint64
	ask    func(ctx context.Context, msg []byte) ([]byte, error)
	wake   chan struct{}

	mu     sync.Mutex
	queue  [][]byte
	put0   uint64 // number of records put
	acked  uint64
	over   bool          // it no longer replicates
	freed  bool          // callers no longer need to wait for it
	change chan struct{} // closed and replaced when one of these changes
}

func newLink(to string, stream uint64, ask func(context.Context, []byte) ([]byte, error)) *link {
	return &link{to: to, stream: stream, ask: ask, wake: make(chan struct{}, 1), change: make(chan struct{})}
}

// last returns the number of the last record that was put.
func (k *link) last() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.put0
}

// put adds a record and returns its number. It never blocks.
func (k *link) put(record []byte) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.over {
		k.queue = append(k.queue, record)
	}
	k.put0++
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return k.put0
}

func (k *link) news() {
	close(k.change)
	k.change = make(chan struct{})
}

// wait blocks until all records up to n are replicated or no longer need to be.
func (k *link) wait(ctx context.Context, n uint64) bool {
	for {
		k.mu.Lock()
		ok, change := k.acked >= n || k.freed, k.change
		k.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-change:
		}
	}
}

// reached reports whether all records up to n are replicated.
func (k *link) reached(n uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.acked >= n
}

// free releases all callers that wait.
func (k *link) free() {
	k.mu.Lock()
	k.over, k.freed, k.queue = true, true, nil
	k.news()
	k.mu.Unlock()
}

var errRefused = errors.New("the standby repeats nothing")

// run sends records until the standby is silent or refuses, or ctx ends.
func (k *link) run(ctx context.Context) error {
	seq := uint64(0)
	tick := time.NewTicker(linkIdle)
	defer tick.Stop()
	for {
		batch := k.take()
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-k.wake:
				continue
			case <-tick.C:
			}
		}
		seq++
		msg := codec.AppendFixed([]byte{wireFormat}, k.stream, seq)
		for _, r := range batch {
			msg = append(msg, r...)
		}
		if err := k.send(ctx, msg); err != nil {
			k.mu.Lock()
			k.over, k.queue = true, nil
			k.mu.Unlock()
			return err
		}
		k.mu.Lock()
		k.acked += uint64(len(batch))
		k.news()
		k.mu.Unlock()
	}
}

func (k *link) take() (batch [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, size := 0, 0
	for n < len(k.queue) && (n == 0 || size+len(k.queue[n]) <= linkBytes) {
		size += len(k.queue[n])
		n++
	}
	batch, k.queue = k.queue[:n], k.queue[n:]
	return batch
}

// send sends one message until it is replicated.
func (k *link) send(ctx context.Context, msg []byte) error {
	began := time.Now()
	for {
		try, stop := context.WithTimeout(ctx, linkTry)
		b, err := k.ask(try, msg)
		stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && len(b) == 1 && b[0] == 1:
			return nil
		case err == nil:
			return errRefused
		case time.Since(began) > linkPatience:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(linkAgain):
		}
	}
}

// Kinds of records in a stream.
const (
	recordBegin byte = iota + 1
	recordHead
	recordKey
	recordEnd
	recordDeed
	recordGone  // end of the entries of a shard: it has another standby now
	recordUsage // changes of a tally
)

// A deedTimes is the time of the shard and the time of the table.
type deedTimes struct{ at, now limittable.Time }

func appendDeed(b []byte, q *request, at deedTimes, d *limittable.Entry) []byte {
	b = codec.AppendText(codec.AppendText(append(b, recordDeed, q.shard), q.limit), q.key)
	return codec.AppendInt(
		b,
		int64(at.at),
		int64(at.now),
		int64(d.Kind),
		d.N,
		int64(d.At),
		int64(d.TTL),
		int64(
			d.ID,
		),
		int64(d.Borrower),
		int64(d.Loan),
		d.Given,
		d.Used,
		d.Back,
		d.Want,
		int64(codec.Bit(d.Close)),
	)
}

// copyTo puts a copy of a shard on a link, and from then on every change.
func (l *ledger) copyTo(i int, k *link) (upTo uint64) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := int64(-1)
	if s.lost {
		lost = int64(s.lostAt)
	}
	k.put(codec.AppendInt([]byte{recordBegin, byte(i)}, int64(s.now(l.boot())), lost,
		int64(codec.Bit(s.unwritten))))
	var b []byte
	for name, t := range s.tables {
		b = t.AppendHeader(b[:0])
		k.put(codec.AppendText(codec.AppendText([]byte{recordHead, byte(i)}, name), b))
		for n := range t.Places() {
			b = t.AppendKey(b[:0], n)
			k.put(codec.AppendText(codec.AppendText([]byte{recordKey, byte(i)}, name), b))
		}
	}
	s.copyUsage(i, k, l.boot())
	s.out = append(s.out, k)
	return k.put([]byte{recordEnd, byte(i)})
}

// unlink removes a link from all shards.
func (l *ledger) unlink(k *link) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.out = without(s.out, k)
		s.mu.Unlock()
	}
}

// A stream is the receiving end of one link of a host.
type stream struct {
	mu   sync.Mutex
	seq  uint64
	used time.Duration // own clock of the last use
	dead bool          // a record could not be replicated
}

// streamSilent is the time after the last message of a stream at which its host has stopped sending
// and knows that the stream is over. Chosen: a host gives up a link after linkPatience.
const streamSilent = 5 * time.Second

// mostStreams is the maximum number of streams of a process. The one that was silent for longest is
// dropped.
const mostStreams = 64

// mostRecord is the maximum size of a record. Chosen: a key with a log of 4,096 calls takes 40 KB.
const mostRecord = 512 << 10

// repeat replicates the changes of a host. It answers 1 when that is done.
func (l *ledger) repeat(_ context.Context, msg []byte) []byte {
	d, err := newReader(msg)
	if err != nil {
		return nil
	}
	id, seq := d.Fixed(), d.Fixed()
	if d.Bad() {
		return nil
	}
	x := l.streamOf(id, seq)
	if x == nil {
		return []byte{0}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.dead:
		return []byte{0}
	case seq <= x.seq: // a duplicate: the answer was lost
		return []byte{1}
	case seq != x.seq+1:
		x.dead = true
		return []byte{0}
	}
	x.seq = seq
	for d.Len() > 0 && !d.Bad() {
		if !l.record(id, &d) {
			d.Fail()
		}
	}
	if d.Bad() {
		x.dead = true
		return []byte{0}
	}
	return []byte{1}
}

// streamOf returns a stream. Only its first message creates it.
func (l *ledger) streamOf(id, seq uint64) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.streams[id]
	if x == nil {
		if seq != 1 {
			return nil
		}
		if len(l.streams) >= mostStreams {
			oldest, at := uint64(0), time.Duration(1<<63-1)
			for id, y := range l.streams {
				if y.used < at {
					oldest, at = id, y.used
				}
			}
			delete(l.streams, oldest)
		}
		x = &stream{}
		l.streams[id] = x
	}
	x.used = l.boot()
	return x
}

// record replicates one record of a stream, and reports whether that was possible.
func (l *ledger) record(id uint64, d *reader) bool {
	what, i := d.Byte(), d.Byte()
	if d.Bad() {
		return false
	}
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	// A shard that this process hosts, or takes over, is not overwritten by what a former host
	// still sends.
	if what == recordBegin {
		at, lost, unwritten := limittable.Time(d.Int()), d.Int(), d.Int()
		if d.Bad() || s.role == hosts || s.role == paused || s.role == takes {
			return false
		}
		s.role, s.from, s.tables, s.tally = copying, id, nil, usage.Tally{}
		s.heard, s.heardA = at, l.boot()
		s.lost, s.unwritten, s.lostAt, s.missed = lost >= 0, unwritten != 0, limittable.Time(max(0, lost)),
			nil
		s.lostWall = limittable.Time(time.Now().UnixNano()) - (at - s.lostAt)
		return true
	}
	// A record of an older stream may arrive after the next one has begun.
	if s.role != copying && s.role != stands || s.from != id {
		return false
	}
	switch what {
	case recordEnd:
		s.role = stands
		return true
	case recordGone:
		s.role, s.tables, s.tally = away, nil, usage.Tally{}
		return true
	case recordUsage:
		return s.tally.Apply(d.Bytes(mostRecord), l.boot())
	case recordHead, recordKey:
		name := d.Text(mostName)
		def, b := l.rules(name), d.Bytes(mostRecord)
		if def == nil {
			s.miss(name)
		}
		if def == nil || d.Bad() ||
			s.missed[name] { // a limit that is new there, gone here, or different here
			return !d.Bad()
		}
		clk := l.boot()
		t := s.table(def, s.tableTime(def, s.heard))
		if what == recordHead {
			err := t.ReadHeader(b)
			if errors.Is(err, limittable.ErrRules) {
				s.miss(name)
				delete(s.tables, name)
				return true
			}
			return err == nil
		}
		return t.ReadKey(b, limittable.Time(clk), l.hash) == nil
	case recordDeed:
		return l.repeatDeed(s, d)
	}
	return false
}

// repeatDeed replicates one entry. The caller holds mu.
func (l *ledger) repeatDeed(s *shard, d *reader) bool {
	name, key := d.Text(mostName), d.Text(mostKey)
	at, now := limittable.Time(d.Int()), limittable.Time(d.Int())
	deed := limittable.Entry{
		Kind: limittable.EntryKind(d.Int()), N: d.Int(), At: limittable.Time(d.Int()),
		TTL: time.Duration(d.Int()),
		ID:  uint64(d.Int()), Borrower: uint64(d.Int()), Loan: uint64(d.Int()), Given: d.Int(), Used: d.Int(),
		Back: d.Int(), Want: d.Int(), Close: d.Int() == 1,
	}
	if d.Bad() {
		return false
	}
	clk := l.boot()
	s.heard, s.heardA = max(s.heard, at), clk
	if def := l.rules(name); def != nil {
		s.table(def, now).Replicate(now, limittable.Time(clk), l.hash(key), key, &deed)
	} else {
		s.miss(name)
	}
	return true
}

// miss records that changes of a limit are not replicated here, for example because only the host
// knows the limit. The caller holds mu.
func (s *shard) miss(name string) {
	if s.missed == nil {
		s.missed = map[string]bool{}
	}
	if len(s.missed) < mostTables {
		s.missed[name] = true
	}
}

// take begins the takeover of a shard of which this process has a copy. From then on it no longer
// replicates, so the old host can answer no decision.
func (l *ledger) take(i int) bool {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != stands {
		return false
	}
	s.role = takes
	return true
}

// drop deletes a copy if its host has gone silent. Nobody relies on such a copy.
func (l *ledger) drop(i int) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != copying && s.role != stands {
		return
	}
	l.mu.Lock()
	x := l.streams[s.from]
	silent := x == nil || l.boot()-x.used > streamSilent
	l.mu.Unlock()
	if silent {
		s.role, s.tables, s.tally = away, nil, usage.Tally{}
	}
}

// untake cancels a takeover: the process is a standby again. Changes that it refused in the
// meantime were never answered, and their stream does not continue.
func (l *ledger) untake(i int) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role == takes {
		s.role = stands
	}
}

// A basis is what the host of a shard without a copy starts from.
type basis struct {
	known   bool   // no usage is unknown
	moved   bool   // it was counted in another data center
	written []byte // the blocks
}

// host makes this process the host of a shard, with its copy or with by.
func (l *ledger) host(i int, by basis) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	clk := l.boot()
	s.epoch++
	s.blocks.wake()
	s.out, s.blocks = nil, blocks{}
	copied := s.role == takes
	if copied {
		s.ahead = time.Duration(s.heardNow(clk)) - clk
		for _, t := range s.tables {
			t.RenewBorrowers(limittable.Time(clk))
		}
	} else {
		s.tables, s.lost, s.unwritten = nil, !by.known, by.moved
		s.ahead = time.Duration(time.Now().UnixNano()) - clk
		s.lostAt = s.now(clk) + limittable.LendTerm
		s.lostWall = limittable.Time(time.Now().UnixNano()) + limittable.LendTerm
		if s.lost && !by.moved && l.putBlocks(s, by.written) != nil {
			s.unwritten = true
		}
	}
	s.beginUsage(copied)
	s.role = hosts
}

// heardNow returns the host's present time, or slightly less: its message arrived some time after
// it was stamped. The caller holds mu.
func (s *shard) heardNow(clk time.Duration) limittable.Time {
	past := clk - s.heardA
	return s.heard + limittable.Time(past-past/lendDrift)
}

// lendDrift is the maximum error of a clock: one part in lendDrift (docs/protocol.md §12).
const lendDrift = 1000

// leave ends the role of this process as host or standby of a shard.
func (l *ledger) leave(i int) {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role, s.tables, s.out, s.tally = away, nil, nil, usage.Tally{}
	s.blocks.wake()
}

// roleOf returns the role of this process for a shard.
func (l *ledger) roleOf(i int) role {
	s := &l.shards[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role
}
