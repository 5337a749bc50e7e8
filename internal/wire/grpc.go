package wire

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// exhausted is gRPC's RESOURCE_EXHAUSTED.
const exhausted = 8

// A Violation is one limit that rejects the call.
type Violation struct {
	Subject     string // the limit, such as "limit:api"
	Description string // what is left of it
}

// IsGRPC reports whether a request is a gRPC call, except gRPC-Web, which understands 429.
func IsGRPC(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// Exhausted returns an encoded google.rpc.Status. A retry of math.MaxInt64 says that waiting does
// not help.
func Exhausted(message string, violations []Violation, retry time.Duration) []byte {
	const kind = "type.googleapis.com/google.rpc."
	message = strings.ToValidUTF8(message, "\ufffd")
	b := binary.AppendUvarint([]byte{1 << 3}, exhausted)
	b = field(b, 2, []byte(message))
	var failure []byte
	for _, v := range violations {
		one := field(nil, 1, []byte(strings.ToValidUTF8(v.Subject, "\ufffd")))
		one = field(one, 2, []byte(strings.ToValidUTF8(v.Description, "\ufffd")))
		failure = field(failure, 1, one)
	}
	b = field(b, 3, field(field(nil, 1, []byte(kind+"QuotaFailure")), 2, failure))
	if retry == math.MaxInt64 {
		return b
	}
	delay := binary.AppendUvarint([]byte{1 << 3}, uint64(retry/time.Second))
	delay = binary.AppendUvarint(append(delay, 2<<3), uint64(retry%time.Second))
	return field(b, 3, field(field(nil, 1, []byte(kind+"RetryInfo")), 2, field(nil, 1, delay)))
}

// field appends a field of type bytes.
func field(b []byte, number byte, value []byte) []byte {
	const bytes = 2 // the wire type
	b = binary.AppendUvarint(append(b, number<<3|bytes), uint64(len(value)))
	return append(b, value...)
}

// WriteGRPC answers a call with a status from Exhausted, and nothing else.
func WriteGRPC(w http.ResponseWriter, message string, status []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(exhausted))
	h.Set("Grpc-Message", Percent(message))
	h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(status))
	w.WriteHeader(http.StatusOK)
}

// Percent percent-encodes % and everything that is not printable ASCII, as Grpc-Message requires.
func Percent(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
