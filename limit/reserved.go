package limit

import (
	"fmt"
	"maps"
)

// ReservedKey returns the key of a reserved part of a rule's amount.
func ReservedKey(part string) string { return "reserved:" + part }

// Amounts returns the amounts of the keys that have one of their own: those of overrides, those of
// reserved parts, and that of the key "", which gets what the reserved parts leave of its amount.
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
