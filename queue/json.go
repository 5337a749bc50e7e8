package queue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxLine is the maximum length of a job as JSON: a body of MaxBody bytes in base64, plus the other
// fields.
const MaxLine = MaxBody/3*4 + 64<<10

// A jsonJob is the JSON form of a job, in HTTP requests and in files.
type jsonJob struct {
	Key      string            `json:"key"`
	OrderKey string            `json:"order_key"`
	Tenant   string            `json:"tenant"`
	Priority int               `json:"priority"`
	Cost     *int64            `json:"cost"`
	At       time.Time         `json:"at"`
	MaxAge   string            `json:"max_age"`
	Headers  map[string]string `json:"headers"`

	Body   json.RawMessage `json:"body"`
	Text   *string         `json:"text"`
	Base64 *string         `json:"base64"`
}

const jobExample = `{"key": "order-17", "tenant": "acme", "body": {"order": 17}}`

// ParseJob parses a job from a JSON object. The body is in one of the fields body (any JSON value,
// sent unchanged), text or base64. The other fields are key, order_key, tenant, priority, cost, at,
// max_age and headers. Its errors wrap ErrJob.
func ParseJob(b []byte) (Job, error) {
	var in jsonJob
	bad := func(format string, v ...any) (Job, error) {
		return Job{}, fmt.Errorf("%w: %s", ErrJob, fmt.Sprintf(format, v...))
	}
	if len(b) > MaxLine {
		return bad("%d bytes, and %d are the most", len(b), MaxLine)
	}
	if !utf8.Valid(b) {
		return bad("it is not UTF-8 text: put bytes as base64")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return bad("%s; want such as %s", whyJSON(err), jobExample)
	}
	if bytes.TrimLeft(b, " \t\r\n")[0] != '{' { // encoding/json accepts null as an object
		return bad("it is no object; want such as %s", jobExample)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows the object; want such as %s", jobExample)
	}
	j := Job{Key: in.Key, OrderKey: in.OrderKey, Tenant: in.Tenant, Priority: in.Priority, At: in.At,
		Headers: in.Headers}
	if in.Cost != nil {
		if j.Cost = *in.Cost; j.Cost < 1 {
			return bad("the cost is %d, want 1 to 2^40", j.Cost)
		}
	}
	if in.MaxAge != "" {
		var err error
		if j.MaxAge, err = time.ParseDuration(in.MaxAge); err != nil || j.MaxAge <= 0 {
			return bad("max_age is no duration: write such as 10m or 36h")
		}
	}
	bodies := 0
	if in.Body != nil {
		bodies++
		j.Body = in.Body
	}
	if in.Text != nil {
		bodies++
		j.Body = []byte(*in.Text)
	}
	if in.Base64 != nil {
		bodies++
		var err error
		if j.Body, err = base64.StdEncoding.DecodeString(*in.Base64); err != nil {
			return bad("base64 is not that of RFC 4648")
		}
	}
	if bodies > 1 {
		return bad("body, text and base64: keep one of them")
	}
	if in.Body != nil && !names(j.Headers, "content-type") {
		if j.Headers == nil {
			j.Headers = map[string]string{}
		}
		j.Headers["Content-Type"] = "application/json"
	}
	return j, j.check(time.Now())
}

// names reports whether headers contains a name, which must be in lower case.
func names(headers map[string]string, name string) bool {
	for h := range headers {
		if len(h) == len(name) && bytes.EqualFold([]byte(h), []byte(name)) {
			return true
		}
	}
	return false
}

// whyJSON returns the text of an encoding/json error without the parts that may be long.
func whyJSON(err error) string {
	if _, ok := errors.AsType[*time.ParseError](err); ok || strings.HasPrefix(err.Error(), "Time.") {
		return "at is no time: write such as 2026-12-24T18:00:00Z"
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field == "" {
		return "it may not be " + e.Value
	} else if ok {
		return fmt.Sprintf("%s may not be %s", e.Field, e.Value)
	}
	if errors.Is(err, io.EOF) {
		return "it is empty"
	}
	s := err.Error()
	if len(s) > 200 {
		s = s[:200]
	}
	return "it is no object of a job: " + s
}
