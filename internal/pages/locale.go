package pages

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// cldrJSON is written by tests/browser/cldr.mjs. It replaces golang.org/x/text, which has no dates
// and uses an older CLDR than browsers. The page's script formats the numbers again a moment later,
// and both must agree.
//
//go:embed cldr.json
var cldrJSON []byte

// A locale defines how a language writes numbers, times and dates.
type locale struct {
	Dir      string   `json:"dir"`
	Group    string   `json:"group"`
	Decimal  string   `json:"decimal"`
	Digits   string   `json:"digits"` // the ten digits, "" for 0 to 9
	Least    int      `json:"least"`  // digits of the shortest number with groups
	Pairs    bool     `json:"pairs"`  // groups above 1,000 have two digits
	Date     string   `json:"date"`
	Clock    string   `json:"clock"`
	Months   []string `json:"months"`
	Weekdays []string `json:"weekdays"` // from Sunday
	Minutes  forms    `json:"minute"`   // "{n} minutes"
	Periods  []string `json:"periods"`  // "AM" or "PM" for each hour, for 12-hour clocks

	digits [10]string
}

// forms are the plural forms of a text, by the CLDR names zero, one, two, few, many and other. In
// the file, a plain string stands for all forms.
type forms map[string]string

// UnmarshalJSON reads the forms, or one string for all.
func (f *forms) UnmarshalJSON(data []byte) error {
	var all string
	if json.Unmarshal(data, &all) == nil {
		*f = forms{"other": all}
		return nil
	}
	return json.Unmarshal(data, (*map[string]string)(f))
}

func loadLocales() (map[string]*locale, error) {
	var all map[string]*locale
	if err := json.Unmarshal(cldrJSON, &all); err != nil {
		return nil, fmt.Errorf("cldr.json: %w", err)
	}
	for tag, l := range all {
		if len(l.Months) != 12 || len(l.Weekdays) != 7 || l.Periods != nil && len(l.Periods) != 24 {
			return nil, fmt.Errorf("cldr.json: %s has no months, days or periods", tag)
		}
		digits := l.Digits
		if digits == "" {
			digits = "0123456789"
		}
		for i := range l.digits {
			_, size := utf8.DecodeRuneInString(digits)
			l.digits[i], digits = digits[:size], digits[size:]
		}
	}
	return all, nil
}

// number appends n with its digits in groups.
func (l *locale) number(dst []byte, n int64) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], n, 10)
	if n < 0 {
		dst, text = append(dst, '-'), text[1:]
	}
	for i, d := range text {
		left := len(text) - i
		if i > 0 && len(text) >= l.Least && l.groups(left) {
			dst = append(dst, l.Group...)
		}
		if l.Digits == "" {
			dst = append(dst, d)
		} else {
			dst = append(dst, l.digits[d-'0']...)
		}
	}
	return dst
}

// groups reports whether a group begins when this number of digits is left.
func (l *locale) groups(left int) bool {
	if l.Pairs {
		return left == 3 || left > 3 && left%2 == 1
	}
	return left%3 == 0
}

// half appends the text that turns n into n and a half.
func (l *locale) half(dst []byte) []byte {
	return append(append(dst, l.Decimal...), l.digits[5]...)
}

// clock appends the time of day, in UTC and as HTML. date appends the day and the time.
func (l *locale) clock(dst []byte, t time.Time) []byte { return l.moment(dst, l.Clock, t) }

func (l *locale) date(dst []byte, t time.Time) []byte { return l.moment(dst, l.Date, t) }

// moment fills in a pattern from cldr.mjs.
func (l *locale) moment(dst []byte, pattern string, t time.Time) []byte {
	t = t.UTC()
	hour := t.Hour()
	for {
		before, rest, found := strings.Cut(pattern, "{")
		dst = appendHTML(dst, before)
		if !found {
			return append(dst, " UTC"...)
		}
		var field string
		field, pattern, _ = strings.Cut(rest, "}")
		n, text := 0, ""
		switch field[0] {
		case 'E':
			text = l.Weekdays[t.Weekday()]
		case 'M':
			text = l.Months[t.Month()-1]
		case 'a':
			text = l.Periods[hour]
		case 'd':
			n = t.Day()
		case 'y':
			n = t.Year()
		case 'H':
			n = hour
		case 'h':
			n = (hour+11)%12 + 1
		case 'm':
			n = t.Minute()
		case 's':
			n = t.Second()
		}
		switch {
		case text != "":
			dst = appendHTML(dst, text)
			continue
		case n < 10 && len(field) == 2:
			dst = append(dst, l.digits[0]...)
		}
		var digits [8]byte
		for _, d := range strconv.AppendInt(digits[:0], int64(n), 10) {
			dst = append(dst, l.digits[d-'0']...)
		}
	}
}
