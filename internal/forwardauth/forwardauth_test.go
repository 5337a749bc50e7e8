package forwardauth

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestAFlushLetsNobodyIn: a handler that flushes before it sends a status would send 200.
func TestAFlushLetsNobodyIn(t *testing.T) {
	flushes := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.NewResponseController(w).Flush()
	})
	h := &Handler{Trusts: func(*http.Request) bool { return true }, Relay: flushes, Check: flushes}
	for path, code := range map[string]int{"/forward": 503, "/original": 401} {
		r := httptest.NewRequest("GET", path, nil)
		for _, name := range []string{"X-Forwarded-Method", "X-Original-Method"} {
			r.Header.Set(name, "GET")
		}
		for _, name := range []string{"X-Forwarded-Uri", "X-Original-Uri"} {
			r.Header.Set(name, "/")
		}
		r.Header.Set("X-Forwarded-Host", "shop.example")
		r.Header.Set("X-Forwarded-Proto", "https")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
}
