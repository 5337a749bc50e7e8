package demo

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// at is a moment of the tests' day.
func at(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).
		Add(time.Duration(seconds * float64(time.Second)))
}

// visit is one request: a visitor, from when to when.
type visit struct {
	id       string
	from, to float64
	last     bool
}

// visits lets the visits happen in order of their beginnings; none overlaps the next
// of the same visitor.
func visits(s *stays, visits []visit) {
	for _, v := range visits {
		s.begin(v.id, at(v.from))
		s.end(v.id, at(v.to), v.last)
	}
}

func TestStays(t *testing.T) {
	tests := []struct {
		name   string
		visits []visit
		tight  reach
		fresh  reach
		over   int
	}{
		{"two of two", []visit{{"a", 0, 1, false}, {"b", 0.5, 1, false}}, reach{2, 2}, reach{2, 4}, 0},
		{"three of two", []visit{{"a", 0, 1, false}, {"b", 0.5, 2, false}, {"c", 0.9, 1, false}},
			reach{3, 2}, reach{3, 4}, 1},
		{"between two requests one is inside",
			[]visit{{"a", 0, 1, false}, {"b", 2, 3, false}, {"c", 3, 4, false}, {"a", 5, 6, false}},
			reach{3, 2}, reach{3, 4}, 1},
		{"a goodbye is an end",
			[]visit{{"a", 0, 1, true}, {"b", 2, 3, false}, {"c", 3, 4, false}, {"a", 5, 6, false}},
			reach{2, 2}, reach{4, 4}, 0},
		{"silence for a session is an end",
			[]visit{{"a", 0, 1, false}, {"b", 2, 3, false}, {"c", 3, 4, false}, {"a", 12, 13, false}},
			reach{2, 2}, reach{4, 4}, 0},
		{"five new in a minute", []visit{{"a", 0, 1, true}, {"b", 10, 11, true}, {"c", 20, 21, true},
			{"d", 30, 31, true}, {"e", 59.9, 60, true}}, reach{1, 2}, reach{5, 4}, 1},
		{"a minute apart is not the same minute", []visit{{"a", 0, 1, true}, {"b", 10, 11, true},
			{"c", 20, 21, true}, {"d", 30, 31, true}, {"e", 60, 61, true}}, reach{1, 2}, reach{4, 4}, 0},
	}
	for _, tt := range tests {
		s := newStays(at(0), 10*time.Second, 2, 4)
		visits(s, tt.visits)
		for range 3 { // judged again and again, and counted once
			s.tally(at(70))
		}
		if s.tight != tt.tight || s.fresh != tt.fresh || s.over != tt.over {
			t.Errorf("%s: inside %v, new %v, over %d; want %v, %v, %d", tt.name,
				s.tight, s.fresh, s.over, tt.tight, tt.fresh, tt.over)
		}
	}
}

// A limit that is lowered holds for those who come after, once what was on its way
// is there; one that is raised holds at once.
func TestStaysUnderALimitThatMoves(t *testing.T) {
	for _, tt := range []struct {
		name string
		when float64 // the limit goes from 2 to n
		n    int
		over int
	}{
		{"raised before", 1, 3, 0}, {"raised after", 5, 3, 1},
		{"lowered, and still one too many for the old", 2.5, 1, 1},
	} {
		s := newStays(at(-10), time.Minute, 2, 100)
		s.limitTo(tt.n, at(tt.when))
		visits(s, []visit{{"a", 0, 9, false}, {"b", 0.05, 9, false}, {"c", 3, 9, false}})
		s.tally(at(10))
		if s.over != tt.over {
			t.Errorf("%s: %d over, want %d", tt.name, s.over, tt.over)
		}
	}
	for came, over := range map[float64]int{1: 0, 2.05: 0, 2.2: 1, 5: 1} {
		s := newStays(at(-10), time.Minute, 2, 100)
		s.limitTo(1, at(0.1))
		visits(s, []visit{{"a", 0, 9, false}, {"b", came, 9, false}})
		s.tally(at(10))
		if s.over != over {
			t.Errorf("lowered at 0.1 s, one more at %v s: %d over, want %d", came, s.over, over)
		}
	}
}

// The arithmetic against the slow and obvious.
func TestStaysAgainstOracle(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		s := newStays(at(0), time.Hour, 3, 1000)
		var spans [][2]float64
		for i := range rng.IntN(25) {
			from := float64(rng.IntN(60))
			spans = append(spans, [2]float64{from, from + float64(rng.IntN(30))})
			s.log = append(s.log, &stay{id: fmt.Sprint(i), from: at(spans[i][0]), to: at(spans[i][1])})
		}
		most := 0
		for x := range 100 {
			n := 0
			for _, sp := range spans {
				if sp[0] <= float64(x) && float64(x) <= sp[1] {
					n++
				}
			}
			most = max(most, n)
		}
		s.tally(at(90))
		if s.tight.n != most {
			t.Fatalf("seed %d: %v: most inside %d, want %d", seed, spans, s.tight.n, most)
		}
	}
}

func TestStaysForgets(t *testing.T) {
	s := newStays(at(0), 20*time.Second, 100, 1000)
	for i := range 10_000 {
		now := float64(i)
		id := fmt.Sprint(i)
		s.begin(id, at(now))
		s.end(id, at(now+0.1), i%2 == 0)
		if i%100 == 0 {
			s.tally(at(now))
		}
	}
	if len(s.log) > 500 || len(s.open) > 500 {
		t.Errorf("%d stays and %d open ones are kept", len(s.log), len(s.open))
	}
	all, guests := s.here(at(10_000), func(id string) bool { return id == "9999" })
	if all != 10 || guests != 1 {
		t.Errorf("%d are here, %d of them guests; want 10 and 1", all, guests)
	}
}
