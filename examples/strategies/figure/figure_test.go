package figure

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/headgate/headgate/internal/sim/report"
)

// ids are all figures in order; true: the seed draws them.
func ids() ([]string, map[string]bool) {
	list := []struct {
		id    string
		drawn bool
	}{
		{"cloudflare-slots", false}, {"cloudflare-curves", false}, {"cloudflare-latency", true},
		{"criteo-fixed", true}, {"criteo-two-counters", true}, {"criteo-5s", true},
		{"criteo-1s", true}, {"criteo-errors", true}, {"criteo-limits", true},
		{"criteo-bias", false}, {"criteo-tokens", false}, {"azure-retry", false}, {"azure-smoothing", false},
		{"azure-leases", true}, {"azure-partitions", true},
	}
	var order []string
	drawn := map[string]bool{}
	for _, f := range list {
		order = append(order, f.id)
		drawn[f.id] = f.drawn
	}
	return order, drawn
}

func find(t *testing.T, seed uint64, id string) report.Figure {
	t.Helper()
	for _, f := range All(seed) {
		if f.ID == id {
			return f
		}
	}
	t.Fatalf("no figure %s", id)
	return report.Figure{}
}

func TestFiguresComeInOrder(t *testing.T) {
	var got []string
	for _, f := range All(1) {
		got = append(got, f.ID)
	}
	want, _ := ids()
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSameSeedGivesTheSameFigures(t *testing.T) {
	if d := cmp.Diff(All(3), All(3)); d != "" {
		t.Error(d)
	}
}

func TestAnotherSeedMovesOnlyWhatIsDrawn(t *testing.T) {
	one, two := All(1), All(2)
	_, drawn := ids()
	for i, f := range one {
		if f.ID == "azure-leases" {
			continue // only the number of tries is drawn, which may be the same
		}
		if same := cmp.Equal(f, two[i]); same == drawn[f.ID] {
			t.Errorf("%s: the same with another seed: %v", f.ID, same)
		}
	}
}

// What a figure draws hangs on the seed and its own name alone.
func TestFiguresDrawFromSourcesOfTheirOwn(t *testing.T) {
	if source(1, "ab").Uint64() == source(1, "ba").Uint64() {
		t.Error("two figures with one stream")
	}
	if d := cmp.Diff(latencies(5), find(t, 5, "cloudflare-latency")); d != "" {
		t.Error(d)
	}
}

func TestFiguresAreWhole(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2, 1 << 40} {
		for _, f := range All(seed) {
			if f.Title == "" || f.Source == "" || f.Note == "" || f.XLabel == "" || f.YLabel == "" {
				t.Errorf("%s lacks a text", f.ID)
			}
			if len(f.Series) == 0 && f.Table == nil {
				t.Errorf("%s is empty", f.ID)
			}
			names := map[string]bool{}
			for _, s := range f.Series {
				if names[s.Name] || s.Name == "" {
					t.Errorf("%s: a second line %q", f.ID, s.Name)
				}
				names[s.Name] = true
				checkLine(t, f.ID, s)
			}
			if f.Table == nil {
				continue
			}
			for _, row := range f.Table.Rows {
				if len(row) != len(f.Table.Columns) || slices.Contains(row, "") {
					t.Errorf("%s: the row %q under %q", f.ID, row, f.Table.Columns)
				}
			}
		}
	}
}

func checkLine(t *testing.T, id string, s report.Series) {
	t.Helper()
	if len(s.X) < 2 || len(s.X) != len(s.Y) {
		t.Fatalf("%s, %s: %d values over %d", id, s.Name, len(s.Y), len(s.X))
	}
	if !slices.IsSorted(s.X) {
		t.Errorf("%s, %s: X goes back", id, s.Name)
	}
	for _, v := range slices.Concat(s.X, s.Y) {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			t.Errorf("%s, %s: the value %v", id, s.Name, v)
		}
	}
}
