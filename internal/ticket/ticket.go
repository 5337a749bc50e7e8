// Package ticket seals and opens the one cookie of a visitor: a ticket while waiting, a pass once
// admitted.
//
// # The promise
//
// A token that opens was sealed by this room with one of its keys and not changed since. Everything
// else is ErrToken: forged, cut, of another room, too long. The room decides whether the token is
// still valid, not this package.
//
// # Concurrency
//
// Many goroutines may use a Ring at once.
//
// # Cost
//
// Opening allocates nothing and costs one AES-GCM of about 80 bytes. A token of another data
// center, or a forged one, costs one for each data center with a key of the same number.
//
// # Limits of the package
//
// It does not store keys (package datadir does) or rotate them (package node does), and it does not
// check the time.
package ticket

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// ErrToken is returned for everything that is not a token of this room.
var ErrToken = errors.New("not a token of this room")

// A Kind distinguishes the kinds of token.
type Kind uint8

// The kinds of token.
const (
	Ticket Kind = 1 // a place in the line
	Pass   Kind = 2 // admitted until End
	Left   Kind = 3 // a place was given up
	Moved  Kind = 4 // a place is on another device now, and the visitor knows it

	// What a visitor had whose challenge was not solved in time: it waits in a lane, or has one more
	// try. No token is of these kinds.
	Unsolved     Kind = 5
	NotYetSolved Kind = 6
)

// A Token is the content of a visitor's cookie. Ends are counter time in nanoseconds. Arrived,
// Checked and Accepted are wall time in Unix seconds, for display only.
type Token struct {
	Kind     Kind
	Life     uint64 // life of the record that issued it
	ID       uint64 // ticket number, or session ID
	End      int64  // Pass: admitted until
	Hard     int64  // Pass: never later than this; 0: no hard end
	Epoch    uint64 // Pass: epoch of the counter time of Seen
	Seen     int64  // Pass: when its visitor was last seen, 0: unknown
	Pending  int64  // Pass: the end requested then; valid if Seen is surely recorded
	Work     uint64 // Ticket: its challenge; 0: none, or it is solved
	First    uint64 // Ticket without a place in the ordinary line: its visitor's first one there; 0: this one
	Key      uint64 // Ticket: of the device that the place has moved to; 0: not moved
	Arrived  int64  // wall time; Cloudflare's bucketId is its minute
	Checked  int64  // wall time; Cloudflare's lastCheckInTime
	Accepted int64  // wall time; Cloudflare's acceptedAt; 0 while waiting
	Joined   uint32 // position at joining, for the progress bar
	Shown    uint32 // lowest position shown, capped; never show more
	Home     string // data center of the counter, at most 32 bytes

	Person [16]byte // hash of the ID of the site's person that it was issued to; zero: to anybody

	Probation bool // Pass: its cookie has not come back yet
	Refused   bool // Ticket: it has no place, because its challenge is not solved; see Refuse
}

// These bits in a token's kind are for Probation, for a Person at the end, and for Refused.
const onProbation, ofPerson, isRefused = 0x80, 0x40, 0x20

// SessionName returns the name of a pass's session: the same for all its requests, and different for all
// other sessions.
func (t *Token) SessionName() string {
	return strconv.FormatUint(t.Life, 36) + "-" + strconv.FormatUint(t.ID, 36)
}

// PersonName returns the name of the person that the token was issued to, "" if it was to anybody. No
// session has such a name.
func (t *Token) PersonName() string {
	if t.Person == ([16]byte{}) {
		return ""
	}
	return "person-" + hex.EncodeToString(t.Person[:])
}

const (
	version  = 1
	keyBytes = 32
	nonceLen = 12
	tagLen   = 16
	fixed    = 2 + 10*8 + 2*4 // kind, length of Home, the numbers
	maxHome  = 32
	maxPlain = fixed + maxHome + len(Token{}.Person)
	head     = 2 + nonceLen // version, key id, nonce
	maxRaw   = head + maxPlain + tagLen
)

// MaxLen is the length of the longest sealed token.
const MaxLen = (maxRaw*8 + 5) / 6

// Key is one sealing key.
type Key = [keyBytes]byte

// NewKey draws a key.
func NewKey() (k Key) {
	rand.Read(k[:]) // never fails: crypto/rand ends the program instead
	return k
}

// A Ring holds the sealing keys of a process. A token contains the number of the key that sealed
// it. Keys of other data centers may have the same number.
type Ring struct {
	sealer byte
	keys   [256]cipher.AEAD
	others [256][]cipher.AEAD
	bufs   sync.Pool // *scratch: AEAD arguments would otherwise be allocated
}

type scratch struct {
	text  [MaxLen]byte
	raw   [maxRaw + 4]byte
	plain [maxPlain]byte
	ad    [96]byte // 2 + a name of 64 + what Bound adds
}

// NewRing returns a ring that seals with one of keys. It opens with all of keys, then with those of
// others, such as other data centers.
func NewRing(sealer byte, keys map[byte]Key, others ...map[byte]Key) (*Ring, error) {
	if _, ok := keys[sealer]; !ok {
		return nil, errors.New("the key ring has no key with the number of the sealing key")
	}
	r := &Ring{sealer: sealer, bufs: sync.Pool{New: func() any { return new(scratch) }}}
	for id, k := range keys {
		a, err := newAEAD(&k)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", id, err)
		}
		r.keys[id] = a
	}
	for _, other := range others {
		for id, k := range other {
			a, err := newAEAD(&k)
			if err != nil {
				return nil, fmt.Errorf("key %d of others: %w", id, err)
			}
			r.others[id] = append(r.others[id], a)
		}
	}
	return r, nil
}

func newAEAD(k *Key) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Seal appends the sealed form of t for room to dst: cookie-safe text.
func (r *Ring) Seal(dst []byte, room string, t *Token) []byte {
	b := r.bufs.Get().(*scratch)
	defer r.bufs.Put(b)
	b.raw[0], b.raw[1] = version, r.sealer
	rand.Read(b.raw[2:head])
	p := t.encode(b.plain[:0])
	ad := bind(b.ad[:0], b.raw[:2], room)
	sealed := r.keys[r.sealer].Seal(b.raw[:head], b.raw[2:head], p, ad)
	return base64.RawURLEncoding.AppendEncode(dst, sealed)
}

// Open reads a sealed token of room into t. On an error it leaves t unchanged.
func (r *Ring) Open(t *Token, room, sealed string) error {
	if len(sealed) > MaxLen || len(sealed) < (head+fixed+tagLen)*8/6 {
		return ErrToken
	}
	b := r.bufs.Get().(*scratch)
	defer r.bufs.Put(b)
	n, err := strict.Decode(b.raw[:], b.text[:copy(b.text[:], sealed)])
	if err != nil || n < head+fixed+tagLen || b.raw[0] != version {
		return ErrToken
	}
	id := b.raw[1]
	ad := bind(b.ad[:0], b.raw[:2], room)
	if own := r.keys[id]; own != nil {
		if p, err := own.Open(b.plain[:0], b.raw[2:head], b.raw[head:n], ad); err == nil {
			return t.decode(p)
		}
	}
	for _, other := range r.others[id] {
		if p, err := other.Open(b.plain[:0], b.raw[2:head], b.raw[head:n], ad); err == nil {
			return t.decode(p)
		}
	}
	return ErrToken
}

// strict rejects text whose last bits are not zero, so that each token has one spelling.
var strict = base64.RawURLEncoding.Strict() //nolint:gochecknoglobals // an encoding, made once

// bind appends the additional data, which ties the token to this room and format.
func bind(dst, head []byte, room string) []byte { return append(append(dst, head...), room...) }

// FirstIn returns the number of the first ticket that the visitor had in a line of this life, if its
// challenges are not solved. Numbers of another line say nothing.
func (t *Token) FirstIn(life uint64) uint64 {
	switch {
	case t.Kind != Ticket || t.Life != life:
		return 0
	case t.Refused: // it may have forgotten it
		return t.First
	case t.Work == 0:
		return 0
	}
	return cmp.Or(t.First, t.ID)
}

// Refuse makes a ticket one that has no place. It keeps its number, which its visitor may report to an
// operator. wrong means that its challenge is over too, because the solution was wrong.
func (t *Token) Refuse(wrong bool) {
	t.First, t.Refused = t.FirstIn(t.Life), true
	if wrong {
		t.Work = 0
	}
}

// refreshed is how old the cookie of a ticket may be where some are refused. Chosen: much less than any hold.
const refreshed = time.Minute

// Refresh reports whether the cookie of a ticket has to be sealed anew, so that it shows that its visitor
// still waits. That is for refused tickets. Those that hold a place have it too, because a cookie that only
// the refused get would tell them. A refused visitor that was silent for longer than hold, which it cannot
// know, stands at the end of the line when it is released.
func (t *Token) Refresh(now time.Time, hold time.Duration) bool {
	silent := now.Sub(time.Unix(t.Checked, 0))
	if t.Refused && silent > hold+refreshed {
		t.First = 0
	}
	return t.Kind == Ticket && silent >= refreshed
}

// Forget makes a ticket of before a time forget its unsolved challenges. The place that its visitor would
// have is over by then: a cookie that was kept must not be worth the place of whoever waited.
func (t *Token) Forget(since time.Time) {
	if t.Kind == Ticket && t.Checked < since.Unix() {
		t.Work, t.First, t.Refused = 0, 0, false
	}
}

// IsOrdered reports whether a ticket says where its visitor stands in the order of all data centers. A ticket
// of the lane of unsolved challenges does not: an operator may have released it, and it may be used.
func (t *Token) IsOrdered() bool {
	return t.Seen != 0 && t.First == 0
}

// Rest returns how long the session of a pass lasts from its visitor's request at now, in nanoseconds like
// End: normally session. One on probation that is fixed, or whose probation is over, lasts only until session
// after its admission.
func (t *Token) Rest(session, probation time.Duration, fixed bool, now int64) time.Duration {
	if !t.Probation || !fixed && now < t.End {
		return session
	}
	return time.Duration(t.End-now) + session - probation
}

// ExtendTo notes the end of a session in its pass. Of a fixed session it also notes how much of it is grace,
// because that amount is limited.
func (t *Token) ExtendTo(end int64, fixed bool) {
	if more := end - t.End; fixed && more > 0 {
		t.Joined += uint32((more + int64(time.Millisecond) - 1) / int64(time.Millisecond))
	}
	t.End = end
}

// encode appends a token in its plain form. Numbers have a fixed width: the length of a cookie
// shows nothing but that of the name of its data center.
func (t *Token) encode(b []byte) []byte {
	home, epoch, last := t.Home[:min(len(t.Home), maxHome)], t.Epoch, uint64(t.Pending)
	accepted := uint64(t.Accepted)
	if t.Kind == Ticket { // End and Hard are those of a link: see SealMove
		accepted, epoch, last = t.First, t.Work, t.Key
	}
	kind := byte(t.Kind)
	if t.Probation {
		kind |= onProbation
	}
	if t.Refused && t.Kind == Ticket {
		kind |= isRefused
	}
	person := t.Person[:]
	if t.Person == ([16]byte{}) {
		person = nil
	} else {
		kind |= ofPerson
	}
	b = append(b, kind, byte(len(home)))
	for _, v := range [...]uint64{
		t.Life, t.ID, uint64(t.End), uint64(t.Hard),
		uint64(t.Arrived), uint64(t.Checked), accepted,
		epoch, uint64(t.Seen), last,
	} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, t.Joined)
	b = binary.LittleEndian.AppendUint32(b, t.Shown)
	return append(append(b, home...), person...)
}

func (t *Token) decode(b []byte) error {
	var person [16]byte
	if len(b) > 0 && b[0]&ofPerson != 0 {
		if len(b) < fixed+len(person) {
			return ErrToken
		}
		copy(person[:], b[len(b)-len(person):])
		if b = b[:len(b)-len(person)]; person == ([16]byte{}) {
			return ErrToken
		}
	}
	if len(b) < fixed || len(b) != fixed+int(b[1]) || b[1] > maxHome {
		return ErrToken
	}
	kind, refused := Kind(b[0]&^(onProbation|ofPerson|isRefused)), b[0]&isRefused != 0
	if kind < Ticket || kind > Moved || refused && kind != Ticket {
		return ErrToken
	}
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(b[2+8*i:]) }
	home := t.Home
	if string(b[fixed:]) != home { // the same data center as before allocates nothing
		home = string(b[fixed:])
	}
	*t = Token{
		Kind: kind, Life: at(0), ID: at(1), End: int64(at(2)), Hard: int64(at(3)),
		Arrived: int64(at(4)), Checked: int64(at(5)), Accepted: int64(at(6)),
		Epoch: at(7), Seen: int64(at(8)),
		Joined: binary.LittleEndian.Uint32(b[2+80:]), Shown: binary.LittleEndian.Uint32(b[2+84:]),
		Home: home, Probation: b[0]&onProbation != 0, Refused: refused, Person: person,
	}
	if t.Pending = int64(at(9)); kind == Ticket {
		t.First, t.Accepted, t.Work, t.Epoch, t.Key, t.Pending = at(6), 0, at(7), 0, at(9), 0
	}
	return nil
}
