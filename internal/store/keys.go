package store

import (
	"errors"
	"fmt"
)

// The records are in one stream: each key has a subject, of which only the newest value is stored.
const (
	streamName  = "HEADGATE"
	subjectHead = "headgate.record."
	maxValue    = 1 << 20 // the limit of one NATS message
)

// escape converts a key to one or more subject tokens, which are also a valid file name. Letters,
// digits, - and _, and dots between them, stay; all other bytes become %XX.
func escape(key string) string {
	b := make([]byte, 0, len(key))
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b = append(b, c)
		case c == '.' && i > 0 && i < len(key)-1 && key[i-1] != '.':
			b = append(b, c)
		default:
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

func unescape(s string) (string, error) {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		var c byte
		if len(s) < i+3 {
			return "", errors.New("a key is cut off")
		}
		if _, err := fmt.Sscanf(s[i+1:i+3], "%02X", &c); err != nil {
			return "", fmt.Errorf("key %q: %w", s, err)
		}
		b = append(b, c)
		i += 2
	}
	return string(b), nil
}
