package usage

import (
	"context"
	"time"
)

// Parameters of writing. Chosen: a slot that counts is written each two seconds if few slots do, and each 13
// seconds if all do; usage takes no more than that from the writes of rooms. Bytes are paced as well: a
// million keys an hour are a megabyte each second.
const (
	flushEvery = 500 * time.Millisecond
	flushTurns = 10
	slotEvery  = 2 * time.Second
	bytePace   = time.Microsecond
	writeTry   = 10 * time.Second
	closeAfter = 5 * time.Second // after the end of an hour: then all is written that was counted in it
	trimEvery  = time.Hour
)

// Tallies are those of a process, by slot.
type Tallies interface {
	// Cut takes what a slot has counted, unless it is another process that counts it. It may block until the
	// standby knows what is cut.
	Cut(ctx context.Context, slot int) (Batch, bool)
	// Wrote says that a batch is written.
	Wrote(slot int, b *Batch)
	// Lapse ends reservations whose time is over.
	Lapse()
	// Done reports whether this process counts a slot, and has nothing to write of the time before an hour.
	Done(slot int, hour int64) bool
}

// A flusher writes the tallies of a process.
type flusher struct {
	keeper *Keeper
	all    Tallies
	base   int // the number of the first slot
	next   int // slot
	wrote  [Slots]time.Time
	closed [Slots]int64 // hours before are closed
	failed bool
}

// Flush writes the tallies of a process until ctx ends, and then all that is left. base is the number of the
// first slot.
func (k *Keeper) Flush(ctx context.Context, all Tallies, base int) {
	f := &flusher{keeper: k, all: all, base: base}
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	trimmed, pause := time.Now(), time.Duration(0)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		if pause -= flushEvery; pause > 0 || ctx.Err() != nil {
			continue
		}
		all.Lapse()
		pause = time.Duration(f.turn(ctx)) * bytePace
		now := time.Now()
		f.close(ctx, now)
		if now.Sub(trimmed) > trimEvery {
			trimmed = now
			f.report(ctx, k.Trim(ctx, now))
		}
	}
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), writeTry)
	defer stop()
	for slot := range Slots {
		// A batch whose write was interrupted, and the hours behind it.
		for range mostBuckets + 1 {
			if f.write(last, slot) == 0 {
				break
			}
		}
	}
}

// turn writes the slots whose turn it is, and returns how many bytes they had.
func (f *flusher) turn(ctx context.Context) (size int) {
	now := time.Now()
	for n, seen := 0, 0; n < flushTurns && seen < Slots && ctx.Err() == nil; seen++ {
		slot := f.next
		f.next = (f.next + 1) % Slots
		if now.Sub(f.wrote[slot]) < slotEvery {
			continue
		}
		if k := f.write(ctx, slot); k > 0 {
			f.wrote[slot], size = now, size+k
			n++
		}
	}
	return size
}

func (f *flusher) write(ctx context.Context, slot int) (size int) {
	b, ok := f.all.Cut(ctx, slot)
	if !ok {
		return 0
	}
	try, stop := context.WithTimeout(ctx, writeTry)
	defer stop()
	size, err := f.keeper.write(try, Hour, f.base+slot, &b)
	if f.report(ctx, err); err == nil {
		f.all.Wrote(slot, &b)
	}
	return max(1, size)
}

// close closes the hours that are over, a few slots together: they share entries of the log.
func (f *flusher) close(ctx context.Context, now time.Time) {
	hour := Hour.Of(now.Add(-closeAfter))
	var due []int
	for slot := range Slots {
		if f.closed[slot] < hour && f.all.Done(slot, hour) {
			due = append(due, slot)
		}
	}
	if len(due) == 0 {
		return
	}
	try, stop := context.WithTimeout(ctx, writeTry)
	defer stop()
	due = due[:min(len(due), Slots/8)]
	slots := make([]int, len(due))
	for i, slot := range due {
		slots[i] = f.base + slot
	}
	err := f.keeper.Close(try, Hour, slots, hour)
	if err == nil {
		err = f.keeper.Close(try, Day, slots, Day.Of(Hour.begin(hour)))
	}
	if f.report(ctx, err); err != nil {
		return
	}
	for _, slot := range due {
		f.closed[slot] = hour
	}
}

// report logs the first error of several. At the end of ctx, what fails is written again in a moment.
func (f *flusher) report(ctx context.Context, err error) {
	if err != nil && !f.failed && ctx.Err() == nil {
		f.keeper.cfg.Log.Warn("usage of keys is not written now: it is tried again", "error", err)
	}
	f.failed = err != nil
}
