package siege

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/crowd"
)

// browsers carry the requests of a crowd as browsers would: each visitor has connections of its own
// from an address of its own, sends what browsers send, and loads what a page names.
type browsers struct {
	name    func(id string) string // of a visitor, to the origin
	address func(id int) net.IP

	mu    sync.Mutex
	own   map[string]*http.Transport
	polls []time.Duration
}

func newBrowsers(name func(string) string, address func(int) net.IP) *browsers {
	return &browsers{name: name, address: address, own: map[string]*http.Transport{}}
}

// person is the address of an honest person: the first of a /24 of 127.64.0.0/10.
func person(id int) net.IP { return net.IPv4(127, byte(64+id>>8), byte(id), 1) }

// from gives connections that come from one loopback address and go nowhere but to loopback.
func from(ip net.IP, conns int) *http.Transport {
	d := &net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: ip}}
	return &http.Transport{DialContext: d.DialContext, DisableCompression: true,
		MaxConnsPerHost: conns, MaxIdleConnsPerHost: conns, ResponseHeaderTimeout: 20 * time.Second,
		IdleConnTimeout: 30 * time.Second, WriteBufferSize: 2 << 10, ReadBufferSize: 4 << 10}
}

func (b *browsers) transport(id string) *http.Transport {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.own[id] == nil {
		n, _ := strconv.Atoi(id)
		b.own[id] = from(b.address(n), 6)
	}
	return b.own[id]
}

// RoundTrip sends a request of the crowd. When the answer is a page it also loads the page's files
// with the page's cookies, and returns their cookies with those of the page.
func (b *browsers) RoundTrip(in *http.Request) (*http.Response, error) {
	id := in.Header.Get(crowd.VisitorHeader)
	r := in.Clone(in.Context())
	r.Header.Set(crowd.VisitorHeader, b.name(id))
	r.Header.Set("Accept-Language", "en-US,en;q=0.9")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	navigates := r.Header.Get("Sec-Fetch-Mode") == "navigate"
	if navigates {
		r.Header.Set("Sec-Fetch-User", "?1")
		r.Header.Set("Upgrade-Insecure-Requests", "1")
		r.Header.Set("Sec-Fetch-Site", "none")
	}
	t, start := b.transport(id), time.Now()
	resp, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// A poll of somebody who is called may be held until the slot is due: it tells nothing of speed.
	if r.Header.Get("Headgate-Poll") != "" && resp.Header.Get("Headgate-State") == "waiting" {
		b.mu.Lock()
		b.polls = append(b.polls, time.Since(start))
		b.mu.Unlock()
	}
	if navigates && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		err = files(t, r, resp)
	}
	return resp, err
}

// mostFiles bounds how many files of a page are loaded.
const mostFiles = 4

// files loads what the page names and puts the page back as it was.
func files(t *http.Transport, r *http.Request, page *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(page.Body, 1<<20))
	page.Body.Close()
	page.Body = io.NopCloser(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	var cookies crowd.Jar
	cookies.Keep(strings.Split(r.Header.Get("Cookie"), "; "))
	cookies.Keep(page.Header["Set-Cookie"])
	for _, path := range named(string(text)) {
		u, err := r.URL.Parse(path)
		if err != nil || u.Host != r.URL.Host {
			continue
		}
		resp, err := t.RoundTrip(get(r.Context(), u.String(), http.Header{
			"User-Agent": r.Header["User-Agent"], crowd.VisitorHeader: r.Header[crowd.VisitorHeader],
			"Accept": {"image/avif,image/webp,*/*;q=0.8"}, "Sec-Fetch-Site": {"same-origin"},
			"Sec-Fetch-Mode": {"no-cors"}, "Sec-Fetch-Dest": {"image"}, "Cookie": {cookies.String()},
		}))
		if err != nil {
			return err
		}
		cookies.Keep(resp.Header["Set-Cookie"])
		page.Header["Set-Cookie"] = append(page.Header["Set-Cookie"], resp.Header["Set-Cookie"]...)
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		resp.Body.Close()
	}
	return nil
}

// named are the files below / that a page loads by itself: pictures, styles and scripts.
func named(page string) (paths []string) {
	found := regexp.MustCompile(`<(?:img|script|link rel="stylesheet")[^>]*? (?:src|href)="(/[^"]*)"`)
	for _, m := range found.FindAllStringSubmatch(page, mostFiles) {
		paths = append(paths, m[1])
	}
	return paths
}

func get(ctx context.Context, url string, h http.Header) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err) // the URL is ours
	}
	r.Header = h
	return r
}

// navigation is what a browser sends when somebody types an address.
func navigation(visitor, cookie string) http.Header {
	h := http.Header{"User-Agent": {"Mozilla/5.0 (X11; Linux x86_64; rv:140.0)"},
		"Accept":         {"text/html,application/xhtml+xml,*/*;q=0.8"},
		"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"},
		crowd.VisitorHeader: {visitor}}
	if cookie != "" {
		h["Cookie"] = []string{cookie}
	}
	return h
}
