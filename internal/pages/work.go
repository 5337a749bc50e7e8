package pages

import (
	"bytes"
	_ "embed"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/challenge"
	"github.com/headgate/headgate/internal/route"
)

// Scripts that solve challenges: the proof of work, and the one that shows the widget of a third party.
var (
	//go:embed work.js
	workJS []byte
	//go:embed widget.js
	widgetJS []byte
)

// workPolicy is for the worker that runs the script: it computes, and reaches nothing.
const workPolicy = "default-src 'none'"

// ServeWork answers requests for .headgate/work.js in a folder of the room with the script that
// solves challenges of a kind, and passes all others to next.
func ServeWork(places *route.Set, kind string, next http.Handler) http.Handler {
	script := workJS
	if kind != challenge.Kind {
		script = widgetJS
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, ok := places.Own(r); !ok || name != "work.js" || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/javascript; charset=utf-8")
		h.Set("Cache-Control", "public, max-age=300")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", workPolicy)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(script))
	})
}
