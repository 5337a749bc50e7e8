package envoy

import "google.golang.org/protobuf/encoding/protowire"

// Repeated fields of envoy.service.ratelimit.v3.RateLimitRequest and of its descriptors.
const (
	descriptorsField = 2
	entriesField     = 1
)

// scan counts the descriptors and entries of a request before they use memory: an empty one takes
// two bytes in a message, but a hundred after parsing. What scan cannot parse is left to proto,
// which reports the error.
func scan(req []byte) error {
	descriptors, entries := 0, 0
	for d := range each(req, descriptorsField) {
		descriptors++
		for range each(d, entriesField) {
			entries++
		}
		switch {
		case descriptors > maxDescriptors:
			return invalid("more than %d descriptors", maxDescriptors)
		case entries > maxAllEntries:
			return invalid("more than %d entries in all descriptors", maxAllEntries)
		}
	}
	return nil
}

// each yields the values of a bytes field, up to the first part that cannot be parsed.
func each(b []byte, field protowire.Number) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			num, typ, n := protowire.ConsumeTag(b)
			if n < 0 {
				return
			}
			size := protowire.ConsumeFieldValue(num, typ, b[n:])
			if size < 0 {
				return
			}
			if num == field && typ == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(b[n:])
				if !yield(value) {
					return
				}
			}
			b = b[n+size:]
		}
	}
}
