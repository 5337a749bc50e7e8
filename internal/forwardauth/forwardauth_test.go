package forwardauth

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// ask returns a question.
func ask(path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	for name, value := range map[string]string{"X-Forwarded-Method": "GET", "X-Original-Method": "GET",
		"X-Forwarded-Uri": "/", "X-Original-Uri": "/", "X-Forwarded-Host": "shop.example", "X-Forwarded-Proto": "https"} {
		r.Header.Set(name, value)
	}
	return r
}

// TestAFlushLetsNobodyIn: a handler that flushes before it sends a status would send 200.
func TestAFlushLetsNobodyIn(t *testing.T) {
	flushes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).Flush()
	})
	h := &Handler{Trusts: func(*http.Request) bool { return true }, Relay: flushes, Check: flushes}
	for path, code := range map[string]int{"/forward": 503, "/original": 401} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, ask(path)); w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
}

// TestTwoCookies: nginx and HAProxy would lose the second, and the visitor a session.
func TestTwoCookies(t *testing.T) {
	in := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()[AdmittedHeader] = []string{AdmittedSession}
		w.Header()["Set-Cookie"] = []string{"a=1", "b=1"}
		w.WriteHeader(http.StatusNoContent)
	})
	h := &Handler{Trusts: func(*http.Request) bool { return true }, Relay: in, Check: in}
	for path, code := range map[string]int{"/forward": 204, "/original": 401} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, ask(path)); w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
}

// TestTwoTargets: of two, one may be the visitor's own header, which the proxy has not overwritten.
func TestTwoTargets(t *testing.T) {
	in := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Admitted(nil).ServeHTTP(inSession{w}, r)
	})
	h := &Handler{Trusts: func(*http.Request) bool { return true }, Check: in}
	for _, uri := range [][]string{{"/robots.txt"}, {"/robots.txt", "/"}, {""}} {
		for _, both := range []bool{false, true} {
			r := ask("/original")
			delete(r.Header, "X-Original-Uri")
			r.Header.Set("X-Original-URL", "https://shop.example/checkout")
			want := http.StatusNoContent
			if both {
				r.Header["X-Original-Uri"], want = uri, http.StatusBadRequest
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%q, %v: %d, want %d", uri, both, w.Code, want)
			}
		}
	}
}
