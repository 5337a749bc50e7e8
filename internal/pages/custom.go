package pages

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/challenge"
)

// These constants limit a room's own page. The first is Cloudflare's. The others are chosen: ten
// times what a page needs.
const (
	MaxCustom  = 1 << 20 // bytes of a template
	maxTags    = 2_000
	maxDepth   = 16
	maxMistake = 20 // more errors than anyone fixes at once
)

// CustomPolicy is the Content-Security-Policy of a room's own page, unless the room sets another
// one. Inline styles and scripts run. Hashes cannot name them because their text changes with the
// values in it, and visitors have no influence on a value. Scripts of other hosts do not run. The
// page cannot be framed and cannot send a form.
const CustomPolicy = "default-src 'self' data:; style-src 'self' 'unsafe-inline'; " +
	"script-src 'self' 'unsafe-inline'; img-src 'self' data: https:; font-src 'self' data: https:; " +
	"media-src 'self' data: https:; object-src 'none'; base-uri 'none'; form-action 'self'" +
	notFramed

// A TemplateError describes an error in a template, and its position.
type TemplateError struct {
	Line    int // from 1; 0: the whole template
	Problem string
	Hint    string
}

func (m *TemplateError) Error() string {
	if m.Line == 0 {
		return m.Problem
	}
	return "line " + strconv.Itoa(m.Line) + ": " + m.Problem
}

// A Custom is a checked template.
type Custom struct {
	source string
	pieces []piece
}

// ParseCustom checks a room's own page. The error joins one *TemplateError for each fault;
// TemplateErrors returns them as a list.
func ParseCustom(html []byte) (*Custom, error) {
	if len(html) > MaxCustom {
		return nil, &TemplateError{Problem: fmt.Sprintf("the page has %d bytes; the maximum is %d",
			len(html), MaxCustom), Hint: "serve images, fonts and scripts as files of the page"}
	}
	source := string(html)
	if err := check(source); err != nil {
		return nil, err
	}
	c := &Custom{source, compile(source)}
	if err := c.tryLongest(); err != nil {
		return nil, &TemplateError{Problem: err.Error(), Hint: "use long values, such as message, less often"}
	}
	return c, nil
}

// tryLongest renders the page with the longest texts that a configuration can have.
func (c *Custom) tryLongest() error {
	long := strings.Repeat("<", 500)
	values := map[string]any{}
	for _, v := range variables {
		values[v.name] = "A duration of some years, said in words of a long language"
		if v.own {
			values[v.name] = long
		}
	}
	out := bounded{left: maxOutput}
	return write(&out, c.pieces, values)
}

// TemplateErrors returns the single errors that ParseCustom has joined.
func TemplateErrors(err error) []*TemplateError {
	if m, ok := err.(*TemplateError); ok { //nolint:errorlint // it takes the tree of err apart itself
		return []*TemplateError{m}
	}
	var all []*TemplateError
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range many.Unwrap() {
			all = append(all, TemplateErrors(err)...)
		}
	}
	return all
}

// Equal reports whether two templates are the same; nil is the default page.
func (c *Custom) Equal(x *Custom) bool {
	return c == x || c != nil && x != nil && c.source == x.source
}

// check finds invalid tags and their lines: unknown names, sections without an end, included files,
// and changed delimiters.
func check(source string) error {
	var errs []error
	wrong := func(line int, hint, problem string, args ...any) {
		errs = append(errs, &TemplateError{line, fmt.Sprintf(problem, args...), hint})
	}
	var open []tag
	tags, line := 0, 1
	for len(errs) < maxMistake {
		before, rest, found := strings.Cut(source, "{{")
		line += strings.Count(before, "\n")
		if !found {
			break
		}
		end := "}}"
		if strings.HasPrefix(rest, "{") {
			end = "}}}"
		}
		text, after, closed := strings.Cut(rest, end)
		if !closed {
			wrong(line, "write "+end+" after it", "the tag {{%.20s is not closed", firstLine(rest))
			break
		}
		at := line
		line, source = line+strings.Count(text, "\n"), after
		t := newTag(text, at)
		if tags++; tags > maxTags {
			wrong(at, "remove some", "there are more than %d tags", maxTags)
			break
		}
		switch t.kind {
		case '!':
		case '#', '^':
			if open = append(open, t); len(open) > maxDepth {
				wrong(at, "end some sections first", "sections are nested more than %d deep", maxDepth)
			}
			checkName(t, wrong)
		case '/':
			open = closeSection(open, t, wrong)
		case '>', '<', '$':
			wrong(at, "write the text itself", "a page cannot include files and blocks")
		case '=':
			wrong(at, "keep {{ and }}", "other delimiters are not supported")
		default:
			checkName(t, wrong)
		}
	}
	for _, t := range open {
		wrong(t.line, "end it with {{/"+t.name+"}}", "section %s has no end", quoted(t.name))
	}
	return errors.Join(errs...)
}

// closeSection removes the section that t ends, and the sections in it that should have ended
// before.
func closeSection(open []tag, t tag, wrong wronger) []tag {
	for i, o := range slices.Backward(open) {
		if o.name != t.name {
			continue
		}
		if last := len(open) - 1; i < last {
			wrong(t.line, "end the section that began last first", "section %s ends, but %s "+
				"of line %d is still open", quoted(t.name), quoted(open[last].name), open[last].line)
		}
		return open[:i]
	}
	wrong(t.line, "remove it, or begin the section with {{#"+t.name+"}}", "section %s ends but has no beginning",
		quoted(t.name))
	return open
}

// A wronger records an error.
type wronger func(line int, hint, problem string, args ...any)

func checkName(t tag, wrong wronger) {
	for _, v := range variables {
		switch {
		case v.name == t.name && v.own && (t.kind == '{' || t.kind == '&'):
			wrong(t.line, "write {{"+t.name+"}}", "%s is plain text and cannot be inserted unescaped", quoted(t.name))
			return
		case v.name == t.name:
			return
		case strings.EqualFold(v.name, t.name):
			wrong(t.line, "did you mean "+v.name+"?", "there is no variable %s", quoted(t.name))
			return
		}
	}
	wrong(t.line, "docs/pages.md lists the variables", "there is no variable %s", quoted(t.name))
}

// quoted formats a name of a template for a message.
func quoted(name string) string { return strconv.Quote(fmt.Sprintf("%.40s", firstLine(name))) }

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// A customSet is a room's own page in all its languages.
type customSet struct {
	pages   []customPage // the first is in the room's language
	chooser *chooser
}

type customPage struct {
	*Custom
	words  *words
	header http.Header
}

// newCustomSet returns the pages of a room of its own, in all its languages; nil if it has none.
func newCustomSet(c *Config, book *DefaultPages, own *pageSet) (*customSet, error) {
	if c.Custom == nil {
		return nil, nil
	}
	policy := CustomPolicy
	if challenge.Sources(c.Challenge) != nil {
		policy = opened(policy, c.Challenge)
	}
	if c.Policy != "" {
		policy = CleanPolicy(c.Policy) + notFramed
	}
	s := &customSet{}
	add := func(set *pageSet, t *Custom) {
		s.pages = append(s.pages, customPage{t, set.words, headers(set.words.tag, policy)[0]})
	}
	add(own, c.Custom)
	tags := []string{own.words.tag}
	for _, tag := range slices.Sorted(maps.Keys(c.Translations)) {
		set, err := book.find(tag)
		if err != nil {
			return nil, err
		}
		add(set, c.Translations[tag])
		tags = append(tags, set.words.tag)
	}
	var err error
	s.chooser, err = newChooser(tags)
	return s, err
}

func (s *customSet) choose(v *headgate.View) *customPage {
	return &s.pages[max(0, s.chooser.choose(v.AcceptLanguage))]
}

// header returns the headers, with Refresh as Cloudflare sets it, because a room's own page does
// not contain our script. A visitor that is rejected for good gets no Refresh.
func (s *customSet) header(v *headgate.View) http.Header {
	h := maps.Clone(s.choose(v).header)
	if v.Refreshes() {
		h["Refresh"] = []string{strconv.FormatInt(refreshSeconds(v), 10)}
	}
	return h
}

func (s *customSet) append(dst []byte, v *headgate.View) ([]byte, error) {
	p := s.choose(v)
	out := bounded{dst: dst, left: maxOutput}
	if err := write(&out, p.pieces, p.words.values(v)); err != nil {
		return dst, fmt.Errorf("the room's own page: %w", err)
	}
	return out.dst, nil
}
