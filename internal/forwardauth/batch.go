package forwardauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/sessions"
)

// Bounds of a batch. Chosen: a question with a cookie has about 600 bytes. endWithin is shorter than
// the time for which a connector waits, so that it learns which ends it must repeat.
const (
	mostQuestions = 1000
	mostEnds      = 100
	mostBatch     = 1 << 20
	endWithin     = 4 * time.Second
)

// Ways in which a session ends.
const (
	Complete = "complete"
	Abandon  = "abandon"
)

// A batch is what a connector says at once.
type batch struct {
	Questions []question `json:"questions"`
	Ends      []End      `json:"ends"`
}

// A question is about a request that the connector has let in by the visitor's pass.
type question struct {
	Method  string     `json:"method"`
	Host    string     `json:"host"`
	Proto   string     `json:"proto"`
	URI     string     `json:"uri"`
	For     string     `json:"for"`     // X-Forwarded-For
	Headers [][]string `json:"headers"` // name and value
}

// An End asks for the end of a session.
type End struct {
	Room  string `json:"room"`
	Token string `json:"token"` // the signed pass
	As    string `json:"as"`    // Complete or Abandon
}

// A result answers a question.
type result struct {
	Status   int      `json:"status"`
	Admitted string   `json:"admitted,omitempty"`
	Local    string   `json:"local,omitempty"`
	Pass     string   `json:"pass,omitempty"`
	Cookies  []string `json:"set_cookie,omitempty"`
}

// An ending answers an End.
type ending struct {
	Ended   bool   `json:"ended"`
	Refusal string `json:"error,omitempty"`
}

// serveBatch answers a batch: first all questions, then all ends, each list in its order.
func (h *Handler) serveBatch(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		say(w, http.StatusMethodNotAllowed, "POST a batch of questions: see docs/connectors.md.")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBatch))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		say(w, http.StatusRequestEntityTooLarge, "A batch has at most 1 MB.")
		return
	}
	var b *batch
	if err == nil {
		b, err = parseBatch(body)
	}
	if err != nil {
		say(w, http.StatusBadRequest, "headgate cannot read the batch: "+err.Error()+".")
		return
	}
	results, endings := make([]result, len(b.Questions)), make([]ending, len(b.Ends))
	for i := range b.Questions {
		results[i] = h.renew(r, &b.Questions[i])
	}
	ctx, stop := context.WithTimeout(r.Context(), endWithin)
	defer stop()
	for i := range b.Ends {
		endings[i].Ended, endings[i].Refusal = h.End(ctx, b.Ends[i])
	}
	told := map[string]any{"answers": results, "ends": endings}
	if ended, ok := h.Leases(); ok {
		told["lease"], told["gone"] = sessions.Lease.Seconds(), append([]string{}, ended...)
	}
	w.Header()["Content-Type"], w.Header()["Cache-Control"] = jsonType, noStore
	_ = json.NewEncoder(w).Encode(told) // an error: the connector has gone
}

// parseBatch reads one JSON value of known keys.
func parseBatch(body []byte) (*batch, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	b := &batch{}
	if err := d.Decode(b); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows it")
	}
	if len(b.Questions) > mostQuestions || len(b.Ends) > mostEnds {
		return nil, fmt.Errorf("it has %d questions and %d ends; %d and %d are allowed",
			len(b.Questions), len(b.Ends), mostQuestions, mostEnds)
	}
	for i := range b.Ends {
		if as := b.Ends[i].As; as != Complete && as != Abandon {
			return nil, fmt.Errorf("an end is %s or %s, not %.20q", Complete, Abandon, as)
		}
	}
	return b, nil
}

// renew decides one question.
func (h *Handler) renew(r *http.Request, q *question) result {
	asked, err := q.request(r)
	if err != nil {
		return result{Status: http.StatusBadRequest}
	}
	a := &headers{h: http.Header{}}
	judge(&verdict{ResponseWriter: a, form: form{relays: true}, asked: asked}, h.Renew)
	if !Lets(a.h, asked) {
		return result{Status: a.code}
	}
	return result{Status: a.code, Admitted: a.h.Get(AdmittedHeader), Local: a.h.Get(LocalHeader),
		Pass: a.h.Get(PassHeader), Cookies: a.h["Set-Cookie"]}
}

// request returns the visitor's request.
func (q *question) request(r *http.Request) (*http.Request, error) {
	u, err := Target(q.URI)
	if err != nil {
		return nil, err
	}
	if q.Method == "" || q.Host == "" || q.Proto != "http" && q.Proto != "https" {
		return nil, errMissing
	}
	from, err := fieldValue(q.For)
	if err != nil {
		return nil, err
	}
	asked := &http.Request{Method: q.Method, Host: q.Host, URL: u, RequestURI: q.URI,
		RemoteAddr: r.RemoteAddr, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
		Header: http.Header{"X-Forwarded-Proto": {q.Proto}, "X-Forwarded-For": {from}}}
	for _, line := range q.Headers {
		if len(line) != 2 {
			return nil, errors.New("a header has a name and a value")
		}
		name := http.CanonicalHeaderKey(line[0])
		if name != "Cookie" && name != "User-Agent" { // a session depends on nothing else
			return nil, fmt.Errorf("the header %.40q does not belong here", name)
		}
		value, err := fieldValue(line[1])
		if err != nil {
			return nil, err
		}
		asked.Header[name] = append(asked.Header[name], value)
	}
	return asked.WithContext(r.Context()), nil
}

// fieldValue returns the bytes of a header, which connectors read as ISO 8859-1.
func fieldValue(s string) (string, error) {
	b := make([]byte, 0, len(s))
	for _, c := range s {
		if c < ' ' && c != '\t' || c == 0x7f || c > 0xff {
			return "", fmt.Errorf("%.40q is no value of a header", s)
		}
		b = append(b, byte(c))
	}
	return string(b), nil
}

// headers are an answer without its body.
type headers struct {
	h    http.Header
	code int
}

// Header implements http.ResponseWriter.
func (a *headers) Header() http.Header { return a.h }

// WriteHeader implements http.ResponseWriter.
func (a *headers) WriteHeader(code int) { a.code = code }

// Write implements http.ResponseWriter.
func (*headers) Write(p []byte) (int, error) { return len(p), nil }

var jsonType = []string{"application/json"}
