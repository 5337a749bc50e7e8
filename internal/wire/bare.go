package wire

import "net/http"

// IsPreflight reports whether r asks for a browser whether a page may send another request (CORS).
// Browsers send it without cookies and without a body.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.ContentLength == 0 && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// Bare takes the cookies out of a request and of its answer, and the body out of the answer to a
// preflight: a request that belongs to no visitor must neither act as one nor fetch a page.
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

// Begin drops what must not reach the client.
func (b *bare) Begin() {
	h := b.Header()
	delete(h, "Set-Cookie")
	if b.empty {
		delete(h, "Content-Length")
		delete(h, "Content-Encoding")
	}
}

// WriteHeader sends the headers, without cookies in informational answers too.
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
