package ticket

import "strings"

// The short id of a ticket is its number, 40 bits of it, through a Feistel
// network keyed with the life of the record: eight letters that give nothing
// away, and that an operator's command can turn back; a ticket of the last lane
// has nine. It is no secret and proves nothing: what lets in is the sealed cookie.
const (
	idLetters = "23456789abcdefghjkmnpqrstuvwxyz0"
	idRounds  = 6
	idHalf    = 20
	idMask    = 1<<idHalf - 1
)

// ShortID names a ticket to an operator.
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
	if lane := number >> (2 * idHalf); lane > 0 { // of the last lane: it has numbers of 41 bits
		b = append(b, idLetters[lane&31])
	}
	return string(b)
}

// Number is the number that a short id names; ok is false if it names none.
func Number(life uint64, id string) (number uint64, ok bool) {
	if len(id) != 8 && len(id) != 9 {
		return 0, false
	}
	var x, lane uint64
	for i := range id {
		v := strings.IndexByte(idLetters, id[i])
		if v < 0 || i == 8 && v == 0 { // one ticket, one id
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

func idRound(life, round, half uint64) uint64 {
	x := (life + round<<32 + half) * 0x9E3779B97F4A7C15
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return x >> (64 - idHalf)
}

// Mix is a number of the place or stay of t, the same for all tokens of it (the mix is that of
// MurmurHash3).
func (t *Token) Mix() uint64 {
	x := t.Life ^ t.ID*0x9E3779B97F4A7C15
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
