package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// room is a valid room to which a key can be added.
const room = "rooms:\n  - name: shop\n    origin: http://127.0.0.1:3000\n" +
	"    total_active_users: 200\n    new_users_per_minute: 200\n"

func TestEveryBoundIsInclusive(t *testing.T) {
	tests := []struct {
		line string
		good bool
	}{
		{"session_duration: 1s", true},
		{"session_duration: 30d", true},
		{"session_duration: 720h", true},
		{"session_duration: 720h1s", false},
		{"hard_end: 5m", true},
		{"hard_end: 4m59s", false},
		{"hard_end: 0", true},
		{"poll_min: 100ms", true},
		{"poll_min: 99ms", false},
		{"poll_min: 30s", true},
		{"poll_min: 31s", false},
		{"hold: 30s", false},
		{"hold: 31s", true},
		{"call_hold: 0s", true},
		{"call_hold: 1s", true},
		{"call_hold: 1h", true},
		{"call_hold: 61m", false},
		{"max_waiting: 1", true},
		{"max_waiting: 2147483647", true},
		{"max_waiting: 2147483648", false},
		{"join_limit: {amount: 0, window: 1d, prefix_v4: 32, prefix_v6: 128}", true},
		{"join_limit: {}", true},
		{"exclude: {paths: [], cidrs: []}", true},
		{"title: " + strings.Repeat("ü", 100), true},
		{"title: " + strings.Repeat("ü", 101), false},
		{"message: " + strings.Repeat("ü", 500), true},
		{"message: " + strings.Repeat("ü", 501), false},
		{"path: /" + strings.Repeat("p", 1023), true},
		{"path: /" + strings.Repeat("p", 1024), false},
		{"host: " + strings.Repeat("a", 63) + ".de", true},
		{"host: " + strings.Repeat("a", 64) + ".de", false},
		{"session_renewal: True", true}, // YAML 1.2 allows three spellings
		{"session_renewal: yes", false},
		{"path: /.headgate", false},
		{"path: /.headgate2", true},
	}
	for _, tt := range tests {
		_, err := Parse("f", []byte(room+"    "+tt.line+"\n"))
		if (err == nil) != tt.good {
			t.Errorf("%.60s: got error %v, want good %v", tt.line, err, tt.good)
		}
	}
}

// A mistake must not cause further faults that disappear when it is corrected.
func TestOneMistakeIsToldOnce(t *testing.T) {
	second := strings.NewReplacer("rooms:\n", "", "shop", "tea").Replace(room)
	for _, file := range []string{
		room + second + "    pth: /tea\n",
		room + second + "    path: tea\n",
		room + "    pth: /tea\n" + second,
		room + "  - tea\n",
		"rooms:\n  - tea\n" + second,
		strings.Replace(room, "origin", "orign", 1),
		strings.Replace(room, "users: 200", "users: 2OO", 1),
		room + "    session_duration: 5x\n    hard_end: 10s\n",
		room + "    poll_max: 5x\n    hold: 10s\n",
		"listen: 8081\n" + room,
		"listen: :8081\n" + room,
	} {
		_, err := Parse("f", []byte(file))
		if got := Faults(err); len(got) != 1 {
			t.Errorf("got %d faults, want 1, of\n%s%v", len(got), file, err)
		}
	}
}

func TestWhatFollowsFromOtherKeys(t *testing.T) {
	c, err := Parse("f", []byte("listen: :0\nadmin_listen: :0\ntrusted_proxies: [::1, ::1/128]\n"+
		room+"    hold: 1h\n    exclude: {paths: [/a, /b, /a], methods: [PUT, PUT]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := c.Rooms[0]
	if r.HoldPhone != time.Hour || r.Title != "shop" {
		t.Errorf("got hold_phone %v and title %q, want those of hold and name", r.HoldPhone, r.Title)
	}
	if len(c.TrustedProxies) != 1 {
		t.Errorf("got trusted proxies %v, want one", c.TrustedProxies)
	}
	want := Exclude{
		Paths:   []string{"/robots.txt", "/favicon.ico", "/.well-known/", "/a", "/b"},
		Methods: []string{"PUT"},

		MaxInFlight: 1000, MaxPerAddr: 100,
	}
	if diff := cmp.Diff(want, r.Exclude); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestHostileFilesAreRefused(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c <= 'z'; c++ {
		ten := strings.Repeat(",*"+string(c-1), 10)
		fmt.Fprintf(&bomb, "%c: &%c [%s]\n", c, c, ten[1:])
	}
	// Only rooms and the lists in exclude are walked as lists of lists.
	wide := "rooms:\n  - exclude: &e\n      paths: [" + strings.Repeat("/x,", 1000) + "/x]\n" +
		strings.Repeat("  - exclude: *e\n", 200)
	tests := []struct{ name, file, want string }{
		{"large", room + strings.Repeat("#", maxFile), "is larger than 1 MB"},
		{"deep", strings.Repeat("[", maxDepth+1), "is nested more than 32 levels deep"},
		{"deep blocks", strings.Repeat("- ", maxDepth+1) + "x", "is nested more than 32 levels deep"},
		{"bomb", bomb.String(), "there is no such key"},
		{"bomb as rooms", bomb.String() + "rooms: *z\n", "is a list, not a group of keys"},
		{"wide", wide, "has more than 100000 values"},
		{"merge bomb", "rooms:\n  - &a {<<: *a}\n", "has a key that is not a word"},
		{"self", "&a [*a]", "is a list, not a group of keys"},
		{"byte order mark of UTF-16", "\xff\xfer\x00", "is not UTF-8 text"},
		{"nul", "rooms:\x00", "has the control character"},
		{"escape codes", "\x1b[31m", "has the control character"},
		{"directive", "%YAML 9.9\n---\na: 1", "is not valid YAML"},
	}
	for _, tt := range tests {
		c, err := Parse(tt.name, []byte(tt.file))
		if c != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %.300v, want %s", tt.name, err, tt.want)
		}
		if n := len(Faults(err)); n > maxFaults+1 {
			t.Errorf("%s: got %d faults, want %d at most", tt.name, n, maxFaults+1)
		}
	}
}

// A path whose part ends with a dot has two readings, and the other one does not belong to the room:
// every GET would be redirected out of the room, and an exclusion would exclude nothing.
func TestPathsThatEndWithADotAreRefused(t *testing.T) {
	for _, x := range []struct {
		more    string
		refused bool
	}{
		{"    path: /v1.\n", true}, {"    path: /v1./buy\n", true}, {"    path: /...\n", true},
		{"    path: '/*./buy'\n", true}, {"    path: /v1.2/.buy\n", false},
		{"    exclude: {paths: [/hook.]}\n", true}, {"    exclude: {paths: [/hook./]}\n", true},
		{"    exclude: {paths: ['/hook./*']}\n", true}, {"    exclude: {paths: ['/hook.*']}\n", false},
		{"    additional_routes: [{path: /v2.}]\n", true},
	} {
		_, err := Parse("f", []byte(room+x.more))
		if refused := err != nil && strings.Contains(err.Error(), "ends with a dot"); refused != x.refused ||
			err != nil && !x.refused {
			t.Errorf("%s: %v", x.more, err)
		}
	}
}

func TestManyFaultsAreCut(t *testing.T) {
	file := "rooms:\n" + strings.Repeat("  - 1\n", 60)
	_, err := Parse("f", []byte(file))
	faults := Faults(err)
	if len(faults) != maxFaults+1 {
		t.Fatalf("got %d faults, want %d", len(faults), maxFaults+1)
	}
	if got, want := faults[maxFaults].Error(), "f:52:5: and 10 more faults from here on"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFaultsAreTyped(t *testing.T) {
	_, err := Parse("f.yaml", []byte(room+"    session_duration: 5x\n    hold: 1\n"))
	first, ok := errors.AsType[*Fault](err)
	if !ok {
		t.Fatalf("got %T, want a *Fault in it", err)
	}
	want := &Fault{File: "f.yaml", Line: 6, Column: 23, Key: "rooms[0].session_duration",
		Problem: `"5x" is not a duration`, Hint: durationHint}
	if diff := cmp.Diff(want, first, cmp.AllowUnexported(Fault{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wrapped := fmt.Errorf("reload: %w", err)
	if n := len(Faults(wrapped)); n != 0 {
		t.Errorf("Faults of a foreign error: got %d, want 0", n)
	}
	if n := len(Faults(err)); n != 2 {
		t.Errorf("Faults: got %d, want 2", n)
	}
	if got := Faults(nil); got != nil {
		t.Errorf("Faults(nil): got %v", got)
	}
}

func TestLoadSaysWhyAFileCannotBeRead(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || len(Faults(err)) != 1 {
		t.Errorf("missing file: got %v, want one fault that is fs.ErrNotExist", err)
	}
	denied := unreadable("f", &fs.PathError{Op: "open", Path: "f", Err: fs.ErrPermission})
	if got, want := denied.Error(), "f: may not be read by this user"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A file that is too large must not be cut to a smaller valid one.
func TestLoadReadsPastTheLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	b := append([]byte(room), strings.Repeat("#", maxFile-len(room))+"\nnonsense"...)
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "larger than 1 MB") {
		t.Errorf("got %v, want a fault", err)
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	for _, origin := range []string{
		"http://user:hunter2@host", "http://user:hunter2@host:x", "user:hunter2@host",
		"ftp://user:hunter2@host", "http://user:hunter2@", "http://user:hunter2@h/?a#b",
		"//user:hunter2@host", "http://user:hunter2@host/%zz",
	} {
		file := strings.Replace(room, "http://127.0.0.1:3000", `"`+origin+`"`, 1)
		_, err := Parse("f", []byte(file))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v", origin, err)
		}
		for _, f := range Faults(err) {
			if strings.Contains(f.Hint, "hunter2") {
				t.Errorf("%s: got hint %s", origin, f.Hint)
			}
		}
	}
}

func TestLinesEndAsOnWindows(t *testing.T) {
	crlf := "\ufeff" + strings.ReplaceAll(room+"    hold: 5x\n", "\n", "\r\n")
	_, err := Parse("f", []byte(crlf))
	const want = `f:6:11: rooms[0].hold: "5x" is not a duration`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestParseRunHelpAndWarnings(t *testing.T) {
	var stderr strings.Builder
	for _, arg := range []string{"-h", "--help"} {
		if _, err := ParseRun([]string{"--listen", ":1", arg}, &stderr); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: got %v, want flag.ErrHelp", arg, err)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("help printed %q", stderr.String())
	}
	c, err := ParseRun(strings.Fields("--origin http://127.0.0.1:3000 --total-active-users 1 "+
		"--new-users-per-minute 2"), &stderr)
	if err != nil {
		t.Fatal(err)
	}
	const want = "headgate: warning: --new-users-per-minute: 2 is more than total_active_users (1), " +
		"which fills within a minute\nhint: a tenth of total_active_users up to all of it is usual\n"
	if diff := cmp.Diff(want, stderr.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(c.Warnings) != 1 {
		t.Errorf("got %d warnings, want 1", len(c.Warnings))
	}
}

func TestParseFlagsTellsAll(t *testing.T) {
	tests := []struct {
		args string
		want []string
	}{
		{"", nil},
		{"--json", nil},
		{"-json --config x", nil},
		{"--json=maybe", []string{`--json: "maybe" is neither true nor false`}},
		{"--jsno --confg x", []string{"--jsno: there is no such flag", "--confg: there is no such flag"}},
		{"--config", []string{"--config: has no value"}},
		{"-x --x -x=1 --x=1", []string{"-x: there is no such flag", "--x: there is no such flag",
			"-x: there is no such flag", "--x: there is no such flag"}},
		{"--config a -x --config -b -x", []string{"-x: there is no such flag",
			"--config: is given more than once", "-x: there is no such flag"}},
		{"-config a --config b", []string{"--config: is given more than once"}},
		{"--count x --count 0", []string{`--count: "x" cannot be read`}},
		{"--json -json=maybe", []string{`-json: "maybe" is neither true nor false`}},
		{"-config", []string{"-config: has no value"}},
		{"---", []string{"bad flag syntax: ---"}},
		{"=", []string{`unexpected argument "="`}},
		{"a --nope b -- --json", []string{`unexpected argument "a"`, "--nope: there is no such flag",
			`unexpected argument "--json"`}},
	}
	for _, tt := range tests {
		flags := flag.NewFlagSet("t", flag.ContinueOnError)
		flags.Bool("json", false, "")
		flags.Int("count", 0, "")
		flags.Var(&once{}, "config", "")
		var got []string
		for _, f := range Faults(ParseFlags(flags, strings.Fields(tt.args))) {
			got = append(got, f.Error())
			if f.Hint == "" || strings.Contains(f.Hint, "once") != strings.Contains(f.Problem, "once") {
				t.Errorf("%s: %v has the hint %q", tt.args, f, f.Hint)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args, diff)
		}
	}
}
