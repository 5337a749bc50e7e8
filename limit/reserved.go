package limit

import (
	"fmt"
	"maps"
)

// ReservedKey is the key of a part of a rule's amount that is reserved.
func ReservedKey(part string) string { return "reserved:" + part }

// Amounts are those of the keys that have one of their own: of overrides, of parts that are
// reserved, and of the key "", which has what they leave of its amount.
func Amounts(amount int64, overrides, reserved map[string]int64) (map[string]int64, error) {
	own := maps.Clone(overrides)
	if len(reserved) == 0 {
		return own, nil
	}
	rest, ok := own[""]
	if !ok {
		rest = amount
	}
	if own == nil {
		own = make(map[string]int64, len(reserved)+1)
	}
	for part, n := range reserved {
		if own[ReservedKey(part)] = n; n < 1 || n > rest {
			return nil, fmt.Errorf("%d are reserved for %s of %d that are left: reserve less, or raise the amount",
				n, part, rest)
		}
		rest -= n
	}
	own[""] = rest
	return own, nil
}
