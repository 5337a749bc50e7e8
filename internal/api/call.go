package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/holders"
)

// A call is one request to the API.
type call struct {
	w    http.ResponseWriter
	r    *http.Request
	id   string // of the request, for the log
	path string // for logs: shortened, and without a key of a limit
	room string // the {name} of the path, "" for none
	who  who
	done AuditEntry // the entry for the audit log

	status int // of the answer; 0: 200

	quiet   bool // do not log a rejection: it is frequent, or a normal answer
	wrapped bool // answered in the format of Cloudflare's API

	reserves bool // the request makes a reservation
	asks     []limitAsk
}

// clip shortens text that a client can make as long as a header may be.
func clip(s string) string { return hint.Cut(s, 200) }

// loggedPath removes the key of a limit from a path: it may be an address, or a secret. It also removes the
// key of a holder, in place of an ID.
func loggedPath(path string) string {
	if before, _, ok := strings.Cut(path, holders.Prefix); ok {
		return clip(before) + "…"
	}
	before, _, keyed := strings.Cut(path, "/keys/")
	if keyed && strings.HasPrefix(path, "/v1/limits/") {
		return clip(before) + "/keys/…"
	}
	return clip(path)
}

func writeJSON(w http.ResponseWriter, kind string, status int, v any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // an error means that the client is gone
}

// asked returns the rejected values for the audit log, unless they are too large.
func asked(pairs map[string]string) map[string]string {
	n := 0
	for k, v := range pairs {
		n += len(k) + len(v)
	}
	if n > maxAsked {
		return nil
	}
	return pairs
}

func readPairs(c *call) (map[string]string, error) {
	body, err := readBody(c, maxBody, "send only the keys that you change")
	if err != nil {
		return nil, err
	}
	return parsePairs(body)
}

// readBody reads a body of up to most bytes. hint is the advice for a larger one.
func readBody(c *call, most int64, hint string) ([]byte, error) {
	// Only servers in tests have no deadlines.
	http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(bodyPatience))
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &problem{Status: http.StatusRequestEntityTooLarge, Code: "body_too_large",
			Detail: "the body is larger than " + strconv.FormatInt(most>>10, 10) + " KB", Hint: hint}
	}
	if err != nil {
		return nil, badBody("cannot read the body: " + err.Error())
	}
	return body, nil
}

func badBody(detail string) *problem {
	return &problem{Status: http.StatusBadRequest, Code: "invalid_body", Detail: detail,
		Hint: `send one JSON object of keys and values, such as {"total_active_users": 300}`}
}

// parsePairs parses a JSON object of plain values and returns each as the file would contain it.
// encoding/json alone would accept duplicate keys, where the last counts, and text after the
// object.
func parsePairs(body []byte) (map[string]string, error) {
	if !utf8.Valid(body) {
		return nil, badBody("the body is not UTF-8 text")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return nil, badBody("the body is not a JSON object")
	}
	pairs := map[string]string{}
	for d.More() {
		k, err := d.Token()
		key, ok := k.(string)
		if err != nil || !ok {
			return nil, badBody("the body is not valid JSON")
		}
		v, err := d.Token()
		if err != nil {
			return nil, badBody("the body is not valid JSON")
		}
		if _, twice := pairs[key]; twice {
			return nil, badBody("a key occurs twice in the body")
		}
		if pairs[key], err = textOf(key, v); err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, badBody("the body is not valid JSON")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, badBody("there is more text after the JSON object")
	}
	if len(pairs) == 0 {
		return nil, badBody("the body has no keys")
	}
	return pairs, nil
}

// textOf converts a JSON value to the text that the file would contain.
func textOf(key string, v json.Token) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		if key != "message" { // a number as a message means that the quotes are missing
			return v.String(), nil
		}
	case bool:
		switch {
		case key == "message":
		case v:
			return "true", nil
		default:
			return "false", nil
		}
	}
	name := key
	if !plainWord(key) {
		name = "a key"
	}
	return "", &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_change",
		Detail: name + ": a value of this type is not allowed",
		Hint:   `write a number, true or false, or text in quotes, such as "5m"`}
}

// byKey is the context key of the author of a change.
type byKey struct{}

// by returns a context that names the sender of the request as the author of a change.
func (c *call) by() context.Context {
	return context.WithValue(c.r.Context(), byKey{}, c.who.String())
}

// Actor returns the author of a change of limits: id and name of a token, "" if not known.
func Actor(ctx context.Context) string {
	by, _ := ctx.Value(byKey{}).(string)
	return by
}

const (
	maxBody      = 64 << 10         // chosen: a message of 500 characters, all escaped, is 6 KB
	bodyPatience = 10 * time.Second // chosen: a slow body must not hold a connection
	maxAsked     = 4 << 10          // of a rejected change in the audit log
)

// dispatch calls the handler of the method, or answers that there is none.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request, routes []route) {
	c := &call{w: w, r: r, id: strings.ToLower(rand.Text()[:12]),
		path: loggedPath(r.URL.Path), room: r.PathValue("name"), who: who{zone: a.cfg.Zone},
		wrapped: strings.HasPrefix(r.URL.Path, "/client/v4/")}
	h := w.Header()
	h.Set("X-Request-Id", c.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	// Answers contain text that tenants wrote. An answer that is opened as a document must not run
	// it.
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'self'")
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var methods []string
	for _, e := range routes {
		if e.method == method {
			a.answer(c, e)
			return
		}
		methods = append(methods, e.method)
	}
	if routes == nil {
		a.refuse(c, &problem{Status: http.StatusNotFound, Code: "no_such_path",
			Detail: "there is nothing at this path", Hint: "start with GET /v1/rooms"})
		return
	}
	h.Set("Allow", strings.Join(methods, ", "))
	a.refuse(c, &problem{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Detail: "this path does not support this method", Hint: "use " + strings.Join(methods, " or ")})
}

// answer admits a call, handles it and answers. A change is in the audit log before it is answered,
// also when it failed.
func (a *API) answer(c *call, e route) {
	writes := e.scope == scopeWrite || e.scope == scopeRelease || e.scope == scopeHolders
	if writes {
		c.done = AuditEntry{At: time.Now().UTC(), Remote: c.r.RemoteAddr, Room: clip(c.room),
			What: c.r.Method + " " + c.path, RequestID: c.id}
	}
	var v any
	p := a.admit(c, e)
	if p == nil {
		var err error
		if writes {
			err = a.cfg.Audit.ready() // a change that cannot be logged is not made
		}
		if err == nil {
			v, err = e.handle(c)
		}
		p = problemOf(err)
	}
	if writes {
		a.record(c, p)
	}
	switch {
	case p != nil:
		a.refuse(c, p)
	case v != nil:
		writeJSON(c.w, "application/json", cmp.Or(c.status, http.StatusOK), v)
	}
}

// record writes a change, or its rejection, to the audit log, and a change to the log too.
func (a *API) record(c *call, p *problem) {
	e := &c.done
	e.Who, e.Name, e.Result = c.who.token.ID, c.who.token.Name, "ok"
	if p != nil {
		e.Result = p.Code
		if p.Status == http.StatusTooManyRequests { // guessing must not fill the disk
			return
		}
	}
	if err := a.cfg.Audit.Append(e); err != nil {
		// The change is in force, so the answer must not say that it failed.
		a.cfg.Log.Error("audit log not written", "request", c.id, "error", err)
	}
	if p == nil {
		a.cfg.Log.Info("operator", "what", e.What, "by", c.who.String(),
			"before", e.Before, "after", e.After, "request", c.id)
	}
}
