package holders

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
)

// The form of a key: hgk_, the ID of its holder, _, 160 random bits, and the CRC-32 of all that. Programs
// that look for leaked keys find the prefix, and check the sum.
const (
	Prefix = "hgk_"

	idLetters     = 12
	secretLetters = 32
	sumLetters    = 7
	secretAt      = len(Prefix) + idLetters + 1
	sumAt         = secretAt + secretLetters
	keyLength     = sumAt + sumLetters

	letterBits = 5
	idBits     = idLetters * letterBits
	secretSize = secretLetters * letterBits / 8
)

// letters are those of base32 in lower case, so that a key has nothing that a shell or a URL changes.
const letters = "abcdefghijklmnopqrstuvwxyz234567"

// An ID names a holder. It is no secret: it is in lists and logs, and limits count by it.
type ID uint64

// String returns the ID as it is in a key.
func (id ID) String() string { return string(appendLetters(nil, uint64(id), idLetters)) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return appendLetters(nil, uint64(id), idLetters), nil }

// ParseID parses the text of an ID.
func ParseID(s string) (id ID, ok bool) {
	if len(s) != idLetters {
		return 0, false
	}
	for i := range len(s) {
		n, ok := letterOf(s[i])
		if !ok {
			return 0, false
		}
		id = id<<letterBits | ID(n)
	}
	return id, true
}

// appendLetters appends the lowest bits of v as n letters.
func appendLetters(b []byte, v uint64, n int) []byte {
	for i := n - 1; i >= 0; i-- {
		b = append(b, letters[v>>(i*letterBits)&(1<<letterBits-1)])
	}
	return b
}

func letterOf(c byte) (n uint64, ok bool) {
	switch {
	case 'a' <= c && c <= 'z':
		return uint64(c - 'a'), true
	case '2' <= c && c <= '7':
		return uint64(c-'2') + 26, true
	}
	return 0, false
}

// newKey returns a key of a holder, and its hash. The key itself is kept nowhere.
func newKey(id ID) (key string, hash [sha256.Size]byte) {
	var secret [secretSize]byte
	rand.Read(secret[:]) // never fails
	b := append(make([]byte, 0, keyLength), Prefix...)
	b = append(appendLetters(b, uint64(id), idLetters), '_')
	for i := 0; i < secretSize; i += letterBits { // five bytes are eight letters
		v := uint64(0)
		for _, c := range secret[i : i+letterBits] {
			v = v<<8 | uint64(c)
		}
		b = appendLetters(b, v, 8)
	}
	b = appendLetters(b, uint64(crc32.ChecksumIEEE(b)), sumLetters)
	return string(b), sha256.Sum256(b)
}

// Parse returns the ID of the holder in a key. ok is false if the text has not the form of a key, or if its
// checksum is wrong.
func Parse(key string) (id ID, ok bool) {
	if len(key) != keyLength || key[:len(Prefix)] != Prefix || key[secretAt-1] != '_' {
		return 0, false
	}
	if id, ok = ParseID(key[len(Prefix) : len(Prefix)+idLetters]); !ok {
		return 0, false
	}
	for i := secretAt; i < sumAt; i++ {
		if _, ok := letterOf(key[i]); !ok {
			return 0, false
		}
	}
	sum := uint64(0)
	for i := sumAt; i < keyLength; i++ {
		n, ok := letterOf(key[i])
		if !ok {
			return 0, false
		}
		sum = sum<<letterBits | n
	}
	return id, sum == uint64(crc32.ChecksumIEEE([]byte(key[:sumAt])))
}
