package pages

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
)

// languageFiles has one file for each language, named after its tag. Translators edit these files.
//
//go:embed languages/*.json
var languageFiles embed.FS

// words are the texts of one language. In the file, "page" holds texts that only the server writes.
// "live" holds texts that the script also writes; it receives them as a data block.
type words struct {
	tag  string
	lang language.Tag
	text map[string]string // "page"
	live string            // "live" as JSON, safe inside a script element
	liveWords
	*locale
}

// A wordFile is a file of languages/.
type wordFile struct {
	Reviewed bool              `json:"reviewed"` // reviewed as a whole, for sense and tone
	Page     map[string]string `json:"page"`
	Live     json.RawMessage   `json:"live"`
}

// liveWords are the texts that the server and the script share. {n}, {t}, {a} and {b} are replaced
// by a number, a time and the ends of a range.
type liveWords struct {
	H        map[string]string `json:"h"`
	Lead     map[string]string `json:"lead"`
	Method   map[string]string `json:"method"`
	How      map[string]string `json:"how"`
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

// A unit holds the texts for an expected time: at most, nearly, between.
type unit struct {
	Most  forms `json:"most"`
	Near  forms `json:"near"`
	Range forms `json:"range"`
}

// Languages returns the tags of all languages, sorted: those of Cloudflare's
// default_template_language.
func Languages() []string {
	entries, err := languageFiles.ReadDir("languages")
	if err != nil {
		return nil // embedded: cannot fail
	}
	var tags []string
	for _, e := range entries {
		tags = append(tags, strings.TrimSuffix(e.Name(), ".json"))
	}
	return tags
}

func readWordFile(tag string) (*wordFile, error) {
	b, err := languageFiles.ReadFile("languages/" + tag + ".json")
	if err != nil {
		return nil, fmt.Errorf("no waiting page in language %q: use one of %s", tag,
			strings.Join(Languages(), ", "))
	}
	var f wordFile
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("words of language %q: %w", tag, err)
	}
	return &f, nil
}

func loadWords(tag string, locales map[string]*locale) (*words, error) {
	f, err := readWordFile(tag)
	if err != nil {
		return nil, err
	}
	w := &words{tag: tag, text: f.Page, locale: locales[tag]}
	w.lang, err = language.Parse(tag)
	if w.locale == nil {
		err = errors.New("it is not in cldr.json")
	}
	d := json.NewDecoder(bytes.NewReader(f.Live))
	d.DisallowUnknownFields()
	var compact, safe bytes.Buffer
	err = errors.Join(err, d.Decode(&w.liveWords), json.Compact(&compact, f.Live))
	if err != nil {
		return nil, fmt.Errorf("words of language %q: %w", tag, err)
	}
	json.HTMLEscape(&safe, compact.Bytes())
	w.live = safe.String()
	return w, nil
}

// plural returns the form for n, or for n and a half if half is set. If a form is missing, it
// returns "other", as the script does.
func (w *words) plural(f forms, n int64, half bool) string {
	digits, fraction := 0, 0
	if half {
		digits, fraction = 1, 5
	}
	// The plural rules use the last six digits, and whether there are more digits.
	i := int(n)
	if n >= 10_000_000 {
		i = int(10_000_000 + n%1_000_000)
	}
	form := plural.Cardinal.MatchPlural(w.lang, i, digits, digits, fraction, fraction)
	if s, ok := f[formNames[form]]; ok {
		return s
	}
	return f["other"]
}

var formNames = [...]string{
	plural.Other: "other", plural.Zero: "zero", plural.One: "one", plural.Two: "two",
	plural.Few: "few", plural.Many: "many",
}

// fill returns the page text key with {n} replaced. New uses it; answers do not.
func (w *words) fill(key, n string) string {
	return strings.ReplaceAll(w.text[key], "{n}", n)
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
