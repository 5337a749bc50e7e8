// Package report presents the results of simulations: a table for the terminal, JSON for scripts,
// and one HTML page with plots.
//
// All three show the same results. Marks and words indicate the best and the worst, never color
// alone. The page is self-contained: no script, no font, no external address. It supports light and
// dark mode and printing. [Report.Save] writes a complete page or none.
//
// A Report is read-only; its methods may be called by many goroutines. A page costs about 30 ms,
// and 30 KB for each strategy.
//
// The package computes nothing that the judge of internal/sim has not counted, and draws at most
// 600 samples of a run.
//
// # The files
//
// From the top down: page is the HTML page, with advice, panels and figures; table is for the terminal.
// Both show columns. plot draws lines over two axes by markup; words formats figures; save replaces a
// file by a complete one.
package report

import (
	"encoding/json"
	"io"
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/plan"
)

// A Report holds everything that is shown.
type Report struct {
	Version  string // of the program
	Command  string // creates the report again
	Scenario sim.Scenario
	Seed     uint64
	Traffic  string     // a sentence about the file of the arrivals, or ""
	Rows     []Row      // may be empty
	Plan     *plan.Plan // may be nil
	Figures  []Figure   // of the page; may be empty
}

// A Row is a strategy and its result.
type Row struct {
	Strategy sim.Strategy
	Result   *sim.Result
}

// These strategies get special treatment: the reference and headgate's own.
const (
	idealName = "ideal"
	ourName   = "headgate"
)

// limits are formatted as in a configuration.
type limits struct {
	Active  int64  `json:"total_active_users"`
	New     int64  `json:"new_users_per_minute"`
	Session string `json:"session_duration"`
}

// A result is a sim.Result without its samples: the outer field hides the inner one.
type result struct {
	*sim.Result
	Series any `json:"series,omitempty"`
}

// JSON writes the report for scripts.
func (r *Report) JSON(w io.Writer) error {
	l := r.Scenario.Limits
	out := struct {
		Scenario   string     `json:"scenario"`
		Seed       uint64     `json:"seed"`
		Limits     limits     `json:"limits"`
		Length     float64    `json:"length_seconds"`
		Strategies []result   `json:"strategies"`
		Plan       *plan.Plan `json:"plan,omitempty"`
	}{
		Scenario: r.Scenario.Name, Seed: r.Seed, Strategies: []result{}, Plan: r.Plan,
		Limits: limits{l.Active, perMinute(l), l.Session.String()},
		Length: r.Scenario.Length.Seconds(),
	}
	for _, row := range r.Rows {
		out.Strategies = append(out.Strategies, result{Result: row.Result})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// perMinute returns the limit of new users per minute.
func perMinute(l sim.Limits) int64 {
	if l.Window <= 0 {
		return l.New
	}
	return int64(float64(l.New) * float64(time.Minute) / float64(l.Window))
}
