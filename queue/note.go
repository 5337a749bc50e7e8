package queue

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/codec"
)

// A ref says where a job is: the number of its chunk, and which of it. The upper 51 bits
// are the chunk's, the lower 13 the job's.
type ref uint64

const refBits = 13 // chunkJobs fit, and 2^51 chunks are 70 million years at one a microsecond

func refOf(chunk uint64, i int) ref { return ref(chunk<<refBits | uint64(i)) }

func (r ref) chunk() uint64 { return uint64(r >> refBits) }
func (r ref) index() int    { return int(r & (1<<refBits - 1)) }

// String is the job's ID.
func (r ref) String() string {
	return strconv.FormatUint(r.chunk(), 10) + "-" + strconv.Itoa(r.index())
}

// parseRef reads an ID.
func parseRef(id string) (ref, bool) {
	chunk, i, ok := strings.Cut(id, "-")
	c, err := strconv.ParseUint(chunk, 10, 64-refBits)
	n, err2 := strconv.ParseUint(i, 10, refBits)
	return refOf(c, int(n)), ok && err == nil && err2 == nil
}

// The kinds of notes.
const (
	noteBegin   = 'b' // a host begins: its name
	noteDone    = 'd' // jobs of a chunk are done with
	noteTry     = 't' // a job goes again: how often it went, when, and since when it counts
	noteDead    = 'x' // a job is dead: how often it went, when it died, and why
	noteControl = 'c' // paused or not, and the rate that was asked for
	notePurge   = 'p' // what waits in chunks up to this one is done with
	noteBeat    = 'h' // the host lives
	noteEnd     = 'e' // the host has ended, and another may begin at once
)

// A note says what has become of jobs. Notes are written many together, in order; to
// read one twice does no harm.
type note struct {
	kind    byte
	ref     ref    // of noteTry and noteDead; of noteDone and notePurge the chunk's first
	done    []int  // of noteDone, rising
	attempt int    // that have been made
	at      int64  // milliseconds: not before then, or died then
	since   int64  // milliseconds: its age counts from then; 0: from when it was put
	text    string // why it died, or who hosts
	paused  bool
	asked   askedRate
}

// An askedRate is the rate that somebody has asked for while the queue ran. It holds as long
// as the configuration says the same as it did then.
type askedRate struct {
	is   bool
	rate float64
	of   float64 // what the configuration said
}

// inForce is the rate that a queue is held to.
func (a askedRate) inForce(configured float64) float64 {
	if a.is && a.of == configured {
		return a.rate
	}
	return configured
}

const (
	notesFormat = 1
	maxReason   = 200 // bytes of why a job died; chosen: a line
	maxAttempt  = 1 << 20

	flagPaused = 1 // of noteControl
	flagAsked  = 2
)

var errNotes = errors.New("not notes of a queue, or damaged ones")

func appendNote(b []byte, n *note) []byte {
	b = append(b, n.kind)
	switch n.kind {
	case noteBegin:
		b = codec.AppendText(b, n.text)
	case noteDone:
		b = codec.AppendUint(b, n.ref.chunk(), uint64(len(n.done)))
		last := 0
		for _, i := range n.done {
			b = codec.AppendUint(b, uint64(i-last))
			last = i
		}
	case noteTry, noteDead:
		b = codec.AppendUint(b, uint64(n.ref), uint64(n.attempt), uint64(n.at), uint64(n.since))
		if n.kind == noteDead {
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
	case notePurge:
		b = codec.AppendUint(b, n.ref.chunk())
	}
	return b
}

// encodeNotes packs notes; what is done is gathered by chunk first.
func encodeNotes(notes []note) []byte {
	done := map[uint64][]int{}
	b := []byte{notesFormat}
	for i := range notes {
		if n := &notes[i]; n.kind == noteDone {
			done[n.ref.chunk()] = append(done[n.ref.chunk()], n.done...)
		}
	}
	// A job that is done goes nowhere any more: it does not matter that this stands first.
	for chunk, which := range done {
		slices.Sort(which)
		b = appendNote(b, &note{kind: noteDone, ref: refOf(chunk, 0), done: slices.Compact(which)})
	}
	for i := range notes {
		if n := &notes[i]; n.kind != noteDone {
			b = appendNote(b, n)
		}
	}
	return b
}

// parseNotes reads what encodeNotes has packed.
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
		case noteTry, noteDead:
			n.ref = ref(r.UpTo(math.MaxUint64))
			n.attempt = int(r.UpTo(maxAttempt))
			n.at = int64(r.UpTo(math.MaxInt64 / 1_000_000))
			n.since = int64(r.UpTo(math.MaxInt64 / 1_000_000))
			if n.ref.index() >= chunkJobs {
				return nil, errNotes
			}
			if n.kind == noteDead {
				n.text = r.Text(maxReason)
			}
		case noteControl:
			flags := r.Byte()
			n.paused, n.asked.is = flags&flagPaused != 0, flags&flagAsked != 0
			if n.asked.is {
				n.asked.rate, n.asked.of = readRate(&r), readRate(&r)
			}
		case notePurge:
			n.ref = refOf(r.UpTo(math.MaxUint64>>refBits), 0)
		case noteBeat, noteEnd:
		default:
			return nil, errNotes
		}
		all = append(all, n)
	}
	if r.Bad() {
		return nil, errNotes
	}
	return all, nil
}

// readRate reads jobs a second.
func readRate(r *codec.Reader) float64 {
	v := math.Float64frombits(r.Fixed())
	if !(v >= 0 && v <= MaxRate) {
		r.Fail()
		return 0
	}
	return v
}

// MaxRate is the most jobs a second that a queue can be set to. Chosen.
const MaxRate = 1e6
