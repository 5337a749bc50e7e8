package pages

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/text/feature/plural"

	"github.com/headgate/headgate"
)

// cloudflares are the values of Cloudflare's default_template_language.
const cloudflares = `ar-EG bg-BG cs-CZ da-DK de-DE el-GR en-US es-ES fa-IR fi-FI fr-FR he-IL hi-IN
	hr-HR hu-HU id-ID it-IT ja-JP ko-KR lt-LT ms-MY nb-NO nl-NL pl-PL pt-BR ro-RO ru-RU sk-SK sl-SI
	sr-BA sv-SE th-TH tl-PH tr-TR uk-UA vi-VN zh-CN zh-TW`

// reviewed are the languages that must be good; the others say that they are not reviewed.
const reviewed = "ar-EG de-DE en-US es-ES fr-FR ja-JP ko-KR pt-BR zh-CN zh-TW"

func TestAllLanguagesAreThere(t *testing.T) {
	want := strings.Fields(cloudflares)
	if got := Languages(); !slices.Equal(got, want) || len(got) != 38 {
		t.Fatalf("languages %v, want the 38 %v", got, want)
	}
	for _, tag := range want {
		f, err := readWordFile(tag)
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Contains(strings.Fields(reviewed), tag); f.Reviewed != want {
			t.Errorf("%s: reviewed %v, want %v", tag, f.Reviewed, want)
		}
	}
}

// TestNoTextIsMissing holds each language against English: the same texts, the same values
// in them, and for what is counted each plural form that can come up.
func TestNoTextIsMissing(t *testing.T) {
	english := textsOf(t, "en-US")
	for _, tag := range Languages() {
		texts, w := textsOf(t, tag), wordsOf(t, tag)
		for key, text := range english {
			base, form := formOf(key)
			if form == "" && texts[key] == "" && texts[key+".other"] == "" {
				t.Errorf("%s: %s is missing", tag, key)
			}
			if form != "" && form != "other" {
				continue
			}
			for k, own := range texts {
				if b, _ := formOf(k); b == base && !fits(own, text, strings.Contains(k, ".two")) {
					t.Errorf("%s: %s is %q: the values are those of %q", tag, k, own, text)
				}
			}
		}
		for key, text := range texts {
			base, form := formOf(key)
			if text == "" || strings.TrimSpace(text) != text {
				t.Errorf("%s: %s is %q", tag, key, text)
			}
			if english[base] == "" && english[base+".other"] == "" {
				t.Errorf("%s: %s is no text of the page", tag, key)
			}
			if form != "" && !slices.Contains(needed(w, counted(base)), form) && form != "other" {
				t.Errorf("%s: %s can never come up", tag, key)
			}
		}
		for _, base := range []string{"live.ahead", "live.in_line", "live.minute.most",
			"live.minute.near", "live.minute.range", "live.hour.most", "live.hour.near", "live.hour.range"} {
			if texts[base] != "" {
				continue // one text for all
			}
			for _, form := range needed(w, counted(base)) {
				if texts[base+"."+form] == "" {
					t.Errorf("%s: %s has no form %q", tag, base, form)
				}
			}
		}
	}
}

func textsOf(t *testing.T, tag string) map[string]string {
	t.Helper()
	f, err := readWordFile(tag)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	if err := f.each(func(key, text string) { all[key] = text }); err != nil {
		t.Fatal(err)
	}
	return all
}

// formOf cuts the plural form off a key.
func formOf(key string) (base, form string) {
	i := strings.LastIndexByte(key, '.')
	if slices.Contains(formNames[:], key[i+1:]) {
		return key[:i], key[i+1:]
	}
	return key, ""
}

// fits tells whether a text has the values of the English one; that of two may leave the
// number out, where the language has a word for two of a thing.
func fits(own, english string, two bool) bool {
	values := regexp.MustCompile(`\{\w\}`)
	a, b := values.FindAllString(own, -1), values.FindAllString(english, -1)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b) || two && len(a) == 0
}

// A count is a number with or without a half.
type count struct {
	n    int
	half bool
}

// counted are the numbers that can come up in a text: see eta.
func counted(base string) (all []count) {
	switch {
	case strings.Contains(base, "minute"):
		for n := 2; n <= 90; n++ {
			if n <= 20 || n%5 == 0 {
				all = append(all, count{n, false})
			}
		}
	case strings.Contains(base, "hour"):
		for n := 1; n <= 500; n++ {
			all = append(all, count{n, true}, count{n + 1, false})
		}
	default:
		for n := 1; n <= 2000; n++ {
			all = append(all, count{n, false})
		}
	}
	return all
}

// needed are the plural forms of some numbers, by the rules of the CLDR.
func needed(w *words, all []count) []string {
	forms := map[string]bool{}
	for _, c := range all {
		v, f := 0, 0
		if c.half {
			v, f = 1, 5
		}
		forms[formNames[plural.Cardinal.MatchPlural(w.lang, c.n, v, v, f, f)]] = true
	}
	return slices.Sorted(maps.Keys(forms))
}

// TestPageIsSmall: what goes to a browser fits in the first ten segments of a new connection
// in every language and state, with long texts of the operator.
func TestPageIsSmall(t *testing.T) {
	p := newPage(t)
	most, where := 0, ""
	for _, tag := range Languages() {
		for name, v := range views() {
			v.Room, v.Message = strings.Repeat("n", 60), strings.Repeat("m", 200)
			v.AcceptLanguage, v.AcceptEncoding = tag, "gzip"
			headers := 0
			for k, value := range p.Header(&v) {
				headers += len(k) + len(value[0]) + 4
			}
			if n := len(render(t, p, &v)) + headers; n > limit {
				t.Errorf("%s in %s: %d bytes, limit %d", name, tag, n, limit)
			} else if n > most {
				most, where = n, name+" in "+tag
			}
		}
	}
	t.Logf("the largest is %s: %d bytes", where, most)
}

// TestPackedIsTheSame reads the compressed page back with the standard library, which holds
// it against its CRC and length.
func TestPackedIsTheSame(t *testing.T) {
	p := newPage(t)
	for _, tag := range Languages() {
		for name, v := range views() {
			v.AcceptLanguage = tag
			plain := render(t, p, &v)
			v.AcceptEncoding = "gzip, deflate, br"
			if got := unpack(t, render(t, p, &v)); got != plain {
				t.Errorf("%s in %s differs", name, tag)
			}
		}
	}
	v := views()["waiting"]
	v.Message = strings.Repeat("a long message ", 10_000) // more than one stored block
	plain := render(t, p, &v)
	v.AcceptEncoding = "gzip"
	if got := unpack(t, render(t, p, &v)); got != plain {
		t.Error("a long message differs")
	}
	var b bytes.Buffer
	f := Failure{Title: "x", Code: 502, AcceptEncoding: "gzip"}
	if err := p.RenderFailure(&b, &f); err != nil {
		t.Fatal(err)
	}
	if got, want := unpack(t, b.String()), renderError(t, p, "x", 502, ""); got != want {
		t.Error("the error page differs")
	}
}

func unpack(t *testing.T, packed string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWhoTakesGzip(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "gzip, deflate, br, zstd": true, "br;q=1, gzip;q=0.5": true,
		"gzip;q=0": false, "gzip; q=0.0, br": false, "identity": false, "gzip;q=x": false,
	} {
		if got := takesGzip(accept); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

// TestLanguageOfAnswer: one language for each answer, by what the visitor reads, else that of
// the room.
func TestLanguageOfAnswer(t *testing.T) {
	p, err := New(Config{Language: "fr-FR"})
	if err != nil {
		t.Fatal(err)
	}
	for accept, want := range map[string]string{
		"":                        "fr-FR",
		"*":                       "fr-FR",
		"xx-YY, \x00;q=2":         "fr-FR",
		"de":                      "de-DE",
		"de-AT,en;q=0.8":          "de-DE",
		"en-GB,en;q=0.9":          "en-US",
		"no":                      "nb-NO",
		"fil":                     "tl-PH",
		"pt-PT":                   "pt-BR",
		"zh-HK":                   "zh-TW",
		"zh-Hant":                 "zh-TW",
		"zh":                      "zh-CN",
		"iw":                      "he-IL",
		"ar-SA":                   "ar-EG",
		"ja;q=0.3, ko;q=0.7":      "ko-KR",
		"mi, ja":                  "ja-JP",
		"xx, ja;q=0.5":            "ja-JP", // there is no xx
		"ja-JP-mac":               "fr-FR",
		"ja-JP-mac, ja;;, de":     "de-DE",
		strings.Repeat("a,", 1e5): "fr-FR",
		"de," + strings.Repeat("en-GB;q=0.1,", 40): "de-DE",
	} {
		for range 2 { // from the matcher, and from memory
			v := views()["waiting"]
			v.AcceptLanguage = accept
			html := render(t, p, &v)
			if got := p.Header(&v).Get("Content-Language"); got != want {
				t.Errorf("%.40q: Content-Language %s, want %s", accept, got, want)
			}
			if !strings.Contains(html, `<html lang="`+want+`"`) {
				t.Errorf("%.40q: the page is in another language than %s", accept, want)
			}
		}
	}
	v := headgate.View{AcceptLanguage: "ar"}
	if !strings.Contains(render(t, p, &v), `dir="rtl"`) {
		t.Error("Arabic is not from right to left")
	}
}

// TestHeadersAreForgotten: whoever sends ever new headers takes no memory.
func TestHeadersAreForgotten(t *testing.T) {
	c, err := newChooser([]string{"en-US", "de-DE"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2 * mostKnown {
				if got := c.choose(fmt.Sprintf("de;q=0.1%d%d", g, i)); got != 1 {
					t.Errorf("choose: %d, want 1", got)
				}
			}
		})
	}
	wg.Wait()
	c.choose("de," + strings.Repeat("x", longestAccept))
	if n := len(c.known); n > mostKnown {
		t.Errorf("%d headers are remembered, want at most %d", n, mostKnown)
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		tag  string
		n    int64
		want string
	}{
		{"en-US", 0, "0"}, {"en-US", 999, "999"}, {"en-US", 1000, "1,000"}, {"en-US", 1234567, "1,234,567"},
		{"en-US", -1000, "-1,000"}, {"en-US", -1 << 63, "-9,223,372,036,854,775,808"},
		{"de-DE", 1204, "1.204"}, {"fr-FR", 1204, "1\u202f204"}, {"es-ES", 1204, "1204"},
		{"es-ES", 12045, "12.045"}, {"hi-IN", 1234567, "12,34,567"}, {"hi-IN", 123, "123"},
		{"ar-EG", 1204, "١٬٢٠٤"}, {"fa-IR", 35, "۳۵"}, {"ja-JP", 12045, "12,045"},
	} {
		if got := string(wordsOf(t, c.tag).number(nil, c.n)); got != c.want {
			t.Errorf("%d in %s: %q, want %q", c.n, c.tag, got, c.want)
		}
	}
}

func TestDates(t *testing.T) {
	at := time.Date(2026, time.November, 22, 0, 5, 9, 0, time.UTC)
	for tag, want := range map[string]string{
		"en-US": "Sunday, November 22, 2026 at 12:05 AM UTC",
		"de-DE": "Sonntag, 22. November 2026 um 00:05 UTC",
		"ja-JP": "2026年11月22日日曜日 0:05 UTC",
		"ar-EG": "الأحد، ٢٢ نوفمبر ٢٠٢٦ في ١٢:٠٥ ص UTC",
		"zh-TW": "2026年11月22日 星期日 凌晨12:05 UTC",
		"da-DK": "søndag den 22. november 2026 kl. 00.05 UTC",
	} {
		if got := string(wordsOf(t, tag).date(nil, at)); got != want {
			t.Errorf("%s: %q, want %q", tag, got, want)
		}
	}
	if got := string(wordsOf(t, "ko-KR").clock(nil, at.Add(13*time.Hour))); got != "오후 1:05:09 UTC" {
		t.Errorf("clock in Korean: %q", got)
	}
}

func TestPluralForms(t *testing.T) {
	for _, c := range []struct {
		tag  string
		low  time.Duration
		high time.Duration
		want string
	}{
		{"ar-EG", 0, 2 * time.Minute, "حتى دقيقتين"},
		{"ar-EG", 3 * time.Minute, 5 * time.Minute, "من ٣ إلى ٥ دقائق"},
		{"ar-EG", 11 * time.Minute, 15 * time.Minute, "من ١١ إلى ١٥ دقيقة"},
		{"ar-EG", 89 * time.Minute, 3 * time.Hour, "من ١ إلى ٣ ساعات"},
		{"fr-FR", 61 * time.Minute, 91 * time.Minute, "Environ 1 à 2 heures"},
		{"de-DE", 95 * time.Minute, 130 * time.Minute, "Etwa 1,5 bis 2,5 Stunden"},
		{"pt-BR", 4 * time.Minute, 6 * time.Minute, "Cerca de 4 a 6 minutos"},
		{"ja-JP", 4 * time.Minute, 6 * time.Minute, "約 4～6 分"},
	} {
		v := headgate.View{ETAKnown: true, ETALow: c.low, ETAHigh: c.high}
		if got := string(wordsOf(t, c.tag).eta(nil, &v)); got != c.want {
			t.Errorf("%v to %v in %s: %q, want %q", c.low, c.high, c.tag, got, c.want)
		}
	}
	w := wordsOf(t, "ru-RU")
	for n, want := range map[int64]string{1: "человек перед вами", 3: "человека перед вами",
		11: "человек перед вами", 10_000_003: "человека перед вами"} {
		if got := w.plural(w.Ahead, n, false); got != want {
			t.Errorf("%d in Russian: %q, want %q", n, got, want)
		}
	}
}

// each calls yield with every text and its path, including the plural forms.
func (f *wordFile) each(yield func(key, text string)) error {
	for _, key := range slices.Sorted(maps.Keys(f.Page)) {
		yield("page."+key, f.Page[key])
	}
	var live any
	if err := json.Unmarshal(f.Live, &live); err != nil {
		return err
	}
	var walk func(key string, v any)
	walk = func(key string, v any) {
		switch v := v.(type) {
		case string:
			yield(key, v)
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(key+"."+k, v[k])
			}
		}
	}
	walk("live", live)
	return nil
}
