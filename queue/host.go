package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/store"
)

// Parameters of hosting. Chosen: a host that could not write for lastGood stops delivering before
// another host can begin, after silent. The host writes at least once per beat; a busy disk may
// delay a write by a second. When the engine answers again after a failure, standbys wait a moment
// longer, so that the host can write first. Of several standbys the first in rank begins: a process
// that does not run the queue, or does not know that it is the first, costs the next one rankStep.
const (
	hostAgain  = 500 * time.Millisecond
	lookAtHost = 500 * time.Millisecond
	lookFor    = time.Second
	beat       = time.Second
	lastGood   = 3 * time.Second
	silent     = 4 * time.Second
	letBe      = 1500 * time.Millisecond
	rankStep   = time.Second
	mostRank   = 5
	graceEnd   = 10 * time.Second // for deliveries in flight when the process ends
	sweepEvery = time.Second
	sweepMost  = 200  // chunks deleted one by one in a sweep
	noteRoom   = 4096 // outcomes not yet written: up to this many may be repeated after a kill
	noteBytes  = 256 << 10
	// With a long history notes are summed up less often, so that an entry costs at most the bytes of
	// this many events more.
	eventsPerEntry = 16
	restateAt      = 2048 // entries of notes; then restate sums them up in a few
)

// errFenced is returned when another node has become the host of the queue.
var errFenced = errors.New("another node hosts the queue")

// A host is this process while it delivers a queue. The log of notes decides which node is the
// host: each entry names the entry that it must follow, so of two hosts only one can write, and the
// other one notices.
type host struct {
	q    *Queue
	self *member // of the dispatcher, nil before it begins

	mu      sync.Mutex
	index   *index
	read    uint64        // the newest chunk in the index
	more    chan struct{} // closed when read grows; nil: nobody waits
	paused  bool
	asked   askedRate
	nextAt  time.Time // time of the next job by rate
	purged  uint64
	reasons map[string]string // of dead jobs
	waitErr string            // why nothing is delivered now, "" if all is well
	failure *Failure          // of the last failed delivery; replaced, never changed
	failing *Failing          // failures since the last success; replaced, never changed

	endsErr string // why OnEnd does not take the jobs that have ended
	fireErr string // why the jobs of schedules cannot be put
	fired   uint64 // the newest chunk with such a job; only fire uses it

	askers []*asker // workers that wait for jobs; the first one is next

	left  chan struct{} // closed when the process stops being the host
	noted chan struct{} // closed when it has written its last note
	wake  chan struct{} // the line has changed; capacity 1
	free  chan struct{} // one place for each delivery that may still begin

	pending  []note // guarded by notesMu
	waiters  []chan error
	writing  bool          // notes that are no longer pending are being written; guarded by notesMu
	notesMu  sync.Mutex    // acquired after mu
	notesDue chan struct{} // capacity 1
	endsDue  chan struct{} // jobs that have ended are on disk, for OnEnd; capacity 1
	room     chan struct{} // outcomes that are not written yet
	inRoom   int           // how many of room are in pending
	last     uint64        // last entry of the notes
	entries  int           // entries of notes since the last restate
	good     atomic.Int64  // when the newest successful write began, relative to began
	began    time.Duration
	quiet    time.Time // no earlier host has sent anything since
}

// host delivers the queue as long as this process is the host, and returns why it stopped.
func (q *Queue) host(ctx context.Context) error {
	turn, quiet, err := q.awaitTurn(ctx)
	if err != nil {
		return err
	}
	set := q.set.Load()
	h := &host{q: q, index: newIndex(set.Weights, set.KeyWindow),
		left: make(chan struct{}), noted: make(chan struct{}), wake: make(chan struct{}, 1),
		free: make(chan struct{}, MaxConcurrency), notesDue: make(chan struct{}, 1),
		endsDue: make(chan struct{}, 1),
		room:    make(chan struct{}, noteRoom), began: q.cfg.Boot(), quiet: quiet}
	old := newReplay()
	old.history = newHistory(set.Outcomes, set.OutcomeAge)
	size, err := q.notes.ReadAll(ctx, func(e store.Entry) error {
		notes, err := parseNotes(e.Data)
		if err != nil {
			return fmt.Errorf("entry %d of the notes: %w", e.Seq, err)
		}
		for i := range notes {
			old.note(&notes[i])
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case q.cfg.Node != "" && size.Last != turn: // another node began meanwhile
		return errFenced
	}
	h.last, h.entries = size.Last, int(size.Count)
	h.index.history, h.index.keys.most = old.history, set.MaxWaiting
	h.index.timetables = old.timetables
	h.index.stopped = old.stopped
	h.index.endings = old.endings
	h.index.endings.written = old.endings.newest
	h.paused, h.asked, h.purged = old.paused, old.asked, old.purged
	h.wasFailing()
	if err := h.write(ctx, []note{{kind: noteBegin, text: q.cfg.Node}}); err != nil {
		return err
	}
	return h.run(ctx, old)
}

// awaitTurn waits until no other node hosts the queue, and nodes of a better rank have had their time
// to become the host. turn is the entry of the notes for which that is true. No other node has sent a
// job since quiet.
func (q *Queue) awaitTurn(ctx context.Context) (turn uint64, quiet time.Time, err error) {
	if q.cfg.Node == "" {
		return 0, time.Now(), nil
	}
	ended := make(chan struct{}, 1)
	deaf, err := q.bus.Subscribe(q.hostName(), func([]byte) {
		select {
		case ended <- struct{}{}:
		default: // it looks anyway
		}
	})
	if err != nil {
		return 0, quiet, err
	}
	defer deaf()
	var last uint64
	var left bool                             // the last note says that its host has left
	heard, answers := time.Now(), time.Time{} // the engine has answered every time since answers
	var free time.Time                        // nobody has hosted the queue since then
	for {
		size, err := q.lookAtNotes(ctx)
		now := time.Now()
		if answers.IsZero() {
			answers = now
		}
		switch {
		case err != nil:
			answers = time.Time{}
		case size.Last != last:
			last, heard, free = size.Last, now, time.Time{}
			e, err := q.notes.Get(ctx, last)
			left = err == nil && bytes.Equal(e.Data, endNotes())
		}
		vanished := now.Sub(heard) > silent && now.Sub(answers) > letBe
		switch none := size.Count == 0 || left; {
		case err != nil || !none && !vanished:
			free = time.Time{}
		case free.IsZero():
			free = now
			fallthrough
		default:
			if !q.isNext(now.Sub(free)) {
				break
			}
			switch {
			case size.Count == 0:
				quiet = now
			case left:
				quiet = heard
			default:
				quiet = heard.Add(lastGood)
			}
			return size.Last, quiet, nil
		}
		select {
		case <-ctx.Done():
			return 0, quiet, ctx.Err()
		case <-ended:
		case <-time.After(lookAtHost):
		}
	}
}

// isNext reports whether this process may become the host of a queue that nobody has hosted for a
// while: each process of a better rank has had rankStep for it.
func (q *Queue) isNext(while time.Duration) bool {
	rank, ok := q.cfg.HostRank(q.hostName())
	return ok && while >= time.Duration(min(rank, mostRank))*rankStep
}

func (q *Queue) lookAtNotes(ctx context.Context) (store.LogSize, error) {
	ctx, stop := context.WithTimeout(ctx, lookFor)
	defer stop()
	return q.notes.Size(ctx)
}

func endNotes() []byte { return encodeNotes([]note{{kind: noteEnd}}) }

// run reads and delivers the jobs until ctx ends or an error occurs.
func (h *host) run(ctx context.Context, old *replay) error {
	end := ctx // of the process
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	var wg, deliveries sync.WaitGroup
	begin := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(work); err != nil && work.Err() == nil {
				stop(err)
			}
		})
	}
	begun := old.begun
	flight, land := context.WithCancel(context.WithValue(ctx, holdsKey{}, h.holds)) // of the deliveries
	defer land()
	ready := make(chan struct{})
	begin(func(ctx context.Context) error { return h.follow(ctx, old, ready) })
	notesEnd := make(chan struct{})
	var notes sync.WaitGroup
	notes.Go(func() {
		if err := h.writeNotes(ctx, notesEnd); err != nil {
			stop(err)
		}
	})
	select {
	case <-ready:
		// Before workers can end their claims at other nodes: each gives a place back.
		d := &dispatcher{host: h, flight: flight, noting: ctx, wg: &deliveries, places: len(h.index.claims)}
		silence, err := h.serve()
		if err != nil {
			stop(err)
			break
		}
		defer silence()
		h.q.lead.Store(h)
		h.q.cfg.Log.Info("queue is delivered by this node", "queue", h.q.cfg.Name, "jobs", h.depth())
		begin(h.sweep)
		begin(h.fire)
		begin(h.endLeases)
		begin(h.passEnds)
		begin(func(ctx context.Context) error { return d.run(ctx, begun) })
	case <-ctx.Done():
	case <-end.Done():
	}
	select {
	case <-end.Done():
	case <-ctx.Done():
	}
	h.q.lead.CompareAndSwap(h, nil)
	close(h.left)
	late := time.AfterFunc(graceEnd+writeWait, func() { stop(end.Err()) }) // if the engine does not answer
	defer late.Stop()
	stopWork() // no new deliveries
	wg.Wait()
	ended := make(chan struct{})
	notes.Go(func() { deliveries.Wait(); close(ended) })
	select {
	case <-ended:
	case <-ctx.Done():
	case <-time.After(graceEnd):
	}
	land()
	<-ended
	close(notesEnd)
	notes.Wait()
	close(h.noted)
	h.countClaims()
	if h.self != nil && h.q.cfg.Capacity != nil {
		h.q.cfg.Capacity.leave(h.self)
	}
	return context.Cause(ctx)
}

// follow reads the stored jobs, closes ready, and then reads new jobs as they arrive.
func (h *host) follow(ctx context.Context, old *replay, ready chan struct{}) error {
	add := func(e store.Entry) {
		jobs, err := parseChunk(e.Data)
		if err != nil {
			h.q.cfg.Log.Error("some jobs cannot be read, and are left out", "queue", h.q.cfg.Name,
				"entry", e.Seq, "error", err)
			h.mu.Lock()
			h.readLocked(e.Seq)
			h.mu.Unlock()
			return
		}
		if old != nil && e.Seq > old.newest { // put afterwards: there are no notes about it
			old = nil
		}
		h.mu.Lock()
		if old == nil && h.index.left == 0 { // it was empty: what failed before says nothing of this
			h.failing = nil
		}
		duplicates := h.index.add(e.Seq, e.At, jobs, old)
		h.readLocked(e.Seq)
		h.q.totals.fired.Add(int64(len(h.index.fired)))
		if notes := h.index.decided(e.Seq, duplicates); len(notes) > 0 {
			h.queueNotes(notes, nil)
		}
		h.mu.Unlock()
		h.nudge()
	}
	size, err := h.q.jobs.ReadAll(ctx, func(e store.Entry) error { add(e); return nil })
	if err != nil {
		return err
	}
	close(ready)
	return h.q.jobs.Follow(ctx, size.Last+1, func(e store.Entry) error { add(e); return nil })
}

func (h *host) nudge() {
	select {
	case h.wake <- struct{}{}:
	default: // it is about to look
	}
}

func (h *host) depth() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.index.left
}

// holds reports whether it is certain that no other node hosts the queue.
func (h *host) holds() bool {
	return h.q.cfg.Node == "" || h.since(lastGood)
}

// since reports whether the newest successful write began within the last d.
func (h *host) since(d time.Duration) bool {
	return h.q.cfg.Boot()-h.began-time.Duration(h.good.Load()) < d
}

// say makes a change to the index with mu held and queues a note about it. The notes therefore
// stand in the order of the changes: at the next start the last note about a job counts. say
// returns before the note is written, and blocks while too many notes are unwritten.
func (h *host) say(ctx context.Context, change func() note) {
	select {
	case h.room <- struct{}{}:
	case <-ctx.Done():
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := change()
	h.notesMu.Lock()
	h.inRoom++
	h.notesMu.Unlock()
	h.queueNotes([]note{n}, nil)
}

// sayNow makes a change with mu held, as say does. It returns when its notes are on disk or can
// never be written.
func (h *host) sayNow(ctx context.Context, change func() []note) error {
	done := make(chan error, 1)
	h.mu.Lock()
	h.queueNotes(change(), done)
	h.mu.Unlock()
	h.nudge()
	return h.written(ctx, done)
}

// see calls look with mu held, and returns when all that look may have seen is on disk: what a caller
// was told is true for the next host too.
func (h *host) see(ctx context.Context, look func()) error {
	h.mu.Lock()
	look()
	h.notesMu.Lock()
	clean := len(h.pending) == 0 && !h.writing
	h.notesMu.Unlock()
	if clean {
		h.mu.Unlock()
		return nil
	}
	done := make(chan error, 1)
	h.queueNotes(nil, done)
	h.mu.Unlock()
	return h.written(ctx, done)
}

// written waits until the writer of the notes has answered.
func (h *host) written(ctx context.Context, done chan error) error {
	select {
	case err := <-done:
		return err
	case <-h.noted:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done: // written with the last ones
		return err
	default:
		return ErrNoHost
	}
}

func (h *host) queueNotes(notes []note, done chan error) {
	h.notesMu.Lock()
	h.pending = append(h.pending, notes...)
	if done != nil {
		h.waiters = append(h.waiters, done)
	}
	h.notesMu.Unlock()
	select {
	case h.notesDue <- struct{}{}:
	default:
	}
}

// writeNotes writes notes until end is closed and all notes are written. One write takes all notes
// that have arrived since the write before.
func (h *host) writeNotes(ctx context.Context, end chan struct{}) error {
	every := time.NewTicker(beat)
	defer every.Stop()
	var spare []note // thousands of notes need half a megabyte: it is used again
	for ending := false; ; {
		beats := false
		select {
		case <-h.notesDue:
		case <-every.C:
			beats = h.q.cfg.Node != "" && !h.since(beat/2)
		case <-ctx.Done():
			return nil
		case <-end:
			ending = true
		}
		// The sum has no change whose note is not written before it: it is written in parts, and a kill
		// between two of them must not leave one half of a change.
		var sum []note
		tooMany := h.entries > restateAt && h.entries > restateAt+h.remembered()/eventsPerEntry
		h.mu.Lock()
		h.notesMu.Lock()
		notes, waiters, count := h.pending, h.waiters, h.inRoom
		h.pending, h.waiters, h.inRoom = spare, nil, 0
		h.writing = len(notes) > 0
		h.notesMu.Unlock()
		if tooMany && !ending {
			sum = h.sum()
		}
		h.mu.Unlock()
		if len(notes) == 0 && beats {
			notes = []note{{kind: noteBeat}}
		}
		err := h.write(ctx, notes)
		if err == nil && h.q.cfg.Node != "" && !h.since(beat) {
			// The write took long, and its time counts from when it began.
			err = h.append(ctx, encodeNotes([]note{{kind: noteBeat}}))
		}
		if err == nil {
			h.release(notes)
		}
		h.notesMu.Lock()
		h.writing = h.writing && err != nil // nothing is certain after a failure
		h.notesMu.Unlock()
		if spare = nil; cap(notes) <= 2*noteRoom {
			clear(notes)
			spare = notes[:0]
		}
		for range count {
			<-h.room
		}
		for _, w := range waiters {
			w <- err
		}
		switch {
		case err != nil:
			return err
		case ending:
			if err := h.append(ctx, endNotes()); err != nil || h.q.bus == nil {
				return err
			}
			return h.q.bus.Publish(h.q.hostName(), nil) // waiting standbys look at once
		case sum != nil:
			if err := h.restate(ctx, sum); err != nil {
				return err
			}
		}
	}
}

// release lets the next jobs of the series go whose first jobs have ended, by notes that are on disk. OnEnd
// may get these ends.
func (h *host) release(notes []note) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endsWritten(notes)
	if len(h.index.firsts)+len(h.index.canceled) == 0 && h.index.purged == h.index.purges {
		return
	}
	for i := range notes {
		switch n := &notes[i]; n.kind {
		case noteDone:
			for _, i := range n.done {
				h.index.releaseDone(refOf(n.ref.chunk(), i))
			}
		case noteDead:
			h.index.releaseDead(n.ref, n.at)
		case notePurge:
			h.index.releasePurged(n.attempt)
		}
	}
	h.nudge()
}

// write writes notes in as few entries as possible.
func (h *host) write(ctx context.Context, notes []note) error {
	const each = 1024 // notes per entry; a note has at most 250 bytes, except noteDone with 4096 jobs
	for some := range slices.Chunk(notes, each) {
		for _, b := range splitNotes(some) {
			if err := h.append(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// splitNotes encodes notes into parts that each fit into one entry.
func splitNotes(notes []note) [][]byte {
	b := encodeNotes(notes)
	if len(b) <= noteBytes || len(notes) == 1 {
		return [][]byte{b}
	}
	half := len(notes) / 2
	return append(splitNotes(notes[:half]), splitNotes(notes[half:])...)
}

// append writes an entry after the last one. It retries until the entry is written or another node
// has written there.
func (h *host) append(ctx context.Context, b []byte) error {
	began := h.q.cfg.Boot() - h.began
	for doubt := false; ; {
		at := h.q.cfg.Boot() - h.began
		try, stop := context.WithTimeout(ctx, writeWait)
		seq, err := h.q.notes.Append(try, b, h.last)
		stop()
		if errors.Is(err, store.ErrConflict) && doubt {
			// Written by an attempt whose answer was lost? That may have been the first one, and another node
			// may host the queue since.
			seq, err = h.wrote(ctx, b)
			at = began
		}
		switch {
		case err == nil:
			h.last = seq
			h.entries++
			h.good.Store(int64(at))
			return nil
		case errors.Is(err, store.ErrConflict):
			return errFenced
		case ctx.Err() != nil:
			return ctx.Err()
		}
		doubt = true
		h.q.totals.notesFailed.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(hostAgain):
		}
	}
}

// wrote checks whether the entry after the last one is b. It returns ErrConflict if there is
// another entry or none.
func (h *host) wrote(ctx context.Context, b []byte) (uint64, error) {
	ctx, stop := context.WithTimeout(ctx, writeWait)
	defer stop()
	e, err := h.q.notes.Get(ctx, h.last+1)
	if err == nil && !bytes.Equal(e.Data, b) || errors.Is(err, store.ErrNotFound) {
		err = store.ErrConflict
	}
	return e.Seq, err
}

// remembered returns the number of events in the history.
func (h *host) remembered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.index.history.len()
}

// sum returns notes with all that the next host must know. The caller holds mu.
func (h *host) sum() []note {
	return append(h.index.restate(h.purged), note{kind: noteBegin, text: h.q.cfg.Node},
		note{kind: noteControl, paused: h.paused, asked: h.asked})
}

// restate replaces many entries of notes by a few with the same content.
func (h *host) restate(ctx context.Context, notes []note) error {
	before := h.last + 1
	h.entries = 0
	if err := h.write(ctx, notes); err != nil {
		return err
	}
	if err := h.q.notes.Truncate(ctx, before); err != nil && ctx.Err() == nil {
		h.q.cfg.Log.Warn("old notes of a queue are kept for now", "queue", h.q.cfg.Name, "error", err)
	}
	return nil
}

// sweep deletes finished jobs from the log, once it is on disk that they are.
func (h *host) sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var first uint64
		var others, deleted []uint64
		if h.see(ctx, func() {
			now := time.Now()
			first, others = h.index.gone(now, sweepMost)
			h.index.history.prune(now.UnixMilli())
		}) != nil {
			continue // the writer of the notes says why
		}
		var err error
		if first > 0 {
			if err = h.q.jobs.Truncate(ctx, first); err != nil {
				first = 0
			}
		}
		for _, seq := range others {
			failed := h.q.jobs.Delete(ctx, seq)
			if failed == nil {
				deleted = append(deleted, seq)
			}
			err = errors.Join(err, failed)
		}
		h.mu.Lock()
		h.index.drop(first, deleted)
		h.mu.Unlock()
		if err != nil && ctx.Err() == nil { // the next start finds them finished
			h.q.cfg.Log.Warn("jobs that are done with are kept for now", "queue", h.q.cfg.Name, "error", err)
		}
	}
}
