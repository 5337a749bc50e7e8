//go:build real

package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/checkout"
)

func TestTheWarningLooksAndProlongsNothing(t *testing.T) {
	long := strings.Replace(payRoom, "session_duration: 4s, checkout: {pass: true, warn: 3s}",
		"session_duration: 8s, checkout: {warn: 7s}", 1)
	visitors, _, _ := start(t, shopOf(t), long)
	a := get(t, visitors+"/", "")
	if got := a.Header.Get(checkout.EndsHeader); got != "7" && got != "8" {
		t.Errorf("%s: %q, want 8 or almost", checkout.EndsHeader, got)
	}
	if a.body != "origin " {
		t.Errorf("a pass that nobody asked for: %s", a.body)
	}
	type answer struct {
		Inside, Renews, Warn bool
		EndsIn               int64 `json:"ends_in_seconds"`
		Text                 struct{ Lang, Ends string }
	}
	look := func(method string) (x answer) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, visitors+"/.headgate/session", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Cookie", a.cookie)
		r.Header.Set("Accept-Language", "de")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(&x); err != nil {
			t.Fatal(err)
		}
		return x
	}
	x := look("GET")
	if !x.Inside || !x.Renews || x.Text.Lang != "de-DE" || !strings.Contains(x.Text.Ends, "{t}") {
		t.Errorf("%+v", x)
	}
	eventually(t, "warned", func() bool { x = look("GET"); return x.Warn && x.EndsIn <= 4 })
	look("POST") // a request of the visit
	eventually(t, "longer", func() bool { return look("GET").EndsIn > 4 })
	began := time.Now()
	eventually(t, "over", func() bool { return !look("GET").Inside }) // asked fifty times a second
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("over after %v", d)
	}
	if s := get(t, visitors+"/.headgate/warn.js", ""); s.StatusCode != 200 ||
		!strings.HasPrefix(s.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("%d %s", s.StatusCode, s.body)
	}
}
