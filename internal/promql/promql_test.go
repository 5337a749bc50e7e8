package promql

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestAnswersOfAServer(t *testing.T) {
	const vector = `{"status":"success","data":{"resultType":"vector","result":[`
	const one = `{"metric":{"job":"shop"},"value":[1700000000.5,"0.75"]}`
	for name, x := range map[string]struct {
		code int
		body string
		want float64
		err  string
	}{
		"vector":   {200, vector + one + `]}}`, 0.75, ""},
		"scalar":   {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, 2, ""},
		"empty":    {200, vector + `]}}`, 0, "is empty"},
		"two":      {200, vector + one + `,` + one + `]}}`, 0, "has 2 series"},
		"NaN":      {200, strings.Replace(vector+one+`]}}`, "0.75", "NaN", 1), 0, "is NaN"},
		"infinite": {200, strings.Replace(vector+one+`]}}`, "0.75", "+Inf", 1), 0, "not a number from 0 on"},
		"negative": {200, strings.Replace(vector+one+`]}}`, "0.75", "-1", 1), 0, "not a number from 0 on"},
		"matrix":   {200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, 0, "neither"},
		"no value": {200, vector + `{"value":[1]}]}}`, 0, "cannot be read"},
		"a number": {200, vector + `{"value":[1,0.5]}]}}`, 0, "cannot be read"},
		"a page":   {200, `<html>`, 0, "none of Prometheus"},
		"bad":      {400, `{"status":"error","errorType":"bad_data","error":"secret"}`, 0, "cannot read the query"},
		"down":     {503, ``, 0, "status 503"},
		"large":    {200, strings.Repeat(" ", MostAnswer) + vector + one + `]}}`, 0, "more than 65536 bytes"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/prom/api/v1/query" || r.URL.Query().Get("query") != `max(load{job="shop"})` {
				t.Errorf("%s asked for", r.URL)
			}
			w.WriteHeader(x.code)
			w.Write([]byte(x.body))
		}))
		base, err := url.Parse(s.URL + "/prom")
		if err != nil {
			t.Fatal(err)
		}
		got, err := New(nil).Number(t.Context(), base, `max(load{job="shop"})`)
		if got != x.want || (err == nil) != (x.err == "") ||
			err != nil && (!strings.Contains(err.Error(), x.err) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		s.Close()
	}
}

// The server of the file is asked, and no other that it names: it might be inside the network.
func TestNoRedirectIsFollowed(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer s.Close()
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(nil).Number(t.Context(), base, "x"); err == nil || asked {
		t.Errorf("%v, followed: %v", err, asked)
	}
}

func TestAServerThatDoesNotAnswer(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stop()
		<-r.Context().Done()
	}))
	defer s.Close()
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(nil).Number(ctx, base, "secret")
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func FuzzNumber(f *testing.F) {
	f.Add("vector", []byte(`[{"value":[1,"0.5"]}]`))
	f.Add("scalar", []byte(`[1,"NaN"]`))
	f.Fuzz(func(t *testing.T, kind string, result []byte) {
		v, err := number(kind, result)
		if err == nil && !(v >= 0 && v <= math.MaxFloat64) {
			t.Errorf("%v", v)
		}
	})
}
