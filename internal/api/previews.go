package api

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/pages"
)

// Bounds of previews of pages that belong to no room. Chosen.
const (
	previewFor   = time.Hour
	mostPreviews = 32
)

// previews holds pages for viewing. Their URLs cannot be guessed, and need no token.
type previews struct {
	mu  sync.Mutex
	all []preview // oldest first
}

type preview struct {
	id   string
	page *pages.Page
	made time.Time
}

// add keeps a page for an hour. When there are too many, it drops the oldest.
func (p *previews) add(page *pages.Page) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) >= mostPreviews {
		p.all = p.all[1:]
	}
	id := strings.ToLower(rand.Text())
	p.all = append(p.all, preview{id, page, time.Now()})
	return id
}

func (p *previews) find(id string) *pages.Page {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.all) > 0 && time.Since(p.all[0].made) > previewFor {
		p.all = p.all[1:]
	}
	for _, x := range p.all {
		if subtle.ConstantTimeCompare([]byte(x.id), []byte(id)) == 1 { // the id is a secret
			return x.page
		}
	}
	return nil
}

// makePreview handles POST …/waiting_rooms/preview.
func (a *API) makePreview(c *call, _ *manage.Catalog, _ manage.Zone) (any, error) {
	body, err := readBody(c, maxManaged, "a page may have at most 1,000,000 bytes")
	if err != nil {
		return nil, err
	}
	html, err := manage.ReadPreview(body)
	if err != nil {
		return nil, err
	}
	custom, err := pages.ParseCustom([]byte(html))
	if err != nil {
		return nil, err
	}
	page, err := pages.New(pages.Config{Book: a.cfg.Pages, Custom: custom})
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if c.r.TLS != nil || strings.EqualFold(c.r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	url := scheme + "://" + cmp.Or(c.r.Host, "127.0.0.1") + "/preview/" + a.previews.add(page)
	return a.envelope(c, &manage.Result{Value: map[string]string{"preview_url": url}}), nil
}

// showPreview handles GET /preview/{id}.
func (a *API) showPreview(c *call) (any, error) {
	page := a.previews.find(c.r.PathValue("id"))
	if page == nil {
		return nil, &problem{Status: http.StatusNotFound, Code: "no_such_preview",
			Detail: "the preview does not exist or has expired",
			Hint:   "a preview lasts one hour, on the node that created it"}
	}
	return nil, a.render(c, func() (*pages.Preview, error) {
		return page.Preview("Preview", c.r.URL.Query())
	})
}

// render answers with a page as a visitor would get it.
func (a *API) render(c *call, make func() (*pages.Preview, error)) error {
	p, err := make()
	switch {
	case errors.Is(err, ErrNoRoom):
		return err
	case err != nil:
		return &problem{Status: http.StatusBadRequest, Code: "bad_parameter",
			Detail: err.Error(), Hint: "docs/pages.md lists the parameters"}
	}
	maps.Copy(c.w.Header(), p.Header)
	_, err = c.w.Write(p.Body)
	return err
}
