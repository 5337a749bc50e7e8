package wire

import (
	"net/http"
	"strconv"
	"time"
)

// bodyPatience is the timeout for reading a request body that is discarded. Chosen.
const bodyPatience = 5 * time.Second

// BoundBody limits how long the server reads a body that is discarded.
func BoundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience))
	}
}

// Shared header values. They are assigned to headers and never changed.
var (
	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)

// WriteShort answers in place of a site's handler, at once and never from a cache. kind is the
// Content-Type; it is kept and not changed.
func WriteShort(w http.ResponseWriter, r *http.Request, status int, kind []string, body []byte) {
	BoundBody(w, r)
	h := w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, kind
	h["X-Content-Type-Options"] = noSniff
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body)
}

// WaitStatus returns the status of a waiting answer, where pages have the status page. HEAD gets
// 503: it comes from monitors, which must not mistake the waiting page for the site.
func WaitStatus(r *http.Request, page int) int {
	if r.Method == http.MethodHead {
		return http.StatusServiceUnavailable
	}
	return page
}

// UpSeconds returns whole seconds, rounded up, so that waiting this long is always enough.
func UpSeconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
