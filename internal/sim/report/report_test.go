package report

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/plan"
	"github.com/headgate/headgate/internal/sim/traffic"
)

// played is a report of a short scenario, with everything in it.
func played(t testing.TB) *Report {
	t.Helper()
	list := sim.Scenarios()
	s, err := sim.Find(list, "world-spike")
	if err != nil {
		t.Fatal(err)
	}
	r := &Report{Version: "v0", Command: "headgate simulate --seed 5", Scenario: *s, Seed: 5}
	ideal, err := sim.Run(t.Context(), s, sim.Ideal(), sim.Options{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{idealName, "first", "second", "third", ourName} {
		st, result := sim.Ideal(), *ideal
		st.Name, result.Name = name, name
		result.OvershootActive, result.OvershootRate = int64(i%4), int64(i%2)
		r.Rows = append(r.Rows, Row{st, &result})
	}
	if r.Plan, err = plan.Make(t.Context(), s, 5, nil); err != nil {
		t.Fatal(err)
	}
	line := Series{Name: "a line", X: []float64{0, 1, 2}, Y: []float64{3, 1, 4}}
	grey := Series{Name: "the reference", X: []float64{0, 2}, Y: []float64{2, 2}, Grey: true}
	r.Figures = []Figure{
		{ID: "lines", Title: "Lines", Source: "a document", XLabel: "hours", YLabel: "visitors",
			Note: "what to look for", Series: []Series{line, grey, {Name: "empty"}}},
		{ID: "both", Title: "A line and a table", Source: "another", XLabel: "seconds", YLabel: "calls",
			Note: "another note", Series: []Series{line},
			Table: &Table{Columns: []string{"name", "value"}, Rows: [][]string{{"one", "1"}, {"two", "2"}}}},
	}
	return r
}

// An element is what a page consists of.
type element struct {
	name  string
	attrs map[string]string
	text  string // of all within
	kids  []*element
}

// parsed reads a page strictly: an end that is missing is an error.
func parsed(t testing.TB, text string) *element {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	top := &element{}
	open := []*element{top}
	for {
		token, err := d.Token()
		if err == io.EOF {
			return top
		}
		if err != nil {
			t.Fatal(err)
		}
		last := open[len(open)-1]
		switch x := token.(type) {
		case xml.StartElement:
			e := &element{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			last.kids = append(last.kids, e)
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			for _, e := range open {
				e.text += string(x)
			}
		}
	}
}

func (e *element) all(name string) []*element {
	var found []*element
	for _, k := range e.kids {
		if k.name == name {
			found = append(found, k)
		}
		found = append(found, k.all(name)...)
	}
	return found
}

func page5(t testing.TB, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page is whole, needs nothing else, and can be read by those who see nothing.
func TestPage(t *testing.T) {
	r := played(t)
	text := page5(t, r)
	top := parsed(t, text)
	if at := regexp.MustCompile(`(?i)https?:|//[a-z]|@import|url\([^#]|<script|<link|\bsrc=|%!`).
		FindString(text); at != "" {
		t.Errorf("the page needs more than itself, or lacks words: %q", at)
	}
	ids := map[string]bool{}
	var walk func(e *element)
	walk = func(e *element) {
		if id, ok := e.attrs["id"]; ok {
			if ids[id] {
				t.Errorf("two elements are named %s", id)
			}
			ids[id] = true
		}
		for _, k := range e.kids {
			walk(k)
		}
	}
	walk(top)
	plots := top.all("svg")
	if want := 4*len(r.Rows) + len(r.Figures); len(plots) != want {
		t.Errorf("%d plots, want %d", len(plots), want)
	}
	for _, p := range plots {
		named := strings.Fields(p.attrs["aria-labelledby"])
		if p.attrs["role"] != "img" || len(named) != 2 || !ids[named[0]] || !ids[named[1]] {
			t.Errorf("a plot has no name: %v", p.attrs)
		}
		if len(p.all("title")) != 1 || len(p.all("desc")) != 1 || p.all("desc")[0].text == "" {
			t.Errorf("plot %s has no title or description", named)
		}
		for _, path := range p.all("path") {
			n := strings.Count(path.attrs["d"], "L") + strings.Count(path.attrs["d"], "V")
			if n > 4000 || regexp.MustCompile("NaN|Inf").MatchString(path.attrs["d"]) {
				t.Errorf("plot %s has a path of %d points", named, n)
			}
		}
	}
	for _, table := range top.all("table") {
		if len(table.all("th")) == 0 {
			t.Error("a table has no headers")
		}
	}
	for _, a := range top.all("a") {
		if !ids[strings.TrimPrefix(a.attrs["href"], "#")] {
			t.Errorf("a link leads nowhere: %s", a.attrs["href"])
		}
	}
	for _, row := range r.Rows {
		if n := strings.Count(top.text, row.Result.Name); n < 2 {
			t.Errorf("the page has %s %d times", row.Result.Name, n)
		}
	}
	for _, f := range r.Figures {
		if !ids[f.ID] || !strings.Contains(top.text, f.Title) {
			t.Errorf("figure %s is missing", f.ID)
		}
	}
	for _, want := range []string{r.Command, r.Scenario.About, "200", "the seed is 5", "sjc (3 workers)"} {
		if !strings.Contains(top.text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// What comes from outside stays words: whatever the strings of a report are, the page
// has the same elements and attributes.
func TestPageEscapes(t *testing.T) {
	const evil = "</style></svg><script>alert(1)</script>\"'&x;\x00\x1b\xff\uffff"
	r := played(t)
	if n := rename(reflect.ValueOf(r), "x"); n < 50 {
		t.Fatalf("a report has %d strings only", n)
	}
	tame := shape(parsed(t, page5(t, r)))
	rename(reflect.ValueOf(r), evil)
	text := page5(t, r)
	top := parsed(t, text)
	if got := shape(top); got != tame {
		t.Errorf("words became part of the page: %d bytes of elements, want %d", len(got), len(tame))
	}
	if strings.Contains(text, "<script") || strings.Contains(text, `"'`) || strings.Contains(text, "&x") ||
		strings.Count(text, "</style>") != 1 {
		t.Error("words stand in the page as they are")
	}
	shown := strings.NewReplacer("\x00", "\ufffd", "\x1b", "\ufffd", "\xff", "\ufffd", "\uffff", "\ufffd").
		Replace(evil)
	for _, e := range append(top.all("h1"), top.all("code")...) {
		if e.text != shown {
			t.Errorf("%s has %q, want %q", e.name, e.text, shown)
		}
	}
	for _, e := range top.all("article") {
		if e.attrs["id"] != "s-"+shown {
			t.Errorf("an id is %q", e.attrs["id"])
		}
	}
}

// rename gives every string in a value another text. It counts them.
func rename(v reflect.Value, to string) int {
	n := 0
	switch v.Kind() {
	case reflect.String:
		v.SetString(to)
		n++
	case reflect.Pointer:
		if !v.IsNil() {
			n += rename(v.Elem(), to)
		}
	case reflect.Slice:
		for i := range v.Len() {
			n += rename(v.Index(i), to)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				n += rename(field, to)
			}
		}
	}
	return n
}

// shape is an element without its words and values.
func shape(e *element) string {
	var b strings.Builder
	fmt.Fprint(&b, e.name, slices.Sorted(maps.Keys(e.attrs)), "{")
	for _, k := range e.kids {
		b.WriteString(shape(k))
	}
	return b.String() + "}"
}

func TestJSON(t *testing.T) {
	r := played(t)
	var b strings.Builder
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Scenario   string
		Seed       uint64
		Limits     map[string]any
		Strategies []map[string]any
		Plan       map[string]any
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Scenario != "world-spike" || got.Seed != 5 || len(got.Strategies) != len(r.Rows) ||
		got.Limits["total_active_users"] != 200.0 || got.Limits["new_users_per_minute"] != 200.0 ||
		got.Limits["session_duration"] != "5m0s" || got.Plan["goals"] == nil {
		t.Errorf("got %s", b.String())
	}
	for _, s := range got.Strategies {
		for key := range strings.FieldsSeq("name early_share first_wait_use overshoot_active " +
			"overshoot_rate latency_p50_ms latency_p99_ms messages_per_visitor overtaken_share admitted_of_ideal") {
			if _, ok := s[key]; !ok {
				t.Errorf("%v has no %s", s["name"], key)
			}
		}
		if _, ok := s["series"]; ok {
			t.Errorf("%v has its samples", s["name"])
		}
	}
	empty := &Report{}
	b.Reset()
	if err := empty.JSON(&b); err != nil || !strings.Contains(b.String(), `"strategies": []`) {
		t.Errorf("got %v and %s", err, b.String())
	}
}

func TestTable(t *testing.T) {
	r := played(t)
	var b strings.Builder
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitSeq(b.String(), "\n")
	for line := range lines {
		if n := utf8.RuneCountInString(line); n > 95 || strings.TrimRight(line, " ") != line {
			t.Errorf("%d columns, or spaces at the end: %q", n, line)
		}
	}
	for _, row := range r.Rows {
		if n := strings.Count(b.String(), "\n"+row.Result.Name+" "); n != 2 {
			t.Errorf("%s has %d lines", row.Result.Name, n)
		}
	}
	for _, want := range []string{"\n200 at once, 200 new a minute, sessions of 5 min; ",
		"\nmade again by\n  headgate simulate --seed 5\n", "+ best, ! worst", "nobody waits"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestMarks(t *testing.T) {
	row := func(name string, over int64) Row {
		return Row{Result: &sim.Result{Name: name, OvershootActive: over}}
	}
	c := columns()[2]
	for _, test := range []struct {
		rows []Row
		want string
	}{
		{[]Row{row("ideal", 0), row("a", 0), row("b", 0)}, "[0 0 0]"},
		{[]Row{row("ideal", 0), row("a", 3), row("b", 1), row("c", 2), row("d", 1)}, "[0 2 1 0 1]"},
		{[]Row{row("a", 3)}, "[0]"},
		{nil, "[]"},
	} {
		if got := fmt.Sprint(c.marks(test.rows)); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
	none := columns()[1] // nobody waited: no figure, no mark
	rows := []Row{row("a", 0), {Result: &sim.Result{Name: "b", FirstWaitUse: new(0.5)}},
		{Result: &sim.Result{Name: "c", FirstWaitUse: new(0.9)}}}
	if got := fmt.Sprint(none.marks(rows)); got != "[0 2 1]" {
		t.Errorf("got %s", got)
	}
}

func TestVerdict(t *testing.T) {
	for want, r := range map[string]sim.Result{
		"held both limits; nobody waited":                             {},
		"held both limits; nobody waited early; nobody was overtaken": {WaitedShare: 0.1},
		"over by 5 at once and 1,200 a minute; 2.0 % waited early; 50.0 % overtaken": {
			WaitedShare: 0.1, OvershootActive: 5, OvershootRate: 1200, EarlyShare: 0.02, OvertakenShare: 0.5},
	} {
		if got := verdict(&r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		whole(0): "0", whole(999): "999", whole(1000): "1,000", whole(-1234567): "-1,234,567",
		percent(0): "0 %", percent(1): "100 %", percent(0.0001): "<0.1 %", percent(0.99999): ">99.9 %",
		percent(0.123): "12.3 %", percent(12): "1,200 %",
		period(0): "0 s", period(1): "1 ms", period(59 * time.Second): "59 s",
		period(5 * time.Minute):   "5 min",
		period(250 * time.Second): "4 min 10 s", period(59*time.Minute + 59600*time.Millisecond): "1 h",
		period(48 * time.Hour): "2 d", period(49 * time.Hour): "2 d 1 h", period(time.Minute - 1): "1 min",
		fold("one two three", 7): "one two\nthree", join([]string{"a", "b", "c"}): "a, b and c",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAxes(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      string
	}{
		{0, 200, "0 50 100 150 200"}, {0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"}, {0, 0, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{0, 28000, "0 10,000 20,000 30,000"}, {-3, 3, "-4 -2 0 2 4"},
	} {
		a := newAxis(test.low, test.high, 5)
		var labels []string
		for _, x := range a.ticks() {
			labels = append(labels, a.label(x))
		}
		if got := strings.Join(labels, " "); got != test.want {
			t.Errorf("%v to %v: got %s, want %s", test.low, test.high, got, test.want)
		}
	}
	for length, want := range map[time.Duration]string{
		time.Minute: "seconds 0 10 20 30 40 50 60", 30 * time.Minute: "minutes 0 5 10 15 20 25 30",
		48 * time.Hour: "hours 0 6 12 18 24 30 36 42 48", 240 * time.Hour: "days 0 2 4 6 8 10",
	} {
		a, got := timeAxis(length, 8)
		for _, x := range a.ticks() {
			got += " " + a.label(x)
		}
		if got != want {
			t.Errorf("%v: got %s, want %s", length, got, want)
		}
	}
}

// A curve of many points keeps its peaks.
func TestThin(t *testing.T) {
	const n = 100_000
	x, y := make([]float64, n), make([]float64, n)
	for i := range x {
		x[i], y[i] = float64(i), math.Sin(float64(i)/1000)
	}
	y[54_321] = 40
	tx, ty := thin(x, y)
	most, at := 0.0, 0.0
	for i := range tx {
		if i > 0 && tx[i] < tx[i-1] {
			t.Fatalf("point %d is before the one before", i)
		}
		if ty[i] > most {
			most, at = ty[i], tx[i]
		}
	}
	if len(tx) > maxPoints || most != 40 || at != 54_321 {
		t.Errorf("%d points, %v at %v", len(tx), most, at)
	}
}

// Nothing is left of a page that could not be written or was not wanted any more,
// and what was there before stands.
func TestSave(t *testing.T) {
	r := played(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "report.html")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Save(ctx, file); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if b, _ := os.ReadFile(file); string(b) != "before" {
		t.Errorf("the file before is now %.20q", b)
	}
	if err := r.Save(t.Context(), file); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(file); string(b) != page5(t, r) {
		t.Error("the file is not the page")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "none", "r.html"), filepath.Join(file, "r.html")} {
		if err, ok := errors.AsType[*hint.Error](CanSave(bad)); !ok || err.Hint() == "" {
			t.Errorf("%s: got %v", bad, err)
		}
		if err := r.Save(t.Context(), bad); err == nil {
			t.Errorf("%s: written", bad)
		}
	}
	if err := CanSave(filepath.Join(dir, "new.html")); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAdvice(t *testing.T) {
	give := func(given, active, fresh plan.Outcome) string {
		r := &Report{Plan: &plan.Plan{Given: given, OnlyActive: active, OnlyNew: fresh,
			More: plan.Outcome{LongestWait: time.Minute, Waited: 3},
			Goals: []plan.Goal{{Outcome: plan.Outcome{Active: 1500, New: 90}},
				{Within: 5 * time.Minute, Outcome: plan.Outcome{Active: 1200, New: 80}}}}}
		return strings.Join(r.advice(), "\n")
	}
	long := plan.Outcome{Active: 200, New: 100, Visitors: 50, Waited: 20, LongestWait: time.Hour,
		MostWaiting: 9}
	short := plan.Outcome{LongestWait: time.Minute}
	for _, test := range []struct{ got, want string }{
		{give(long, long, short), "It is the limit at once"},
		{give(long, short, long), "It is the limit a minute"},
		{give(long, long, long), "Both limits make them wait"},
		{give(long, long, plan.Outcome{}), "without the one at once nobody would wait"},
		{give(long, long, short), "20 of 50 visitors wait, the longest 1 h; at most 9 wait at once"},
		{give(long, long, short), "nobody waits at 1,500 at once and 90 new a minute"},
		{give(long, long, short), "nobody longer than 5 min at 1,200 at once"},
		{give(long, long, short), "cut the longest wait to 1 min"},
		{give(plan.Outcome{Active: 200, New: 100, Visitors: 1}, short, short), "nobody of 1 visitor waits"},
		{found(&traffic.Found{Timed: 9, Active: 1215, Knee: 80.4, Reason: "settled"}),
			"total_active_users would have been 1,215 in the end: the origin answers 80 requests a second"},
		{found(&traffic.Found{Timed: 9, Active: 120, Most: 100}), "never full with at most 100 visitors"},
		{found(&traffic.Found{}), "nobody knows which number auto would have found"},
	} {
		if !strings.Contains(test.got, test.want) {
			t.Errorf("no %q in\n%s", test.want, test.got)
		}
	}
}

// An SVG file stands alone, with each figure below the one before.
func TestSVG(t *testing.T) {
	f := Figure{ID: "a", Title: "A <b>", XLabel: "minutes", YLabel: "people", Note: "What to see."}
	f.Series = []Series{{Name: "limit", X: []float64{0, 1}, Y: []float64{50, 100}}}
	g := f
	g.ID = "b"
	var b strings.Builder
	if err := SVG(&b, f, g); err != nil {
		t.Fatal(err)
	}
	var moved []string
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "g" {
			moved = append(moved, e.Attr[0].Value)
		}
	}
	if want := []string{"translate(0 0)", "translate(0 300)"}; !slices.Equal(moved, want) {
		t.Errorf("%v, want %v", moved, want)
	}
}

// A plot's description says more than its title: a screen reader reads both.
func TestPlotsAreDescribed(t *testing.T) {
	var b strings.Builder
	if err := played(t).HTML(&b); err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`<title id="[^"]*">([^<]*)</title><desc id="[^"]*">([^<]*)</desc>`).
		FindAllStringSubmatch(b.String(), -1)
	if len(all) == 0 {
		t.Fatal("no plot")
	}
	for _, m := range all {
		if m[1] == m[2] || m[2] == "" {
			t.Errorf("plot %q is described as %q", m[1], m[2])
		}
	}
}
