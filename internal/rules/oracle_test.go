package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An oracle makes up requests, and expressions of which it knows what they are worth: it keeps
// what a request holds in plain maps, and takes the slow and obvious way to each answer.
type oracle struct {
	*rand.Rand
	request Request
	texts   map[string]string   // by the expression that means it; what is missing is not here
	missing []string            // expressions that mean nothing in this request
	arrays  map[string][]string // by the expression, before [*]
}

func (o *oracle) pick(all ...string) string { return all[o.IntN(len(all))] }

// letters are so few that things are equal, or contain each other, every now and then.
func (o *oracle) letters() string {
	var b strings.Builder
	for range o.IntN(4) {
		b.WriteString(o.pick("a", "b", "A", "B", ".", "-", "aB"))
	}
	return b.String()
}

type pair struct{ name, value string }

func (o *oracle) pairs() (all []pair) {
	for range o.IntN(4) {
		all = append(all, pair{o.pick("a", "b", "c"), o.letters()})
	}
	return all
}

func joined(all []pair, by string) string {
	var parts []string
	for _, p := range all {
		parts = append(parts, p.name+"="+p.value)
	}
	return strings.Join(parts, by)
}

// newOracle makes up a request.
func newOracle(seed uint64) *oracle {
	o := &oracle{
		Rand:  rand.New(rand.NewPCG(seed, 9)),
		texts: map[string]string{}, arrays: map[string][]string{},
	}
	host := o.pick("a.example", "B.example", "a.example:8080", "x")
	path := "/" + o.pick("", "a", "a/b", "A.b", "a/.b", "a b", "é", "a%b") + o.letters()
	args, cookies, agents := o.pairs(), o.pairs(), o.pick("", "a bot", "Firefox")
	method, scheme := o.pick("GET", "POST"), o.pick("http", "https")
	whole := (&url.URL{Path: path}).EscapedPath()
	headers := []string{}
	if agents != "" {
		headers = append(headers, "User-Agent: "+agents)
	}
	var lines []string
	for range o.IntN(3) {
		lines = append(lines, o.letters())
		headers = append(headers, "X-Test: "+lines[len(lines)-1])
	}
	if len(cookies) > 0 {
		headers = append(headers, "Cookie: "+joined(cookies, "; "))
	}
	query := joined(args, "&")
	uri := whole
	if query != "" {
		uri += "?" + query
	}
	o.request = ask(method+" "+scheme+"://"+host+uri, headers...)
	o.request.Path, o.request.From = path, o.address()

	name, _, _ := strings.Cut(strings.ToLower(host), ":")
	o.texts["http.host"], o.texts["http.request.method"] = name, method
	o.texts["http.request.uri.path"], o.texts["http.request.uri.query"] = whole, query
	o.texts["http.request.uri"] = uri
	o.texts["http.request.full_uri"] = scheme + "://" + name + uri
	o.texts["http.user_agent"], o.texts["http.cookie"] = agents, joined(cookies, "; ")
	o.texts["http.request.version"], o.texts["http.referer"] = "HTTP/1.1", ""
	names, values := []string{}, []string{}
	for _, p := range args {
		names, values = append(names, p.name), append(values, p.value)
		o.add(`http.request.uri.args["`+p.name+`"]`, p.value)
	}
	for _, p := range cookies {
		o.add(`http.request.cookies["`+p.name+`"]`, p.value)
	}
	for _, l := range lines {
		o.add(`http.request.headers["x-test"]`, l)
	}
	o.arrays["http.request.uri.args.names"], o.arrays["http.request.uri.args.values"] = names, values
	for array, all := range o.arrays {
		for i, v := range all {
			o.texts[fmt.Sprintf("%s[%d]", array, i)] = v
		}
		o.missing = append(o.missing, fmt.Sprintf("%s[%d]", array, len(all)))
	}
	o.missing = append(o.missing, `http.request.headers["none"][0]`)
	slices.Sort(o.missing)
	return o
}

func (o *oracle) add(array, value string) { o.arrays[array] = append(o.arrays[array], value) }

func (o *oracle) address() netip.Addr {
	return netip.MustParseAddr(
		o.pick("192.0.2.1", "192.0.2.130", "192.0.3.1", "2001:db8::1", "2001:db8:1::", "::1"))
}

// An expression is text, what it is worth, and how much its outermost operator binds.
type expression struct {
	text  string
	value bool
	binds int
}

// expression makes one up.
func (o *oracle) expression(depth int) expression {
	if depth == 0 || o.IntN(4) == 0 {
		return o.leaf()
	}
	if o.IntN(4) == 0 {
		inner := o.expression(depth - 1)
		return expression{o.pick("not ", "! ", "!") + o.within(inner, 4), !inner.value, 4}
	}
	binds := 1 + o.IntN(3)
	out := o.expression(depth - 1)
	out.text = o.within(out, binds)
	for range 1 + o.IntN(3) {
		next := o.expression(depth - 1)
		word := []string{"or", "xor", "and"}[binds-1]
		said := o.pick(" "+word+" ", []string{"||", "^^", "&&"}[binds-1])
		out.text += o.space() + said + o.space() + o.within(next, binds)
		switch word {
		case "or":
			out.value = out.value || next.value
		case "and":
			out.value = out.value && next.value
		default:
			out.value = out.value != next.value
		}
	}
	return expression{out.text, out.value, binds}
}

// within puts parentheses where they are needed, and at times where not.
func (o *oracle) within(e expression, binds int) string {
	if e.binds < binds || o.IntN(5) == 0 {
		return "(" + o.space() + e.text + o.space() + ")"
	}
	return e.text
}

func (o *oracle) space() string { return o.pick("", "", " ", "\n", "\t ") }

// leaf is one comparison.
func (o *oracle) leaf() expression {
	switch o.IntN(8) {
	case 0:
		return expression{"ssl", o.request.Secure, 5}
	case 1:
		return o.ofAddress()
	case 2, 3:
		return o.ofArray()
	case 4:
		what, text, ok := o.text()
		n := o.IntN(9)
		word := o.pick("==", "!=", "<", "<=", ">", ">=", "eq", "ne", "lt", "le", "gt", "ge", "in")
		if word == "in" {
			return expression{fmt.Sprintf("len(%s) in {1 %d..%d 99}", what, n, n+3),
				ok && (len(text) == 1 || len(text) >= n && len(text) <= n+3), 5}
		}
		return expression{fmt.Sprintf("len(%s) %s %d", what, word, n), ok && holds(word, len(text)-n), 5}
	}
	what, text, ok := o.text()
	said, value := o.compare(what, text)
	return expression{said, ok && value, 5}
}

// text is an expression for a text, and the text, if there is one.
func (o *oracle) text() (what, text string, ok bool) {
	if o.IntN(6) == 0 {
		return o.missing[o.IntN(len(o.missing))], "", false
	}
	all := make([]string, 0, len(o.texts))
	for what := range o.texts {
		all = append(all, what)
	}
	slices.Sort(all)
	what = o.pick(all...)
	text = o.texts[what]
	switch o.IntN(5) {
	case 0:
		return "lower( " + what + ")", strings.ToLower(text), true
	case 1:
		return "upper(" + what + " )", strings.ToUpper(text), true
	}
	return what, text, true
}

func holds(word string, difference int) bool {
	switch word {
	case "==", "eq":
		return difference == 0
	case "!=", "ne":
		return difference != 0
	case "<", "lt":
		return difference < 0
	case "<=", "le":
		return difference <= 0
	case ">", "gt":
		return difference > 0
	default:
		return difference >= 0
	}
}

// part is a text that text may well contain, or be.
func (o *oracle) part(text string) string {
	if o.IntN(3) == 0 {
		return o.letters()
	}
	from := o.IntN(len(text) + 1)
	to := from + o.IntN(len(text)-from+1)
	return o.pick(text, text[from:to], text[:to], text[from:])
}

// quote writes a literal in one of the ways there are.
func (o *oracle) quote(text string) string {
	switch o.IntN(3) {
	case 0:
		return `r"` + text + `"`
	case 1:
		return `r##"` + text + `"##`
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case o.IntN(6) == 0:
			fmt.Fprintf(&b, `\x%02x`, c)
		case o.IntN(6) == 0:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// compare compares what an expression means with something.
func (o *oracle) compare(what, text string) (said string, value bool) {
	other := o.part(text)
	switch word := o.pick("==", "eq", "!=", "ne", "<", "le", ">", "ge", "contains", "in",
		"starts_with", "ends_with", "matches", "wildcard", "strict wildcard"); word {
	case "contains":
		return what + " contains " + o.quote(other), strings.Contains(text, other)
	case "in":
		third := o.letters()
		return what + " in {" + o.quote(other) + " " + o.quote(third) + o.quote("x") + "}",
			text == other || text == third || text == "x"
	case "starts_with":
		return "starts_with(" + what + "," + o.quote(other) + ")", strings.HasPrefix(text, other)
	case "ends_with":
		return "ends_with (" + what + " , " + o.quote(other) + " )", strings.HasSuffix(text, other)
	case "matches":
		re := o.pick("^", "") + regexp.QuoteMeta(other) + o.pick("$", "", "[aA]?")
		return what + o.pick(" matches ", "~") + `r"` + re + `"`, regexp.MustCompile(re).MatchString(text)
	case "wildcard", "strict wildcard":
		from := o.IntN(len(other) + 1)
		stars := strings.NewReplacer(`*`, `\*`, `\`, `\\`)
		parts := []string{o.pick("", "*"), other[:from], o.pick("", "*"), other[from:], o.pick("", "*")}
		if parts[1] == "" || parts[3] == "" {
			parts[2] = "" // no two stars side by side
		}
		if other == "" {
			parts[4] = ""
		}
		re, glob := "(?s)^", ""
		if word == "wildcard" {
			re = "(?is)^"
		}
		for i, p := range parts {
			if i%2 == 0 && p == "*" {
				re, glob = re+".*", glob+"*"
			} else {
				re, glob = re+regexp.QuoteMeta(p), glob+stars.Replace(p)
			}
		}
		return what + " " + word + ` r"` + glob + `"`, regexp.MustCompile(re + "$").MatchString(text)
	default:
		return what + o.space() + " " + word + " " + o.quote(other), holds(word, strings.Compare(text, other))
	}
}

func (o *oracle) ofAddress() expression {
	a, from := o.address(), o.request.From
	switch o.IntN(4) {
	case 0:
		return expression{"ip.src == " + a.String(), a == from, 5}
	case 1:
		return expression{"ip.src ne " + a.String(), a != from, 5}
	case 2:
		to := a.Next().Next()
		return expression{fmt.Sprintf("ip.src in {%s..%s 10.0.0.0/8}", a, to),
			a == from || a.Next() == from || to == from, 5}
	}
	p := netip.PrefixFrom(a, o.IntN(a.BitLen()+1)).Masked()
	q := netip.PrefixFrom(o.address(), 24).Masked()
	return expression{fmt.Sprintf("ip.src in {%s %s}", p, q), p.Contains(from) || q.Contains(from), 5}
}

// ofArray asks about each element, one after the other.
func (o *oracle) ofArray() expression {
	arrays := []string{`http.request.headers["none"]`}
	for a := range o.arrays {
		arrays = append(arrays, a)
	}
	slices.Sort(arrays)
	array := o.pick(arrays...)
	all := o.arrays[array]
	like := ""
	if len(all) > 0 {
		like = all[o.IntN(len(all))]
	}
	seed, low := o.Uint64(), o.IntN(3) == 0
	count, said := 0, ""
	for i := -1; i < len(all); i++ { // the first time to have the text of it
		o.Rand = rand.New(rand.NewPCG(seed, 1))
		what, other := array+"[*]", o.part(like)
		if low {
			what = "lower(" + what + ")[*]"
		}
		element := ""
		if i >= 0 {
			element = all[i]
		}
		if low {
			element = strings.ToLower(element)
		}
		first, second := o.pick("==", "!=", "<"), o.letters()
		so := holds(first, strings.Compare(element, other)) && !strings.Contains(element, second)
		said = what + first + o.quote(other) + " and not " + what + " contains " + o.quote(second)
		if i >= 0 && so {
			count++
		}
	}
	if o.IntN(2) == 0 {
		return expression{"any(" + said + ")", count > 0, 5}
	}
	return expression{"all(" + said + ")", count == len(all) && len(all) > 0, 5}
}

func askOracle(t *testing.T, seed uint64) (worth bool) {
	t.Helper()
	o := newOracle(seed)
	want := o.expression(3)
	if len(want.text) > maxLength {
		return false
	}
	e, err := Compile(want.text, Env{})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if got := e.Match(o.request); got != want.value {
		t.Fatalf("seed %d: %v, want %v:\n%s\n%s %s %v from %s", seed, got, want.value, want.text,
			o.request.Method, o.request.URL, o.request.Header, o.request.From)
	}
	return want.value
}

func TestOracle(t *testing.T) {
	n, worth := 30_000, 0
	if testing.Short() {
		n = 3_000
	}
	for seed := range uint64(n) {
		if askOracle(t, seed) {
			worth++
		}
	}
	if worth < n/4 || worth > n*3/4 {
		t.Errorf("%d of %d are true: the oracle asks too little", worth, n)
	}
}

func FuzzOracle(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { askOracle(t, seed) })
}
