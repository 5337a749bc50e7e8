package rules

import (
	"net/http/httptest"
	"testing"
)

// TestMatchAnyCase: paths are compared without telling cases apart, and nothing else is.
func TestMatchAnyCase(t *testing.T) {
	list, err := NewTextList([]string{"/Admin", "/x"})
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]bool{
		`http.request.uri.path == "/admin"`:                           true,
		`http.request.uri.path == "/Admin"`:                           true,
		`http.request.uri.path in {"/Admin" "/b"}`:                    true,
		`http.request.uri.path in $admin`:                             true,
		`starts_with(http.request.uri.path, "/Adm")`:                  true,
		`http.request.uri.path contains "DMI"`:                        true,
		`http.request.uri.path matches "^/Ad[Mm]in$"`:                 true,
		`http.request.uri.path strict wildcard "/Ad*"`:                true,
		`lower(http.request.uri.path) contains "/Ad"`:                 true,
		`not (http.request.uri.path != "/admin")`:                     true,
		`http.request.uri contains "/admin?"`:                         true,
		`raw.http.request.uri.path == "/admin"`:                       true,
		`http.request.full_uri contains "/Admin"`:                     true,
		`http.request.method == "get" or http.host == "SHOP.example"`: false,
		`http.user_agent == "admin"`:                                  false,
		`http.request.uri.path == "/adm"`:                             false,
		`any(http.request.headers["x-a"][*] == "b")`:                  false,
	} {
		s, err := New([]Rule{{Action: Deny, Expression: expression}},
			Env{Lists: map[string]*List{"admin": list}})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "http://shop.example/aDmIN?q", nil)
		r.Header.Set("User-Agent", "ADMIN")
		r.Header.Set("X-A", "B")
		q := Request{Request: r, Path: r.URL.Path}
		if s.Match(q).Action == Deny {
			t.Errorf("%s matches by case", expression)
		}
		if got := s.MatchAnyCase(q).Action == Deny; got != want || want && !s.ComparesPaths() {
			t.Errorf("%s in any case: %v, want %v", expression, got, want)
		}
	}
}
