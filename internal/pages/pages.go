// Package pages renders what a visitor sees while waiting: the waiting page, and
// the page for an origin that does not answer.
//
// The promise: one self-contained HTML response of at most 14 KB, without fonts,
// images or scripts from elsewhere; whole without JavaScript; WCAG 2.2 AA; and
// nothing that a View holds can become markup or script. The Content-Security-Policy
// names the inline style and scripts by their hashes, so that even a hole in the
// escaping could not run anything.
//
// The HTML, CSS and JavaScript are files of their own, put together once by New.
// Render copies the fixed parts and the escaped values into one buffer and writes it
// with a single Write: under 2 µs, of which a part is copying; no allocation once the
// buffers are warm.
// A Page does not change after New and serves any number of goroutines.
//
// The package knows no HTTP: status, cookies and caching headers belong to the room.
package pages

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

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

//go:embed scene.svg
var sceneSVG string

// Config says how pages look. The zero value is a working default.
type Config struct {
	// Lang is the language of the pages as a BCP 47 tag. Empty means "en", which is
	// the only one so far.
	Lang string

	// ErrorRetry is how long the error page waits before it asks again. Zero means
	// 10 s: long enough for an origin to restart, short enough to wait for.
	ErrorRetry time.Duration
}

// failure is what the error page shows.
type failure struct {
	title     string
	code      int
	requestID string
}

// A Page renders the default waiting page and the error page.
type Page struct {
	waiting template[headgate.View]
	failed  template[failure]
	header  map[string]string
	buffers sync.Pool // *[]byte; the waiting page of one answer
}

// New puts the pages together. It fails on an unknown language.
func New(c Config) (*Page, error) {
	if c.Lang == "" {
		c.Lang = "en"
	}
	w, err := loadWords(c.Lang)
	if err != nil {
		return nil, err
	}
	if c.ErrorRetry <= 0 {
		c.ErrorRetry = 10 * time.Second
	}
	style, script, again := squeezeCSS(pageCSS), squeezeJS(pageJS), squeezeJS(errorJS)
	fixed := map[string]string{
		"lang":  w.lang,
		"dir":   w.text["dir"],
		"css":   style,
		"scene": sceneSVG,
		"words": w.live,
	}
	for key, text := range w.text {
		fixed["t:"+key] = string(appendHTML(nil, text))
	}

	p := &Page{header: header(style, script, again)}
	fixed["js"] = script
	if p.waiting, err = parse(pageHTML, fixed, viewFields(w)); err != nil {
		return nil, fmt.Errorf("page.html: %w", err)
	}
	fixed["js"] = again
	fixed["again"] = fmt.Sprint(wholeSeconds(c.ErrorRetry))
	fixed["lead"] = string(appendHTML(nil, w.fill("error_lead", fixed["again"])))
	if p.failed, err = parse(errorHTML, fixed, failureFields(w)); err != nil {
		return nil, fmt.Errorf("error.html: %w", err)
	}
	p.buffers.New = func() any { return new([]byte) }
	return p, nil
}

// Header gives the headers of both pages. The caller must not change the map.
func (p *Page) Header() map[string]string { return p.header }

// Append appends the waiting page of v to dst. Use it instead of Render where the
// length must be known before the first byte, as for Content-Length.
func (p *Page) Append(dst []byte, v *headgate.View) []byte { return p.waiting.append(dst, v) }

// Render writes the waiting page of v to w in one Write.
func (p *Page) Render(w io.Writer, v *headgate.View) error {
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
	*buf = p.Append((*buf)[:0], v)
	if _, err := w.Write(*buf); err != nil {
		return fmt.Errorf("write the waiting page: %w", err)
	}
	return nil
}

// RenderError writes the page for an origin that does not answer: code is 502 or 504,
// title the room's title, requestID what the log names the request by (or empty). The
// page loads its address again by itself, with GET: answer only GET and HEAD with it.
func (p *Page) RenderError(w io.Writer, title string, code int, requestID string) error {
	page := p.failed.append(nil, &failure{title, code, requestID})
	if _, err := w.Write(page); err != nil {
		return fmt.Errorf("write the error page: %w", err)
	}
	return nil
}

// header builds the policy under which only the given style and scripts run. Data
// blocks (script elements of type application/json) are not run, so need no hash.
func header(style string, scripts ...string) map[string]string {
	hashes := make([]string, len(scripts))
	for i, s := range scripts {
		hashes[i] = hashSource(s)
	}
	policy := []string{
		"default-src 'none'",
		"style-src " + hashSource(style),
		"script-src " + strings.Join(hashes, " "),
		"connect-src 'self'",
		"img-src data: 'self'",
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
	}
	return map[string]string{
		"Content-Security-Policy": strings.Join(policy, "; "),
		"Content-Type":            "text/html; charset=utf-8",
		"X-Content-Type-Options":  "nosniff",
	}
}

// hashSource names an inline element by its content (Content Security Policy 3, §2.3.1).
func hashSource(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
