package figure

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/sim/report"
)

// clock is the time of a day: 07:10:23 is clock(7, 10, 23).
func clock(h, m, s int) time.Duration {
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second
}

func add(e estimator, n int, at time.Duration) {
	for range n {
		e.add(at)
	}
}

// At 07:10:23 the last minute is 07:09:23–07:10:23, the fixed window 07:10:00 on.
func TestCriteo_TheLastMinuteAt071023(t *testing.T) {
	perfect, plain := &calls{}, fixed()
	for _, e := range []estimator{perfect, plain} {
		add(e, 1, clock(7, 9, 23)) // a minute ago to the nanosecond: no longer
		add(e, 2, clock(7, 9, 23)+1)
		add(e, 4, clock(7, 9, 59))
		add(e, 8, clock(7, 10, 0))
		add(e, 16, clock(7, 10, 23))
	}
	if n := perfect.rate(clock(7, 10, 23)); n != 2+4+8+16 {
		t.Errorf("the last minute had %v calls", n)
	}
	if n := plain.rate(clock(7, 10, 23)); n != 8+16 {
		t.Errorf("the fixed window had %v calls", n)
	}
}

// At 00:01:43 the rate is count(00:01) + 17/60 × count(00:00).
func TestCriteo_TwoCountersAt000143(t *testing.T) {
	e := sliding(1)
	add(e, 30, clock(0, 0, 10))
	add(e, 30, clock(0, 0, 55))
	add(e, 25, clock(0, 1, 20))
	if got, want := e.rate(clock(0, 1, 43)), 25+17.0/60*60; math.Abs(got-want) > 1e-9 {
		t.Errorf("%v, not %v", got, want)
	}
	if got := e.rate(clock(0, 3, 0)); got != 0 {
		t.Errorf("%v after an empty minute", got)
	}
}

// The estimate is too high when the last minute's calls came early in it, and too
// low when they came late.
func TestCriteo_BiasHasBothSigns(t *testing.T) {
	for _, c := range []struct {
		from        time.Duration
		at          int     // the second of the greatest error
		sign, worst float64 // 50 of 60 parts of 100 calls
	}{{early, 10, +1, 500.0 / 6}, {late, 50, -1, 500.0 / 6}} {
		truth := second("", &calls{}, clustered(c.from))
		guess := second("", sliding(1), clustered(c.from))
		for i := range truth.Y {
			off := c.sign * (guess.Y[i] - truth.Y[i])
			if off < 0 || off > c.worst+1e-9 || i == c.at && off < c.worst-1e-9 {
				t.Errorf("calls from %v: %+.1f at second %d", c.from, c.sign*off, i)
			}
		}
	}
	f := bias()
	first, last, guess := f.Series[0], f.Series[1], f.Series[2]
	for i := range guess.Y {
		if guess.Y[i] < first.Y[i] || guess.Y[i] > last.Y[i] {
			t.Errorf("at second %d the estimate is not between the truths", i)
		}
	}
}

func TestCriteo_TokensFigure(t *testing.T) {
	y := tokens().Series[0].Y
	for x, want := range map[int]float64{9: 100, 10: 0, 25: 25, 39: 48, // of 29/60·100
		40:  0,
		100: 100, 149: 100, 150: 98} {
		if math.Abs(y[x]-want) > 1e-9 {
			t.Errorf("%v tokens at %d s, not %v", y[x], x, want)
		}
	}
}

// slow is what a windows should answer, from all calls.
func slow(w *windows, times []time.Duration, at time.Duration) float64 {
	begin := at / w.size * w.size
	sum := 0.0
	for _, call := range times {
		switch first := begin - minute + w.size; {
		case call >= first && call <= at:
			sum++
		case w.part && call >= first-w.size && call < first:
			sum += 1 - float64(at-begin)/float64(w.size)
		}
	}
	return sum
}

func TestWindowsAgainstTheSlowWay(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		for name, w := range map[string]*windows{"fixed": fixed(), "1": sliding(1), "3": sliding(3),
			"12": sliding(12), "60": sliding(60)} {
			var times []time.Duration
			for at := time.Duration(0); len(times) < 300; {
				at += time.Duration(r.ExpFloat64() * float64(time.Second))
				if r.IntN(50) == 0 {
					at += time.Duration(r.IntN(200)) * time.Second // idle for a while
				}
				if r.IntN(20) == 0 {
					at = (at + w.size - 1) / w.size * w.size // the edge of a window
				}
				w.add(at)
				times = append(times, at)
				if got, want := w.rate(at), slow(w, times, at); math.Abs(got-want) > 1e-6 {
					t.Fatalf("seed %d, %s, call %d: %v, not %v", seed, name, len(times), got, want)
				}
			}
		}
	}
}

// number reads a cell of the row of an algorithm.
func number(t *testing.T, f report.Figure, algorithm, column string) float64 {
	t.Helper()
	for _, row := range f.Table.Rows {
		for i, c := range f.Table.Columns {
			if row[0] == algorithm && c == column {
				v, err := strconv.ParseFloat(row[i], 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
	}
	t.Fatalf("no %s of %s", column, algorithm)
	return 0
}

// On any stream: finer windows err less, in the mean and at worst, and cost more.
func TestCriteo_SmallerWindowsComeCloser(t *testing.T) {
	order := []string{"fixed window", "two counters", "5 s sub-windows", "1 s sub-windows",
		"time of every call"}
	for seed := range uint64(5) {
		f := find(t, seed, "criteo-errors")
		for i, name := range order[1:] {
			for _, c := range []string{"mean error", "worst error"} {
				if a, b := number(t, f, order[i], c), number(t, f, name, c); a <= b {
					t.Errorf("seed %d: %s of %s %v, of %s %v", seed, c, order[i], a, name, b)
				}
			}
		}
		for _, c := range []string{"mean error", "worst error"} {
			if got := number(t, f, "time of every call", c); got != 0 {
				t.Errorf("seed %d: %s of the perfect window %v", seed, c, got)
			}
		}
		for name, read := range map[string]float64{"fixed window": 1, "two counters": 2,
			"5 s sub-windows": 13, "1 s sub-windows": 61} {
			got := []float64{number(t, f, name, "numbers read a call"),
				number(t, f, name, "written a call"), number(t, f, name, "bytes")}
			if want := []float64{read, 1, 8 * read}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: reads, writes and bytes are %v, not %v", name, got, want)
			}
		}
	}
}

// The stream crosses the limit in both directions, in the drawn part too.
func TestStreamCrossesTheLimit(t *testing.T) {
	for seed := range uint64(10) {
		over, under := 0, 0
		perfect := way{"", func() estimator { return &calls{} }}
		for i, y := range perfect.trace(stream(source(seed, "criteo"), measured)).Y {
			if i >= 60 && y > perMinute {
				over++
			} else if i >= 60 {
				under++
			}
		}
		if over < 30 || under < 30 {
			t.Errorf("seed %d: %d s over the limit, %d s under", seed, over, under)
		}
	}
}

// In the first minute the fixed window is right; then it forgets every minute.
func TestCriteo_FixedWindowForgetsEveryMinute(t *testing.T) {
	f := find(t, 1, "criteo-fixed")
	perfect, plain := f.Series[0], f.Series[1]
	for i, y := range plain.Y {
		switch {
		case i < 60 && y != perfect.Y[i]:
			t.Errorf("at %d s %v, not %v", i, y, perfect.Y[i])
		case i > 0 && i%60 == 0 && y > 2:
			t.Errorf("at %d s %v are not forgotten", i, y)
		case y > perfect.Y[i]:
			t.Errorf("at %d s more than the truth", i)
		}
	}
	if !perfect.Grey || perfect.Dashed || plain.Grey || !plain.Dashed {
		t.Error("the perfect window is grey, the other dashed")
	}
}
