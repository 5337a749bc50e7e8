// Package pages renders what a visitor sees while waiting: the waiting page, default or of
// the room's own, in 38 languages, and the page for an origin that does not answer.
//
// The promise of the default pages: one self-contained response of at most 14 KB on the wire
// for a browser that takes gzip, without fonts, images or scripts from elsewhere; whole
// without JavaScript; WCAG 2.2 AA; and nothing that a View holds can become markup or script.
// The Content-Security-Policy names the inline style and scripts by their hashes, so that
// even a hole in the escaping could not run anything.
//
// A page of the room's own is a mustache template with the variables of Cloudflare's. It is
// checked once, when it is read. Each value is escaped, for text, attributes and strings of
// scripts alike; there are no loops and no files in it, and what comes out is bounded.
//
// The HTML, CSS and JavaScript are files of their own, put together by a Book.
// Render copies the fixed parts and the escaped values into one buffer and writes it
// with a single Write: about 2 µs, of which most is copying; no allocation once the
// buffers are warm. A page of the room's own costs some ten times as much.
// A Page does not change after New and serves any number of goroutines.
//
// The package knows no visitors: status, cookies and caching headers belong to the room.
package pages

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/headgate/headgate"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

//go:embed error.html
var errorHTML string

//go:embed error.js
var errorJS string

//go:embed short.html
var shortHTML string

//go:embed short.js
var shortJS string

//go:embed scene.svg
var sceneSVG string

// Config says how the pages of one room look. The zero value is a working default.
type Config struct {
	// Book holds the default pages. Rooms share one; nil makes one for this room.
	Book *DefaultPages

	// Language is what those read who ask for no language that there is: one of Languages.
	// Empty means "en-US".
	Language string

	// Custom is the room's own page, in Language; nil is the default page.
	Custom *Custom

	// Translations are the own page in other languages.
	Translations map[string]*Custom

	// Events are the pages of events, by name, while they are on: nil is the default page. They
	// have no translations.
	Events map[string]*Custom

	// Policy is the Content-Security-Policy of the own page. Empty means CustomPolicy. Directives
	// that CheckPolicy rejects have no effect.
	Policy string

	// Framed lets pages of other sites show these in a frame.
	Framed bool

	// Path is the folder of the room, for previews: visitors have that of their View.
	Path string
}

// A Page renders what the visitors of one room see.
type Page struct {
	config  Config
	book    *DefaultPages
	own     *pageSet              // of Config.Language
	custom  *customSet            // nil: the default page
	events  map[string]*customSet // of those that have a page of their own; the same
	buffers sync.Pool             // *[]byte; the waiting page of one answer
}

// New makes the pages of a room. It fails on an unknown language.
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
		one := Config{Custom: own, Policy: c.Policy}
		if p.events[name], err = newCustomSet(&one, p.book, p.own); err != nil {
			return nil, err
		}
	}
	p.buffers.New = func() any { return new([]byte) }
	return p, nil
}

// Same tells whether two pages look the same.
func (p *Page) Equal(x *Page) bool {
	a, b := &p.config, &x.config
	return a.Language == b.Language && a.Policy == b.Policy && a.Path == b.Path && a.Framed == b.Framed &&
		a.Custom.Equal(b.Custom) && maps.EqualFunc(a.Translations, b.Translations, (*Custom).Equal) &&
		maps.EqualFunc(a.Events, b.Events, (*Custom).Equal)
}

// ownOf is the own page for v: of the event that is on, or of the room; nil is the default page.
func (p *Page) ownOf(v *view) *customSet {
	if isShort(v) {
		return nil
	}
	if own, ok := p.events[v.Event.Name]; ok && v.Event.Active {
		return own
	}
	return p.custom
}

// choose gives the default pages in the language for a header.
func (p *Page) choose(accept string) *pageSet {
	if i := p.book.chooser.choose(accept); i >= 0 {
		if set, err := p.book.sets[i](); err == nil { // a test has made them all
			return set
		}
	}
	return p.own
}

// Header gives the headers of the waiting page of v. The caller must not change them.
func (p *Page) Header(v *headgate.View) http.Header {
	if own := p.ownOf(v); own != nil {
		return p.framed(own.header(v))
	}
	return p.framed(p.choose(v.AcceptLanguage).header[side(v.AcceptEncoding)])
}

// framed is a header with which the page may stand in a frame, where it may.
func (p *Page) framed(header http.Header) http.Header {
	if !p.config.Framed {
		return header
	}
	const policy = "Content-Security-Policy"
	h := maps.Clone(header)
	h[policy] = []string{strings.TrimSuffix(h.Get(policy), notFramed)}
	return h
}

// side is the index of a header: 1 where gzip is taken.
func side(accept string) int {
	if takesGzip(accept) {
		return 1
	}
	return 0
}

// Render writes the waiting page of v to w in one Write. A page of the room's own that grows
// too large is an error, and the default page is written: nobody stands before nothing.
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
	} else if own == nil || failed != nil { // then the header says that it is not by gzip
		*buf = set.waiting.append((*buf)[:0], v, gzip)
	}
	if _, err := w.Write(*buf); err != nil {
		return fmt.Errorf("write the waiting page: %w", err)
	}
	return failed
}

// A Failure is what the page shows for an origin that does not answer.
type Failure struct {
	Title     string // of the room
	Code      int    // 502 or 504
	RequestID string // what the log names the request by, or ""

	AcceptLanguage, AcceptEncoding string // what the visitor's headers say
}

// FailureHeader gives the headers of the page of f. The caller must not change them.
func (p *Page) FailureHeader(f *Failure) http.Header {
	return p.framed(p.choose(f.AcceptLanguage).header[side(f.AcceptEncoding)])
}

// RenderFailure writes the page of f. It loads its address again by itself, with GET: answer
// only GET and HEAD with it.
func (p *Page) RenderFailure(w io.Writer, f *Failure) error {
	page := p.choose(f.AcceptLanguage).failed.append(nil, f, takesGzip(f.AcceptEncoding))
	if _, err := w.Write(page); err != nil {
		return fmt.Errorf("write the error page: %w", err)
	}
	return nil
}

// policyOf is the policy under which only the given style and scripts run. Data
// blocks (script elements of type application/json) are not run, so need no hash.
func policyOf(style string, scripts ...string) string {
	hashes := make([]string, len(scripts))
	for i, s := range scripts {
		hashes[i] = hashSource(s)
	}
	return strings.Join([]string{
		"default-src 'none'",
		"style-src " + hashSource(style),
		"script-src " + strings.Join(hashes, " "),
		"connect-src 'self'",
		"img-src data: 'self'",
		"base-uri 'none'",
		"form-action 'self'",
	}, "; ") + notFramed
}

// notFramed ends the policies of pages that no other site may have in a frame.
const notFramed = "; frame-ancestors 'none'"

// headers are those of pages in a language, plain and by gzip.
func headers(tag, policy string) [2]http.Header {
	plain := http.Header{
		"Content-Language":        {tag},
		"Content-Security-Policy": {policy},
		"Content-Type":            {"text/html; charset=utf-8"},
		"X-Content-Type-Options":  {"nosniff"},
	}
	gzip := maps.Clone(plain)
	gzip["Content-Encoding"] = []string{"gzip"}
	return [2]http.Header{plain, gzip}
}

// hashSource names an inline element by its content (Content Security Policy 3, §2.3.1).
func hashSource(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
