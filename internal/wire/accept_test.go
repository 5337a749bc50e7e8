package wire

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestWhatIsPreferred(t *testing.T) {
	kinds := []string{"text/html", "application/json", "text/csv"}
	const none, html, json, csv = -1, 0, 1, 2
	for _, tt := range []struct {
		accept string
		want   int
	}{
		{"", none},
		{"image/png", none},
		{"application/json", json},
		{"APPLICATION/Json ; Q=0.3", json},
		{"text/csv;q=0.1, application/json", json},
		{"application/json;q=0.2,text/csv;q=0.201", csv},
		{"application/*, text/html;q=0.5", json},
		{"text/*;q=0.9, application/json;q=0.8", html},
		{"text/*, text/html;q=0.1", csv}, // only the most exact range counts
		{"*/*, text/html;q=0", json},
		{"*/*", html},
		{"*/*;q=0", none},
		{"application/json;q=0", none},
		{"application/json, text/html", html},
		{"application/json, text/plain, */*", json}, // named, as by axios
		{"text/csv, */*", csv},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", html},
		{"text/html; charset=utf-8; q=0.4, application/json; q=0.5", json},
		{`text/html;x="a,b;q=1";q=0.1, application/json;q=0.2`, json},
		{`text/html;x="\",";q=0.1, application/json;q=0.2`, json},
		{"text/html;seq=0.1;q=0.9, application/json;q=0.8", html},
		{"text/html;q=NaN, application/json;q=0.1", json},
		{"text/html;q=2, application/json;q=0.1", json},
		{"text/html;q=-1, application/json;q=0.1", json},
		{"text/html;q=, application/json;q=0.1", json},
		{"text, */json, *, html/*", none},
		{",,, ,text/csv", csv},
		{strings.Repeat("a/b,", mostRanges) + "text/html", none},
	} {
		if got := Prefers(http.Header{"Accept": {tt.accept}}, kinds...); got != tt.want {
			t.Errorf("%q: %d, want %d", tt.accept, got, tt.want)
		}
	}
	if got := Prefers(http.Header{"Accept": {"text/html;q=0.2", "text/csv"}}, kinds...); got != csv {
		t.Errorf("of two lines: %d", got)
	}
	if got := Prefers(http.Header{}, kinds...); got != none {
		t.Errorf("nothing is said: %d", got)
	}
}

// A client that accepts anything, or rejects pages, opens no page.
func TestWhoOpensAPage(t *testing.T) {
	for accept, want := range map[string]bool{
		"text/html": true, "text/html;q=0.1, */*": true, "Text/HTML": true, "*/*": false, "text/*": false,
		"text/html;q=0, */*": false, "text/htmlx": false, "": false,
	} {
		r := &http.Request{Method: "GET", Header: http.Header{"Accept": {accept}}}
		if got := Navigates(r); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}

// Every poll of a waiting visitor reads Accept, so it must not allocate.
func TestAcceptIsReadInPlace(t *testing.T) {
	h := http.Header{"Accept": {"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}}
	if n := testing.AllocsPerRun(100, func() { PrefersJSON(h) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// slowWants returns the quality of a kind, computed with the standard library's media type parser.
func slowWants(accept, kind string) (w wanted) {
	group, _, _ := strings.Cut(kind, "/")
	for i, one := range strings.Split(accept, ",") {
		name, params, err := mime.ParseMediaType(one)
		exact := map[string]int{kind: 3, group + "/*": 2, "*/*": 1}[name]
		if err != nil || exact == 0 || i >= mostRanges {
			continue
		}
		q := 1.0
		if s, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(s, 64); err != nil || !(q >= 0 && q <= 1) {
				q = 0
			}
		}
		if exact > w.exact || exact == w.exact && q > w.quality {
			w = wanted{q, exact}
		}
	}
	return w
}

func FuzzAccept(f *testing.F) {
	for _, s := range []string{"text/*;q=0.5,text/html;q=0.25", "*/*", "a/b;c=d;q=1.000,*/*;q=0",
		"text/html;q=0.1;q=0.2", `text/html;a="b,c"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		w := wants(http.Header{"Accept": {accept}}, "text/html")
		if !(w.quality >= 0 && w.quality <= 1) || w.exact > byName || w.exact == 0 && w.quality > 0 {
			t.Fatal(w)
		}
		plain := strings.Map(func(r rune) rune { // what both parsers read the same way
			if strings.ContainsRune("texhmlaq*/,;=.0123456789", r) {
				return r
			}
			return -1
		}, accept)
		for one := range strings.SplitSeq(plain, ",") {
			if _, _, err := mime.ParseMediaType(one); err != nil || strings.HasSuffix(one, ";") {
				return
			}
		}
		got, want := wants(http.Header{"Accept": {plain}}, "text/html"), slowWants(plain, "text/html")
		if got != want {
			t.Fatalf("%q: %+v, want %+v", plain, got, want)
		}
	})
}
