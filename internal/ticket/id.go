package ticket

import "strings"

// The short ID of a ticket is its number (40 bits) after a Feistel network that is keyed with the
// life of the record. It has eight letters that reveal nothing, and an operator's command can turn
// them back. A ticket of the last lane has nine letters. The ID is not secret and proves nothing:
// only the sealed cookie admits.
const (
	idLetters = "23456789abcdefghjkmnpqrstuvwxyz0"
	idRounds  = 6
	idHalf    = 20
	idMask    = 1<<idHalf - 1
)

// ShortID returns the name of a ticket for operators.
func ShortID(life, number uint64) string {
	l, r := number>>idHalf&idMask, number&idMask
	for i := range uint64(idRounds) {
		l, r = r, l^idRound(life, i, r)
	}
	x := l<<idHalf | r
	b := make([]byte, 0, 9)
	for i := range 8 {
		b = append(b, idLetters[x>>(35-5*i)&31])
	}
	if lane := number >> (2 * idHalf); lane > 0 { // of the last lane, whose numbers have 41 bits
		b = append(b, idLetters[lane&31])
	}
	return string(b)
}

// Number returns the number of a short ID. ok is false if the ID is invalid.
func Number(life uint64, id string) (number uint64, ok bool) {
	if len(id) != 8 && len(id) != 9 {
		return 0, false
	}
	var x, lane uint64
	for i := range id {
		v := strings.IndexByte(idLetters, id[i])
		if v < 0 || i == 8 && v == 0 { // one ticket has one ID
			return 0, false
		}
		if i == 8 {
			lane = uint64(v)
			break
		}
		x = x<<5 | uint64(v)
	}
	l, r := x>>idHalf, x&idMask
	for i := range uint64(idRounds) {
		l, r = r^idRound(life, idRounds-1-i, l), l
	}
	return lane<<(2*idHalf) | l<<idHalf | r, true
}

// Finder returns a function that finds the number of a short ID, as an operator may type it.
func Finder(id string) func(life uint64) (number uint64, ok bool) {
	id = strings.ToLower(strings.TrimSpace(id))
	return func(life uint64) (uint64, bool) { return Number(life, id) }
}

func idRound(life, round, half uint64) uint64 {
	x := (life + round<<32 + half) * 0x9E3779B97F4A7C15
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return x >> (64 - idHalf)
}

// Mix returns a number that is the same for all tokens of the place or session of t (the mix is
// that of MurmurHash3).
func (t *Token) Mix() uint64 {
	x := t.Life ^ t.ID*0x9E3779B97F4A7C15
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
