package pages

import (
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"golang.org/x/text/language"
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

// A DefaultPages holds the default pages of all languages. It builds the pages of a language at the
// first request for it, which takes some milliseconds. A language uses 30 KB, including the
// compressed pages. It may be used by many goroutines at once.
type DefaultPages struct {
	tags    []string
	sets    []func() (*pageSet, error)
	chooser *chooser
}

// A pageSet holds the default pages of one language.
type pageSet struct {
	words   *words
	waiting both[headgate.View]
	short   both[headgate.View]
	failed  both[Failure]
	header  [2]http.Header // plain, gzip
}

// A both holds a template uncompressed and compressed.
type both[T any] struct {
	plain  template[T]
	packed packed[T]
}

func (b *both[T]) append(dst []byte, x *T, gzip bool) []byte {
	if gzip {
		return b.packed.append(dst, x)
	}
	return b.plain.append(dst, x)
}

func newBoth[T any](
	source string, fixed map[string]string, values map[string]value[T],
) (b both[T], err error) {
	if b.plain, err = parse(source, fixed, values); err == nil {
		b.packed, err = pack(b.plain)
	}
	return b, err
}

// defaultRetry is the reload interval of the error page: long enough for an origin to restart, and
// short enough to wait for. Chosen.
const defaultRetry = 10 * time.Second

// NewDefaultPages returns the default pages. The error page reloads after errorRetry, or after 10 s
// when that is 0.
func NewDefaultPages(errorRetry time.Duration) (*DefaultPages, error) {
	if errorRetry <= 0 {
		errorRetry = defaultRetry
	}
	locales, err := loadLocales()
	if err != nil {
		return nil, err
	}
	b, shared := &DefaultPages{tags: Languages()}, sync.OnceValue(newShared)
	for _, tag := range b.tags {
		b.sets = append(b.sets, sync.OnceValues(func() (*pageSet, error) {
			w, err := loadWords(tag, locales)
			if err != nil {
				return nil, err
			}
			return newSet(w, shared(), wholeSeconds(errorRetry))
		}))
	}
	b.chooser, err = newChooser(b.tags)
	return b, err
}

// shared holds what the pages of all languages have in common.
type shared struct{ style, script, again, short, policy string }

func newShared() *shared {
	s := &shared{style: squeezeCSS(pageCSS), script: squeezeJS(pageJS), again: squeezeJS(errorJS),
		short: squeezeJS(shortJS)}
	s.policy = policyOf(s.style, s.script, s.again, s.short)
	return s
}

// newSet builds the pages of one language.
func newSet(w *words, s *shared, retry int64) (*pageSet, error) {
	set := &pageSet{words: w, header: headers(w.tag, s.policy)}
	fixed := map[string]string{
		"lang": w.tag, "dir": w.Dir, "css": s.style, "scene": sceneSVG, "words": w.live, "js": s.script,
	}
	for key, text := range w.text {
		fixed["t:"+key] = string(appendHTML(nil, text))
	}
	var err error
	if set.waiting, err = newBoth(pageHTML, fixed, viewFields(w)); err != nil {
		return nil, fmt.Errorf("page.html in %s: %w", w.tag, err)
	}
	fixed["js"] = s.short
	if set.short, err = newBoth(shortHTML, fixed, shortFields(w)); err != nil {
		return nil, fmt.Errorf("short.html in %s: %w", w.tag, err)
	}
	fixed["js"], fixed["again"] = s.again, fmt.Sprint(retry)
	fixed["lead"] = string(appendHTML(nil, w.fill("error_lead", string(w.number(nil, retry)))))
	if set.failed, err = newBoth(errorHTML, fixed, failureFields(w)); err != nil {
		return nil, fmt.Errorf("error.html in %s: %w", w.tag, err)
	}
	return set, nil
}

// find returns the pages for a language tag, or an error that lists the available tags.
func (b *DefaultPages) find(tag string) (*pageSet, error) {
	for i := range b.tags {
		if strings.EqualFold(b.tags[i], tag) {
			return b.sets[i]()
		}
	}
	return nil, fmt.Errorf("no waiting page in language %q: use one of %s", tag,
		strings.Join(Languages(), ", "))
}

const (
	longestAccept = 200   // bytes read of an Accept-Language header. Chosen
	mostKnown     = 1_000 // remembered headers; then the memory is cleared. Chosen
)

// A chooser finds the language for an Accept-Language header, and caches the result. Matching costs
// some microseconds, and browsers send few different headers.
type chooser struct {
	matcher language.Matcher

	mu    sync.RWMutex
	known map[string]int
}

func newChooser(tags []string) (*chooser, error) {
	var all []language.Tag
	var errs []error
	for _, s := range tags {
		tag, err := language.Parse(s)
		errs, all = append(errs, err), append(all, tag)
	}
	return &chooser{matcher: language.NewMatcher(all), known: map[string]int{}}, errors.Join(errs...)
}

// choose returns the index of the language for a header, or -1 when no requested language is
// available.
func (c *chooser) choose(accept string) int {
	if accept == "" {
		return -1
	}
	c.mu.RLock()
	i, ok := c.known[accept]
	c.mu.RUnlock()
	if ok {
		return i
	}
	i = c.match(accept)
	if len(accept) > longestAccept { // too long to cache
		return i
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= mostKnown {
		clear(c.known)
	}
	c.known[strings.Clone(accept)] = i
	return i
}

func (c *chooser) match(accept string) int {
	if len(accept) > longestAccept {
		accept = accept[:longestAccept]
		accept = accept[:max(0, strings.LastIndexByte(accept, ','))]
	}
	tags, _, err := language.ParseAcceptLanguage(accept)
	if err != nil { // one unknown language must not invalidate the others
		tags, _, _ = language.ParseAcceptLanguage(readable(accept))
	}
	_, i, sure := c.matcher.Match(tags...)
	if sure == language.No {
		return -1
	}
	return i
}

// readable returns those languages of a header that can be parsed.
func readable(accept string) string {
	all := strings.Split(accept, ",")
	return strings.Join(slices.DeleteFunc(all, func(s string) bool {
		_, _, err := language.ParseAcceptLanguage(s)
		return err != nil
	}), ",")
}
