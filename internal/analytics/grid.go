package analytics

import "github.com/headgate/headgate/internal/histogram"

// A cell holds the values of one step of a series.
type cell struct {
	known   bool
	values  [mostColumns]int64
	tallies [mostTallies]*[histogram.Buckets]int64
}

// A grid is a period in equal steps. It ignores values outside.
type grid struct {
	from, step int64 // Unix seconds
	kind       Kind
	columns    []column
	tallies    int
	cells      []cell
}

func newGrid(kind Kind, from, to, step int64) *grid {
	g := &grid{from: from, step: step, cells: make([]cell, max(0, (to-from+step-1)/step))}
	g.reset(kind)
	return g
}

// reset empties the grid and sets its kind.
func (g *grid) reset(kind Kind) {
	g.kind = kind
	g.columns, g.tallies = kind.columns()
	for i := range g.cells {
		c := &g.cells[i]
		c.clear()
	}
}

// clear empties the cell, and keeps the memory of its histograms.
func (c *cell) clear() {
	c.known, c.values = false, [mostColumns]int64{}
	for _, t := range c.tallies {
		if t != nil {
			*t = [histogram.Buckets]int64{}
		}
	}
}

// at returns the cell of a time, or nil outside.
func (g *grid) at(at int64) *cell {
	if i := (at - g.from) / g.step; at >= g.from && i < int64(len(g.cells)) {
		return &g.cells[i]
	}
	return nil
}

// put adds a value to a column of a cell.
func (g *grid) put(c *cell, col int, v int64) {
	if g.columns[col] == highest {
		c.values[col] = max(c.values[col], v)
		return
	}
	c.values[col] += v
}

func (c *cell) tally(i int) *[histogram.Buckets]int64 {
	if c.tallies[i] == nil {
		c.tallies[i] = &[histogram.Buckets]int64{}
	}
	return c.tallies[i]
}

// add adds a row to its cell.
func (g *grid) add(r *Row) {
	c := g.at(r.At)
	if c == nil {
		return
	}
	c.known = true
	for i, v := range r.Values {
		g.put(c, i, v)
	}
	for i, all := range r.Tallies {
		if len(all) > 0 {
			t := c.tally(i)
			for _, b := range all {
				t[b.At] += b.N
			}
		}
	}
}

// rows returns the steps that have values.
func (g *grid) rows() (all []Row) {
	for i := range g.cells {
		c := &g.cells[i]
		if !c.known {
			continue
		}
		r := Row{At: g.from + int64(i)*g.step, Values: append([]int64(nil), c.values[:len(g.columns)]...),
			Tallies: make([][]Bucket, g.tallies)}
		for i := range r.Tallies {
			r.Tallies[i] = sparse(c.tallies[i])
		}
		all = append(all, r)
	}
	return all
}

func sparse(t *[histogram.Buckets]int64) (all []Bucket) {
	if t == nil {
		return nil
	}
	for i, n := range t {
		if n > 0 {
			all = append(all, Bucket{uint8(i), n})
		}
	}
	return all
}

// gather merges the histograms of each five steps into the first known one of them.
func (g *grid) gather() {
	for i := 0; i < len(g.cells); i += gathered {
		var first *cell
		for j := i; j < min(i+gathered, len(g.cells)); j++ {
			c := &g.cells[j]
			switch {
			case !c.known:
			case first == nil:
				first = c
			default:
				first.takeTallies(c)
			}
		}
	}
}

// gathered is how many minutes a histogram of a finished day covers. Chosen: histograms are most of
// its bytes.
const gathered = 5

func (c *cell) takeTallies(from *cell) {
	for i, t := range from.tallies {
		if t == nil {
			continue
		}
		to := c.tally(i)
		for b, n := range t {
			to[b] += n
		}
		*t = [histogram.Buckets]int64{}
	}
}
