package wire

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSONBool appends a member of a JSON object.
func AppendJSONBool(b []byte, key string, v bool) []byte {
	return strconv.AppendBool(AppendJSONKey(b, key), v)
}

// AppendJSONKey appends a comma and the name of a member, which must need no escapes.
func AppendJSONKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

// AppendJSONInt appends a member of a JSON object.
func AppendJSONInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(AppendJSONKey(b, key), n, 10)
}

// AppendJSONString appends a member of a JSON object, encoded as by AppendJSONText.
func AppendJSONString(b []byte, key, s string) []byte {
	return AppendJSONText(AppendJSONKey(b, key), s)
}

// AppendJSONText appends a JSON string that is also safe inside HTML.
func AppendJSONText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	plain := 0
	for plain < len(s) && needsNoEscape(s[plain]) {
		plain++
	}
	b = append(append(b, '"'), s[:plain]...)
	for _, c := range s[plain:] {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < 0x20 || c == '<' || c == '>' || c == '&' || c == 0x7f || c == 0x2028 || c == 0x2029:
			b = append(b, '\\', 'u', hex[c>>12&15], hex[c>>8&15], hex[c>>4&15], hex[c&15])
		default:
			b = utf8.AppendRune(b, c) // bytes that are not UTF-8 arrive as U+FFFD
		}
	}
	return append(b, '"')
}

func needsNoEscape(c byte) bool {
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

// MillisLen is the length of what AppendMillis appends, for years with four digits.
const MillisLen = len("2006-01-02T15:04:05.000Z")

// AppendMillis appends a time in UTC, with milliseconds (RFC 3339, §5.6).
func AppendMillis(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(b, time.RFC3339) // package time is fast with this layout
	ms := t.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// AppendJSONSeconds appends a member of a JSON object: seconds, or null if they are unknown.
func AppendJSONSeconds(b []byte, key string, d time.Duration, known bool) []byte {
	b = AppendJSONKey(b, key)
	if !known {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, int64((d+time.Second/2)/time.Second), 10)
}

// AppendJSONMinutes appends two members of a JSON object: minutes, 0 if they are unknown, and the
// same in words.
func AppendJSONMinutes(b []byte, key string, d time.Duration, known bool) []byte {
	minutes := int64(0)
	if known {
		minutes = WholeMinutes(d)
	}
	b = AppendJSONInt(b, key, minutes)
	return append(AppendMinutes(append(AppendJSONKey(b, key+"Formatted"), '"'), minutes, known), '"')
}

// WholeMinutes returns d in minutes, rounded up, and at least 0.
func WholeMinutes(d time.Duration) int64 { return max(0, int64((d+time.Minute-1)/time.Minute)) }

// AppendMinutes appends a number of minutes in words, or "unavailable" if it is not known.
func AppendMinutes(b []byte, n int64, known bool) []byte {
	switch {
	case !known:
		return append(b, "unavailable"...)
	case n == 1:
		return append(b, "1 minute"...)
	}
	return append(strconv.AppendInt(b, n, 10), " minutes"...)
}
