package demo

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/setup"
)

func openTestShop(t *testing.T) *shop {
	t.Helper()
	s, err := openShop(DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The shop answers any path, and has no files: headgate init proposes nothing for it.
func TestInitLooksAtTheShop(t *testing.T) {
	u, err := url.Parse(openTestShop(t).url)
	if err != nil {
		t.Fatal(err)
	}
	found := setup.Look(t.Context(), &http.Transport{DisableKeepAlives: true}, u, "")
	if found.Err != nil || found.Status != http.StatusOK || len(found.Excluded()) > 0 {
		t.Errorf("got %+v", found)
	}
}

// get asks with headers in pairs, and gives the answer and its body.
func get(t *testing.T, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestShopTellsVisitorsApart(t *testing.T) {
	s := openTestShop(t)
	get(t, "GET", s.url+"/", crowd.VisitorHeader, "1")
	get(t, "GET", s.url+"/", crowd.VisitorHeader, "1")
	get(t, "GET", s.url+"/", crowd.VisitorHeader, "2")
	first, _ := get(t, "GET", s.url+"/")
	cookies := first.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly {
		t.Fatalf("a guest gets cookies %v, want one that scripts cannot read", cookies)
	}
	mine := cookies[0].Name + "=" + cookies[0].Value
	get(t, "GET", s.url+"/anything", "Cookie", mine)
	r := s.report(time.Now())
	if r.Count != 4-1 || r.Here != 3 || r.Guests != 1 || r.Tight.n != 1 {
		t.Errorf("%+v, want 3 visitors, one a guest, never two at once", r)
	}
	// Goodbye: the stay ends, and who comes again is somebody else.
	last, _ := get(t, "GET", s.url+leavePath, "Cookie", mine)
	if last.Header.Get("Headgate-Command") != "revoke" || last.Cookies()[0].MaxAge >= 0 {
		t.Errorf("the goodbye ends nothing: %v", last.Header)
	}
	get(t, "GET", s.url+"/", "Cookie", mine)
	get(t, "GET", s.url+"/", "Cookie", "duck=forged")
	if r := s.report(time.Now()); r.Count != 5 || r.Guests != 2 || r.LastMinute != 5 {
		t.Errorf("%+v, want 5 visitors, 2 guests there", r)
	}
}

// What the room lets pass uncounted is no visit.
func TestShopCountsNoProbe(t *testing.T) {
	s := openTestShop(t)
	for _, ask := range [][2]string{{"HEAD", "/"}, {"OPTIONS", "/"}, {"GET", "/favicon.ico"},
		{"GET", "/robots.txt"}, {"GET", "/.well-known/x"}} {
		get(t, ask[0], s.url+ask[1])
	}
	if r := s.report(time.Now()); r.Count != 0 {
		t.Errorf("%d visitors, want none", r.Count)
	}
}

// TestShopPagesAreWhole: the style of each page is the one its policy lets through,
// and nothing is asked for beside the page: it would join the line after a goodbye.
func TestShopPagesAreWhole(t *testing.T) {
	s := openTestShop(t)
	for _, path := range []string{"/", leavePath} {
		resp, body := get(t, "GET", s.url+path)
		style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(body)
		if style == nil {
			t.Fatalf("%s has no style", path)
		}
		sum := sha256.Sum256([]byte(style[1]))
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, base64.StdEncoding.EncodeToString(sum[:])) ||
			strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %s", path, policy)
		}
		if m := regexp.MustCompile(`(src|href)="(/[^"]*\.|https?:)`).FindString(body); m != "" {
			t.Errorf("%s asks for something beside: %s", path, m)
		}
		if strings.Contains(body, "{{") {
			t.Errorf("%s has a mark that nothing filled", path)
		}
	}
}

func TestReportOfSparks(t *testing.T) {
	s := openTestShop(t)
	s.begun = at(0)
	for _, second := range []float64{1, 1.5, 3, 5, 61, 62, 62.5} {
		s.let = append(s.let, at(second))
	}
	r := s.report(at(63))
	if n := len(r.Let); n != sparks || r.Let[n-1] != 2 || r.Let[n-2] != 1 || r.Let[0] != 1 {
		t.Errorf("sparks %v", r.Let)
	}
	if r.LastMinute != 4 {
		t.Errorf("%d in the last minute, want 4: the one at 3 s is a minute ago", r.LastMinute)
	}
}
