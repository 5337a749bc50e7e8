package ratelimit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/limit"
)

// verdictOf returns a result of a limit of amount in a minute.
func verdictOf(name string, amount, remaining int64, reset time.Duration) Result {
	return Result{
		Decision: limit.Decision{Allowed: true, Amount: amount, Remaining: remaining, Reset: reset},
		Limit: &Limit{
			Name: name, Rule: limit.Rule{Algorithm: limit.SlidingLog, Amount: amount, Window: time.Minute},
		},
	}
}

func refusedFor(v Result, retry time.Duration) Result {
	v.Allowed, v.Retry = false, retry
	return v
}

// headerLines returns the headers, sorted by name.
func headerLines(h http.Header) string {
	var b strings.Builder
	h.Write(&b)
	return strings.ReplaceAll(b.String(), "\r\n", "\n")
}

func TestLimitHeaders(t *testing.T) {
	api := verdictOf("api", 100, 50, 29*time.Second+1)
	day := verdictOf("day", 1000, 900, time.Hour)
	day.Limit.Rule = limit.Rule{Algorithm: limit.FixedWindow, Amount: 1000, Align: limit.Day}
	month := verdictOf("month", 5000, 4000, 9*time.Hour)
	month.Limit.Rule = limit.Rule{Algorithm: limit.FixedWindow, Amount: 5000, Align: limit.Month}
	burst := verdictOf("burst", 200, 150, 30*time.Second)
	burst.Limit.Rule = limit.Rule{Algorithm: limit.TokenBucket, Amount: 100, Window: time.Minute, Burst: 200}
	bytes := verdictOf("bytes", 1<<50, 1<<50, 0)
	bytes.Limit.Unit = ResponseBytes
	calls := verdictOf("calls", 5, 2, 1500*time.Millisecond)
	calls.Limit.Rule = limit.Rule{Algorithm: limit.Concurrency, Amount: 5}
	short := verdictOf("short", 5, 2, time.Millisecond)
	short.Limit.Window = 250 * time.Millisecond
	shadow := verdictOf("shadow", 1, 0, time.Second)
	shadow.Limit.Shadow = true
	nothing := refusedFor(verdictOf("nothing", 0, 0, 0), -1)
	odd := verdictOf("a\"b\\c\n\u00e9", 1, 1, 0)
	used := verdictOf("used", 100, 0, 50*time.Second)

	tests := []struct {
		name, style string
		vs          []Result
		want        string
	}{
		{"one", "ietf", []Result{api}, `Ratelimit: "api";r=50;t=30
Ratelimit-Policy: "api";q=100;w=60
`},
		{"the default", "", []Result{api}, `Ratelimit: "api";r=50;t=30
Ratelimit-Policy: "api";q=100;w=60
`},
		{"several, and months have no length", "ietf", []Result{day, month},
			`Ratelimit: "day";r=900;t=3600, "month";r=4000;t=32400
Ratelimit-Policy: "day";q=1000;w=86400, "month";q=5000
`},
		{"a burst comes back in its own time", "ietf", []Result{burst}, `Ratelimit: "burst";r=150;t=30
Ratelimit-Policy: "burst";q=200;w=120
`},
		{"units, and no integer is too long", "ietf", []Result{bytes, calls},
			`Ratelimit: "bytes";r=999999999999999;t=0, "calls";r=2;t=2
Ratelimit-Policy: "bytes";q=999999999999999;qu="content-bytes";w=60, "calls";q=5;qu="concurrent-requests"
`},
		{"under a second is one", "ietf", []Result{short}, `Ratelimit: "short";r=2;t=1
Ratelimit-Policy: "short";q=5;w=1
`},
		{"shadows are not told", "ietf", []Result{shadow, api}, `Ratelimit: "api";r=50;t=30
Ratelimit-Policy: "api";q=100;w=60
`},
		{"only shadows", "draft03", []Result{shadow}, ""},
		{"names are escaped", "ietf", []Result{odd}, `Ratelimit: "a\"b\\c%0a%c3%a9";r=1;t=0
Ratelimit-Policy: "a\"b\\c%0a%c3%a9";q=1;w=60
`},
		{"refused: more comes when it passes", "ietf",
			[]Result{refusedFor(used, 1200*time.Millisecond), day},
			`Ratelimit: "used";r=0;t=2, "day";r=900;t=3600
Ratelimit-Policy: "used";q=100;w=60, "day";q=1000;w=86400
Retry-After: 2
`},
		{"refused: the later of two", "none",
			[]Result{refusedFor(used, time.Second), refusedFor(api, 7*time.Second)},
			"Retry-After: 7\n"},
		{"refused: never", "ietf", []Result{refusedFor(used, time.Second), nothing},
			`Ratelimit: "used";r=0;t=1, "nothing";r=0
Ratelimit-Policy: "used";q=100;w=60, "nothing";q=0;w=60
`},
		{"refused: at once is a second", "none", []Result{refusedFor(used, 1)}, "Retry-After: 1\n"},
		{"draft 06 has the one with the least left", "draft06", []Result{day, api, month},
			"Ratelimit-Limit: 100\nRatelimit-Remaining: 50\nRatelimit-Reset: 30\n"},
		{"of two with nothing left the one that lasts longer", "legacy",
			[]Result{refusedFor(used, time.Second), refusedFor(verdictOf("b", 7, 0, 0), 8*time.Second)},
			"Retry-After: 8\nX-Ratelimit-Limit: 7\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 8\n"},
		{"of two with nothing left the one that refused", "legacy",
			[]Result{verdictOf("b", 7, 0, 99*time.Second), refusedFor(used, time.Second)},
			"Retry-After: 1\nX-Ratelimit-Limit: 100\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1\n"},
		{"in any order", "legacy",
			[]Result{refusedFor(used, time.Second), verdictOf("b", 7, 0, 99*time.Second)},
			"Retry-After: 1\nX-Ratelimit-Limit: 100\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1\n"},
		{"refused: no time is said", "none", []Result{refusedFor(used, 0)}, "Retry-After: 1\n"},
		{"draft 03", "draft03", []Result{day, api, calls},
			`X-Ratelimit-Limit: 5, 1000;w=86400;name="day", 100;w=60;name="api", 5;name="calls"
X-Ratelimit-Remaining: 2
X-Ratelimit-Reset: 2
`},
		{"none", "none", []Result{api}, ""},
		{"no limit was asked", "ietf", []Result{{}}, ""},
	}
	for _, tt := range tests {
		h := http.Header{}
		SetHeaders(h, HeaderStyle(tt.style), tt.vs)
		if diff := cmp.Diff(tt.want, headerLines(h)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// Clients see soft limits, but a header for one limit shows one that refuses.
func TestHeadersOfSoftLimits(t *testing.T) {
	api, soft := verdictOf("api", 100, 50, 30*time.Second), verdictOf("soft", 9, 0, 2*time.Second)
	soft.Limit.Soft, soft.Exceeded = true, true
	for _, tt := range []struct {
		style HeaderStyle
		vs    []Result
		want  string
	}{
		{HeadersIETF, []Result{soft, api}, `Ratelimit: "soft";r=0;t=2, "api";r=50;t=30
Ratelimit-Policy: "soft";q=9;w=60, "api";q=100;w=60
`},
		{HeadersLegacy, []Result{soft, api, soft},
			"X-Ratelimit-Limit: 100\nX-Ratelimit-Remaining: 50\nX-Ratelimit-Reset: 30\n"},
		{HeadersLegacy, []Result{soft},
			"X-Ratelimit-Limit: 9\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 2\n"},
	} {
		h := http.Header{}
		SetHeaders(h, tt.style, tt.vs)
		if diff := cmp.Diff(tt.want, headerLines(h)); diff != "" {
			t.Errorf("%s of %d: %s", tt.style, len(tt.vs), diff)
		}
	}
}

func TestWriteRefusal(t *testing.T) {
	refused := refusedFor(verdictOf("api", 100, 3, 50*time.Second), 17*time.Second)
	other := verdictOf("day", 1000, 900, time.Hour)
	never := refusedFor(verdictOf("<big>", 100, 3, 50*time.Second), -1)
	shut := refusedFor(verdictOf("shut", 0, 0, 0), -1)
	unheard := refusedFor(verdictOf("far", 100, 0, 0), time.Second)
	unheard.Local, unheard.Limit.OnUnreachable = true, UnreachableDeny
	const page = "text/html; charset=utf-8"
	tests := []struct {
		accept   string
		vs       []Result
		kind     string
		want     string // in the body
		retry    string
		violated []string
	}{
		{"", []Result{other, refused}, "application/problem+json",
			`Not enough is left of limit "api". Try again in 17 s.`, "17", []string{"api"}},
		{"*/*", []Result{refused, refusedFor(other, time.Minute)}, "application/problem+json",
			`Not enough is left of limits "api", "day". Try again in 60 s.`, "60", []string{"api", "day"}},
		{"application/json", []Result{refused, never}, "application/problem+json",
			`The cost of this request is more than limit "<big>" ever allows.`, "", []string{"api", "<big>"}},
		{"", []Result{unheard}, "application/problem+json", `The limit "far" cannot be asked now. Try again in 1 s.`, "1",
			[]string{"far"}},
		{"", []Result{shut}, "application/problem+json", `Limit "shut" lets nothing through.`, "",
			[]string{"shut"}},
		{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", []Result{refused},
			page, `<p>Not enough is left of limit &#34;api&#34;. Try again in 17 s.`, "17", nil},
		{"text/html", []Result{never}, page, `limit &#34;&lt;big&gt;&#34; ever`, "", nil},
		{"text/html;q=0.5, application/problem+json", []Result{refused}, "application/problem+json", "",
			"17", []string{"api"}},
		{"application/json;q=0.1;v=1, text/html;q=0.2", []Result{refused}, page, "", "17", nil},
		{"text/html, application/json", []Result{refused}, "application/problem+json", "", "17",
			[]string{"api"}},
		{"text/*, application/json;q=0.9", []Result{refused}, page, "", "17", nil},
		{"text/html;q=0.9, application/*", []Result{refused}, "application/problem+json", "", "17",
			[]string{"api"}},
		{"text/html;q=NaN", []Result{refused}, "application/problem+json", "", "17", []string{"api"}},
		{strings.Repeat("a/b,", 20) + "text/html", []Result{refused}, "application/problem+json", "", "17",
			[]string{"api"}},
	}
	for _, tt := range tests {
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set("Accept", tt.accept)
		w := httptest.NewRecorder()
		WriteRefusal(w, r, HeadersIETF, tt.vs)
		h := w.Header()
		if w.Code != 429 || h.Get("Cache-Control") != "no-store" || h.Get("Content-Type") != tt.kind ||
			h.Get("Retry-After") != tt.retry || h.Get("RateLimit") == "" || h.Get("Vary") != "Accept" {
			t.Errorf("%q: %d %v", tt.accept, w.Code, h)
		}
		body := w.Body.String()
		if strings.Contains(body, "<script") || h.Get("Content-Length") == "" {
			t.Errorf("%q: %q", tt.accept, body)
		}
		if tt.violated == nil {
			if !strings.Contains(body, tt.want) || h.Get("Content-Security-Policy") != "default-src 'none'" {
				t.Errorf("%q: %q, want %q", tt.accept, body, tt.want)
			}
			continue
		}
		var p struct {
			Type, Title, Detail string
			Status              int
			Violated            []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || p.Status != 429 ||
			p.Title == "" || !strings.Contains(p.Detail, tt.want) || !cmp.Equal(p.Violated, tt.violated) {
			t.Errorf("%q: %+v, want %q of %q", tt.accept, p, tt.want, tt.violated)
		}
	}
}
