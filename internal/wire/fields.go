package wire

import "strconv"

// AppendString appends a string of RFC 9651 §3.3.3. Characters that it cannot hold are
// percent-encoded.
func AppendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20 || c >= 0x7f:
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// mostSF is the greatest integer of RFC 9651 §3.3.1.
const mostSF = 999_999_999_999_999

// AppendInt appends an integer of RFC 9651, limited to its bounds.
func AppendInt(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(0, n), mostSF), 10)
}

// Never returns a text that a call can never pass a limit, however long it waits. amount is the
// maximum that passes at once.
func Never(limit string, amount int64) string {
	if amount == 0 {
		return `Limit "` + limit + `" lets nothing through. Waiting does not help.`
	}
	return `The cost of this request is more than limit "` + limit + `" ever allows. ` +
		"Waiting does not help: ask for less at once."
}
