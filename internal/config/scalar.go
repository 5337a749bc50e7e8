package config

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/schema"
	"github.com/headgate/headgate/internal/suggest"
)

const (
	maxUsers = math.MaxInt32 // Cloudflare's maximum of the same keys
	day      = 24 * time.Hour

	durationHint = "write a number and a unit, such as 30s, 5m or 1h"
)

// A scalar reads one value and stores it. Its form is the schema of the values that it accepts.
type scalar struct {
	read func(n *yaml.Node) *mistake
	form *schema.Schema
}

// as returns s with another schema, which knows more.
func (s scalar) as(form *schema.Schema) scalar {
	form.Default = s.form.Default
	s.form = form
	return s
}

// nameText reads the name of a thing.
func nameText(dst *string) scalar {
	return text(dst, cleanName).as(schema.Text("^[A-Za-z0-9_-]{1,64}$", ""))
}

// text reads a value that YAML treats as text, and passes it to clean.
func text(dst *string, clean func(string) (string, *mistake)) scalar {
	read := raw(dst, clean).read
	return scalar{func(n *yaml.Node) *mistake {
		if m := wantText(n); m != nil {
			return m
		}
		return read(n)
	}, schema.Text("", "").WithDefault(*dst)}
}

// raw reads a value as it is written, whatever its YAML type. For 8080 as an address or 10.5 as a
// host, clean gives a better message than "not text".
func raw[T any](dst *T, clean func(string) (T, *mistake)) scalar {
	form := schema.Text("", "")
	for _, number := range []string{"1", "0.5"} {
		if _, m := clean(number); m == nil {
			form.Type = []string{"string", "number"}
		}
	}
	if v := reflect.ValueOf(*dst); v.Kind() == reflect.String {
		form = form.WithDefault(v.String())
	}
	return scalar{func(n *yaml.Node) *mistake {
		v, m := clean(n.Value)
		if m == nil {
			*dst = v
		}
		return m
	}, form}
}

func wantText(n *yaml.Node) *mistake {
	if n.Tag == "!!str" || n.Tag == flagTag {
		return nil
	}
	return wrong("put it in quotes: "+quote(n.Value),
		"%s is %s, not text", clip(n.Value), kind(n))
}

// whole reads a plain decimal number between least and most.
func whole[T int | int64](dst *T, least, most int64) scalar {
	return scalar{func(n *yaml.Node) *mistake {
		v, m := parseWhole(n, least, most)
		if m == nil {
			*dst = T(v)
		}
		return m
	}, schema.Whole(least, most).WithDefault(*dst)}
}

// parseWhole reads a whole number. YAML has other forms of numbers, such as 0x10, 1_000 and 010,
// which people read differently.
func parseWhole(n *yaml.Node, least, most int64) (int64, *mistake) {
	between := "write a whole number from " + strconv.FormatInt(least, 10) +
		" to " + strconv.FormatInt(most, 10)
	digits := strings.TrimPrefix(n.Value, "-")
	plain := allDigits(digits) && (len(digits) == 1 || digits[0] != '0')
	switch {
	case plain && n.Tag == "!!str":
		return 0, wrong("take the quotes off: "+clip(n.Value),
			"%s is text, not a number", quote(n.Value))
	case !plain && n.Tag == "!!int":
		return 0, wrong("write plain decimal digits, such as 200",
			"%s is not a plain decimal number", clip(n.Value))
	case !plain:
		return 0, wrong(between, "%s is not a whole number", quote(n.Value))
	}
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil { // out of range: 20 digits or more
		v = math.MaxInt64
		if strings.HasPrefix(n.Value, "-") {
			v = math.MinInt64
		}
	}
	switch {
	case v < least:
		return 0, wrong(between, "%s is too small", clip(n.Value))
	case v > most:
		return 0, wrong(between, "%s is too large", clip(n.Value))
	}
	return v, nil
}

// clip shortens a number with thousands of digits; it needs no quotes.
func clip(s string) string { return strings.Trim(quote(s), `"`) }

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// oneOf reads a number that must be one of a fixed set.
func oneOf(dst *int, allowed ...int) scalar {
	return scalar{func(n *yaml.Node) *mistake {
		var words []string
		for _, a := range allowed {
			words = append(words, strconv.Itoa(a))
		}
		hint := "write one of " + strings.Join(words, ", ")
		v, m := parseWhole(n, math.MinInt64, math.MaxInt64)
		if m != nil {
			return m
		}
		if !slices.Contains(allowed, int(v)) {
			return wrong(hint, "%s is not allowed here", clip(n.Value))
		}
		*dst = int(v)
		return nil
	}, schema.OneOf(allowed...).WithDefault(*dst)}
}

// truth reads true or false and accepts no other spelling.
func truth(dst *bool) scalar {
	return scalar{func(n *yaml.Node) *mistake {
		plain := n.Tag == flagTag && (n.Value == "true" || n.Value == "false")
		if n.Tag != "!!bool" && !plain {
			return wrong("write true or false, without quotes",
				"%s is neither true nor false", quote(n.Value))
		}
		*dst = strings.EqualFold(n.Value, "true")
		return nil
	}, (&schema.Schema{Type: "boolean"}).WithDefault(*dst)}
}

// span reads a duration between least and most. With orNone 0 is allowed too.
func span(dst *time.Duration, least, most time.Duration, orNone bool) scalar {
	return scalar{func(n *yaml.Node) *mistake {
		v, m := parseDuration(n.Value)
		if m != nil {
			return m
		}
		if v == 0 && orNone {
			*dst = 0
			return nil
		}
		hint := "write a duration from " + short(least) + " to " + short(most)
		if orNone {
			hint += ", or 0"
		}
		switch {
		case v < least:
			return wrong(hint, "%s is too short", clip(n.Value))
		case v > most:
			return wrong(hint, "%s is too long", clip(n.Value))
		}
		*dst = v
		return nil
	}, spanForm(*dst, least, most, orNone)}
}

// spanForm returns the schema of a duration. Its pattern knows the spelling, and its note the bounds.
func spanForm(v, least, most time.Duration, orNone bool) *schema.Schema {
	const spelling = `^\+?([0-9]+d|([0-9]+(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+)$`
	form := schema.Text(spelling, "A duration from "+short(least)+" to "+short(most)+".")
	if orNone {
		form = schema.Any(schema.Text(spelling, "A duration from "+short(least)+" to "+short(most)+", or 0."),
			schema.OneOf[any]("0", 0))
	}
	if v == 0 {
		return form
	}
	return form.WithDefault(short(v))
}

// parseDuration parses Go's durations and whole days, such as 30d.
func parseDuration(s string) (time.Duration, *mistake) {
	bare := strings.TrimPrefix(s, "-")
	switch {
	case bare == "":
		return 0, wrong(durationHint, "%s is not a duration", quote(s))
	case strings.Trim(bare, "0") == "":
		return 0, nil
	case strings.Trim(bare, "0123456789.") == "":
		return 0, wrong(durationHint, "%s has no unit", quote(s))
	}
	if days, ok := strings.CutSuffix(bare, "d"); ok && allDigits(days) {
		n, err := strconv.Atoi(days)
		if err != nil || n > int(math.MaxInt64/day) {
			return 0, tooLong(s)
		}
		bare = strconv.Itoa(24*n) + "h"
	}
	v, err := time.ParseDuration(bare)
	switch {
	case err != nil && looksLikeDuration(bare):
		return 0, tooLong(s)
	case err != nil:
		return 0, wrong(durationHint, "%s is not a duration", quote(s))
	case strings.HasPrefix(s, "-"):
		return 0, wrong("write a duration above zero, such as 5m", "%s is negative", clip(s))
	}
	return v, nil
}

func tooLong(s string) *mistake {
	return wrong("write a duration of at most 30d", "%s is too long", clip(s))
}

// looksLikeDuration distinguishes an overflow from a spelling mistake, since time.ParseDuration
// returns the same error for both. It reports whether all letters form units.
func looksLikeDuration(s string) bool {
	units := strings.FieldsFunc(s, func(r rune) bool { return r == '.' || '0' <= r && r <= '9' })
	for _, u := range units {
		if !slices.Contains([]string{"ns", "us", "ms", "s", "m", "h"}, u) {
			return false
		}
	}
	return len(units) > 0 && '0' <= s[0] && s[0] <= '9'
}

// short formats a duration without its zero parts: 5m rather than 5m0s.
func short(v time.Duration) string {
	if v >= day && v%day == 0 {
		return strconv.FormatInt(int64(v/day), 10) + "d"
	}
	s := v.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// parseTime parses RFC 3339. It rejects a time without a zone, which would mean a different moment
// on each machine.
func parseTime(s string) (time.Time, *mistake) {
	const hint = "write date, time and zone, such as 2026-12-01T10:00:00Z" +
		" or 2026-12-01T10:00:00+01:00"
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, wrong(hint, "%s is not an RFC 3339 time", quote(s))
	}
	if y := t.Year(); y < 2000 || y > 2199 {
		return t, wrong("check the year", "the year of %s cannot be meant", s)
	}
	return t, nil
}

// moment reads a time.
func moment(dst *time.Time) scalar {
	const form = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T.*(Z|[+-][0-9]{2}:[0-9]{2})$"
	return raw(dst, parseTime).as(schema.Text(form, "Date, time and zone, such as 2026-12-01T10:00:00+01:00."))
}

func cleanName(s string) (string, *mistake) {
	const hint = "use 1 to 64 of the letters A-Z and a-z, digits, _ and -"
	if s == "" || len(s) > 64 {
		return "", wrong(hint, "%s is %d characters long", quote(s), utf8.RuneCountInString(s))
	}
	for _, r := range s {
		if !isWordRune(r) {
			return "", wrong(hint, "%s contains %q", quote(s), r)
		}
	}
	return s, nil
}

func isWordRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' ||
		r == '_' || r == '-'
}

func cleanTitle(s string) (string, *mistake) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", wrong("write a title, or leave the key out", "is empty")
	}
	return plainText(s, 100, "")
}

func cleanMessage(s string) (string, *mistake) {
	return plainText(strings.TrimSpace(s), 500, "\n")
}

// CheckMessage checks a message for waiting visitors. It returns nil if the message is valid.
func CheckMessage(s string) *Fault {
	if _, m := cleanMessage(s); m != nil {
		return &Fault{Key: "message", Problem: m.problem, Hint: m.hint}
	}
	return nil
}

// plainText rejects control characters, except those in allowed.
func plainText(s string, most int, allowed string) (string, *mistake) {
	if n := utf8.RuneCountInString(s); n > most {
		return "", wrong("shorten it", "is %d characters long, %d more than the %d allowed",
			n, n-most, most)
	}
	for _, r := range s {
		if unicode.IsControl(r) && !strings.ContainsRune(allowed, r) {
			return "", wrong("write plain text", "contains the control character %q", r)
		}
	}
	return s, nil
}

func cleanSecure(s string) (CookieSecure, *mistake) {
	switch v := CookieSecure(s); v {
	case CookieSecureAuto, CookieSecureAlways, CookieSecureNever:
		return v, nil
	}
	return "", wrong("write auto, always or never", "%s is not allowed here", quote(s))
}

func cleanData(s string) (string, *mistake) {
	switch {
	case strings.TrimSpace(s) == "":
		return "", wrong("name a folder, such as ./headgate-data", "is empty")
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", wrong("name a folder, such as ./headgate-data",
			"%s contains a control character", quote(s))
	}
	return s, nil
}

// kind describes what kind of value a node is.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a group of keys"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a truth value"
	case "!!timestamp":
		return "a date"
	case "!!null":
		return "empty"
	}
	return "text"
}

// word reads one of a fixed set of words.
func word(dst *string, allowed ...string) scalar {
	clean := func(s string) (string, *mistake) { return s, oneWord(s, allowed) }
	return raw(dst, clean).as(schema.OneOf(allowed...))
}

func oneWord(s string, allowed []string) *mistake {
	if slices.Contains(allowed, s) {
		return nil
	}
	hint := "write one of " + strings.Join(allowed, ", ")
	if near := suggest.Nearest(s, allowed); near != "" {
		hint = "did you mean " + near + "?"
	}
	return wrong(hint, "%s is not allowed here", quote(s))
}

// cleanFile checks the name of a file; whether the file exists is checked later.
func cleanFile(s string) (string, *mistake) {
	const hint = "name a file, such as /etc/headgate/fullchain.pem"
	switch {
	case strings.TrimSpace(s) == "":
		return "", wrong(hint, "is empty")
	case strings.Contains(s, "-----BEGIN"):
		return "", wrong(hint, "holds the text itself")
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", wrong(hint, "%s contains a control character", quote(s))
	}
	return s, nil
}

func cleanFileName(s string) (string, *mistake) {
	if strings.TrimSpace(s) == "" {
		return "", wrong("write the path of a file, such as waiting.html", "is empty")
	}
	return s, nil
}

const (
	maxDepth  = 32      // chosen: a room needs 8
	maxValues = 100_000 // chosen: an alias may name a list that names aliases

	// flagTag marks a value that came from a flag and so has no YAML type.
	flagTag = "flag"
)
