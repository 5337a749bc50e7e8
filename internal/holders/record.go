package holders

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/codec"
)

// Holders are in shardCount records, by the first bits of their IDs. Chosen: a million of them are about
// 2,000 in a record, which then has 200 KB, so that a change writes little; each record has two open files
// for its second copy. A record has 1 MB at most: mostInShard holders with the longest texts.
const (
	shardBits   = 9
	shardCount  = 1 << shardBits
	mostInShard = 2400
	// fillAhead is how many holders the records in use have on average before one more is used.
	// A few holders are in few records.
	fillAhead = 64
)

// Bounds of texts. Chosen.
const (
	mostName = 64
	mostNote = 200
	mostPlan = 32 // the same as config's
)

// shard returns the record that an ID belongs to.
func (id ID) shard() int { return int(id >> (idBits - shardBits)) }

// A Holder is somebody with a key.
type Holder struct {
	ID      ID
	Name    string // any text, for people
	Plan    string // "" is none
	Note    string
	Created time.Time
	Revoked time.Time // zero: not revoked
	OldKey  time.Time // the key before the last rotation counts until then; zero: there is none

	hash, old [sha256.Size]byte
}

// Version returns a text that is another one after each change of the holder.
func (h *Holder) Version() string {
	sum := sha256.Sum256(appendHolder(nil, h))
	return hex.EncodeToString(sum[:12])
}

var errRecord = errors.New("this is no record of holders, or a damaged one")

// A record is what is stored of a shard.
type record struct {
	version uint64
	holders []Holder // by ID
}

// find returns the position of a holder, or where it would be.
func (r *record) find(id ID) (at int, found bool) {
	return slices.BinarySearchFunc(r.holders, id, func(h Holder, id ID) int {
		switch {
		case h.ID < id:
			return -1
		case h.ID > id:
			return 1
		}
		return 0
	})
}

// recordFormat is the first byte of a record.
const recordFormat = 1

func encodeRecord(r record) ([]byte, error) {
	b := codec.AppendUint([]byte{recordFormat}, r.version, uint64(len(r.holders)))
	for i := range r.holders {
		b = appendHolder(b, &r.holders[i])
	}
	return b, nil
}

func appendHolder(b []byte, h *Holder) []byte {
	b = codec.AppendFixed(b, uint64(h.ID))
	b = append(b, h.hash[:]...)
	b = codec.AppendText(codec.AppendText(codec.AppendText(b, h.Name), h.Plan), h.Note)
	b = codec.AppendInt(b, msOf(h.Created), msOf(h.Revoked), msOf(h.OldKey))
	if !h.OldKey.IsZero() {
		b = append(b, h.old[:]...)
	}
	return b
}

func decodeRecord(b []byte) (r record, err error) {
	in := codec.NewReader(b)
	if in.Byte() != recordFormat {
		return record{}, errRecord
	}
	r.version = in.Uint()
	r.holders = make([]Holder, in.Count(2*mostInShard))
	for i := range r.holders {
		h := &r.holders[i]
		h.ID = ID(in.Fixed())
		copy(h.hash[:], in.Take(sha256.Size))
		h.Name, h.Plan, h.Note = in.Text(mostName), in.Text(mostPlan), in.Text(mostNote)
		h.Created, h.Revoked, h.OldKey = timeOf(in.Int()), timeOf(in.Int()), timeOf(in.Int())
		if !h.OldKey.IsZero() {
			copy(h.old[:], in.Take(sha256.Size))
		}
		first := &r.holders[0]
		if h.ID>>idBits != 0 || i > 0 && h.ID <= r.holders[i-1].ID || h.ID.shard() != first.ID.shard() {
			return record{}, errRecord
		}
	}
	if !in.Done() {
		return record{}, errRecord
	}
	return r, nil
}

func msOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// An InvalidError says what is wrong with the texts of a holder.
type InvalidError struct{ Reason, Do string }

func (e *InvalidError) Error() string { return e.Reason }

// Check returns what is wrong with the texts of a holder. plans are those that it may have.
func (h *Holder) Check(plans []string) error {
	for _, x := range []struct {
		what, text string
		most       int
	}{{"name", h.Name, mostName}, {"note", h.Note, mostNote}} {
		if len(x.text) > x.most || !utf8.ValidString(x.text) ||
			strings.ContainsFunc(x.text, func(c rune) bool { return !unicode.IsPrint(c) }) {
			return &InvalidError{fmt.Sprintf("the %s is longer than %d bytes, or has characters that cannot be printed",
				x.what, x.most), "write a shorter one, in one line"}
		}
		if strings.Contains(x.text, Prefix) {
			return &InvalidError{"the " + x.what + " contains " + Prefix + ", as a key does",
				"never write a key into a text that is kept"}
		}
	}
	if h.Name == "" {
		return &InvalidError{"the holder has no name", `name it, such as {"name": "Ada Ltd", "plan": "pro"}`}
	}
	if h.Plan != "" && !slices.Contains(plans, h.Plan) {
		return &InvalidError{"no limit has an amount for the plan " + Quote(h.Plan),
			"the plans are " + strings.Join(plans, ", ") + "; add others under plans.amounts in the configuration"}
	}
	return nil
}

// Quote quotes the beginning of a text of a client for an answer, which is logged too. It shows no key.
func Quote(s string) string {
	switch {
	case strings.Contains(s, Prefix):
		return Prefix + "…"
	case len(s) > mostPlan:
		return fmt.Sprintf("%q…", s[:mostPlan])
	}
	return fmt.Sprintf("%q", s)
}
