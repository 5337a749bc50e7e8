package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// worldScenes has one scene for each thing there is to see of data centers. base is a
// scene of a room that is full.
func worldScenes(base func(func(*scene)) *scene) map[string]*scene {
	world := func(change func(s *scene, sjc, lhr, del *cityScene)) *scene {
		return base(func(s *scene) {
			s.Open, s.Limits = true, WorldLimits()
			s.Shop.Tight, s.Shop.Fresh = reach{60, 60}, reach{412, 900}
			s.World = &worldScene{Home: "sjc"}
			for _, p := range places() {
				s.World.Cities = append(s.World.Cities, cityScene{place: p, Up: true, Age: 0.8})
			}
			all := s.World.Cities
			all[0].Active, all[0].Held, all[0].Unused = 7, 9, 2
			all[1].Active, all[1].Waiting, all[1].Held = 41, 14, 42
			all[2].Active, all[2].Held = 8, 8
			change(s, &all[0], &all[1], &all[2])
		})
	}
	cut := func(s *scene, _, lhr, _ *cityScene) { lhr.Off, lhr.Age = 5*time.Second, 5.2 }
	narrow := func(change func(s *scene, sjc, lhr, del *cityScene)) *scene {
		s := world(change)
		s.Width = 60
		return s
	}
	return map[string]*scene{
		"world wakes up": world(func(s *scene, sjc, lhr, del *cityScene) {
			s.Open, s.Seen, s.Shop = false, finding{Expected: -1}, report{}
			for i := range s.World.Cities {
				s.World.Cities[i] = cityScene{place: s.World.Cities[i].place, Age: -1}
			}
			del.Up = true
		}),
		"world full": world(func(*scene, *cityScene, *cityScene, *cityScene) {}),
		"world follows the sun": world(func(_ *scene, _, lhr, del *cityScene) {
			lhr.Flow, del.Flow, lhr.Active, lhr.Held = 11, -6, 20, 25
		}),
		"world gives back": world(func(_ *scene, _, lhr, _ *cityScene) { lhr.Flow, lhr.Waiting = -4, 0 }),
		"world is calm":    world(func(_ *scene, _, lhr, _ *cityScene) { lhr.Waiting, lhr.Unused = 0, 12 }),
		"world begins": world(func(s *scene, sjc, lhr, del *cityScene) {
			for i := range s.World.Cities {
				s.World.Cities[i] = cityScene{place: s.World.Cities[i].place, Up: true, Age: 0.1}
			}
		}),
		"world just cut": world(func(_ *scene, _, lhr, _ *cityScene) { lhr.Off = time.Second }),
		"world cut off":  world(cut),
		"world home cut off": world(func(_ *scene, sjc, lhr, del *cityScene) {
			sjc.Off, lhr.Age, del.Age = 9*time.Second, 9.1, 9.3
		}),
		"world mends": world(func(_ *scene, _, lhr, _ *cityScene) { lhr.Mended, lhr.Age = time.Second, 13 }),
		"world mended": world(func(_ *scene, _, lhr, _ *cityScene) {
			lhr.Mended, lhr.Flow = 2*time.Second, 9
		}),
		"world has moved": world(func(s *scene, _, _, del *cityScene) { s.World.Home, del.Flow = "lhr", 5 }),
		"world broken": world(func(s *scene, _, _, _ *cityScene) {
			s.Shop.Tight, s.Shop.Over = reach{63, 60}, 3
			s.Seen.First = "London: visitor 31 had ticket 11 and was given ticket 1"
		}),
		"world narrow":         narrow(func(*scene, *cityScene, *cityScene, *cityScene) {}),
		"world narrow cut off": narrow(cut),
		"world narrow broken": narrow(func(s *scene, _, _, _ *cityScene) {
			s.Shop.Over, s.Seen.Lost = 3, 1
		}),
	}
}

// TestWorldLines: a log says what happened, and how all cities fare.
func TestWorldLines(t *testing.T) {
	all, begun := scenes(), time.Now()
	s := all["world cut off"]
	s.News = []news{{begun.Add(63 * time.Second), "London is cut off, with 42 slots"}}
	const want = " 63 s  London is cut off, with 42 slots\n" +
		" 67 s  San Jose 7 in, 0 wait, 9 held  London 41 in, 14 wait, 42 held, cut off  " +
		"Delhi 8 in, 0 wait, 8 held  most in 60 of 60  over 0  overtaken 0  lost 0\n"
	if diff := cmp.Diff(want, s.line(begun)); diff != "" {
		t.Error(diff)
	}
	const cold = " 67 s  Three data centers wake up and find each other …\n"
	if diff := cmp.Diff(cold, all["world wakes up"].line(begun)); diff != "" {
		t.Error(diff)
	}
}

// TestTriangleIsNarrow: at 40 columns nothing that counts is cut off.
func TestTriangleIsNarrow(t *testing.T) {
	for name, s := range scenes() {
		if s.World == nil {
			continue
		}
		s.Width = 40
		for line := range strings.Lines(text(draw(s))) {
			line = strings.TrimRight(line, "\n")
			said := s.Seen.First != "" && strings.Contains(line, s.Seen.First)
			if n := len([]rune(line)); n > 40 && !said {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

// TestBars: a part that is some is seen, and a bar is never longer than it may be.
func TestBars(t *testing.T) {
	for _, tt := range []struct {
		used, unused int
		want         string
	}{
		{0, 0, "··········"}, {1, 0, "■·········"}, {60, 0, "■■■■■■■■■■"}, {30, 30, "■■■■■□□□□□"},
		{59, 1, "■■■■■■■■■■"}, {63, 9, "■■■■■■■■■■"}, {30, 6, "■■■■■□····"},
	} {
		c := &canvas{}
		c.bar(0, 0, 60, 10, part{tt.used, good, "■"}, part{tt.unused, you, "□"})
		if got := c.line(0, columns, false); got != tt.want {
			t.Errorf("%d used, %d unused: %s, want %s", tt.used, tt.unused, got, tt.want)
		}
	}
}

// TestFlowsMove: marks go from Anywhere to who gets slots, and back from who gives them.
func TestFlowsMove(t *testing.T) {
	at := func(flow, tick int) string {
		s := scenes()["world full"]
		s.World.Cities[2].Flow, s.Tick = flow, tick
		return text(draw(s))
	}
	if still := at(0, 3); strings.ContainsAny(still, "»«") {
		t.Errorf("something moves though nothing flows:\n%s", still)
	}
	if s := at(5, 3); !strings.Contains(s, "»") || strings.Contains(s, "«") || s == at(5, 4) {
		t.Errorf("slots to Delhi do not go east:\n%s", s)
	}
	if s := at(-5, 3); !strings.Contains(s, "«") || strings.Contains(s, "»") {
		t.Errorf("slots of Delhi do not go west:\n%s", s)
	}
}

func TestWrapped(t *testing.T) {
	got := wrapped("London is cut off: it goes on", 12)
	if want := []string{"London is", "cut off: it", "goes on"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
