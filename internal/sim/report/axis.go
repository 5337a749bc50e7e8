package report

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// An axis maps values to places, with ticks at round numbers.
type axis struct {
	low, high float64 // values
	from, to  float64 // positions
	step      float64 // between ticks
	unit      float64 // value of one shown unit: 60 shows seconds as minutes
}

// newAxis returns an axis that covers all values, with about n ticks.
func newAxis(low, high float64, n int) axis {
	if high <= low {
		high = low + 1
	}
	step := round(1, (high-low)/float64(n))
	return axis{low: math.Floor(low/step) * step, high: math.Ceil(high/step-1e-9) * step, step: step, unit: 1}
}

// timeAxis returns an axis of seconds in a suitable unit, and the name of the unit. Ticks are at
// round clock times.
func timeAxis(length time.Duration, n int) (axis, string) {
	s := length.Seconds()
	sixty, day := []float64{1, 2, 5, 10, 15, 30}, []float64{1, 2, 3, 6, 12, 24}
	type unit struct {
		most, size float64
		name       string
		steps      []float64
	}
	units := []unit{
		{3 * 60, 1, "seconds", sixty}, {3 * 3600, 60, "minutes", sixty}, {4 * 86400, 3600, "hours", day},
		{math.Inf(1), 86400, "days", nil},
	}
	u := units[slices.IndexFunc(units, func(u unit) bool { return s <= u.most })]
	a := axis{high: max(s, 1), step: round(u.size, s/float64(n)), unit: u.size}
	for _, step := range slices.Backward(u.steps) {
		if step*u.size*float64(n) >= s {
			a.step = step * u.size
		}
	}
	return a, u.name
}

// round returns the smallest number of the form 1, 2 or 5 times a power of ten, in a unit, that is
// not less than x.
func round(unit, x float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(x/unit)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= x/unit*(1-1e-9) {
			return m * p * unit
		}
	}
	return 10 * p * unit
}

// place returns the position of a value.
func (a *axis) place(x float64) float64 {
	return a.from + (x-a.low)/(a.high-a.low)*(a.to-a.from)
}

// ticks returns the values with ticks.
func (a *axis) ticks() []float64 {
	var all []float64
	for i := int64(math.Ceil(a.low/a.step - 1e-9)); float64(i) <= a.high/a.step+1e-9; i++ {
		all = append(all, float64(i)*a.step)
	}
	return all
}

// label formats a tick.
func (a *axis) label(x float64) string {
	x /= a.unit
	if math.Abs(x) >= 1000 {
		return whole(int64(math.Round(x)))
	}
	digits := max(0, int(math.Ceil(-math.Log10(a.step/a.unit)-1e-9)))
	return strconv.FormatFloat(x, 'f', digits, 64)
}
