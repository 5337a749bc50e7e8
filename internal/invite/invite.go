// Package invite makes and verifies invitations: codes that people click or type, and that a room
// can check without a list of them.
//
// # The promise
//
// A code counts only in the room that it was made for, and only if its 80 bits of HMAC-SHA256 were made
// with the secret of that room: whoever has seen any number of codes cannot make another one. There
// is one spelling for comparisons, [Code.ID], whatever people type.
//
// # The format
//
// 30 digits of Crockford's base32, in six groups: 14 for the numbers of the code, 16 for the HMAC.
// Upper and lower case are the same, O is 0, I and L are 1, dashes and spaces do not count.
//
//	bits  4        19         16       21        10      80
//	      version  end, hour  batch    serial    uses    HMAC
//
// # Concurrency and cost
//
// A Key may be used by many goroutines at once. Making or verifying a code takes about a microsecond.
package invite

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/codec"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/smallfile"
)

// Bounds of the numbers of a code, from their bits.
const (
	MaxBatch  = 1<<batchBits - 1
	MaxSerial = 1<<serialBits - 1
	MaxUses   = 1<<usesBits - 1
)

const (
	version = 1

	versionBits, endBits, batchBits, serialBits, usesBits = 4, 19, 16, 21, 10

	digits    = 14 // of the numbers
	macDigits = 16
	macBytes  = macDigits * 5 / 8
	group     = 5

	// Length is the length of a code as New prints it. mostText bounds what people type: with a dash
	// or a space after each digit.
	Length   = digits + macDigits + (digits+macDigits)/group - 1
	mostText = 2 * (digits + macDigits)
)

// alphabet is that of Crockford's base32: no I, L, O and U.
const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// began is hour 0 of the ends of codes.
func began() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// Latest returns the latest end of a code.
func Latest() time.Time { return began().Add((1<<endBits - 1) * time.Hour) }

// LeastSecret is the least length of a secret. Chosen: 32 hexadecimal digits are 128 bits.
const LeastSecret = 32

// The errors of Verify.
var (
	ErrWrong   = errors.New("it is no invitation of this room")
	ErrExpired = errors.New("the invitation has ended")
)

// A Code is the content of an invitation.
type Code struct {
	Batch, Serial int // from 1
	Uses          int // from 1 to MaxUses: how many visitors come in by it
	End           int // hours since 2026 began, in UTC
}

// Until returns when the code ends.
func (c Code) Until() time.Time { return began().Add(time.Duration(c.End) * time.Hour) }

// EndAt returns the End of codes that are valid until t: the next full hour.
func EndAt(t time.Time) int { return int((t.Sub(began()) + time.Hour - 1) / time.Hour) }

// ID identifies a code in its room.
func (c Code) ID() string { return fmt.Sprintf("code %d-%d-%d-%d", c.Batch, c.Serial, c.Uses, c.End) }

// String returns the name of a code for operators, which is no secret.
func (c Code) String() string { return fmt.Sprintf("%d-%d", c.Batch, c.Serial) }

// Check returns what is wrong with the numbers of a code.
func (c Code) Check() error {
	switch {
	case c.Batch < 1 || c.Batch > MaxBatch:
		return fmt.Errorf("batch: %d is not from 1 to %d", c.Batch, MaxBatch)
	case c.Serial < 1 || c.Serial > MaxSerial:
		return fmt.Errorf("serial number: %d is not from 1 to %d", c.Serial, MaxSerial)
	case c.Uses < 1 || c.Uses > MaxUses:
		return fmt.Errorf("uses: %d is not from 1 to %d", c.Uses, MaxUses)
	case c.End < 0 || c.End >= 1<<endBits:
		return fmt.Errorf("end: it is not from 2026 to %d", Latest().Year())
	}
	return nil
}

// A Key makes and verifies the codes of one room.
type Key struct {
	room   string
	secret []byte
}

// NewKey returns the key of a room. The secret has at least LeastSecret bytes.
func NewKey(room string, secret []byte) *Key { return &Key{room, secret} }

// ReadKey reads the key of a room from the file with its secret.
func ReadKey(room, file string) (*Key, error) {
	b, err := smallfile.ReadSecret(file)
	b = bytes.TrimSpace(b)
	if err == nil && len(b) < LeastSecret {
		err = smallfile.Wrong(file, fmt.Sprintf("has a secret of less than %d characters", LeastSecret),
			"openssl rand -hex 32 > "+file)
	}
	if err != nil {
		return nil, &config.Fault{Key: "identity.codes.secret_file", Problem: err.Error(), Hint: hint.Of(err)}
	}
	return NewKey(room, b), nil
}

// Equal reports whether both keys verify the same codes. A nil key verifies none.
func (k *Key) Equal(x *Key) bool {
	if k == nil || x == nil {
		return k == x
	}
	return k.room == x.room && hmac.Equal(k.secret, x.secret)
}

// mac returns the HMAC of a code. The room's name is in it: of two rooms with one secret, each has
// its own codes.
func (k *Key) mac(c Code) []byte {
	b := codec.AppendText([]byte("headgate invitation "), k.room)
	b = codec.AppendUint(b, version, uint64(c.End), uint64(c.Batch), uint64(c.Serial), uint64(c.Uses))
	h := hmac.New(sha256.New, k.secret)
	h.Write(b)
	return h.Sum(nil)[:macBytes]
}

// New returns the text of a code, which passes Check.
func (k *Key) New(c Code) string {
	var w bits
	w.put(version, versionBits)
	w.put(c.End, endBits)
	w.put(c.Batch, batchBits)
	w.put(c.Serial, serialBits)
	w.put(c.Uses, usesBits)
	for _, b := range k.mac(c) {
		w.put(int(b), 8)
	}
	var text [Length]byte
	for i, at := 0, 0; at < len(text); at++ {
		if at%(group+1) == group {
			text[at] = '-'
			continue
		}
		text[at] = alphabet[w.digits[i]]
		i++
	}
	return string(text[:])
}

// Verify returns what a code says if it is one of this key. With ErrExpired the code is right too.
func (k *Key) Verify(text string, now time.Time) (Code, error) {
	c, mac, ok := parse(text)
	if !ok || c.Check() != nil || !hmac.Equal(mac, k.mac(c)) {
		return Code{}, ErrWrong
	}
	if !now.Before(c.Until()) {
		return c, ErrExpired
	}
	return c, nil
}

// Parse returns what a text says without verifying it: anybody can write such a text.
func Parse(text string) (Code, error) {
	c, _, ok := parse(text)
	if !ok {
		return Code{}, errors.New("it is not the text of an invitation")
	}
	return c, c.Check()
}

func parse(text string) (c Code, mac []byte, ok bool) {
	if len(text) > mostText {
		return c, nil, false
	}
	var r bits
	n := 0
	for _, letter := range []byte(text) {
		switch letter {
		case '-', ' ':
			continue
		case 'o', 'O':
			letter = '0'
		case 'i', 'I', 'l', 'L':
			letter = '1'
		}
		if letter >= 'a' {
			letter -= 'a' - 'A'
		}
		v := strings.IndexByte(alphabet, letter)
		if v < 0 || n == len(r.digits) {
			return c, nil, false
		}
		r.digits[n] = byte(v)
		n++
	}
	if n != len(r.digits) || r.take(versionBits) != version {
		return c, nil, false
	}
	c.End, c.Batch = r.take(endBits), r.take(batchBits)
	c.Serial, c.Uses = r.take(serialBits), r.take(usesBits)
	for range macBytes {
		mac = append(mac, byte(r.take(8)))
	}
	return c, mac, true
}

// bits writes and reads numbers as digits of 5 bits.
type bits struct {
	digits [digits + macDigits]byte
	at     int // next bit
}

func (b *bits) put(v, width int) {
	for i := width - 1; i >= 0; i-- {
		d := &b.digits[b.at/5]
		*d = *d<<1 | byte(v>>i&1)
		b.at++
	}
}

func (b *bits) take(width int) (v int) {
	for range width {
		v = v<<1 | int(b.digits[b.at/5]>>(4-b.at%5)&1)
		b.at++
	}
	return v
}
