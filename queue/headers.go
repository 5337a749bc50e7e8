package queue

import (
	"net/http"
	"strings"
)

// ours reports whether only the sender may set a header: those of the connection (RFC 9110 §7.6.1),
// of the body length and of the delivery.
func ours(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Expect", "Idempotency-Key", "X-Idempotency-Key":
		return true
	}
	return strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "Headgate-") ||
		strings.HasPrefix(name, "Webhook-")
}

// HeaderName returns a header name in the form in which servers pass it to CGI programs. There,
// Webhook.Id and Webhook_Id are both Webhook-Id.
func HeaderName(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name))
}

// token reports whether s is a valid header name (RFC 9110 §5.6.2).
func token(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}
