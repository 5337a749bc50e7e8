package invite

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxRevoked limits the revoked batches and codes of a room. Chosen: with a batch for each mailing it is
// never reached, and a record has some 10 KB.
const MaxRevoked = 1000

// ErrTooMany reports that MaxRevoked are revoked.
var ErrTooMany = errors.New("too many batches and codes are revoked")

// A Target is what is revoked: a batch, or with a serial number one code of it.
type Target struct{ Batch, Serial int }

// String returns the batch, or batch-serial.
func (t Target) String() string {
	if t.Serial == 0 {
		return strconv.Itoa(t.Batch)
	}
	return fmt.Sprintf("%d-%d", t.Batch, t.Serial)
}

// Target parses BATCH, BATCH-SERIAL or the text of a code of this key, which may have ended.
func (k *Key) Target(text string) (t Target, err error) {
	batch, serial, one := strings.Cut(text, "-")
	t.Batch, err = number(batch, MaxBatch)
	if err == nil && one {
		t.Serial, err = number(serial, MaxSerial)
	}
	if err == nil {
		return t, nil
	}
	c, err := k.Verify(text, time.Time{})
	if err != nil {
		return Target{}, fmt.Errorf("%.50q is no BATCH, no BATCH-SERIAL and no code of this room", text)
	}
	return Target{c.Batch, c.Serial}, nil
}

func number(s string, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 1 || n > most || s[0] == '+' || s[0] == '0') {
		err = strconv.ErrRange
	}
	return n, err
}

// A RevokedSet is the set of what is revoked in a room. It is not changed; the zero value is empty.
type RevokedSet struct{ all map[Target]bool }

// NewRevoked returns the set with these names. It leaves out what is none.
func NewRevoked(names []string) RevokedSet {
	r := RevokedSet{map[Target]bool{}}
	for _, name := range names {
		if t, err := (&Key{}).Target(name); err == nil {
			r.all[t] = true
		}
	}
	return r
}

// Has reports whether a code is revoked, by itself or with its batch.
func (r RevokedSet) Has(c Code) bool {
	return len(r.all) > 0 && (r.all[Target{Batch: c.Batch}] || r.all[Target{c.Batch, c.Serial}])
}

// Names returns what is revoked, in order.
func (r RevokedSet) Names() []string {
	names := make([]string, 0, len(r.all))
	order := func(a, b Target) int {
		return (a.Batch-b.Batch)*(MaxSerial+1) + a.Serial - b.Serial
	}
	for _, t := range slices.SortedFunc(maps.Keys(r.all), order) {
		names = append(names, t.String())
	}
	return names
}

// Change returns the set with more and without others. What is in both is revoked.
func (r RevokedSet) Change(revoke, allow []Target) (RevokedSet, error) {
	next := RevokedSet{maps.Clone(r.all)}
	if next.all == nil {
		next.all = map[Target]bool{}
	}
	for _, t := range allow {
		delete(next.all, t)
	}
	for _, t := range revoke {
		next.all[t] = true
	}
	if len(next.all) > MaxRevoked && len(next.all) > len(r.all) {
		return r, ErrTooMany
	}
	return next, nil
}
