package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxBody      = 64 << 10         // chosen: a message of 500 characters, all escaped, is 6 KB
	bodyPatience = 10 * time.Second // chosen: a slow body must not hold a connection
	maxAsked     = 4 << 10          // of a rejected change in the audit log
)

// change handles PATCH /v1/rooms/{name}.
func (a *API) change(c *call) (any, error) {
	pairs, err := readPairs(c)
	if err != nil {
		return nil, err
	}
	got, err := a.cfg.Process.Change(c.r.Context(), c.room, pairs, c.who.String())
	if err != nil {
		c.done.Asked = asked(pairs)
		return nil, err
	}
	c.done.Before, c.done.After = got.Before, got.After
	return got.Status, nil
}

// reload handles POST /v1/reload.
func (a *API) reload(c *call) (any, error) {
	got, err := a.cfg.Process.Reload(c.r.Context())
	if err != nil {
		return nil, err
	}
	c.done.After = map[string]string{
		"added": strings.Join(got.Rooms.Added, " "), "removed": strings.Join(got.Rooms.Removed, " "),
		"changed":              strings.Join(got.Rooms.Changed, " "),
		"dropped_live_changes": strings.Join(got.Dropped, " "),
	}
	return got, nil
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

// plainWord reports whether a word from a client can be shown unchanged.
func plainWord(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
			r == '_' || r == '-')
	})
}
