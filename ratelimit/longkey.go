package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/limittable"
)

// A limit stores at most maxCounted bytes of a key. A longer key is counted by its first readable
// bytes, the mark, and 144 bits of its SHA-256. Chosen: the result is exactly maxCounted bytes
// long, and an operator still recognizes most keys.
const (
	maxCounted = 64
	readable   = maxCounted - len(hashedKey) - hashText
	hashBytes  = 18
	hashText   = hashBytes * 4 / 3 // in base64
)

// countedKey returns the key by which a limit counts a key. A key of maxCounted bytes or less is
// counted by itself, a longer one by its hash, so that clients that choose their keys cannot choose
// how much memory a key takes. A short key that looks like a hash is hashed too, so that no key
// that a client sends is counted as another.
//
// The hash has no secret. All nodes of all data centers must map a key to the same result, before
// and after a restart, a restored backup and a rotation of the sealing keys, and also without the
// store. A secret would prevent nothing: it takes 2^144 attempts to be counted as a given key. Two
// keys that collide take 2^72 attempts, and only share one amount of the attacker's own.
//
// Nor is a key that a client sends counted as that of a caller with a plan: a key that looks like one
// becomes its hash alone.
func countedKey(key string) string {
	plan := limittable.IsPlanKey(key)
	if len(key) <= maxCounted && !plan && !isHashed(key) {
		return key
	}
	var space [MaxKey]byte
	sum := sha256.Sum256(append(space[:0], key...))
	end := min(readable, len(key))
	if plan {
		end = 0
	}
	for end > 0 && end < len(key) && !utf8.RuneStart(key[end]) {
		end--
	}
	b := append(append(space[:0], key[:end]...), hashedKey...)
	return string(base64.RawURLEncoding.AppendEncode(b, sum[:hashBytes]))
}

// findKey is countedKey for an operator, who may also use the form in which lists of keys show a key.
func findKey(key string) string {
	plan, rest := limittable.CutPlan(key)
	if isHashed(rest) {
		return key
	}
	return plan + countedKey(rest)
}

// UsageKey returns the key under which the usage of a key is recorded, whatever the plan of the caller is.
// The usage of a key above 64 bytes is recorded under its hash.
func UsageKey(key string) string {
	_, key = limittable.CutPlan(findKey(key))
	return key
}

// isHashed reports whether a key has the form that countedKey gives to long keys.
func isHashed(key string) bool {
	at := len(key) - hashText - len(hashedKey)
	if at < 0 || at > readable || key[at:at+len(hashedKey)] != hashedKey {
		return false
	}
	var space [hashBytes]byte
	_, err := base64.RawURLEncoding.AppendDecode(space[:0], []byte(key[at+len(hashedKey):]))
	return err == nil
}

// Amounts returns the given amounts, with each key in the form in which it is counted.
func keyAmounts(own map[string]int64) (map[string]int64, error) {
	all := make(map[string]int64, len(own))
	for key, amount := range own {
		if limittable.IsPlanKey(key) {
			return nil, fmt.Errorf("the key %s is that of a caller with a plan; set the amount of the plan", key)
		}
		counted := findKey(key)
		if _, twice := all[counted]; twice {
			return nil, fmt.Errorf("the key %s has two amounts, by its name and by its hash; keep one of them", counted)
		}
		all[counted] = amount
	}
	return all, nil
}
