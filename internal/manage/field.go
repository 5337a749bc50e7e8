package manage

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/suggest"
)

// A field connects a member of an object to where its value is stored.
type field struct {
	name string
	need bool
	std  func()                              // sets the default; nil: no default
	read func(r *reader, at string, v any)   // v is not null; nil: the member is read-only and ignored
	none func(r *reader, at string, is bool) // of a group: called when the group is missing
}

// object reads an object by its fields.
func (r *reader) object(at string, v any, fields []field) {
	o, ok := v.(*object)
	if !ok {
		r.wrong(at, CodeType, "send an object, such as {\"name\": \"shop\"}", "is %s, not an object", kind(v))
		return
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
		_, there := o.members[f.name]
		switch {
		case f.none != nil:
			f.none(r, below(at, f.name), there)
		case r.whole && f.std != nil:
			f.std()
		}
		if r.whole && f.need && !there {
			r.wrong(below(at, f.name), CodeRequired, "add it", "is missing")
		}
	}
	for _, name := range o.names {
		i := slices.Index(names, name)
		if i < 0 {
			hint := "docs/management.md lists the members"
			if n := suggest.Nearest(name, names); n != "" {
				hint = "did you mean " + n + "?"
			}
			r.wrong(below(at, name), CodeUnknown, hint, "there is no such member")
			continue
		}
		f, v := fields[i], o.members[name]
		switch {
		case f.read == nil:
		case v == nil && f.need:
			r.wrong(below(at, name), CodeRequired, "give it a value", "is null")
		case v == nil:
			f.std()
		default:
			f.read(r, below(at, name), v)
		}
	}
}

func (f field) required() field {
	f.need = true
	return f
}

// ignored is the field of a read-only member.
func ignored(name string) field { return field{name: name} }

// text is the field of a text of at most that many bytes.
func text(name string, dst *string, std string, most int) field {
	return field{name: name, std: func() { *dst = std }, read: func(r *reader, at string, v any) {
		s, ok := v.(string)
		switch {
		case !ok:
			r.wrong(at, CodeType, "write it in quotes", "is %s, not a string", kind(v))
		case len(s) > most:
			r.wrong(at, CodeRange, "shorten it", "has %d bytes; the maximum is %d", len(s), most)
		case strings.ContainsRune(s, 0):
			r.wrong(at, CodeValue, "remove it", "contains a zero byte")
		default:
			*dst = s
		}
	}}
}

// whole is the field of a whole number.
func whole(name string, dst *int64, std, least, most int64) field {
	return field{name: name, std: func() { *dst = std }, read: func(r *reader, at string, v any) {
		hint := "write a whole number from " + strconv.FormatInt(least, 10) + " to " +
			strconv.FormatInt(most, 10)
		n, ok := v.(json.Number)
		f, err := n.Float64()
		switch {
		case !ok:
			r.wrong(at, CodeType, hint, "is %s, not a number", kind(v))
		case err != nil || f < float64(least) || f > float64(most):
			r.wrong(at, CodeRange, hint, "%s is out of range", clip(n.String()))
		case f != math.Trunc(f):
			r.wrong(at, CodeType, hint, "%s is not a whole number", clip(n.String()))
		default:
			*dst = int64(f)
		}
	}}
}

func truth(name string, dst *bool, std bool) field {
	return field{name: name, std: func() { *dst = std }, read: func(r *reader, at string, v any) {
		b, ok := v.(bool)
		if !ok {
			r.wrong(at, CodeType, "write true or false, without quotes", "is %s", kind(v))
			return
		}
		*dst = b
	}}
}

// word is the field of one word of a fixed set, in any case: Cloudflare's own examples write some
// in capitals.
func word(name string, dst *string, std string, words ...string) field {
	return field{name: name, std: func() { *dst = std }, read: func(r *reader, at string, v any) {
		s, ok := v.(string)
		hint := "write one of " + strings.Join(words, ", ")
		i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, s) })
		switch {
		case !ok:
			r.wrong(at, CodeType, hint, "is %s, not a string", kind(v))
		case i < 0:
			r.wrong(at, CodeValue, hint, "%s is not allowed here", quote(s))
		default:
			*dst = words[i]
		}
	}}
}

// number is the field of one number of a fixed set.
func number(name string, dst *int64, std int64, allowed ...int64) field {
	return field{name: name, std: func() { *dst = std }, read: func(r *reader, at string, v any) {
		var words []string
		for _, a := range allowed {
			words = append(words, strconv.FormatInt(a, 10))
		}
		hint := "write one of " + strings.Join(words, ", ")
		n, ok := v.(json.Number)
		i, err := n.Int64()
		switch {
		case !ok:
			r.wrong(at, CodeType, hint, "is %s, not a number", kind(v))
		case err != nil || !slices.Contains(allowed, i):
			r.wrong(at, CodeValue, hint, "%s is not allowed here", clip(n.String()))
		default:
			*dst = i
		}
	}}
}

// moment is the field of a time with a time zone.
func moment(name string, dst *string) field {
	const hint = "write a date, a time and a time zone, such as 2026-12-01T10:00:00Z"
	return field{name: name, std: func() { *dst = "" }, read: func(r *reader, at string, v any) {
		s, ok := v.(string)
		t, err := time.Parse(time.RFC3339, s)
		switch {
		case !ok:
			r.wrong(at, CodeType, hint, "is %s, not a string", kind(v))
		case err != nil:
			r.wrong(at, CodeValue, hint, "%s is not an ISO 8601 time", quote(s))
		case t.Year() < 2000 || t.Year() > 2199:
			r.wrong(at, CodeRange, "check the year", "the year of %s is out of range", quote(s))
		default:
			*dst = s
		}
	}}
}

// maybe is the field of a member that may be null, which is its default.
func maybe[T any](dst **T, f func(*T) field) field {
	var v T
	inner := f(&v)
	return field{name: inner.name, std: func() { *dst = nil }, read: func(r *reader, at string, x any) {
		before := len(r.faults)
		inner.read(r, at, x)
		if len(r.faults) == before {
			set := v
			*dst = &set
		}
	}}
}

// list is the field of a list of at most that many items, which one reads. hint says what to do about
// a longer list.
func list[T any](
	name string, dst *[]T, most int, hint string, one func(r *reader, at string, v any, all []T) []T,
) field {
	return field{name: name, std: func() { *dst = []T{} }, read: func(r *reader, at string, v any) {
		items, ok := v.([]any)
		switch {
		case !ok:
			r.wrong(at, CodeType, "send a list", "is %s, not a list", kind(v))
			return
		case len(items) > most:
			r.wrong(at, CodeTooMany, hint, "has %d entries; the maximum is %d", len(items), most)
			return
		}
		all, whole := []T{}, r.whole
		r.whole = true
		for i, x := range items {
			all = one(r, item(at, i), x, all)
		}
		r.whole = whole
		*dst = all
	}}
}

// words is the field of a list of words without duplicates.
func words(name string, dst *[]string, allowed ...string) field {
	return unique(name, dst, func(w *string) field { return word(name, w, "", allowed...) })
}

// unique is the field of a list of texts without duplicates.
func unique(name string, dst *[]string, one func(*string) field) field {
	return list(name, dst, mostItems, "combine some of them",
		func(r *reader, at string, v any, all []string) []string {
			var s string
			before := len(r.faults)
			if one(&s).read(r, at, v); len(r.faults) > before || slices.Contains(all, s) {
				return all
			}
			return append(all, s)
		})
}

// group is the field of a nested object. When a complete body leaves it out, its members get their
// defaults, unless keep says that they stay.
func group(name string, fields []field, keep bool) field {
	std := func() {
		for _, f := range fields {
			if f.std != nil {
				f.std()
			}
		}
	}
	return field{name: name, std: std,
		none: func(r *reader, _ string, is bool) {
			if r.whole && !is && !keep {
				std()
			}
		},
		read: func(r *reader, at string, v any) { r.object(at, v, fields) }}
}
