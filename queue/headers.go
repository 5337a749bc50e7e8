package queue

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// CheckHeaders returns an error if the headers of a job are invalid. With fixed it checks the
// headers that an operator adds to all jobs, which may include Host. An error names the header but
// never its value.
func CheckHeaders(headers map[string]string, fixed bool) error {
	if len(headers) > MaxHeaders {
		return fmt.Errorf("%d headers, want at most %d", len(headers), MaxHeaders)
	}
	var all []error
	size, seen := 0, []string(nil)
	for name, value := range headers {
		size += len(name) + len(value)
		canonical := HeaderName(name)
		switch {
		case !token(name):
			all = append(all, fmt.Errorf("%.64q is not a header name", name))
		case ours(canonical) || canonical == "Host" && !fixed:
			all = append(all, fmt.Errorf("header %.64q must not be set: remove it", name))
		case strings.Contains(name, "_") && !fixed: // many servers treat _ like -: Webhook_Id
			all = append(all, fmt.Errorf("header %.64q: write - instead of _", name))
		case slices.Contains(seen, canonical):
			all = append(all, fmt.Errorf("header %.64q is there twice", name))
		case !printable(value):
			all = append(all, fmt.Errorf("header %.64q has characters that no header may have, such as "+
				"the end of a line", name))
		}
		seen = append(seen, canonical)
	}
	if size > MaxHeader {
		all = append(all, fmt.Errorf("headers of %d bytes, want at most %d", size, MaxHeader))
	}
	slices.SortFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(all...)
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

// printable reports whether s is a valid header value (RFC 9110 §5.5).
func printable(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
