//go:build soak

package kills

import (
	"flag"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

var soakFor = flag.Duration("soak-for", defaultSoak, "how long TestSoak lasts")

// TestSoak is a crowd for an hour: a third of it with a kill each half minute,
// then a long stretch without, in which memory, goroutines and files stay flat.
func TestSoak(t *testing.T) {
	st := newStage(t)
	end := *soakFor / 3
	for st.clock() < end {
		st.rest(15*time.Second + time.Duration(st.rng.Int64N(int64(30*time.Second))))
		st.killOnce(st.rng.IntN(2) == 0)
	}
	quiet := st.clock()
	st.rest(*soakFor - quiet)
	st.drain(3 * time.Minute)

	st.mu.Lock()
	var gauges []gauge
	for _, g := range st.gauges {
		if g.at > quiet && g.at < *soakFor {
			gauges = append(gauges, g)
		}
	}
	st.mu.Unlock()
	st.finish(limits{clients: 200, kills: 1},
		flat("resident memory", gauges, 115, func(g *gauge) float64 { return g.rss }),
		flat("goroutines", gauges, 120, func(g *gauge) float64 { return g.goroutines }),
		flat("open files", gauges, 120, func(g *gauge) float64 { return g.fds }),
		most("data folder, MB", folderMB(t, st.proc.data()), 64, ""),
	)
}

// flat compares the medians of the last and the first quarter of a stretch, in
// per cent.
func flat(what string, gauges []gauge, limit int, of func(*gauge) float64) judge.Figure {
	quarter := len(gauges) / 4
	if quarter == 0 {
		return most(what+", last quarter over the first, %", limit+1, limit, "no looks")
	}
	median := func(part []gauge) float64 {
		var all []float64
		for i := range part {
			all = append(all, of(&part[i]))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	first, last := median(gauges[:quarter]), median(gauges[len(gauges)-quarter:])
	return most(what+", last quarter over the first, %", int(100*last/first), limit,
		"%.4g, then %.4g", first, last)
}

func folderMB(t *testing.T, dir string) int {
	size := int64(0)
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && !e.IsDir() {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return int(size >> 20)
}
