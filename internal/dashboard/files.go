package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// A file is one file of the page.
type file struct {
	body []byte
	kind string
	tag  string
}

// files are the files of the page, by name.
type files map[string]file

func readFiles() (files, error) {
	kinds := map[string]string{"html": "text/html", "css": "text/css", "js": "text/javascript",
		"svg": "image/svg+xml"}
	all := files{}
	list, err := fs.ReadDir(static, "static")
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		body, err := fs.ReadFile(static, "static/"+e.Name())
		if err != nil {
			return nil, err
		}
		_, ext, _ := strings.Cut(e.Name(), ".")
		if kinds[ext] == "" {
			return nil, fmt.Errorf("dashboard: the type of static/%s is unknown", e.Name())
		}
		sum := sha256.Sum256(body)
		all[e.Name()] = file{body, kinds[ext] + "; charset=utf-8",
			`"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	}
	return all, nil
}

// ServeHTTP serves a file. Browsers cache it and revalidate it each time, so that after an upgrade
// no page mixes old and new files.
func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if name == "" {
		name = "index.html"
	}
	x, ok := f[name]
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
		return
	}
	if !ok {
		http.Error(w, "this path does not exist; the dashboard is at "+Prefix, http.StatusNotFound)
		return
	}
	h.Set("Content-Type", x.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("Etag", x.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(x.body))
}
