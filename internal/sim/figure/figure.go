package figure

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A Figure is one picture: lines over common axes, a table, or both.
type Figure struct {
	ID             string // lower case and hyphens, unique and stable
	Title          string
	Source         string // the document it is based on
	XLabel, YLabel string // with the unit; empty without lines
	Note           string // what to look for
	Series         []Series
	Table          *Table // nil: none
	Step           bool   // a value is constant until the next one
}

// A Series is one line: Y[i] over X[i], sorted by X.
type Series struct {
	Name   string
	X, Y   []float64
	Dashed bool
	Grey   bool // the reference for the others
}

// A Table has as many cells in each row as it has columns.
type Table struct {
	Columns []string
	Rows    [][]string
}

// All returns every figure, from one seed: Cloudflare's, Criteo's, Azure's.
func All(seed uint64) []Figure {
	figures := []Figure{slotsPerWorker(), curves(), latencies(seed)}
	figures = append(figures, limits(seed)...)
	return append(figures, retries(), smoothing(), granted(seed), partitioned(seed))
}

// source returns the random source of one figure. Figures do not influence each other.
func source(seed uint64, id string) *rand.Rand {
	var stream uint64
	for _, c := range []byte(id) {
		stream = stream*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(seed, stream))
}

// line draws y over x from 0 to end in steps.
func line(name string, end, step float64, y func(x float64) float64) Series {
	s := Series{Name: name}
	for i := 0; float64(i)*step <= end+step/2; i++ {
		s.add(float64(i)*step, y(float64(i)*step))
	}
	return s
}

func (s *Series) add(x, y float64) {
	s.X, s.Y = append(s.X, x), append(s.Y, y)
}

func (t *Table) add(cells ...any) {
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
