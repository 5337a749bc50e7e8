package pages

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func wordsOf(t testing.TB, tag string) *words {
	t.Helper()
	locales, err := loadLocales()
	if err != nil {
		t.Fatal(err)
	}
	w, err := loadWords(tag, locales)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestETAInWords(t *testing.T) {
	w := wordsOf(t, "en-US")
	for _, c := range []struct {
		low, high time.Duration
		want      string
	}{
		{0, 0, "Less than a minute"},
		{10 * time.Second, 60 * time.Second, "Less than a minute"},
		{10 * time.Second, 61 * time.Second, "Up to 2 minutes"},
		{4*time.Minute + 10*time.Second, 5*time.Minute + 40*time.Second, "About 4 to 6 minutes"},
		{3 * time.Minute, 3 * time.Minute, "About 3 minutes"},
		{16 * time.Minute, 21 * time.Minute, "About 15 to 25 minutes"},
		{89 * time.Minute, 91 * time.Minute, "About 1 to 2 hours"},
		{95 * time.Minute, 130 * time.Minute, "About 1.5 to 2.5 hours"},
		{0, 100 * time.Minute, "Up to 2 hours"},
		{1200 * time.Hour, 1300 * time.Hour, "About 1,200 to 1,300 hours"},
	} {
		v := headgate.View{ETAKnown: true, ETALow: c.low, ETAHigh: c.high}
		if got := string(w.eta(nil, &v)); got != c.want {
			t.Errorf("%v to %v: %q, want %q", c.low, c.high, got, c.want)
		}
	}
	if got := string(w.eta(nil, &headgate.View{ETAHigh: time.Hour})); got != w.ETANone {
		t.Errorf("unknown time: %q, want %q", got, w.ETANone)
	}
}

func TestCountdown(t *testing.T) {
	for left, want := range map[time.Duration]string{
		-time.Minute:              "00:00:00",
		900 * time.Millisecond:    "00:00:01",
		10*time.Minute + 1:        "00:10:01",
		3*time.Hour + time.Second: "03:00:01",
		75 * time.Hour:            "75:00:00",
	} {
		if got := string(appendCountdown(nil, left)); got != want {
			t.Errorf("%v left: %q, want %q", left, got, want)
		}
	}
}

// TestRefreshNeverLoops: without JavaScript the page reloads by this number alone.
func TestRefreshNeverLoops(t *testing.T) {
	for after, want := range map[time.Duration]string{
		0: "20", -1: "20", 1: "2", 2100 * time.Millisecond: "3", time.Minute: "60",
	} {
		if got := string(appendRefresh(nil, &headgate.View{PollAfter: after})); got != want {
			t.Errorf("ask again after %v: refresh %q, want %q", after, got, want)
		}
	}
}

func TestSqueeze(t *testing.T) {
	for source, want := range map[string]string{
		"// a comment\nconst a = 'x  =  y';\n\n  return a + +b;": "const a='x  =  y';return a+ +b;",
		"a()\nb({\n  c,\n  d: e\n})\n[f]":                        "a()\nb({c,d:e})\n[f]",
		"{\n  a();\n  b();\n}\nc();":                             "{a();b()}\nc();",
		"if (a) { b(`${c + 1} d`); }":                            "if(a){b(`${c + 1} d`);}",
	} {
		if got := squeezeJS(source); got != want {
			t.Errorf("squeezeJS(%q) = %q, want %q", source, got, want)
		}
	}
	source := "/* why */\na b, c {\n  margin: 0 calc(1px + 2px); --x: 1;\n}\n[d] e:f { }"
	want := "a b,c{margin:0 calc(1px + 2px);--x:1}[d] e:f{}"
	if got := squeezeCSS(source); got != want {
		t.Errorf("squeezeCSS(%q) = %q, want %q", source, got, want)
	}
}

func TestParseNamesFaults(t *testing.T) {
	fixed := map[string]string{"here": "x"}
	for _, source := range []string{"{{gone}}", "{{v:gone}}", "{{here"} {
		if _, err := parse[int](source, fixed, nil); err == nil {
			t.Errorf("parse(%q) gives no error", source)
		}
	}
}
