package demo

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.txt anew")

// scenes has one scene for each thing there is to see.
func scenes() map[string]*scene {
	limits := Limits{AtOnce: 20, PerMinute: 180, Session: 20 * time.Second}
	base := func(change func(*scene)) *scene {
		s := &scene{
			URL: "http://127.0.0.1:8080/", Since: 67 * time.Second, Limits: limits, Up: true,
			State: state{Active: 18, AtOnce: 20}, Keys: true, Tick: 3,
			Shop: report{Tight: reach{20, 20}, Fresh: reach{112, 180}, Count: 131, LastMinute: 112,
				Let: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 4}},
			Seen: finding{Waiting: 97, Expected: 61 * time.Second, Tickets: 204},
		}
		change(s)
		return s
	}
	all := clusterScenes(base)
	maps.Copy(all, worldScenes(base))
	maps.Copy(all, map[string]*scene{
		"start": base(func(s *scene) {
			s.State, s.Shop, s.Since = state{AtOnce: 20}, report{Let: make([]int, 10)}, time.Second
			s.Seen = finding{Expected: -1}
		}),
		"waiting": base(func(*scene) {}),
		"guests": base(func(s *scene) {
			s.People = []guest{{Position: 3, Expected: 2 * time.Second}, {Position: 61, Expected: -1}}
			s.Shop.Guests = 1
		}),
		"down": base(func(s *scene) {
			s.Up = false
			s.Seen.Kills = []kill{{waiting: 97, age: 300 * time.Millisecond}}
		}),
		"back": base(func(s *scene) {
			s.Seen.Kills = []kill{{}, {waiting: 97, again: 60, down: 41 * time.Millisecond,
				age: 2 * time.Second}}
		}),
		"held": base(func(s *scene) { s.State.QueueAll = true }),
		"broken": base(func(s *scene) {
			s.Shop.Tight, s.Shop.Over = reach{23, 20}, 3
			s.Seen.Overtaken, s.Seen.Lost, s.Seen.SentBack = 4, 90, 17
			s.Seen.Kills = []kill{{waiting: 97, lost: 90, down: 9 * time.Millisecond,
				age: 75 * time.Second}}
			s.Seen.First = "visitor 31 had ticket 11 and was given ticket 1"
			s.Note = "PATCH /v1/rooms/pond: 404 Not Found"
		}),
		"many slots": base(func(s *scene) { s.State.AtOnce, s.State.Active = 100, 51 }),
	})
	return all
}

// text returns a whole picture.
func text(c *canvas) string {
	var b strings.Builder
	for y := range rows {
		b.WriteString(c.line(y, columns, false) + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// TestPictures keeps each picture as a file to look at. -rewrite accepts a change.
func TestPictures(t *testing.T) {
	all := scenes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		got := text(draw(all[name]))
		file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "_")+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; run go test -rewrite", err)
		}
		said, _ := all[name].truth()
		if all[name].World != nil {
			said, _ = all[name].worldWords()
		}
		if utf8.RuneCountInString(said) > columns-2 {
			t.Errorf("%s: too long: %s", name, said)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs, look at it and run go test -rewrite:\n%s", file, diff)
		}
	}
}

// TestFrames: whatever the size of the terminal, a frame stays within it, is one
// write from the corner on, and has colors only where they are wanted.
func TestFrames(t *testing.T) {
	escapes := regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)
	color := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	for name, s := range scenes() {
		for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 10}, {1, 1}} {
			plain := draw(s).frame(size[0], size[1], false)
			if m := color.FindString(plain); m != "" {
				t.Errorf("%s: %q though no color is wanted", name, m)
			}
			if !color.MatchString(draw(s).frame(80, 24, true)) {
				t.Errorf("%s: no color", name)
			}
			if !strings.HasPrefix(plain, "\x1b[H") || strings.Contains(plain, "\x1b[2J") {
				t.Errorf("%s: it clears the screen, which flickers", name)
			}
			lines := strings.Split(escapes.ReplaceAllString(plain, ""), "\r\n")
			if len(lines) > size[1] {
				t.Errorf("%s: %d lines on a terminal of %d", name, len(lines), size[1])
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l); n > size[0] {
					t.Errorf("%s: %d columns on a terminal of %d: %s", name, n, size[0], l)
				}
			}
		}
	}
}

func TestWords(t *testing.T) {
	for n, want := range map[int64]string{1: "next", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th",
		12: "12th", 13: "13th", 21: "21st", 22: "22nd", 111: "111th", 103: "103rd"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 s", 59400 * time.Millisecond: "59 s",
		time.Minute: "1:00 min", 125 * time.Second: "2:05 min"} {
		if got := short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	if got := spark([]int{0, 4, 8}); got != " ▄█" {
		t.Errorf("spark: %q", got)
	}
}
