// Package pages renders what a visitor sees while waiting: the waiting page in 38 languages, which
// is the default page or the room's own, and the page for an origin that does not answer.
//
// The default pages are one self-contained response of at most 14 KB on the wire for a browser that
// accepts gzip. They load no fonts, images or scripts from elsewhere, are complete without
// JavaScript, and conform to WCAG 2.2 AA. No value of a View can become markup or script. The
// Content-Security-Policy names the inline style and scripts by their hashes, so that nothing
// injected could run even if the escaping had a hole.
//
// A room's own page is a mustache template with the variables of Cloudflare's. It is checked once,
// when it is read. Each value is escaped for text, attributes and strings of scripts alike.
// Templates have no loops and cannot include files, and their output is limited.
//
// The HTML, CSS and JavaScript are separate files that a DefaultPages puts together. Render copies
// the fixed parts and the escaped values into one buffer and writes it with a single Write. That
// takes about 2 µs, most of it copying, and allocates nothing once the buffers are warm. A room's
// own page costs about ten times as much. A Page does not change after New and may be used by any
// number of goroutines.
//
// # The files
//
//	pages, defaultpages              a room's page; the default pages
//	fields, page.js                  what the default page shows: before scripts run, and after
//	short, warning                   pages of a place that moves; the warning before an end
//	custom, mustache, values         a room's own page and its variables
//	policy, preview, assets          what a room's own page may do
//	words, locale                    texts, numbers and dates of a language (languages/TAG.json)
//	template, packed, append         render: fixed parts and values; as gzip; escape
//
// The package does not know visitors: the room is responsible for status, cookies and caching
// headers.
package pages

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/headgate/headgate"
)

// A Config defines how the pages of one room look. The zero value is a working default.
type Config struct {
	// Book holds the default pages. Rooms share one; nil creates one for this room.
	Book *DefaultPages

	// Language is the language for visitors that request no available language: one of Languages.
	// Empty means "en-US".
	Language string

	// Custom is the room's own page, in Language; nil is the default page.
	Custom *Custom

	// Translations are the room's own page in other languages.
	Translations map[string]*Custom

	// Events are the pages of events, by name, shown while the event is on; nil is the default
	// page. They have no translations.
	Events map[string]*Custom

	// Policy is the Content-Security-Policy of the room's own page. Empty means CustomPolicy.
	// Directives that CheckPolicy rejects have no effect.
	Policy string

	// Framed allows pages of other sites to show these pages in a frame.
	Framed bool

	// Challenge is the kind of challenges that the pages may solve, "" for none.
	Challenge string

	// Path is the folder of the room, for previews. Pages for visitors use the folder of their
	// View.
	Path string
}

// A Page renders what the visitors of one room see.
type Page struct {
	config  Config
	book    *DefaultPages
	own     *pageSet              // of Config.Language
	custom  *customSet            // nil: the default page
	events  map[string]*customSet // events with their own page; nil: default page
	buffers sync.Pool             // *[]byte; each holds one rendered page
}

// New returns the pages of a room. It fails for an unknown language.
func New(c Config) (*Page, error) {
	if c.Language == "" {
		c.Language = "en-US"
	}
	p := &Page{config: c, book: c.Book}
	var err error
	if p.book == nil {
		if p.book, err = NewDefaultPages(0); err != nil {
			return nil, err
		}
	}
	if p.own, err = p.book.find(c.Language); err != nil {
		return nil, err
	}
	if p.custom, err = newCustomSet(&c, p.book, p.own); err != nil {
		return nil, err
	}
	p.events = map[string]*customSet{}
	for name, own := range c.Events {
		one := Config{Custom: own, Policy: c.Policy, Challenge: c.Challenge}
		if p.events[name], err = newCustomSet(&one, p.book, p.own); err != nil {
			return nil, err
		}
	}
	p.buffers.New = func() any { return new([]byte) }
	return p, nil
}

// Equal reports whether two pages look the same.
func (p *Page) Equal(x *Page) bool {
	a, b := &p.config, &x.config
	return a.Language == b.Language && a.Policy == b.Policy && a.Path == b.Path && a.Framed == b.Framed &&
		a.Challenge == b.Challenge &&
		a.Custom.Equal(b.Custom) && maps.EqualFunc(a.Translations, b.Translations, (*Custom).Equal) &&
		maps.EqualFunc(a.Events, b.Events, (*Custom).Equal)
}

// ownOf returns the own page for v: that of the event that is on, or that of the room; nil is the
// default page.
func (p *Page) ownOf(v *view) *customSet {
	if isShort(v) {
		return nil
	}
	if own, ok := p.events[v.Event.Name]; ok && v.Event.Active {
		return own
	}
	return p.custom
}

// choose returns the default pages in the language for a header.
func (p *Page) choose(accept string) *pageSet {
	if i := p.book.chooser.choose(accept); i >= 0 {
		if set, err := p.book.sets[i](); err == nil { // a test has built all of them
			return set
		}
	}
	return p.own
}

// Header returns the headers of the waiting page of v. The caller must not change them.
func (p *Page) Header(v *headgate.View) http.Header {
	if own := p.ownOf(v); own != nil {
		return p.framed(own.header(v))
	}
	header := p.choose(v.AcceptLanguage).header[side(v.AcceptEncoding)]
	if p.config.Challenge != "" {
		header = maps.Clone(header)
		header[policyName] = []string{opened(header.Get(policyName), p.config.Challenge)}
	}
	return p.framed(header)
}

const policyName = "Content-Security-Policy"

// framed returns the header without the restriction on frames, if frames are allowed.
func (p *Page) framed(header http.Header) http.Header {
	if !p.config.Framed {
		return header
	}
	h := maps.Clone(header)
	h[policyName] = []string{strings.TrimSuffix(h.Get(policyName), notFramed)}
	return h
}

// side returns the index of a header: 1 if gzip is accepted.
func side(accept string) int {
	if takesGzip(accept) {
		return 1
	}
	return 0
}

// Render writes the waiting page of v to w in one Write. If a room's own page grows too large,
// Render writes the default page and returns an error, so that no visitor sees an empty page.
func (p *Page) Render(w io.Writer, v *headgate.View) error {
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
	var failed error
	own, set := p.ownOf(v), p.choose(v.AcceptLanguage)
	if own != nil {
		*buf, failed = own.append((*buf)[:0], v)
	}
	if gzip := own == nil && takesGzip(v.AcceptEncoding); isShort(v) {
		*buf = set.short.append((*buf)[:0], v, gzip)
	} else if own == nil || failed != nil { // the header then says "no gzip"
		*buf = set.waiting.append((*buf)[:0], v, gzip)
	}
	if _, err := w.Write(*buf); err != nil {
		return fmt.Errorf("write the waiting page: %w", err)
	}
	return failed
}

// FailureHeader returns the headers of the page of f. The caller must not change them.
func (p *Page) FailureHeader(f *Failure) http.Header {
	return p.framed(p.choose(f.AcceptLanguage).header[side(f.AcceptEncoding)])
}

// RenderFailure writes the page of f. The page reloads its address with GET, so use it only to
// answer GET and HEAD.
func (p *Page) RenderFailure(w io.Writer, f *Failure) error {
	page := p.choose(f.AcceptLanguage).failed.append(nil, f, takesGzip(f.AcceptEncoding))
	if _, err := w.Write(page); err != nil {
		return fmt.Errorf("write the error page: %w", err)
	}
	return nil
}
