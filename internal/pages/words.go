package pages

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed en.json
var wordsEN []byte

// words are the texts of one language. A language is one JSON file: "page" holds what
// only the server writes, "live" what the script rewrites too and therefore gets as a
// data block. To add a language, add its file to loadWords and its rule to plural.
type words struct {
	lang string
	text map[string]string // "page"
	live string            // "live" as JSON that is safe inside a script element
	liveWords

	group, decimal string // of text: needed for each number
}

// liveWords are the texts that the server and the script share. {n}, {t}, {a} and {b}
// stand for a number, a time and the ends of a range.
type liveWords struct {
	H        map[string]string `json:"h"`
	Lead     map[string]string `json:"lead"`
	Title    map[string]string `json:"title"`
	Ahead    forms             `json:"ahead"`
	InLine   forms             `json:"in_line"`
	Opens    string            `json:"opens"`
	ETANone  string            `json:"eta_unknown"`
	ETAShort string            `json:"eta_short"`
	Minute   unit              `json:"minute"`
	Hour     unit              `json:"hour"`
	Slower   string            `json:"slower"`
	Retry    string            `json:"retry"`
	Bell     string            `json:"bell"`
	BellOn   string            `json:"bell_on"`
}

// forms are the plural forms of a text. In the file a plain string is all of them.
type forms struct {
	One   string `json:"one"`
	Other string `json:"other"`
}

// UnmarshalJSON reads the forms, or one string for all.
func (f *forms) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &f.Other) == nil {
		f.One = f.Other
		return nil
	}
	type plain forms
	return json.Unmarshal(data, (*plain)(f))
}

// A unit is the ways to say an expected time: at most, nearly, between.
type unit struct {
	Most  forms `json:"most"`
	Near  forms `json:"near"`
	Range forms `json:"range"`
}

func loadWords(lang string) (*words, error) {
	if lang != "en" {
		return nil, fmt.Errorf("no waiting page in language %q: use \"en\"", lang)
	}
	var file struct {
		Page map[string]string `json:"page"`
		Live json.RawMessage   `json:"live"`
	}
	if err := json.Unmarshal(wordsEN, &file); err != nil {
		return nil, fmt.Errorf("words of language %q: %w", lang, err)
	}
	w := &words{lang: lang, text: file.Page}
	w.group, w.decimal = w.text["group"], w.text["decimal"]
	d := json.NewDecoder(bytes.NewReader(file.Live))
	d.DisallowUnknownFields()
	if err := d.Decode(&w.liveWords); err != nil {
		return nil, fmt.Errorf("live words of language %q: %w", lang, err)
	}
	var compact, safe bytes.Buffer
	if err := json.Compact(&compact, file.Live); err != nil {
		return nil, fmt.Errorf("live words of language %q: %w", lang, err)
	}
	json.HTMLEscape(&safe, compact.Bytes())
	w.live = safe.String()
	return w, nil
}

// plural picks the form for n by the rule of English (CLDR: one for 1, else other).
func (w *words) plural(f *forms, n int64) string {
	if n == 1 {
		return f.One
	}
	return f.Other
}

// fill gives the page text key with {n} filled in. For New, not for each answer.
func (w *words) fill(key, n string) string {
	return strings.ReplaceAll(w.text[key], "{n}", n)
}
