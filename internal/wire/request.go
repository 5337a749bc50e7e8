package wire

import (
	"net/http"
	"net/netip"
	"strings"
)

// Cookie finds the next cookie of a name in a Cookie line and returns its
// value and what follows it; both are empty if there is none.
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

// Phone guesses whether the visitor's device falls asleep.
func Phone(r *http.Request) bool {
	if r.Header.Get("Sec-CH-UA-Mobile") == "?1" {
		return true
	}
	ua := r.UserAgent()
	return strings.Contains(ua, "Mobile") || strings.Contains(ua, "Android")
}

// RemoteAddr is the address the connection comes from.
func RemoteAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// Origin is the scheme and host that the visitor's browser asked.
func Origin(r *http.Request, secure bool) string {
	if secure {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// TakesRevoke removes a command header and reports whether it said revoke.
func TakesRevoke(h http.Header, name string) (revoke bool) {
	for _, v := range h[name] {
		revoke = revoke || strings.EqualFold(strings.TrimSpace(v), "revoke")
	}
	delete(h, name)
	return revoke
}

// Navigates reports whether the request opens a page: who takes anything does not ask for one.
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

// Part reports whether a request is surely not that of somebody who opens a page: it is for a part
// of one, such as an image or a script, or made ahead of need. Who prefers JSON is an application.
// Without Sec-Fetch-Mode, as by plain http and from old browsers, Accept decides, and in doubt it
// is somebody.
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

// FormValue is a value of a small form that a page of the same site has sent; any other form is
// answered here, and ok is false.
func FormValue(w http.ResponseWriter, r *http.Request, name string) (value string, ok bool) {
	if http.NewCrossOriginProtection().Check(r) != nil { // another site must not change places
		http.Error(w, "only the page of this site may ask for that", http.StatusForbidden)
		return "", false
	}
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	return r.PostFormValue(name), true
}

// TinyPicture is a GIF of one transparent pixel.
const TinyPicture = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04" +
	"\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x01D\x00;"
