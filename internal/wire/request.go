package wire

import (
	"net/http"
	"net/netip"
	"strings"
)

// Cookie finds the next cookie of a name in a Cookie line. It returns the value and the rest of the
// line; both are empty if there is none.
func Cookie(line, name string) (value, rest string) {
	for {
		i := strings.Index(line, name)
		if i < 0 {
			return "", ""
		}
		starts := i == 0 || line[i-1] == ' ' || line[i-1] == ';'
		line = line[i+len(name):]
		if !starts || len(line) == 0 || line[0] != '=' {
			continue
		}
		value, rest, _ = strings.Cut(line[1:], ";")
		return value, rest
	}
}

// SetsCookie reports whether an answer sets a cookie of that name.
func SetsCookie(h http.Header, name string) bool {
	for _, line := range h["Set-Cookie"] {
		if strings.HasPrefix(line, name) && strings.HasPrefix(line[len(name):], "=") {
			return true
		}
	}
	return false
}

// Phone guesses whether the visitor's device may be suspended, as phones are.
func Phone(r *http.Request) bool {
	if r.Header.Get("Sec-CH-UA-Mobile") == "?1" {
		return true
	}
	ua := r.UserAgent()
	return strings.Contains(ua, "Mobile") || strings.Contains(ua, "Android")
}

// RemoteAddr returns the address of the connection.
func RemoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// Origin returns the scheme and host to which the visitor's browser sent the request.
func Origin(r *http.Request, secure bool) string {
	if secure {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// TakesRevoke removes a command header and reports whether its value was revoke.
func TakesRevoke(h http.Header, name string) (revoke bool) {
	for _, v := range h[name] {
		revoke = revoke || strings.EqualFold(strings.TrimSpace(v), "revoke")
	}
	delete(h, name)
	return revoke
}

// Navigates reports whether the request opens a page. A client that accepts anything does not
// request a page.
func Navigates(r *http.Request) bool {
	if m := r.Header.Get("Sec-Fetch-Mode"); m != "" {
		return m == "navigate"
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	page := wants(r.Header, "text/html")
	return page.exact == byName && page.quality > 0
}

// Part reports whether a request certainly does not come from a person who opens a page. Such a
// request is for a part of a page, such as an image or a script, or is a prefetch. A client that
// prefers JSON is an application. Without Sec-Fetch-Mode, as over plain http and from old browsers,
// Accept decides; in doubt the request counts as a person's.
func Part(r *http.Request) bool {
	h := r.Header
	if ahead(h.Get("Sec-Purpose")) || ahead(h.Get("Purpose")) || ahead(h.Get("X-Moz")) {
		return true
	}
	if PrefersJSON(h) {
		return false
	}
	if mode := h.Get("Sec-Fetch-Mode"); mode != "" {
		return mode != "navigate"
	}
	if page := wants(h, "text/html"); page.exact == byName && page.quality > 0 {
		return false
	}
	left := mostRanges
	for _, line := range h["Accept"] {
		for ; line != "" && left > 0; left-- {
			var of string
			of, line = cutUnquoted(line, ',')
			name, _ := cutUnquoted(of, ';')
			switch major, minor, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), "/"); {
			case major == "image", major == "audio", major == "video", major == "font",
				minor == "css", minor == "javascript":
				return true
			}
		}
	}
	return false
}

func ahead(purpose string) bool {
	return strings.HasPrefix(strings.ToLower(purpose), "prefetch")
}

// FormValue returns a value of a small form that a page of the same site has sent. It answers any
// other form itself and then returns ok false.
func FormValue(w http.ResponseWriter, r *http.Request, name string) (value string, ok bool) {
	if http.NewCrossOriginProtection().Check(r) != nil { // another site must not change places
		http.Error(w, "only the page of this site may ask for that", http.StatusForbidden)
		return "", false
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	return r.PostFormValue(name), true
}

// TinyImage is a GIF of one transparent pixel.
const TinyImage = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04" +
	"\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x01D\x00;"
