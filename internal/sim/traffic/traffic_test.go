package traffic

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/sim"
)

// parse reads text and gives the visits.
func parse(t testing.TB, text string, o Options) (*Traffic, []visit, error) {
	t.Helper()
	in := &input{name: "file"}
	if err := in.begin(strings.NewReader(text)); err != nil {
		return nil, nil, unreadable(in.name, err)
	}
	if o.Session == 0 {
		o.Session = 5 * time.Minute
	}
	tr, err := read(context.Background(), in, o)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { tr.Close() })
	var all []visit
	if err := tr.spool.each(func(v visit) bool { all = append(all, v); return true }); err != nil {
		t.Fatal(err)
	}
	return tr, all, nil
}

// showVisits writes visits as at+dwell@site in seconds.
func showVisits(all []visit) string {
	var b strings.Builder
	for _, v := range all {
		fmt.Fprintf(&b, "%g+%g@%d ", v.at.Seconds(), v.dwell.Seconds(), v.site)
	}
	return strings.TrimSpace(b.String())
}

func TestTables(t *testing.T) {
	for _, test := range []struct {
		name, text string
		o          Options
		want       string
	}{
		{"RFC 3339", "time\n2023-09-11T11:45:54.25Z\n2023-09-11T13:45:55+02:00\n", Options{},
			"0+0@0 0.75+0@0"},
		{"a space, no zone", "Date\n2023-09-11 11:45:54\n2023-09-11 11:45:56.5\n", Options{},
			"0+0@0 2.5+0@0"},
		{"seconds", "ts\n1694432754.000000001\n1694432754.5\n", Options{}, "0+0@0 0.499999999+0@0"},
		{"milliseconds", "at\n1694432754000\n1694432754250\n", Options{}, "0+0@0 0.25+0@0"},
		{"microseconds", "at\n1694432754000000\n1694432754250000\n", Options{}, "0+0@0 0.25+0@0"},
		{"nanoseconds", "at\n1694432754000000000\n1694432754250000000\n", Options{}, "0+0@0 0.25+0@0"},
		{"from the start", "time\n0\n1.5\n60\n", Options{}, "0+0@0 1.5+0@0 60+0@0"},
		{"sites and stays", "site,dwell,time\nsjc,90,1\n\"l,h\",1m30s,2\nsjc,,3\n", Options{},
			"0+90@0 1+90@1 2+0@0"},
		{"semicolons, quotes, a mark, CR",
			"\xef\xbb\xbf\"Time\";colo\r\n\"1\";\"a \"\"b\"\"\"\r\n\r\n\"2\";c\r\n", Options{},
			"0+0@0 1+0@1"},
		{"tabs", "x\ttimestamp\n-\t1\n-\t2\n", Options{}, "0+0@0 1+0@0"},
		{"named columns", "time,when,where,site\nx,5,a,b\ny,6,c,b\n",
			Options{TimeColumn: "When", DatacenterColumn: "where"}, "0+0@0 1+0@1"},
		{"whole seconds are spread", "time\n10\n10\n10\n10\n12\n12\n", Options{},
			"0+0@0 0.25+0@0 0.5+0@0 0.75+0@0 2+0@0 2.5+0@0"},
		{"until the next", "time\n10\n10\n10.5\n10.5\n", Options{}, "0+0@0 0.25+0@0 0.5+0@0 0.5+0@0"},
	} {
		test.o.Format = CSV
		_, all, err := parse(t, test.text, test.o)
		if got := showVisits(all); err != nil || got != test.want {
			t.Errorf("%s: got %s and %v, want %s", test.name, got, err, test.want)
		}
	}
}

// request is a line of the combined format.
func request(client, clock string) string {
	return client + ` - - [11/Sep/2023:` + clock +
		` +0000] "GET / HTTP/1.1" 200 2326 "-" "Mozilla/5.0 [en]"` + "\n"
}

func TestLogs(t *testing.T) {
	a, b := "192.0.2.7", "2001:db8::1"
	for _, test := range []struct {
		name, text, want string
	}{
		{"one of two comes again", request(a, "11:45:54") + request(b, "11:45:56") +
			request(a, "11:47:54"), "0+120@0 2+0@0"},
		{"after a session one is new", request(a, "11:00:00") + request(a, "11:05:00") +
			request(a, "11:10:01"), "0+300@0 601+0@0"},
		{"a second late", request(a, "11:00:01") + request(b, "11:00:00") + request(a, "11:00:02"),
			"0+1@0 0.5+0@0"},
		{"other zones", `h - - [11/Sep/2023:13:00:00 +0200] "GET"` + "\n" +
			`i - - [11/Sep/2023:07:00:01 -0400] "GET"` + "\n", "0+0@0 1+0@0"},
		{"a host before", `shop.example:443 ` + request(a, "11:00:00") + `shop.example:443 ` +
			request(b, "11:00:01"), "0+0@0 1+0@0"},
		{"a name with spaces", `10.0.0.1 - J [x] D [11/Sep/2023:11:00:00 +0000] "GET /"`, "0+0@0"},
	} {
		tr, all, err := parse(t, test.text, Options{})
		if got := showVisits(all); err != nil || got != test.want || tr.Format != Log {
			t.Errorf("%s: got %s and %v, want %s", test.name, got, err, test.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	a := "192.0.2.7"
	long := strings.Repeat("x", 300)
	for _, test := range []struct {
		name, text string
		o          Options
		want, hint string
	}{
		{"empty", "", Options{}, "file: nobody is in it", "a line for each visitor"},
		{"blank", "\n \n", Options{}, "file: nobody is in it", ""},
		{"a header alone", "time\n", Options{}, "file: nobody is in it", ""},
		{"no column", "a,b\n1,2\n", Options{}, "file:1: no column is named time, timestamp, ts, date or at",
			`the columns are "a", "b"`},
		{"no header", "1694432754,sjc\n", Options{}, `file:1: "1694432754,sjc" is no header`, "time,site"},
		{"not that column", "time\n1\n", Options{TimeColumn: "when"},
			`--time-column: file has no column "when"`, `its columns are "time"`},
		{"not that site", "time\n1\n", Options{DatacenterColumn: "dc"},
			`--datacenter-column: file has no column "dc"`, ""},
		{"many columns", "a,b,c,d,e,f,g,h,i,j,k,l,m,n\n", Options{}, "file:1: no column", `"l" and 2 more`},
		{"no time", "time\n1\n\nsoon\n", Options{}, `file:4: "soon" is no time`, "2023-09-11T11:45:54Z"},
		{"long and odd", "time\n\x1b[31m" + long + "\n", Options{}, `file:2: "\x1b[31mxxx`, ""},
		{"before 1970", "time\n-5\n", Options{}, `file:2: "-5" is no time`, ""},
		{"too large", "time\n99999999999999999999\n", Options{}, "is no time", ""},
		{"unsorted", "time\n5\n4\n", Options{},
			"file:3: 1970-01-01 00:00:04 is before the line above, 1970-01-01 00:00:05", "sort the file"},
		{"two years", "time\n0\n70000000\n", Options{},
			"file:3: 1972-03-21 04:26:40 is more than a year", ""},
		{"short row", "x,time\n1,2\n1\n", Options{}, `file:3: "1" has too few fields: 1`, ""},
		{"open quote", "x,time\n\"1,2\n", Options{}, "file:2: a quote does not end on its line", ""},
		{"open quote in the header", "time,\"x\n", Options{}, "file:1: ", ""},
		{"stay", "time,dwell\n1,-4\n", Options{}, `file:2: "-4" is no length of a visit`, ""},
		{"stay, no number", "time,dwell\n1,NaN\n", Options{}, `file:2: "NaN" is no length of a visit`, ""},
		{"sites", "time,site\n" + manySites(), Options{},
			`file:1002: "s1000" is data center 1001`, "--datacenter-column"},
		{"log unsorted", request(a, "11:00:02") + request(a, "11:00:00"), Options{},
			"file:2: 2023-09-11 11:00:00 is before an earlier line", "sort the file by time"},
		{"no log", request(a, "11:00:00") + "hello\n", Options{},
			`file:2: "hello" has no [time]`, "--format csv"},
		{"log time", request(a, "11:00:00") + strings.Replace(request(a, "11:00:00"), "Sep", "Sip", 1),
			Options{}, `file:2: "11/Sip/2023:11:00:00 +0000" is no time`, ""},
		{"no client", " - - [11/Sep/2023:11:00:00 +0000]", Options{Format: Log}, "file:1: ", ""},
		{"a table as a log", "time\n1\n", Options{Format: Log}, `file:1: "time" has no [time]`, ""},
		{"one long line", "time\n" + strings.Repeat("1", maxLine), Options{},
			"file:2: is longer than 256 KB", ""},
	} {
		_, _, err := parse(t, test.text, test.o)
		e, ok := errors.AsType[*hint.Error](err)
		if !ok || !strings.Contains(e.Error(), test.want) || !strings.Contains(e.Do, test.hint) {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
			continue
		}
		if e.Do == "" || len(e.Error()) > 200 || strings.ContainsRune(e.Error(), '\x1b') {
			t.Errorf("%s: %q with hint %q", test.name, e.Error(), e.Do)
		}
	}
}

func manySites() string {
	var b strings.Builder
	for i := range maxSites + 1 {
		fmt.Fprintf(&b, "%d,s%d\n", i, i)
	}
	return b.String()
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	cut := filepath.Join(dir, "cut.gz")
	whole := compressed(t, "time\n1\n2\n")
	if err := os.WriteFile(cut, whole[:len(whole)-6], 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "none.csv"): "there is no such file",
		dir:                            "cannot be read: is a directory",
		cut:                            "cannot be read: unexpected EOF",
	} {
		_, err := Open(t.Context(), name, Options{})
		if e, ok := errors.AsType[*hint.Error](err); !ok || e.Error() != name+": "+want || e.Do == "" {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func compressed(t *testing.T, text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A file gives a scenario that runs, twice the same, and nothing is left of it.
func TestScenarioOfAFile(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	file := filepath.Join(t.TempDir(), "a.csv.gz")
	if err := os.WriteFile(file, compressed(t, "time,site\n10,a\n11,b\n12,a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := Open(t.Context(), file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := tr.Scenario(sim.Limits200())
	if len(s.Datacenters) != 2 || s.Length != 62*time.Second || tr.First != time.Unix(10, 0).UTC() {
		t.Errorf("got %+v and %+v", s, tr)
	}
	one := slices.Collect(s.Arrivals(3))
	if two := slices.Collect(s.Arrivals(3)); len(one) != 3 || !slices.Equal(one, two) {
		t.Errorf("got %v, then %v", one, two)
	}
	r, err := sim.Run(t.Context(), &s, sim.Ideal(), sim.Options{})
	if err != nil || r.Admitted != 3 {
		t.Errorf("got %+v and %v", r, err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if n := len(slices.Collect(s.Arrivals(3))); n != 0 || tr.Err() == nil {
		t.Errorf("after Close there are %d arrivals and the error is %v", n, tr.Err())
	}
}

func TestEnded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	calls := 0
	in := &input{name: "file"}
	err := in.begin(strings.NewReader("time\n" + strings.Repeat("1\n", 3*often)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = read(ctx, in, Options{Progress: func(float64) { calls++; stop() }})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

// A spool that has been written out still takes changes, and says what fails.
func TestSpool(t *testing.T) {
	s, err := newSpool(nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = spoolBuffer/visitSize*2 + 5
	for i := range int64(n) {
		if _, err := s.add(visit{at: time.Duration(i)}); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	want := map[int64]time.Duration{}
	for range 1000 {
		i := r.Int64N(n)
		want[i] = time.Duration(r.Int64())
		if err := s.setDwell(i, want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	i := int64(0)
	err = s.each(func(v visit) bool {
		if v.at != time.Duration(i) || v.dwell != want[i] {
			t.Errorf("visit %d: got %v, want %v", i, v, want[i])
		}
		i++
		return true
	})
	if err != nil || i != n {
		t.Errorf("got %d visits and %v", i, err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.add(visit{})
	if err := errors.Join(err, s.flush()); err == nil {
		t.Error("a closed spool takes more")
	}
}

func BenchmarkLog(b *testing.B) {
	var text strings.Builder
	r := rand.New(rand.NewPCG(1, 1))
	const lines = 100_000
	for i := range lines {
		text.WriteString(request(fmt.Sprintf("10.0.%d.%d", r.IntN(100), r.IntN(256)),
			fmt.Sprintf("11:%02d:%02d", i/2000, i/34%60)))
	}
	sorted := strings.Split(text.String(), "\n")
	clock := func(s string) string { return s[strings.Index(s, "[")+1:] }
	slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(clock(a), clock(b)) })
	whole := strings.Join(sorted, "\n")
	b.SetBytes(int64(len(whole)))
	for b.Loop() {
		_, _, err := parse(b, whole, Options{Format: Log})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/line")
}

func BenchmarkTable(b *testing.B) {
	var text strings.Builder
	text.WriteString("time,site\n")
	const lines = 100_000
	for i := range lines {
		fmt.Fprintf(&text, "%d.%03d,s%d\n", 1694432754+i/100, i%100*10, i%7)
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, _, err := parse(b, text.String(), Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/lines, "ns/line")
}
