package figure_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/headgate/headgate/examples/strategies/baseline"
	"github.com/headgate/headgate/examples/strategies/figure"
	"github.com/headgate/headgate/internal/sim/lending"
)

// The document's words about both figures hold for what is drawn.
func TestPlayedFiguresShowWhatTheDocumentsSay(t *testing.T) {
	if testing.Short() { // two days take half a minute with the race detector: make all plays them
		return
	}
	figures, err := figure.Played(t.Context(), 1, baseline.Strategies()[0], lending.Strategy())
	if err != nil || len(figures) != 2 {
		t.Fatal(figures, err)
	}
	days, rises := figures[0], figures[1]
	if most := slices.Max(days.Series[0].Y); most != 200 {
		t.Errorf("%v inside at the most, want 200", most)
	}
	for i, hour := range days.Series[1].X { // the line
		waits := days.Series[1].Y[i] > 0
		if waits && (hour < 35.5 || hour > 37 && hour < 38.7) || !waits && hour > 36 && hour < 36.2 {
			t.Errorf("at %.2f h: %v wait", hour, days.Series[1].Y[i])
		}
	}
	first := map[string]int{}
	for _, row := range rises.Table.Rows {
		t.Log(row)
		n, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		first[row[1]+" "+row[0]] = n
		if row[1] == "headgate" && (row[3] != "750" || n < 742) { // 1 %: called, and not in yet
			t.Errorf("%v, want 750", row)
		}
	}
	if first["even-split steep"] > 690 || first["even-split gradual"] < 700 {
		t.Errorf("even split first waits at %v, want well before 750 when it is steep", first)
	}
}
