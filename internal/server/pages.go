package server

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/invite"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/pages"
	"github.com/headgate/headgate/internal/smallfile"
)

// checkPages reports faults in the files of the rooms' own pages.
func checkPages(cfg *config.Config) error {
	book, err := pages.NewDefaultPages(errorRetry)
	if err != nil {
		return err
	}
	_, err = readLooks(cfg, book)
	return err
}

// readLooks reads the pages of all rooms, by name, and reports all faults at once.
func readLooks(cfg *config.Config, book *pages.DefaultPages) (map[string]*look, error) {
	all := map[string]*look{}
	var errs []error
	for i := range cfg.Rooms {
		l, err := readLook(&cfg.Rooms[i], book)
		all[cfg.Rooms[i].Name], errs = l, append(errs, err)
	}
	for i := range cfg.Turnstile { // rooms of the API read them when they are opened
		w := &cfg.Turnstile[i]
		_, err := readSecret(w.Challenge.SecretFile, "turnstile."+w.Mode+".secret_file")
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// readLook reads the files of a room's page.
func readLook(c *config.Room, book *pages.DefaultPages) (*look, error) {
	l := &look{places: c.Places(), asked: c.Challenge.Asked()}
	pc := pages.Config{Book: book, Language: c.DefaultTemplateLanguage, Path: c.Path,
		Policy: c.Page.ContentSecurityPolicy, Framed: c.CookieSameSite == "none", Challenge: l.asked}
	var err error
	var errs []error
	if file := c.Challenge.SecretFile; file != "" {
		l.secret, err = readSecret(file, "challenge.secret_file")
		errs = append(errs, err)
	}
	if file := c.Identity.CodesFile; file != "" {
		l.codes, err = invite.ReadKey(c.Name, file)
		errs = append(errs, err)
	}
	if c.Page.HTMLFile != "" {
		pc.Custom, err = readTemplate(c.Page.HTMLFile)
		errs = append(errs, err)
		pc.Translations = map[string]*pages.Custom{}
	}
	for _, tag := range slices.Sorted(maps.Keys(c.Page.Translations)) {
		pc.Translations[tag], err = readTemplate(c.Page.Translations[tag])
		errs = append(errs, err)
	}
	pc.Events = map[string]*pages.Custom{}
	for i := range c.Events {
		if e := &c.Events[i]; e.HTMLFile != "" {
			pc.Events[e.Name], err = readTemplate(e.HTMLFile)
			errs = append(errs, err)
		}
	}
	if c.Page.Assets != "" {
		if l.assets, err = pages.ReadAssets(c.Page.Assets); err != nil {
			errs = append(errs, &config.Fault{File: c.Page.Assets, Key: "page.assets",
				Problem: err.Error(), Hint: "docs/pages.md says which files a page can have"})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l.page, err = pages.New(pc)
	return l, err
}

// madeLook returns the look of a room that is not in the file: its own page or the default one, and
// the pages of its events.
func madeLook(w *manage.DesiredRoom, book *pages.DefaultPages) (l *look, err error) {
	l = &look{places: w.Room.Places(), asked: w.Room.Challenge.Asked()}
	pc := pages.Config{Book: book, Language: w.Room.DefaultTemplateLanguage, Path: w.Room.Path,
		Translations: map[string]*pages.Custom{}, Events: map[string]*pages.Custom{},
		Policy: w.Room.Page.ContentSecurityPolicy, Framed: w.Room.CookieSameSite == "none",
		Challenge: l.asked}
	if file := w.Room.Challenge.SecretFile; file != "" {
		if l.secret, err = readSecret(file, "turnstile"); err != nil {
			return nil, err
		}
	}
	if pc.Custom, err = ownPageOf(w.Page); err != nil {
		return nil, err
	}
	for name, html := range w.EventPages {
		if pc.Events[name], err = ownPageOf(html); err != nil {
			return nil, err
		}
	}
	for tag, html := range w.Translations {
		if pc.Translations[tag], err = ownPageOf(html); err != nil {
			return nil, err
		}
	}
	if len(w.Assets) > 0 {
		l.assets = pages.NewAssets(w.Assets)
	}
	l.page, err = pages.New(pc)
	return l, err
}

// ownPageOf parses a page that was set by the API; "" is the default page.
func ownPageOf(html string) (*pages.Custom, error) {
	if html == "" {
		return nil, nil
	}
	return pages.ParseCustom([]byte(html))
}

// readTemplate reads one page. Its errors are faults that name the file.
func readTemplate(name string) (*pages.Custom, error) {
	fault := func(line int, problem, hint string) error {
		return &config.Fault{File: name, Line: line, Column: min(line, 1), Key: "page",
			Problem: problem, Hint: hint}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fault(0, fmt.Sprintf("cannot be read: %v", errors.Unwrap(err)),
			"name a file that headgate may read")
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, pages.MaxCustom+1))
	if err != nil {
		return nil, fault(0, fmt.Sprintf("cannot be read: %v", errors.Unwrap(err)), "name a plain file")
	}
	t, err := pages.ParseCustom(b)
	var errs []error
	for _, m := range pages.TemplateErrors(err) {
		errs = append(errs, fault(m.Line, m.Problem, m.Hint))
	}
	return t, errors.Join(errs...)
}

// readSecret reads the secret of a third party, whose file the key names.
func readSecret(file, key string) (string, error) {
	b, err := smallfile.ReadSecret(file)
	secret := string(bytes.TrimSpace(b))
	if err == nil && (secret == "" || strings.ContainsFunc(secret, unicode.IsSpace)) {
		err = smallfile.Wrong(file, "holds no secret", "write the secret key of the third party into it, and nothing else")
	}
	if err != nil {
		err = &config.Fault{Key: key, Problem: err.Error(), Hint: hint.Of(err)}
	}
	return secret, err
}

func (l *look) same(x *look) bool {
	return l.page.Equal(x.page) && l.assets.Equal(x.assets) && l.codes.Equal(x.codes) &&
		subtle.ConstantTimeCompare([]byte(l.secret), []byte(x.secret)) == 1
}

// before serves the page's files; all other requests go to next. The files need no session: waiting
// visitors receive them, whatever the state of the origin.
func (l *look) before(next http.Handler) http.Handler {
	if l.asked != "" {
		next = pages.ServeWork(l.places, l.asked, next)
	}
	if l.assets == nil {
		return next
	}
	return l.assets.Before(l.places, next)
}

// preview renders the page of a room for an operator.
func (s *Server) preview(room string, q url.Values) (*pages.Preview, error) {
	g := s.set.Load().find(room)
	if g == nil {
		return nil, api.ErrNoRoom
	}
	if !q.Has("message") {
		q = maps.Clone(q)
		q.Set("message", g.messageOf(q))
	}
	return g.look.page.Preview(g.now.Title, q)
}

// messageOf returns the message for waiting visitors during the event that a preview shows.
func (g *gate) messageOf(q url.Values) string {
	message := g.now.Message
	for i := range g.now.Events {
		e := &g.now.Events[i]
		if on := q.Get("event"); on != "" && on != "none" && e.Name == q.Get("event_name") {
			message = cmp.Or(e.Message, message)
		}
	}
	return message
}
