package wire

import (
	"html"
	"net/http"
)

// Shared header values. They are assigned to headers and never changed.
var (
	problemType = []string{"application/problem+json"}
	htmlType    = []string{"text/html; charset=utf-8"}
)

// WriteProblem answers with a problem document (RFC 9457).
func WriteProblem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	b := AppendJSONString([]byte(`{"type":"about:blank"`), "title", http.StatusText(status))
	b = AppendJSONString(AppendJSONInt(b, "status", int64(status)), "detail", detail)
	WriteShort(w, r, status, problemType, append(b, "}\n"...))
}

// WriteExceeded answers 429 with a problem document of the type quota-exceeded
// (draft-ietf-httpapi-ratelimit-headers), which names the limits that rejected the request. Clients
// that prefer HTML get a short page.
func WriteExceeded(w http.ResponseWriter, r *http.Request, detail string, limits []string) {
	w.Header().Add("Vary", "Accept")
	if prefersHTML(r.Header) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		WriteShort(w, r, http.StatusTooManyRequests, htmlType, []byte("<!doctype html><html lang=en>"+
			"<meta charset=utf-8><meta name=viewport content=\"width=device-width\">"+
			"<title>Too many requests</title><h1>Too many requests</h1><p>"+html.EscapeString(detail)+"\n"))
		return
	}
	b := append([]byte(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded"`),
		`,"title":"Request cannot be satisfied as assigned quota has been exceeded"`...)
	b = AppendJSONInt(b, "status", http.StatusTooManyRequests)
	b = AppendJSONString(b, "detail", detail)
	b = append(AppendJSONKey(b, "violated-policies"), '[')
	for i, name := range limits {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendJSONText(b, name)
	}
	WriteShort(w, r, http.StatusTooManyRequests, problemType, append(b, "]}\n"...))
}
