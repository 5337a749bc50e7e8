package ratelimit

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/wire"
	"github.com/headgate/headgate/limit"
)

// HeaderStyle selects the headers that show limits to clients. The zero value is HeadersIETF.
type HeaderStyle string

// Header styles. All times are seconds from now, rounded up.
const (
	// HeadersIETF sends RateLimit and RateLimit-Policy, one item for each limit
	// (draft-ietf-httpapi-ratelimit-headers, 08 to 11).
	HeadersIETF HeaderStyle = "ietf"
	// HeadersDraft06 sends RateLimit-Limit, -Remaining and -Reset of the tightest limit.
	HeadersDraft06 HeaderStyle = "draft06"
	// HeadersDraft03 sends X-RateLimit-Limit with the policies of all limits, -Remaining and
	// -Reset, as Envoy does for DRAFT_VERSION_03.
	HeadersDraft03 HeaderStyle = "draft03"
	// HeadersLegacy sends X-RateLimit-Limit, -Remaining and -Reset of the tightest limit.
	HeadersLegacy HeaderStyle = "legacy"
	// HeadersNone sends no headers, except Retry-After with a rejection.
	HeadersNone HeaderStyle = "none"
)

// ExceededHeader names the soft limits that a request exceeds, with commas between. Middleware sets it for
// the next handler and for the client, and removes what a client sends under that name.
const ExceededHeader = "Headgate-Exceeded"

// exceeded returns the value of ExceededHeader, or "".
func exceeded(vs []Result) (names string) {
	for i := range vs {
		if v := &vs[i]; v.Exceeded && v.Limit.Soft {
			if names != "" {
				names += ", "
			}
			names += v.Limit.Name
		}
	}
	return names
}

// SetHeaders sets the headers of style for all limits that a request was checked against. It
// replaces headers of that style in h, and sets Retry-After if a limit rejected the request. It
// leaves out limits in shadow mode.
func SetHeaders(h http.Header, style HeaderStyle, vs []Result) {
	setStyle(h, style, vs)
	setRetryAfter(h, vs)
}

// setStyle sets the headers of one style, for the limit that rejects first.
func setStyle(h http.Header, style HeaderStyle, vs []Result) {
	t := tightest(vs)
	if t == nil {
		return
	}
	// The names are in canonical form; net/http would otherwise allocate them for each answer.
	triple := func(prefix, limit string) {
		h[prefix+"Limit"] = []string{limit}
		h[prefix+"Remaining"] = []string{strconv.FormatInt(t.Remaining, 10)}
		more, _ := moreAt(t)
		h[prefix+"Reset"] = []string{strconv.FormatInt(wire.UpSeconds(more), 10)}
	}
	amount := func() string { return strconv.FormatInt(t.Amount, 10) }
	switch style {
	case HeadersNone:
	case HeadersDraft06:
		triple("Ratelimit-", amount())
	case HeadersLegacy:
		triple("X-Ratelimit-", amount())
	case HeadersDraft03:
		triple("X-Ratelimit-", string(appendPolicies03([]byte(amount()), vs)))
	default:
		policy, left := appendIETF(vs)
		values := []string{string(policy), string(left)}
		h["Ratelimit-Policy"], h["Ratelimit"] = values[0:1:1], values[1:2:2]
	}
}

// told reports whether a result is shown to the client.
func told(v *Result) bool { return v.Limit != nil && !v.Limit.Shadow }

// tightest returns the result with the least remaining (draft 03 §3). Of several such results it
// returns the one that rejected the call, or the one that takes longest to have more. It returns a
// soft limit only if there is no other: with nothing left of it, calls pass.
func tightest(vs []Result) *Result {
	var t *Result
	for i := range vs {
		v := &vs[i]
		if !told(v) || t != nil && v.Limit.Soft && !t.Limit.Soft {
			continue
		}
		if t == nil || t.Limit.Soft && !v.Limit.Soft || v.Remaining < t.Remaining {
			t = v
			continue
		}
		if v.Remaining > t.Remaining || v.Allowed && !t.Allowed {
			continue
		}
		a, _ := moreAt(v)
		b, _ := moreAt(t)
		if !v.Allowed && t.Allowed || a > b {
			t = v
		}
	}
	return t
}

// moreAt returns when a rejected client may have what it requested, or when an allowed client has
// the full amount again. ok is false if waiting does not help.
func moreAt(v *Result) (d time.Duration, ok bool) {
	if !v.Allowed && v.Retry > 0 {
		return v.Retry, true
	}
	return v.Reset, v.Allowed || v.Retry >= 0 || v.Reset > 0
}

// appendIETF returns the values of RateLimit-Policy and RateLimit.
func appendIETF(vs []Result) (policy, left []byte) {
	policy, left = make([]byte, 0, 64*len(vs)), make([]byte, 0, 64*len(vs))
	for i := range vs {
		v := &vs[i]
		if !told(v) {
			continue
		}
		if len(policy) > 0 {
			policy, left = append(policy, ", "...), append(left, ", "...)
		}
		policy = wire.AppendInt(append(wire.AppendString(policy, v.Limit.Name), ";q="...), v.Amount)
		switch u := v.Limit.Unit; {
		case v.Limit.Algorithm == limit.Concurrency:
			policy = append(policy, `;qu="concurrent-requests"`...)
		case u == RequestBytes || u == ResponseBytes:
			policy = append(policy, `;qu="content-bytes"`...)
		}
		if w := v.Limit.Rule.Refill(); w > 0 {
			policy = wire.AppendInt(append(policy, ";w="...), wire.UpSeconds(w))
		}
		left = wire.AppendInt(append(wire.AppendString(left, v.Limit.Name), ";r="...), v.Remaining)
		if d, ok := moreAt(v); ok {
			left = wire.AppendInt(append(left, ";t="...), wire.UpSeconds(d))
		}
	}
	return policy, left
}

// appendPolicies03 appends the policies of draft 03 as Envoy does:
// 10, 10;w=1;name="per-ip", 1000;w=3600;name="all".
func appendPolicies03(b []byte, vs []Result) []byte {
	for i := range vs {
		v := &vs[i]
		if !told(v) {
			continue
		}
		b = wire.AppendInt(append(b, ", "...), v.Amount)
		if w := v.Limit.Rule.Refill(); w > 0 {
			b = wire.AppendInt(append(b, ";w="...), wire.UpSeconds(w))
		}
		b = wire.AppendString(append(b, ";name="...), v.Limit.Name)
	}
	return b
}

// setRetryAfter sets Retry-After to the time when all limits that rejected the call would allow it.
// It sets nothing if one of them never would.
func setRetryAfter(h http.Header, vs []Result) {
	if wait, refused, never := retryIn(vs); refused && !never {
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
	}
}

// retryIn returns how many seconds a rejected call has to wait, at least 1.
func retryIn(vs []Result) (wait int64, refused, never bool) {
	wait = 1
	for i := range vs {
		if v := &vs[i]; !v.Allowed && v.Limit != nil {
			refused = true
			never = never || v.Retry < 0
			wait = max(wait, wire.UpSeconds(v.Retry))
		}
	}
	return wait, refused, never
}

// WriteRefusal answers a request that limits rejected. It sends status 429 with the headers of
// SetHeaders. The body is a problem document (RFC 9457) of the type quota-exceeded that names
// these limits, or a short page for clients that prefer HTML. A gRPC call gets the status of
// RefusalStatus.
func WriteRefusal(w http.ResponseWriter, r *http.Request, style HeaderStyle, vs []Result) {
	SetHeaders(w.Header(), style, vs)
	writeRefusal(w, r, vs)
}

func writeRefusal(w http.ResponseWriter, r *http.Request, vs []Result) {
	var names []string
	for i := range vs {
		if v := &vs[i]; !v.Allowed && v.Limit != nil {
			names = append(names, v.Limit.Name)
		}
	}
	detail := refusalDetail(names, vs)
	if wire.IsGRPC(r) {
		wire.WriteGRPC(w, detail, RefusalStatus(vs))
		return
	}
	wire.WriteExceeded(w, r, detail, names)
}

// RefusalStatus returns the status with which a gRPC service rejects a call because of its limits:
// an encoded google.rpc.Status of RESOURCE_EXHAUSTED with QuotaFailure and, if waiting helps,
// RetryInfo. proto.Unmarshal decodes it into a status.Status, and status.ErrorProto makes an error
// of that.
func RefusalStatus(vs []Result) []byte {
	var names []string
	var all []wire.Violation
	var retry time.Duration
	for i := range vs {
		v := &vs[i]
		if v.Allowed || v.Limit == nil {
			continue
		}
		names = append(names, v.Limit.Name)
		all = append(all, wire.Violation{Subject: "limit:" + v.Limit.Name, Description: fmt.Sprintf(
			"%d of %d %s left", v.Remaining, v.Amount, v.Limit.Unit)})
		if retry = max(retry, v.Retry); v.Retry < 0 {
			retry = math.MaxInt64
		}
	}
	return wire.Exhausted(refusalDetail(names, vs), all, retry)
}

// refusalDetail returns a text that tells the client what to do.
func refusalDetail(names []string, vs []Result) string {
	which := "limit"
	if len(names) > 1 {
		which = "limits"
	}
	which += ` "` + strings.Join(names, `", "`) + `"`
	wait, _, never := retryIn(vs)
	switch {
	case len(names) == 0:
		return "Too many requests. Try again later."
	case slices.ContainsFunc(vs, func(v Result) bool {
		return !v.Allowed && v.Local && v.Limit.OnUnreachable == UnreachableDeny
	}):
		return "The " + which + " cannot be asked now. Try again in " + strconv.FormatInt(wait, 10) + " s."
	case never:
		for i := range vs {
			if v := &vs[i]; !v.Allowed && v.Limit != nil && v.Retry < 0 {
				return wire.Never(v.Limit.Name, v.Amount)
			}
		}
	}
	return "Not enough is left of " + which + ". Try again in " + strconv.FormatInt(wait, 10) + " s."
}
