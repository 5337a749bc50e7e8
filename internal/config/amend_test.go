package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// running returns a valid room of a file, with additional keys.
func running(t *testing.T, more string) *Room {
	t.Helper()
	c, err := Parse("f", []byte(room+more))
	if err != nil {
		t.Fatal(err)
	}
	return &c.Rooms[0]
}

func TestAmendChangesWhatItIsGivenAndNothingElse(t *testing.T) {
	values := map[string]string{
		"total_active_users": "300", "new_users_per_minute": "60", "session_duration": "2m30s",
		"hard_end": "1h", "method": "random", "queue_all": "true", "closed": "true", "suspended": "true",
		"shadow": "true", "message": "Sold out.\nSorry!", "max_waiting": "5", "hold": "1d",
		"hold_phone": "2d",
	}
	if len(values) != len(amendable()) {
		t.Fatalf("the test knows %d keys, the code %d", len(values), len(amendable()))
	}
	base := running(t, "    hard_end: 6m\n")
	for key, text := range values {
		got, err := Amend(base, map[string]string{key: text})
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		if got.Text(key) != text {
			t.Errorf("%s: got %q, want %q", key, got.Text(key), text)
		}
		back, err := Amend(got, map[string]string{key: base.Text(key), "hold_phone": base.Text("hold_phone")})
		if err != nil || !reflect.DeepEqual(base, back) {
			t.Errorf("%s: changed and changed back: %+v %v", key, back, err)
		}
	}
	all, err := Amend(base, values)
	if err != nil || all.TotalActiveUsers != 300 || all.HoldPhone != 48*time.Hour {
		t.Errorf("all at once: %+v %v", all, err)
	}
}

func TestAmendRefusesWhatTheFileWouldRefuse(t *testing.T) {
	base := running(t, "    hard_end: 6m\n    events:\n      - {name: fair, session_duration: 5m30s, "+
		"start: 2026-12-01T10:00:00Z, end: 2026-12-01T12:00:00Z}\n")
	tests := []struct{ key, text, want, hint string }{
		{"total_activ_users", "1", "total_activ_users: there is no such key",
			"did you mean total_active_users?"},
		{"total_active_users", "0", "total_active_users: 0 is too small", "write a whole number from 1"},
		{"total_active_users", "3e2", `"3e2" is not a whole number`, "write a whole number"},
		{"total_active_users", "", `"" is not a whole number`, "write a whole number"},
		{"queue_all", "on", `queue_all: "on" is neither true nor false`, "write true or false"},
		{"session_duration", "300", `"300" has no unit`, "write a number and a unit"},
		{"session_duration", "7m", "session_duration: 7m is too long beside hard_end (6m)", "raise hard_end"},
		{"hard_end", "1m", "hard_end: 1m is shorter than session_duration (5m)", "raise hard_end"},
		{"hard_end", "5m15s", `hard_end: 5m15s is shorter than the session of the event "fair" (5m30s)`,
			"raise it, or shorten"},
		{"hold", "2s", "hold: 2s is not longer than poll_max (30s)", "raise hold"},
		{"message", "\x1b[31m", "contains the control character", "write plain text"},
		{"message", "\xff", "is not UTF-8 text", "write UTF-8"},
		{"origin", "http://127.0.0.1:1", "origin: cannot be changed while headgate runs",
			"change the file and reload"},
		{"name", "x", "name: cannot be changed", "change the file and reload"},
		{"exclude", "x", "exclude: cannot be changed", "change the file and reload"},
		{"listen", ":1", "listen: there is no such key", "listen belongs at the left margin"},
		{"", "1", `"": there is no such key`, "the keys here are total_active_users, "},
		{"a\x1bb", "1", `"a\x1bb": there is no such key`, "the keys here are"},
	}
	for _, tt := range tests {
		got, err := Amend(base, map[string]string{tt.key: tt.text, "shadow": "true"})
		faults := Faults(err)
		if got != nil || len(faults) != 1 {
			t.Errorf("%s=%s: got %v and %d faults, want one: %v", tt.key, tt.text, got, len(faults), err)
			continue
		}
		f := faults[0]
		if !strings.Contains(f.Error(), tt.want) || !strings.Contains(f.Hint, tt.hint) ||
			f.File != "" || f.Line != 0 {
			t.Errorf("%s=%s: got %v, hint %s", tt.key, tt.text, f, f.Hint)
		}
	}
	if base.Shadow {
		t.Error("the room itself was changed")
	}
	_, err := Amend(base, map[string]string{"hold": "x", "hodl": "1m", "queue_all": "1", "path": "/"})
	if got := len(Faults(err)); got != 4 {
		t.Errorf("got %d faults of four: %v", got, err)
	}
}

// FuzzAmend compares Amend with the parser of the file.
func FuzzAmend(f *testing.F) {
	for _, key := range amendable() {
		f.Add(key, "5m", "hold", "1h")
		f.Add(key, "true", "total_active_users", "-1")
	}
	c, err := Parse("f", []byte(room+"    hard_end: 6m\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		got, err := Amend(&c.Rooms[0], map[string]string{k1: v1, k2: v2})
		if (got == nil) == (err == nil) {
			t.Fatalf("got room %v and error %v, want one of them", got, err)
		}
		for _, x := range Faults(err) {
			if x.Problem == "" || x.Hint == "" || strings.Contains(x.Error(), "\n") {
				t.Errorf("poor fault %#v", x)
			}
		}
		if got == nil {
			return
		}
		for _, broken := range brokenRoom(got) {
			t.Error(broken)
		}
		for _, key := range []string{k1, k2} { // Amend parses what Text returns
			if same, err := Amend(got, map[string]string{key: got.Text(key)}); err != nil ||
				same.Text(key) != got.Text(key) {
				t.Errorf("%s: %q is not read back: %v", key, got.Text(key), err)
			}
		}
	})
}

func TestFingerprintIsOfWhatTheFileSays(t *testing.T) {
	print := func(more string) string {
		s, err := running(t, more).Fingerprint()
		if err != nil || len(s) != 64 {
			t.Fatalf("%q %v", s, err)
		}
		return s
	}
	same := print("")
	for _, more := range []string{"    title: shop\n", "    hold: 5m\n", "    # a comment\n",
		"    closed: false\n", "    hold: 300s\n"} {
		if print(more) != same {
			t.Errorf("%q says nothing new, and changed the fingerprint", more)
		}
	}
	seen := map[string]string{same: ""}
	for _, more := range []string{"    title: Shop\n", "    hold: 6m\n", "    closed: true\n",
		"    exclude: {cidrs: [10.0.0.0/8]}\n", "    exclude: {cidrs: [10.0.0.0/9]}\n",
		"    exclude: {defaults: false}\n", "    opens_at: 2026-12-01T10:00:00Z\n",
		"    join_limit: {amount: 5}\n", "    path: /x\n"} {
		if was, twice := seen[print(more)]; twice {
			t.Errorf("%q has the fingerprint of %q", more, was)
		}
		seen[print(more)] = more
	}
}

func TestAgainReadsTheFileWithTheSameFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("listen: :1\n" + room)
	c, err := ParseRun([]string{"--config", file, "--listen", ":2"}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	write("listen: :3\ndata: elsewhere\n" + room + "    title: New\n")
	for range 2 { // the result can be read again too
		if c, err = c.Again(); err != nil {
			t.Fatal(err)
		}
		if c.Listen != ":2" || c.Data != "elsewhere" || c.Rooms[0].Title != "New" {
			t.Errorf("got %+v", c)
		}
	}
	write("rooms: []")
	if _, err := c.Again(); len(Faults(err)) != 1 {
		t.Errorf("got %v, want one fault", err)
	}
	c, err = ParseRun(strings.Fields("--origin http://127.0.0.1:3000 --total-active-users 2 "+
		"--new-users-per-minute 2"), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Again(); !errors.Is(err, ErrNoFile) {
		t.Errorf("from flags: got %v, want ErrNoFile", err)
	}
}

func TestParseDurationIsThatOfTheFile(t *testing.T) {
	if d, err := ParseDuration("90d"); d != 90*24*time.Hour || err != nil {
		t.Errorf("got %v %v", d, err)
	}
	_, err := ParseDuration("90")
	if f := Faults(err); len(f) != 1 || f[0].Hint != durationHint {
		t.Errorf("got %v, want a fault with a hint", err)
	}
}

// A running room can be frozen and go on, within the bounds of its file, and back to a number.
func TestAmendOfALimitThatIsFound(t *testing.T) {
	const found = "rooms:\n  - name: shop\n    origin: http://127.0.0.1:3000\n" +
		"    total_active_users: {auto: true, min: 50, max: 500, start: 70}\n" +
		"    new_users_per_minute: {auto: true, max: 300}\n"
	c, err := Parse("f", []byte(found))
	if err != nil {
		t.Fatal(err)
	}
	base := &c.Rooms[0]
	for _, x := range []struct {
		text, mode string
		active     int64
	}{{"frozen", AutoFrozen, 70}, {"shadow", AutoShadow, 70}, {"200", "", 200}, {"auto", AutoOn, 70}} {
		got, err := Amend(base, map[string]string{"total_active_users": x.text})
		if err != nil || got.Auto.Mode != x.mode || got.TotalActiveUsers != x.active || got.Auto.Max != 500 ||
			got.Text("total_active_users") != x.text || got.Text("new_users_per_minute") != "auto" {
			t.Errorf("%s: %+v, %v", x.text, got, err)
		}
	}
	got, err := Amend(base, map[string]string{"new_users_per_minute": "100"})
	if err != nil || got.Auto.New || got.NewUsersPerMinute != 100 || got.Auto.Mode != AutoOn {
		t.Errorf("%+v, %v", got, err)
	}
	for _, key := range []string{"total_active_users", "new_users_per_minute"} {
		if _, err := Amend(running(t, ""), map[string]string{key: "auto"}); err == nil ||
			!strings.Contains(err.Error(), "in the file") {
			t.Errorf("%s without bounds: %v", key, err)
		}
	}
	print, err := base.Fingerprint()
	other, err2 := got.Fingerprint()
	if err != nil || err2 != nil || print == other {
		t.Error("the fingerprint does not cover how limits are found")
	}
}
