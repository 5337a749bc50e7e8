package wire

import (
	"net/http"
	"strconv"
	"time"
)

// bodyPatience is how long the body of a request that nobody wants may take to arrive; it is
// thrown away. Chosen.
const bodyPatience = 5 * time.Second

// BoundBody bounds how long the server reads on to the end of a body that nobody wants.
func BoundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience))
	}
}

// Shared header values: assigned, never changed.
var (
	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)

// WriteShort answers in place of a site's handler, at once and never from a cache. kind, the
// Content-Type, is kept and not changed.
func WriteShort(w http.ResponseWriter, r *http.Request, status int, kind []string, body []byte) {
	BoundBody(w, r)
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, kind
	h["X-Content-Type-Options"] = noSniff
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}

// WaitStatus is the status of a waiting answer where pages have that of page. HEAD gets 503: it is a
// monitor's, which must not take the waiting page for the site.
func WaitStatus(r *http.Request, page int) int {
	if r.Method == http.MethodHead {
		return http.StatusServiceUnavailable
	}
	return page
}

// UpSeconds are whole seconds, rounded up: who waits that long has waited long enough.
func UpSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
