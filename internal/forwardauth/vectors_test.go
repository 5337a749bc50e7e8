package forwardauth

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/exclude"
	"github.com/headgate/headgate/internal/paths"
	"github.com/headgate/headgate/internal/proxy"
	"github.com/headgate/headgate/internal/route"
	"github.com/headgate/headgate/internal/wire"
)

// vectors are connectors/vectors.json. Its texts are bytes.
type vectors struct {
	Requests []struct {
		Name, Peer, Raw, Client string
		TLS                     bool
		Status                  int
		Question                *struct {
			Method, Body string
			Headers      [][2]string
		}
	}
	Local []struct {
		Folder, Method, Target string
		Headers                [][2]string
		Local                  bool
	}
	Cookies []struct{ Lines, Cookies []string }
}

func readVectors(t *testing.T) (v vectors) {
	text, err := os.ReadFile("../../connectors/vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || len(v.Requests) < 20 || len(v.Local) < 50 || len(v.Cookies) < 10 {
		t.Fatal(err)
	}
	return v
}

// TestVectorsOfQuestions: headgate reads from each question the request line and the host that
// arrived, and the address of the visitor.
func TestVectorsOfQuestions(t *testing.T) {
	for _, x := range readVectors(t).Requests {
		if x.Question == nil {
			continue
		}
		r := httptest.NewRequest(x.Question.Method, "/connect", strings.NewReader(x.Question.Body))
		r.RemoteAddr, r.Header = "127.0.0.1:4711", http.Header{}
		for _, h := range x.Question.Headers {
			r.Header.Add(h[0], h[1])
		}
		var got *http.Request
		h := &Handler{Trusts: func(*http.Request) bool { return true },
			Connect: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r })}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		line, rest, _ := strings.Cut(x.Raw, "\r\n")
		host, _, _ := strings.Cut(rest, "\r\n")
		part := strings.Split(line, " ")
		if part[1][0] != '/' {
			if w.Code != http.StatusBadRequest || got != nil {
				t.Errorf("%s: %d", x.Name, w.Code)
			}
			continue
		}
		if got == nil {
			t.Errorf("%s: %d %s", x.Name, w.Code, w.Body)
			continue
		}
		trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/8")}
		body, err := io.ReadAll(got.Body)
		if err != nil || got.Method != part[0] || got.RequestURI != part[1] || "Host: "+got.Host != host ||
			proxy.ClientAddr(got, trusted).String() != x.Client || string(body) != x.Question.Body ||
			(got.Header.Get("X-Forwarded-Proto") == "https") != x.TLS {
			t.Errorf("%s: %+v %q", x.Name, got, body)
		}
		for name := range got.Header {
			if wire.Owned(name) && name != "X-Forwarded-For" && name != "X-Forwarded-Proto" && name != "Headgate-Poll" {
				t.Errorf("%s: the visitor's %s is in the question", x.Name, name)
			}
		}
	}
}

// TestVectorsOfLocal: what passes without a question has one reading, in the folder, and headgate
// neither answers it itself nor excludes it.
func TestVectorsOfLocal(t *testing.T) {
	excluded := exclude.New(exclude.Requests{}, true)
	for _, x := range readVectors(t).Local {
		if !x.Local {
			continue
		}
		u, err := Target(x.Target)
		if err != nil {
			t.Errorf("%q: %v", x.Target, err)
			continue
		}
		paths.Keep(u)
		p, places := paths.Of(u), route.New([]route.Route{{Path: x.Folder}}, false)
		r := &http.Request{Method: x.Method, URL: u, Header: http.Header{}}
		for _, h := range x.Headers {
			r.Header.Add(h[0], h[1])
		}
		_, in := places.Match("", p.At(0))
		_, own := places.Own(r)
		if p.Malformed() || p.Excessive() || p.Len() != 1 || !in || own || wire.IsPreflight(r) ||
			excluded.Match(r, p.At(0), nil) || r.Header["Headgate-Poll"] != nil {
			t.Errorf("%s %q in %s passes without a question", x.Method, x.Target, x.Folder)
		}
	}
}

// TestVectorsOfCookies: an answer depends on no cookie that the connector leaves out.
func TestVectorsOfCookies(t *testing.T) {
	for _, x := range readVectors(t).Cookies {
		for _, suffix := range []string{"", "_2"} {
			http, https := route.CookieNames("shop", strings.TrimPrefix(suffix, "_"), true)
			more, _ := route.CookieNames("default", "", true)
			for _, name := range slices.Concat(http, https, more) {
				if a, b := valuesOf(x.Lines, name), valuesOf(x.Cookies, name); !slices.Equal(a, b) {
					t.Errorf("%q: %s is %q, and with fewer cookies %q", x.Lines, name, a, b)
				}
			}
		}
	}
}

// valuesOf returns the values of a cookie as a room reads them.
func valuesOf(lines []string, name string) (all []string) {
	for _, line := range lines {
		for line != "" {
			var value string
			if value, line = wire.Cookie(line, name); line == "" && value == "" {
				break
			}
			all = append(all, value)
		}
	}
	return all
}
