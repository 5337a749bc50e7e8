package pages

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/internal/route"
)

// The script of challenges is the same for everyone, may be cached, and reaches nothing as a worker.
// Whatever else is asked for goes on to the room.
func TestServeWork(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})
	h := ServeWork(route.New([]route.Route{{Path: "/shop"}}, false), "work", next)
	ask := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	for method, text := range map[string]string{"GET": string(workJS), "HEAD": ""} {
		r := ask(method, "/shop/.headgate/work.js")
		if r.Code != 200 || r.Body.String() != text {
			t.Errorf("%s: %d, %d bytes, want %d", method, r.Code, r.Body.Len(), len(text))
		}
		for name, want := range map[string]string{
			"Content-Type":            "text/javascript; charset=utf-8",
			"Cache-Control":           "public, max-age=300",
			"X-Content-Type-Options":  "nosniff",
			"Content-Security-Policy": "default-src 'none'",
			"Set-Cookie":              "",
		} {
			if got := r.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", method, name, got, want)
			}
		}
	}
	for _, x := range [][2]string{{"POST", "/shop/.headgate/work.js"}, {"GET", "/.headgate/work.js"},
		{"GET", "/shop/work.js"}, {"GET", "/shop/.headgate/work.jsx"}, {"GET", "/shop/.headgate/x/../work.js"}} {
		if r := ask(x[0], x[1]); r.Code != http.StatusTeapot {
			t.Errorf("%v: %d", x, r.Code)
		}
	}
}

// A room with a third party has the script of its widget at the same address.
func TestServeWidget(t *testing.T) {
	h := ServeWork(route.New([]route.Route{{Path: "/"}}, false), "hcaptcha", http.NotFoundHandler())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/.headgate/work.js", nil))
	if w.Code != 200 || w.Body.String() != string(widgetJS) {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
}
