package figure

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/sim/report"
)

// source returns the random source of one figure. Figures do not influence each other.
func source(seed uint64, id string) *rand.Rand {
	var stream uint64
	for _, c := range []byte(id) {
		stream = stream*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, stream))
}

// line draws y over x from 0 to end in steps.
func line(name string, end, step float64, y func(x float64) float64) report.Series {
	s := report.Series{Name: name}
	for i := 0; float64(i)*step <= end+step/2; i++ {
		s.Add(float64(i)*step, y(float64(i)*step))
	}
	return s
}

// addRow adds a row of values to a table.
func addRow(t *report.Table, cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = cell(c)
	}
	t.Rows = append(t.Rows, row)
}

// cell formats a value for people: one decimal is enough for all tables here.
func cell(c any) string {
	switch c := c.(type) {
	case float64:
		return fmt.Sprintf("%.1f", c)
	case time.Duration:
		return fmt.Sprintf("%g s", c.Seconds())
	}
	return fmt.Sprint(c)
}
