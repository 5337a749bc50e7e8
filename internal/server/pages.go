package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/pages"
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
	return all, errors.Join(errs...)
}

// readLook reads the files of a room's page.
func readLook(c *config.Room, book *pages.DefaultPages) (*look, error) {
	l := &look{places: c.Places(), work: c.Challenge.Asked() != ""}
	pc := pages.Config{Book: book, Language: c.DefaultTemplateLanguage, Path: c.Path,
		Policy: c.Page.ContentSecurityPolicy, Framed: c.CookieSameSite == "none", Work: l.work}
	var err error
	var errs []error
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
	l = &look{places: w.Room.Places(), work: w.Room.Challenge.Asked() != ""}
	pc := pages.Config{Book: book, Language: w.Room.DefaultTemplateLanguage, Path: w.Room.Path,
		Translations: map[string]*pages.Custom{}, Events: map[string]*pages.Custom{},
		Policy: w.Room.Page.ContentSecurityPolicy, Framed: w.Room.CookieSameSite == "none",
		Work: l.work}
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

func (l *look) same(x *look) bool { return l.page.Equal(x.page) && l.assets.Equal(x.assets) }

// before serves the page's files; all other requests go to next. The files need no session: waiting
// visitors receive them, whatever the state of the origin.
func (l *look) before(next http.Handler) http.Handler {
	if l.work {
		next = pages.ServeWork(l.places, next)
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
