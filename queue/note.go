package queue

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/codec"
)

// A ref is the position of a job: the number of its chunk in the upper 51 bits, and its index in
// the chunk in the lower 13 bits.
type ref uint64

const refBits = 13 // fits chunkJobs; 2^51 chunks last 70 years at one per microsecond

func refOf(chunk uint64, i int) ref { return ref(chunk<<refBits | uint64(i)) }

func (r ref) chunk() uint64 { return uint64(r >> refBits) }
func (r ref) index() int    { return int(r & (1<<refBits - 1)) }

// String returns the ID of the job.
func (r ref) String() string {
	return strconv.FormatUint(r.chunk(), 10) + "-" + strconv.Itoa(r.index())
}

// parseRef parses an ID.
func parseRef(id string) (ref, bool) {
	chunk, i, ok := strings.Cut(id, "-")
	c, err := strconv.ParseUint(chunk, 10, 64-refBits)
	n, err2 := strconv.ParseUint(i, 10, refBits)
	return refOf(c, int(n)), ok && err == nil && err2 == nil && c > 0 // logs count from 1
}

// The kinds of notes.
const (
	noteBegin   = 'b' // a host begins: its name
	noteDone    = 'd' // jobs of a chunk are finished
	noteTry     = 't' // a job is tried again: attempts, when, and since when its age counts
	noteClaim   = 'l' // a worker has a job, until a time; instead of noteTry and noteDead
	noteDead    = 'x' // a job is dead: attempts, when, and why
	noteControl = 'c' // paused or not, and the rate that was set
	notePurge   = 'p' // waiting jobs in chunks up to this one are finished
	noteBeat    = 'h' // heartbeat of the host
	noteEnd     = 'e' // the host has ended, and another can begin at once
	noteEvent   = 'v' // something has happened to a job, see event
	noteRank    = 'q' // the priority of a job was changed
	notePurged  = 'g' // notePurge in a sum of notes: the tries before it stay

	// A schedule: name and rule, the time up to which all is decided, the time of its last job, and this job.
	noteSchedule = 's'

	noteTenant = 'n' // a tenant is paused, or not any more

	noteEnded  = 'o' // a job has ended, and OnEnd has not got it yet
	notePassed = 'k' // OnEnd has got the jobs that ended up to this number
)

// A note records what happened to jobs. Notes are written in batches, in order. Reading a note
// twice is harmless.
type note struct {
	kind  byte
	event byte   // kind of the event that goes with it, 0: none; it has the text of the note
	code  uint16 // of the event; also of noteDead, without one
	tried int32  // attempt of the event
	when  int64  // milliseconds: time of the event
	// Of noteTry, noteClaim and noteDead; for noteDone, notePurge and notePurged the first of the chunk.
	ref     ref   // also of noteSchedule
	done    []int // for noteDone, ascending
	attempt int   // attempts made so far; of notePurge, in memory only: index.purges
	at      int64 // milliseconds: earliest next try, time of death, time of the claim, or timetable.upTo
	until   int64 // milliseconds: end of the lease
	since   int64 // milliseconds: the age counts from then, 0: from when it was put; or timetable.last
	// Reason of a failure, or name of the host, worker, tenant, or schedule with its rule.
	text   string
	secret secret // of a claim
	paused bool
	asked  askedRate
	rank   uint8 // for noteRank
	// Of noteEnded, and of another note with which a job ends. Only its number for notePassed.
	ended *ending
}

// happened returns the event that goes with a note.
func (n *note) happened() event {
	return event{ref: n.ref, at: n.when, why: n.text, attempt: n.tried, code: n.code, kind: n.event}
}

// An askedRate is the rate that was set at run time with SetRate. It is in force as long as the
// configuration has the same rate as at that time.
type askedRate struct {
	is   bool
	rate float64
	of   float64 // the configured rate at that time
}

// inForce returns the rate that applies to the queue.
func (a askedRate) inForce(configured float64) float64 {
	if a.is && a.of == configured {
		return a.rate
	}
	return configured
}

const (
	notesFormat = 1
	maxReason   = 200 // bytes for the reason of a death; chosen: one line
	maxAttempt  = 1 << 20

	flagPaused = 1 // for noteControl
	flagAsked  = 2
)

var errNotes = errors.New("not notes of a queue, or damaged ones")

// appendNote appends one note. The kind says which fields follow.
func appendNote(b []byte, n *note) []byte {
	b = append(b, n.kind)
	switch n.kind {
	case noteBegin:
		b = codec.AppendText(b, n.text)
	case noteDone:
		b = codec.AppendUint(b, n.ref.chunk(), uint64(len(n.done)))
		last := 0
		for _, i := range n.done {
			// Numbers are sorted: the distances to the one before are small, and take one byte
			// each.
			b = codec.AppendUint(b, uint64(i-last))
			last = i
		}
	case noteTry, noteDead, noteClaim:
		since := uint64(n.since)
		if n.kind == noteDead {
			since = uint64(n.code) // in a field that was always 0, and is ignored by nodes before this one
		}
		b = codec.AppendUint(b, uint64(n.ref), uint64(n.attempt), uint64(n.at), since)
		if n.kind == noteClaim {
			b = append(codec.AppendUint(b, uint64(n.until)), n.secret[:]...)
		}
		if n.kind != noteTry {
			b = codec.AppendText(b, n.text)
		}
	case noteControl:
		b = append(b, byte(0))
		if n.paused {
			b[len(b)-1] |= flagPaused
		}
		if n.asked.is {
			b[len(b)-1] |= flagAsked
			b = codec.AppendFixed(b, math.Float64bits(n.asked.rate), math.Float64bits(n.asked.of))
		}
	case notePurge, notePurged:
		b = codec.AppendUint(b, n.ref.chunk())
	case noteSchedule:
		b = codec.AppendUint(codec.AppendText(b, n.text), uint64(n.at), uint64(n.since), uint64(n.ref))
	case noteRank:
		b = append(codec.AppendUint(b, uint64(n.ref)), n.rank)
	case noteTenant:
		b = append(codec.AppendText(b, n.text), byte(0))
		if n.paused {
			b[len(b)-1] = flagPaused
		}
	case notePassed:
		b = codec.AppendUint(b, n.ended.number)
	}
	return b
}

// appendEnded appends that a job has ended, for OnEnd.
func appendEnded(b []byte, e *ending) []byte {
	b = append(b, noteEnded, e.kind)
	b = codec.AppendUint(b, e.number, uint64(e.ref), uint64(e.at), uint64(e.attempt), uint64(e.code))
	for _, text := range []string{e.key, e.order, e.tenant, e.why} {
		b = codec.AppendText(b, text)
	}
	return b
}

// appendEvent appends the event that goes with a note.
func appendEvent(b []byte, n *note) []byte {
	b = append(b, noteEvent, n.event)
	b = codec.AppendUint(b, uint64(n.ref), uint64(n.when), uint64(n.tried), uint64(n.code))
	return codec.AppendText(b, n.text)
}

// encodeNotes packs notes. It first merges the finished jobs of each chunk into one note.
func encodeNotes(notes []note) []byte {
	done := map[uint64][]int{}
	b := []byte{notesFormat}
	for i := range notes {
		if n := &notes[i]; n.kind == noteDone {
			done[n.ref.chunk()] = append(done[n.ref.chunk()], n.done...)
		}
	}
	// A finished job never comes back, so these notes may stand first.
	for chunk, which := range done {
		slices.Sort(which)
		b = appendNote(b, &note{kind: noteDone, ref: refOf(chunk, 0), done: slices.Compact(which)})
	}
	for i := range notes {
		n := &notes[i]
		if n.kind != noteDone && n.kind != noteEvent && n.kind != noteEnded {
			b = appendNote(b, n)
		}
		if n.event != 0 {
			b = appendEvent(b, n)
		}
		if n.ended != nil && n.kind != notePassed {
			b = appendEnded(b, n.ended)
		}
	}
	return b
}

// parseNotes parses the output of encodeNotes.
func parseNotes(b []byte) (all []note, err error) {
	r := codec.NewReader(b)
	if r.Byte() != notesFormat || r.Bad() {
		return nil, errNotes
	}
	for r.Len() > 0 && !r.Bad() {
		n := note{kind: r.Byte()}
		switch n.kind {
		case noteBegin:
			n.text = r.Text(MaxTenant)
		case noteDone:
			n.ref = refOf(r.UpTo(math.MaxUint64>>refBits), 0)
			last := uint64(0)
			for range r.Count(chunkJobs) {
				if last += r.UpTo(chunkJobs); last >= chunkJobs {
					return nil, errNotes
				}
				n.done = append(n.done, int(last))
			}
		case noteTry, noteDead, noteClaim:
			readTry(&r, &n)
		case noteControl:
			flags := r.Byte()
			n.paused, n.asked.is = flags&flagPaused != 0, flags&flagAsked != 0
			if n.asked.is {
				n.asked.rate, n.asked.of = readRate(&r), readRate(&r)
			}
		case notePurge, notePurged:
			n.ref = refOf(r.UpTo(math.MaxUint64>>refBits), 0)
		case noteRank:
			n.ref, n.rank = readRef(&r), r.Byte()
			if n.rank > MaxPriority {
				return nil, errNotes
			}
		case noteSchedule:
			n.text = r.Text(MaxRule + MaxKey)
			n.at, n.since, n.ref = readTime(&r), readTime(&r), readRef(&r)
		case noteTenant:
			n.text = r.Text(MaxTenant)
			n.paused = r.Byte()&flagPaused != 0
		case noteEvent:
			readEvent(&r, &n)
		case noteEnded:
			n.ended = readEnded(&r)
			n.ref = n.ended.ref
		case notePassed:
			n.ended = &ending{number: r.UpTo(math.MaxUint64)}
		// These have no content.
		case noteBeat, noteEnd:
		default:
			return nil, fmt.Errorf("%w: a later version of headgate may have written %q", errNotes, n.kind)
		}
		all = append(all, n)
	}
	if r.Bad() {
		return nil, errNotes
	}
	return all, nil
}

// readRef reads the position of a job.
func readRef(r *codec.Reader) ref {
	at := ref(r.UpTo(math.MaxUint64))
	if at.index() >= chunkJobs {
		r.Fail()
	}
	return at
}

// readTry reads a noteTry, noteDead or noteClaim.
func readTry(r *codec.Reader, n *note) {
	n.ref = readRef(r)
	n.attempt = int(r.UpTo(maxAttempt))
	n.at = readTime(r)
	n.since = readTime(r)
	if n.kind == noteDead {
		n.code, n.since = uint16(min(n.since, 999)), 0
	}
	if n.kind == noteClaim {
		n.until = readTime(r)
		copy(n.secret[:], r.Take(len(n.secret)))
		if n.attempt == 0 { // the first one is 1
			r.Fail()
		}
	}
	if n.kind != noteTry {
		n.text = r.Text(maxReason)
	}
}

// readTime reads milliseconds since 1970.
func readTime(r *codec.Reader) int64 { return int64(r.UpTo(math.MaxInt64 / 1_000_000)) }

// readEvent reads an event into a note. An unknown kind of event is valid: a later version may have
// written it.
func readEvent(r *codec.Reader, n *note) {
	n.event = r.Byte()
	n.ref = readRef(r)
	n.when = readTime(r)
	n.tried = int32(r.UpTo(maxAttempt))
	n.code = uint16(r.UpTo(999))
	n.text = r.Text(maxReason)
	if n.event == 0 {
		r.Fail()
	}
}

// readEnded reads that a job has ended.
func readEnded(r *codec.Reader) *ending {
	e := &ending{}
	e.kind, e.number = r.Byte(), r.UpTo(math.MaxUint64)
	e.ref = readRef(r)
	e.at = readTime(r)
	e.attempt = int32(r.UpTo(maxAttempt))
	e.code = uint16(r.UpTo(999))
	e.key, e.order, e.tenant, e.why = r.Text(MaxKey), r.Text(MaxKey), r.Text(MaxTenant), r.Text(maxReason)
	if endState(e.kind) == "" {
		r.Fail()
	}
	return e
}

// readRate reads a rate in jobs per second.
func readRate(r *codec.Reader) float64 {
	v := math.Float64frombits(r.Fixed())
	if !(v >= 0 && v <= MaxRate) {
		r.Fail()
		return 0
	}
	return v
}

// MaxRate is the highest rate of a queue, in jobs per second. Chosen.
const MaxRate = 1e6
