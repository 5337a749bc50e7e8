package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// A limitAsk is one object of a body: a limit, a key and a cost, and for some paths more.
type limitAsk struct {
	headgate.LimitCheck
	costs bool // the object has a cost

	settles bool   // the object has a reservation
	id      uint64 // 0: nothing to settle
	ttl     time.Duration
}

func badAsk(detail string) *problem {
	return &problem{Status: http.StatusUnprocessableEntity, Code: "invalid_ask", Detail: detail,
		Hint: `send, for example, {"limit": "api", "key": "bob", "cost": 1}`}
}

// flag parses the only parameter of a query, which is true or false.
func flag(c *call, name string) (bool, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	s, twice := q.Get(name), len(q[name]) > 1
	if q.Del(name); err != nil || len(q) > 0 || twice || s != "" && s != "true" && s != "false" {
		p := badAsk("the query may only have " + name + "=true or " + name + "=false")
		p.Hint = "send ?" + name + "=true, or no query"
		return false, p
	}
	return s == "true", nil
}

// readAsks reads a body of objects with these fields.
func readAsks(c *call, fields ...string) (asks []limitAsk, array bool, err error) {
	c.quiet = true
	body, err := readBody(c, maxAsksBody, "check fewer at once")
	if err != nil {
		if p, ok := errors.AsType[*problem](err); ok && p.Code == "invalid_body" {
			p.Hint = badAsk("").Hint
		}
		return nil, false, err
	}
	return parseAsks(body, fields)
}

// parseAsks parses one object, or an array of them. encoding/json alone would accept duplicate
// names, where the last counts, names in any case, and text after the value.
func parseAsks(body []byte, fields []string) (asks []limitAsk, array bool, err error) {
	if !utf8.Valid(body) {
		return nil, false, badJSON()
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	switch first, err := d.Token(); {
	case err != nil:
		return nil, false, badJSON()
	case first == json.Delim('['):
		array = true
	case first != json.Delim('{'):
		return nil, false, badAsk("the body is not an object and not an array of objects")
	}
	for !array || d.More() {
		if array {
			if open, err := d.Token(); err != nil || open != json.Delim('{') {
				return nil, false, badAsk("an element of the array is not an object")
			}
		}
		if len(asks) == maxAsks {
			return nil, false, &problem{Status: http.StatusRequestEntityTooLarge, Code: "too_many_asks",
				Detail: "more than " + strconv.Itoa(maxAsks) + " at once", Hint: "check fewer at once"}
		}
		ask, err := parseAsk(d, fields)
		if err != nil {
			return nil, false, err
		}
		if asks = append(asks, ask); !array {
			break
		}
	}
	if array {
		if _, err := d.Token(); err != nil {
			return nil, false, badJSON()
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, false, badJSON()
	}
	if len(asks) == 0 {
		return nil, false, badAsk("the array is empty")
	}
	return asks, array, nil
}

func badJSON() *problem {
	p := badAsk("the body is not valid JSON, or there is more text after it")
	p.Status, p.Code = http.StatusBadRequest, "invalid_body"
	return p
}

// parseAsk parses an object after its opening brace.
func parseAsk(d *json.Decoder, fields []string) (limitAsk, error) {
	a := limitAsk{LimitCheck: headgate.LimitCheck{Cost: 1}, ttl: reserved}
	var seen []string
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return a, badJSON()
		}
		switch {
		case slices.Contains(seen, name):
			return a, badAsk("a field occurs twice")
		case !slices.Contains(fields, name):
			if !plainWord(name) {
				name = "a field"
			}
			return a, badAsk(name + " is not allowed; the fields are " + strings.Join(fields, ", "))
		}
		seen = append(seen, name)
		v, err := d.Token()
		if err != nil {
			return a, badJSON()
		}
		if err := a.set(name, v); err != nil {
			return a, err
		}
	}
	if _, err := d.Token(); err != nil {
		return a, badJSON()
	}
	if a.Limit == "" {
		return a, badAsk("the field limit is missing")
	}
	return a, nil
}

// set sets one field.
func (a *limitAsk) set(name string, v json.Token) error {
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	switch name {
	case "limit", "key":
		if !isText {
			return badAsk(name + " must be a string")
		}
		if name == "limit" {
			a.Limit = text
		} else {
			a.Key = text
		}
	case "cost":
		n, err := strconv.ParseInt(string(number), 10, 64)
		if !isNumber || err != nil || n < -limit.MaxAmount || n > limit.MaxAmount {
			return badAsk("cost must be a whole number, up to " + strconv.Itoa(limit.MaxAmount))
		}
		a.Cost, a.costs = n, true
	case "reservation":
		if isNumber {
			text = string(number)
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return badAsk("reservation must be the number that reserve or check returned")
		}
		a.id, a.settles = n, true
	case "ttl_seconds":
		n, err := number.Float64()
		if !isNumber || err != nil || !(n >= 0.001 && n <= maxReserved.Seconds()) {
			return badAsk("ttl_seconds must be a number from 0.001 to " +
				strconv.Itoa(int(maxReserved.Seconds())))
		}
		a.ttl = time.Duration(n * float64(time.Second))
	}
	return nil
}
