package pages

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate"
)

// cloudflareVariables are the 27 that Cloudflare documents for custom pages.
const cloudflareVariables = `inWaitingRoom waitTimeKnown waitTime waitTime25Percentile
	waitTime50Percentile waitTime75Percentile waitTimeFormatted queueIsFull queueAll lastUpdated
	refreshIntervalSeconds queueingMethod isFIFOQueue isRandomQueue isPassthroughQueue isRejectQueue
	isEventActive isEventPrequeueing timeUntilEventStart timeUntilEventStartFormatted timeUntilEventEnd
	timeUntilEventEndFormatted shuffleAtEventStart turnstile infiniteQueue waitTimeHours
	waitTimeHourMinutes`

func parseCustom(t testing.TB, html string) *Custom {
	t.Helper()
	c, err := ParseCustom([]byte(html))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ownPage(t testing.TB, html string) *Page {
	t.Helper()
	p, err := New(Config{Custom: parseCustom(t, html), Path: "/shop"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestVariables renders each of Cloudflare's variables for a room in each situation.
func TestVariables(t *testing.T) {
	names := strings.Fields(cloudflareVariables)
	if len(names) != 27 {
		t.Fatalf("%d variables, want 27", len(names))
	}
	var template strings.Builder
	for _, name := range names {
		fmt.Fprintf(&template, "%s={{%s}}\n", name, name)
	}
	p := ownPage(t, template.String())
	at := time.Date(2020, time.August, 3, 23, 46, 0, 0, time.UTC)
	fifo := headgate.View{Method: "fifo", ETAKnown: true, ETA: 605 * time.Minute, UpdatedAt: at,
		ETALow: 5 * time.Minute, ETAHigh: 15 * time.Minute, PollAfter: 20 * time.Second}
	random := fifo
	random.Method, random.ETA = "random", 10*time.Minute
	event := fifo
	event.ETAKnown, event.Method, event.PollAfter = false, "reject", 0
	event.Event = headgate.Event{Active: true, Prequeue: true, Shuffle: true,
		StartsAt: at.Add(61 * time.Second), EndsAt: at.Add(time.Hour)}
	event.QueueAll, event.Full = true, true
	reject := headgate.View{Method: "reject", UpdatedAt: at}
	for name, c := range map[string]struct {
		v    headgate.View
		want map[string]string
	}{
		"fifo": {fifo, map[string]string{
			"inWaitingRoom": "true", "waitTimeKnown": "true", "waitTime": "605",
			"waitTimeFormatted": "605 minutes", "waitTimeHours": "10", "waitTimeHourMinutes": "5",
			"waitTime50Percentile": "0", "lastUpdated": "2020-08-03T23:46:00.000Z",
			"refreshIntervalSeconds": "20", "queueingMethod": "fifo", "isFIFOQueue": "true",
			"isRandomQueue": "false", "isEventActive": "false", "timeUntilEventStart": "0",
			"timeUntilEventStartFormatted": "unavailable", "turnstile": "", "infiniteQueue": "false"}},
		"random": {random, map[string]string{
			"waitTime": "10", "waitTime25Percentile": "5", "waitTime50Percentile": "10",
			"waitTime75Percentile": "15", "waitTimeFormatted": "5 minutes to 15 minutes",
			"isRandomQueue": "true", "isFIFOQueue": "false"}},
		"event": {event, map[string]string{
			"waitTimeKnown": "false", "waitTime": "0", "waitTimeFormatted": "unavailable",
			"queueIsFull": "true", "queueAll": "true", "isEventActive": "true",
			"isEventPrequeueing": "true", "shuffleAtEventStart": "true", "timeUntilEventStart": "2",
			"timeUntilEventStartFormatted": "2 minutes", "timeUntilEventEnd": "60",
			"timeUntilEventEndFormatted": "60 minutes", "refreshIntervalSeconds": "20"}},
		"reject": {reject, map[string]string{"isRejectQueue": "true", "refreshIntervalSeconds": "0",
			"isPassthroughQueue": "false"}},
	} {
		got := map[string]string{}
		for line := range strings.Lines(render(t, p, &c.v)) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			got[key] = value
		}
		if len(got) != 27 {
			t.Errorf("%s: %d values", name, len(got))
		}
		for key, want := range c.want {
			if got[key] != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got[key], want)
			}
		}
	}
	if h := p.Header(&reject); h.Get("Refresh") != "" {
		t.Errorf("who is refused is told to ask again after %s s", h["Refresh"])
	}
	if h := p.Header(&fifo); h.Get("Refresh") != "20" || h.Get("Content-Security-Policy") != CustomPolicy {
		t.Errorf("headers %v", h)
	}
}

// TestSections is a page in the manner of Cloudflare's example: sections in sections, and
// values in a script that must be JavaScript also when nothing is known.
func TestSections(t *testing.T) {
	p := ownPage(t, `{{#waitTimeKnown}}Wait: {{waitTimeFormatted}}{{/waitTimeKnown}}`+
		`{{^waitTimeKnown}}{{#queueIsFull}}Full{{/queueIsFull}}{{^queueIsFull}}Unknown{{/queueIsFull}}`+
		`{{/waitTimeKnown}}<script>var t = {{waitTime}}, k = {{waitTimeKnown}};</script>`)
	for want, v := range map[string]headgate.View{
		"Wait: 3 minutes<script>var t = 3, k = true;</script>": {ETAKnown: true, ETA: 3 * time.Minute},
		"Full<script>var t = 0, k = false;</script>":           {Full: true},
		"Unknown<script>var t = 0, k = false;</script>":        {},
	} {
		if got := render(t, p, &v); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestMistakes: what is wrong with a page is told with its line, before any visitor sees it.
func TestMistakes(t *testing.T) {
	deep := strings.Repeat("{{#queueAll}}\n", 17) + strings.Repeat("{{/queueAll}}", 17)
	for html, want := range map[string]string{
		"a\n{{waitTim}}":                       `line 2: there is no variable "waitTim"`,
		"\n\n{{#isFifoQueue}}{{/isFifoQueue}}": `line 3: there is no variable "isFifoQueue"`,
		"{{#queueAll}}\nx":                     `line 1: section "queueAll" has no end`,
		"x\n{{/queueAll}}":                     `line 2: section "queueAll" ends but has no beginning`,
		"{{#queueAll}}\n{{#queueIsFull}}\n{{/queueAll}}": `line 3: section "queueAll" ends, but ` +
			`"queueIsFull" of line 2 is still open`,
		"{{> header}}":                       "line 1: a page cannot include files and blocks",
		"{{< layout}}":                       "line 1: a page cannot include files and blocks",
		"{{=<% %>=}}<%waitTime%>":            "line 1: other delimiters are not supported",
		"a\nb {{waitTime":                    "line 2: the tag {{waitTime is not closed",
		"{{{waitTime}}":                      "line 1: the tag {{{waitTime}} is not closed",
		"{{}}":                               `line 1: there is no variable ""`,
		"{{waitTime.x}}":                     `line 1: there is no variable "waitTime.x"`,
		"{{.}}":                              `line 1: there is no variable "."`,
		"{{{message}}}":                      `line 1: "message" is plain text and cannot be inserted unescaped`,
		"{{& title }}":                       `line 1: "title" is plain text and cannot be inserted unescaped`,
		deep:                                 "line 17: sections are nested more than 16 deep",
		strings.Repeat("{{waitTime}}", 2001): "line 1: there are more than 2000 tags",
		strings.Repeat("x", MaxCustom+1): fmt.Sprintf("the page has %d bytes; the maximum is %d",
			MaxCustom+1, MaxCustom),
		strings.Repeat("{{message}}", 2000) + strings.Repeat("x", MaxCustom-22000): fmt.Sprintf(
			"with its values, it has more than %d bytes", maxOutput),
	} {
		_, err := ParseCustom([]byte(html))
		all := TemplateErrors(err)
		if len(all) == 0 || all[0].Error() != want || all[0].Hint == "" {
			t.Errorf("%.30q: %v, want %s and a hint", html, err, want)
		}
	}
	_, err := ParseCustom([]byte("{{x}}\n{{#queueAll}}\n{{y}}"))
	if n := len(TemplateErrors(err)); n != 3 {
		t.Errorf("%d mistakes are told, want 3: %v", n, err)
	}
	_, err = ParseCustom([]byte(strings.Repeat("{{x}}\n", 100)))
	if n := len(TemplateErrors(err)); n != maxMistake {
		t.Errorf("%d mistakes are told, want %d", n, maxMistake)
	}
	if _, err := ParseCustom([]byte("{{! a comment {{ with\n braces }}{{{turnstile}}}{{&waitTime}}")); err != nil {
		t.Error(err)
	}
}

// TestValuesCannotBreakOut: the operator's texts stay text, in HTML, in attributes, and in a
// string of a script.
func TestValuesCannotBreakOut(t *testing.T) {
	p := ownPage(t, `<p title="{{message}}">{{message}}</p><a title='{{message}}'></a>`+
		"<script>a = '{{message}}'; b = \"{{message}}\"; c = `{{message}}`;</script>")
	v := headgate.View{Message: "x"}
	want := tags(render(t, p, &v))
	breaksOut := func(message string) bool {
		v := headgate.View{Message: message}
		html := render(t, p, &v)
		_, script, _ := strings.Cut(html, "<script>")
		script, _, _ = strings.Cut(script, "</script>")
		return !cmp.Equal(tags(html), want) || strings.Count(script, "'") != 2 ||
			strings.Count(script, `"`) != 2 || strings.Count(script, "`") != 2 ||
			strings.ContainsAny(script, "\\\n\r<\u2028\u2029")
	}
	for _, message := range []string{"'", `"`, "`${x}", `\`, `\u0027`, "\n", "\r", "\u2028", "</script>",
		"<!--", "{{waitTime}}", "\xff"} {
		if breaksOut(message) {
			t.Errorf("%q breaks out", message)
		}
	}
	if err := quick.Check(func(s string) bool { return !breaksOut(s) }, nil); err != nil {
		t.Error(err)
	}
}

// FuzzCustom: no template makes the check or the rendering fail in another way than told.
func FuzzCustom(f *testing.F) {
	for _, s := range []string{"{{waitTime}}", "{{#queueAll}}{{/queueAll}}", "{{{turnstile}}}", "{{!x}}",
		"{{^queueAll}}\n  {{&state}}  \n{{/queueAll}}", "{{=a b=}}", "{{{", "{{ { } }}", "{{{x}}", "{{#}}{{/}}"} {
		f.Add(s)
	}
	book, err := NewDefaultPages(0)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, html string) {
		c, err := ParseCustom([]byte(html))
		if err != nil {
			for _, m := range TemplateErrors(err) {
				if m.Problem == "" || m.Hint == "" {
					t.Errorf("a mistake without words: %+v", m)
				}
			}
			return
		}
		p, err := New(Config{Book: book, Custom: c})
		if err != nil {
			t.Fatal(err)
		}
		v := views()["waiting"]
		out := render(t, p, &v)
		if !strings.Contains(html, "{{") && out != html {
			t.Errorf("a page without tags has changed: %q", out)
		}
	})
}

// TestCustomLanguages: of the room's own pages the one in the visitor's language is sent, with
// values in that language; who reads none of them gets the first.
func TestCustomLanguages(t *testing.T) {
	p, err := New(Config{Language: "de-DE",
		Custom: parseCustom(t, "<p lang={{language}}>{{waitTimeFormatted}}"),
		Translations: map[string]*Custom{
			"ar-EG": parseCustom(t, "{{language}} {{direction}} {{waitTimeFormatted}}"),
		}})
	if err != nil {
		t.Fatal(err)
	}
	for accept, want := range map[string]string{
		"": "<p lang=de-DE>2 Minuten", "fr": "<p lang=de-DE>2 Minuten", "en,ar;q=0.5": "ar-EG rtl دقيقتان",
	} {
		v := headgate.View{ETAKnown: true, ETA: 2 * time.Minute,
			AcceptLanguage: accept, AcceptEncoding: "gzip"}
		if got := render(t, p, &v); got != want {
			t.Errorf("%q: %q, want %q", accept, got, want)
		}
		h := p.Header(&v)
		tag := h.Get("Content-Language")
		if !strings.Contains(want, tag) || tag == "" || h.Get("Content-Encoding") != "" {
			t.Errorf("%q: headers %v", accept, h)
		}
	}
	no := map[string]*Custom{"xx": nil}
	if _, err := New(Config{Custom: parseCustom(t, "x"), Translations: no}); err == nil {
		t.Error("a translation into no language is taken")
	}
}

func TestPreviewHasADraw(t *testing.T) {
	p := ownPage(t, "{{draw}} {{number}}")
	for event, want := range map[string]string{
		"prequeueing": fmt.Sprintf("%x 2310", sha256.Sum256(make([]byte, 32))),
		"started":     strings.Repeat("00", 32) + "/1001/4411 2310",
	} {
		got, err := p.Preview("x", url.Values{"event": {event}, "shuffle_at_event_start": {"true"}})
		if err != nil || string(got.Body) != want {
			t.Errorf("%s: %s %v", event, got.Body, err)
		}
	}
}

func TestPreview(t *testing.T) {
	standard := newPage(t)
	own := ownPage(t, `{{queueingMethod}} {{waitTime}} {{queueAll}} {{queueIsFull}} {{isEventPrequeueing}}`+
		` {{shuffleAtEventStart}} {{state}} {{language}}`)
	const passes = "queueing_method=passthrough"
	for query, want := range map[string]string{
		"":                            "fifo 10 false false false false waiting en-US",
		"waitTime=42":                 "fifo 42 false false false false waiting en-US",
		"force_queue=true":            "fifo 0 true false false false queue_all en-US",
		"queue_is_full=true":          "fifo 0 false true false false full en-US",
		"queueing_method=random":      "random 10 false false false false waiting en-US",
		"queueing_method=reject":      "reject 0 false false false false closed en-US",
		passes:                        "Welcome",
		passes + "&event=prequeueing": "passthrough 0 false false true false opens_at en-US",
		passes + "&force_queue=1":     "passthrough 0 true false false false queue_all en-US",
		"event=prequeueing&shuffle_at_event_start=true": "fifo 0 false false true true opens_at en-US",
		"event=started": "fifo 10 false false false false waiting en-US",
		"state=called":  "fifo 0 false false false false called en-US",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := own.Preview("Shop", q)
		if err != nil || !strings.Contains(string(got.Body), want) {
			t.Errorf("%s: %v, want %q", query, got, want)
		}
		if got, err = standard.Preview("Shop", q); err != nil || len(got.Body) < 50 {
			t.Errorf("%s of the default page: %v", query, err)
		}
	}
	got, err := standard.Preview("Shop", url.Values{"language": {"ja"}, "message": {"<b>"},
		"event": {"prequeueing"}, "shuffle_at_event_start": {"true"}})
	if err != nil || !strings.Contains(string(got.Body), "&lt;b&gt;") ||
		!strings.Contains(string(got.Body), "開始時に、ここにいる全員の順番を抽選で決めます") ||
		got.Header.Get("Content-Language") != "ja-JP" ||
		!strings.HasPrefix(got.Header.Get("Content-Security-Policy"), "sandbox; ") {
		t.Errorf("in Japanese: %v %v", got, err)
	}
	for query, want := range map[string]string{
		"waitTime=0":                  `waitTime is "0": write a whole number of 1 or more`,
		"waitTime=x":                  `waitTime is "x": write a whole number of 1 or more`,
		"force_queue=maybe":           `force_queue is "maybe": write true or false`,
		"event=over":                  `event is "over": write one of none, prequeueing, started`,
		"shuffle_at_event_start=true": "shuffle_at_event_start needs an event: add event=prequeueing",
		"wait_time=3":                 `there is no parameter "wait_time"`,
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := own.Preview("Shop", q); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}

// TestHowTheOrderComesAbout: the page says which method is used, and how the draw works.
func TestHowTheOrderComesAbout(t *testing.T) {
	p, w := newPage(t), wordsOf(t, "en-US")
	for _, c := range []struct{ method, event, how string }{
		{"fifo", "none", ""}, {"random", "none", "random"}, {"passthrough", "prequeueing", "prequeue"},
		{"fifo", "prequeueing", "prequeue"}, {"fifo", "prequeueing+", "shuffle"},
		{"random", "prequeueing+", "shuffle"}, {"fifo", "started+", "shuffled"}, {"fifo", "started", ""},
	} {
		v := views()["waiting"]
		v.Method = c.method
		event, shuffle := strings.CutSuffix(c.event, "+")
		v.Event = headgate.Event{Active: event != "none", Prequeue: event == "prequeueing", Shuffle: shuffle}
		if shuffle {
			v.Event.Draw = "sha256:<seed>"
		}
		html := render(t, p, &v)
		how := w.How[c.how]
		if !strings.Contains(html, `<p id="how">`+how+`</p>`) || c.how != "" && how == "" {
			t.Errorf("%v: not %q", c, how)
		}
		m := w.Method[c.method]
		if c.method == "fifo" && shuffle { // then coming first gives nothing
			m = ""
		} else if m == "" {
			t.Errorf("%v: no words", c)
		}
		if !strings.Contains(html, `<span id="method">`+m+`</span>`) {
			t.Errorf("%v: not %q", c, m)
		}
		var own strings.Builder
		if err := ownPage(t, "{{methodText}}").Render(&own, &v); err != nil || own.String() != m {
			t.Errorf("%v: a page of the room's own says %q, want %q: %v", c, own.String(), m, err)
		}
		const shown = `<p id="fair">Draw <b id="draw" dir="ltr">sha256:&lt;seed&gt;</b></p>`
		if got := strings.Contains(html, shown); got != shuffle {
			t.Errorf("%v: shows what the draw can be checked by: %v", c, got)
		}
		v.Event.Draw += "/1/100"
		if html := render(t, p, &v); shuffle && !strings.Contains(html, "/1/100 #48213</b>") {
			t.Error("nobody can check their own place without the number of their ticket")
		}
		var data struct{ How, Method string }
		_, block, _ := strings.Cut(html, `id="view">`)
		block, _, _ = strings.Cut(block, "</script>")
		if err := json.Unmarshal([]byte(block), &data); err != nil || data.Method != c.method {
			t.Errorf("%v: the script reads %+v: %v", c, data, err)
		}
	}
}

// BenchmarkCustom is the price of a page of the room's own beside the default one, which
// browsers get compressed.
func BenchmarkCustom(b *testing.B) {
	p := ownPage(b, strings.Repeat("<p>{{waitTimeFormatted}} {{#waitTimeKnown}}{{peopleAhead}}"+
		"{{/waitTimeKnown}}</p>\n", 10))
	standard := newPage(b)
	for name, p := range map[string]*Page{"custom": p, "default": standard} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			v := views()["waiting-slower"]
			v.AcceptLanguage, v.AcceptEncoding = "de-DE,de;q=0.9,en;q=0.8", "gzip, deflate, br, zstd"
			for b.Loop() {
				p.Header(&v)
				if err := p.Render(io.Discard, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
