package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Amend returns a copy of r in which the given keys are parsed from text. It uses the same fields
// as the file and rejects what the file would reject. Only some keys can be changed while visitors
// are inside. The error joins one *Fault for each mistake; each has the key but no position.
func Amend(r *Room, pairs map[string]string) (*Room, error) {
	c := *r
	d := newDecoder("", homeOf)
	d.amends = true
	all, open := roomFields(&c), amendable()
	var readable []field
	for _, f := range all {
		if slices.Contains(open, f.name) {
			readable = append(readable, f)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if m := amends(key, pairs[key], all, readable); m != nil {
			d.faultAt(under("", key), spot{}, m)
		}
	}
	for _, f := range readable { // in the order of the file, so that faults have that order too
		text, ok := pairs[f.name]
		if !ok || d.bad[f.name] {
			continue
		}
		d.spots[f.name] = spot{}
		f.read(d, f.name, &yaml.Node{Kind: yaml.ScalarNode, Tag: flagTag, Value: text})
	}
	c.derive(d, "")
	checkSpans(d, &c, "")
	checkEvents(d, &c, "")
	if d.Count() > 0 {
		return nil, joinFaults(d.Found)
	}
	return &c, nil
}

// amendable returns the keys of a room that can be changed while it runs.
func amendable() []string {
	return strings.Fields(`total_active_users new_users_per_minute session_duration hard_end
		method queue_all closed suspended shadow message max_waiting hold hold_phone`)
}

// amends checks the key itself, before its value is read.
func amends(key, text string, all, readable []field) *mistake {
	switch {
	case slices.Contains(names(readable), key):
		if !utf8.ValidString(text) {
			return wrong("write UTF-8 text", "is not UTF-8 text")
		}
		return nil
	case slices.Contains(names(all), key):
		return wrong("change the file and reload", "cannot be changed while headgate runs")
	}
	_, hint := suggestKeys(key, homeOf(key), readable)
	return wrong(hint, "there is no such key")
}

// Text returns the value of a key that Amend can change, in the form that Amend parses. It returns
// "" for any other key.
func (r *Room) Text(key string) string {
	whole := func(n int64) string { return strconv.FormatInt(n, 10) }
	span := func(d time.Duration) string {
		if d == 0 {
			return "0"
		}
		return short(d)
	}
	switch key {
	case "total_active_users":
		if r.Auto.Mode != "" {
			return r.Auto.word()
		}
		return whole(r.TotalActiveUsers)
	case "new_users_per_minute":
		if r.Auto.New {
			return autoWord
		}
		return whole(r.NewUsersPerMinute)
	case "max_waiting":
		return whole(r.MaxWaiting)
	case "session_duration":
		return span(r.SessionDuration)
	case "hard_end":
		return span(r.HardEnd)
	case "hold":
		return span(r.Hold)
	case "hold_phone":
		return span(r.HoldPhone)
	case "method":
		return r.Method
	case "queue_all":
		return strconv.FormatBool(r.QueueAll)
	case "closed":
		return strconv.FormatBool(r.Closed)
	case "suspended":
		return strconv.FormatBool(r.Suspended)
	case "shadow":
		return strconv.FormatBool(r.Shadow)
	case "message":
		return r.Message
	}
	return ""
}

// Fingerprint returns a hash of a room's configuration, so that a reload can detect whether the
// file still describes the same room. It covers only the values that differ from the defaults, so
// that a key added by a later version of headgate changes no fingerprint.
func (r *Room) Fingerprint() (string, error) {
	own, err := members(*r)
	if err != nil {
		return "", err
	}
	std, err := members(defaultRoom())
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(own, func(k string, v json.RawMessage) bool {
		return string(std[k]) == string(v)
	})
	b, err := json.Marshal(own)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// members returns the fields of a room as JSON.
func members(r Room) (map[string]json.RawMessage, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	err = json.Unmarshal(b, &m)
	return m, err
}

// ErrNoFile is returned by Again for a configuration that came from flags.
var ErrNoFile = errors.New("the rooms come from flags: there is no file to read again")

// Again reads the file of c again, with the same flags overriding it. The error is ErrNoFile or
// consists of *Fault.
func (c *Config) Again() (*Config, error) {
	if c.File == "" {
		return nil, ErrNoFile
	}
	return load(c.File, c.over)
}

// ParseDuration parses a duration in the notation of the file, such as 90d or 12h. The error is a
// *Fault.
func ParseDuration(s string) (time.Duration, error) {
	v, m := parseDuration(s)
	if m != nil {
		return 0, &Fault{Problem: m.problem, Hint: m.hint}
	}
	return v, nil
}

// Make builds a room from values by key, as they would be written in the file: texts, lists of
// them, and groups by key. It does not check that the limits it names exist. The error joins one
// *Fault for each mistake; each has the key but no position.
func (c *Config) Make(values map[string]any) (*Room, error) {
	r := defaultRoom()
	d := newDecoder("", homeOf)
	d.amends = true
	for _, f := range roomFields(&r) {
		if value, ok := values[f.name]; ok {
			d.spots[f.name] = spot{}
			f.read(d, f.name, nodeOf(value))
		}
	}
	r.Limits = union(nil, r.Limits)
	r.derive(d, "")
	checkRoutes(d, &r, "")
	checkSpans(d, &r, "")
	checkLoop(d, c, &r, "")
	if d.Count() > 0 {
		return nil, joinFaults(d.Found)
	}
	return &r, nil
}

// nodeOf converts a value to the node that it would be in a file.
func nodeOf(value any) *yaml.Node {
	switch v := value.(type) {
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: flagTag, Value: v}
	case []string:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, x := range v {
			n.Content = append(n.Content, nodeOf(x))
		}
		return n
	case []any:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, x := range v {
			n.Content = append(n.Content, nodeOf(x))
		}
		return n
	case map[string]any:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			k := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}
			n.Content = append(n.Content, k, nodeOf(v[key]))
		}
		return n
	}
	panic(fmt.Sprintf("a room has no value of type %T", value))
}
