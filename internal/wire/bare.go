package wire

import "net/http"

// IsPreflight reports whether r is a CORS preflight: a browser's request whether a page may send
// another request. Browsers send it without cookies and without a body.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.ContentLength == 0 && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// Bare removes the cookies from a request and from its answer, and the body from the answer to a
// preflight. A request that belongs to no visitor must neither act as a visitor nor fetch a page.
func Bare(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	b := &bare{empty: r.Method == http.MethodOptions}
	b.ResponseWriter, b.On = w, b
	if r.Header["Cookie"] == nil {
		return b, r
	}
	next := *r
	next.Header = r.Header.Clone()
	delete(next.Header, "Cookie")
	return b, &next
}

type bare struct {
	Begun
	empty bool
}

// Begin removes what must not reach the client.
func (b *bare) Begin() {
	h := b.Header()
	delete(h, "Set-Cookie")
	if b.empty {
		delete(h, "Content-Length")
		delete(h, "Content-Encoding")
	}
}

// WriteHeader sends the headers, also those of informational answers, without cookies.
func (b *bare) WriteHeader(code int) {
	delete(b.Header(), "Set-Cookie")
	b.Begun.WriteHeader(code)
}

// Write sends a part of the body, or drops it.
func (b *bare) Write(p []byte) (int, error) {
	if b.empty {
		b.Once()
		return len(p), nil
	}
	return b.Begun.Write(p)
}
