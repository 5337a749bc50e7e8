package forwardauth

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzBatch: whatever a batch says, there is one answer for each question, and rooms only see requests
// that net/http could have read.
func FuzzBatch(f *testing.F) {
	const one = `{"method": "GET", "host": "shop.example", "proto": "https", "uri": "/a?b", "for": "192.0.2.7", ` +
		`"headers": [["Cookie", "a=1"], ["user-agent", "Mozilla\u00e9"]]}`
	for _, s := range []string{one, "null", one + "," + one, `{"uri": "/\r\n"}`, strings.Replace(one, "a=1", `a\nb`, 1)} {
		f.Add([]byte(`{"questions": [` + s + `], "ends": [{"room": "shop", "token": "x.y.z", "as": "abandon"}]}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		renewed := 0
		h := &Handler{Trusts: func(*http.Request) bool { return true },
			Leases: func() ([]string, bool) { return []string{"a-1"}, true },
			End:    func(context.Context, End) (bool, string) { return true, "" },
			Renew: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				renewed++
				if r.URL.Path == "" || r.RequestURI[0] != '/' || r.Body != http.NoBody || r.Host == "" ||
					len(r.Header["X-Forwarded-For"]) != 1 || len(r.Header["X-Forwarded-Proto"]) != 1 {
					t.Errorf("%+v", r)
				}
				for name, values := range r.Header {
					if name != "Cookie" && name != "User-Agent" && name != "X-Forwarded-For" && name != "X-Forwarded-Proto" {
						t.Errorf("a header %q", name)
					}
					if strings.ContainsAny(strings.Join(values, ""), "\r\n\x00") {
						t.Errorf("%s: %q", name, values)
					}
				}
				Admitted(func(*http.Request) string { return "/" }).ServeHTTP(inSession{w}, r)
			})}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/batch", strings.NewReader(string(body))))
		b, err := parseBatch(body)
		want := http.StatusOK
		if err != nil {
			want = http.StatusBadRequest
		}
		if w.Code != want {
			t.Fatalf("%d, but %v", w.Code, err)
		}
		var got struct {
			Answers []result
			Ends    []ending
		}
		if err == nil {
			err = json.Unmarshal(w.Body.Bytes(), &got)
			if err != nil || len(got.Answers) != len(b.Questions) || len(got.Ends) != len(b.Ends) {
				t.Fatalf("%v %+v", err, got)
			}
		}
		for _, a := range got.Answers {
			if renewed--; a.Status == http.StatusBadRequest {
				renewed++
			}
		}
		if renewed != 0 {
			t.Errorf("%d more questions were decided than answered", renewed)
		}
	})
}

// inSession is the answer of a room to a request of a session.
type inSession struct{ http.ResponseWriter }

func (inSession) InSession() bool { return true }
