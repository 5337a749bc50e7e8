package figure

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/sim"
	"github.com/headgate/headgate/internal/sim/report"
	"github.com/headgate/headgate/internal/slot"
)

const cloudflare = "Cloudflare, “How Waiting Room makes queueing decisions” (2023-09-20)"

// workers is globalWorkersActive of the document's state.
const workers = 10

// anywhere returns the Anywhere slots of the document's state at 11:45:54: 200 − 50 slots, of which
// San Jose gets 20/200 and London 30/200, by the minute before.
func anywhere() int64 {
	_, slots := slot.Split(200-50, 200, []int64{20, 30})
	return slots
}

// adaptive returns what each of n workers may admit by the document's formula, slots ÷ (n ×
// utilization^curveFactor), unrounded. It never returns more than all slots: at low use the formula
// divides by less than one worker.
func adaptive(slots, n int64, utilization, curveFactor float64) float64 {
	return float64(slots) / max(1, float64(n)*math.Pow(utilization, curveFactor))
}

// factors returns the curve factors drawn; 1 and 2 are the document's, the others are chosen.
func factors() []float64 { return []float64{0.25, 0.5, 1, 2} }

func slotsPerWorker() report.Figure {
	slots := anywhere()
	f := report.Figure{
		ID: "cloudflare-slots", Title: "Slots per worker by utilization", Source: cloudflare,
		XLabel: "utilization (active users ÷ limit)", YLabel: "slots per worker",
		Note: fmt.Sprintf("With %d Anywhere slots and %d workers each worker may admit all of them "+
			"at low use and a tenth near the limit. What all may admit together is far more than "+
			"there is, which is the overshoot of a spike after low use.", slots, workers),
		Table: &report.Table{Columns: []string{"utilization"}},
	}
	for _, c := range factors() {
		from := "document"
		if c < 1 {
			from = "chosen"
		}
		name := fmt.Sprintf("curveFactor %g (%s)", c, from)
		f.Series = append(f.Series, line(name, 1, 0.01, func(u float64) float64 {
			return adaptive(slots, workers, u, c)
		}))
		f.Table.Columns = append(f.Table.Columns, name)
	}
	even := line("even split", 1, 1, func(float64) float64 { return float64(slots) / workers })
	even.Grey, even.Dashed = true, true
	f.Series = append(f.Series, even)
	for _, percent := range []int{10, 25, 50, 75, 100} {
		row := []any{fmt.Sprintf("%d %%", percent)}
		for _, c := range factors() {
			each := int64(adaptive(slots, workers, float64(percent)/100, c))
			row = append(row, fmt.Sprintf("%d each, %d in all", each, each*workers))
		}
		addRow(f.Table, row...)
	}
	return f
}

func curves() report.Figure {
	return report.Figure{
		ID: "cloudflare-curves", Title: "y = x and y = x²", Source: cloudflare,
		XLabel: "utilization x", YLabel: "workerMultiplier y",
		Note: "The multiplier is utilization^curveFactor. A larger factor counts fewer workers at " +
			"low use, so each of them gets more slots.",
		Series: []report.Series{
			line("y = x", 1, 0.01, func(x float64) float64 { return x }),
			line("y = x²", 1, 0.01, func(x float64) float64 { return x * x }),
		},
	}
}

// A distance is the delay of a share of the calls to Anywhere.
type distance struct {
	share float64   // of all calls
	way   sim.Delay // one way
}

// inside returns the one-way delay between a worker and the counter of its data center. Chosen, so
// that a call usually takes less than 10 ms, as in the document.
func inside() sim.Delay {
	return sim.Delay{Least: 500 * time.Microsecond, Mean: 1500 * time.Microsecond}
}

// distances are chosen so that most calls take 60 or 70 ms, as in the document, and the 95th
// percentile is higher because some data centers are far away.
func distances() []distance {
	ms := func(least, mean int) sim.Delay {
		return sim.Delay{
			Least: time.Duration(least) * time.Millisecond,
			Mean:  time.Duration(mean) * time.Millisecond,
		}
	}
	return []distance{
		{0.10, ms(5, 8)},    // the same region
		{0.70, ms(29, 32)},  // the same continent, or a near one
		{0.12, ms(60, 65)},  // across an ocean
		{0.08, ms(95, 105)}, // the other side of the world
	}
}

// draws is the number of samples of each delay. Chosen, so that 200 of them are above the 99th
// percentile.
const draws = 20_000

func latencies(seed uint64) report.Figure {
	f := report.Figure{
		ID: "cloudflare-latency", Title: "Latency of a counter call", Source: cloudflare,
		XLabel: "percentile", YLabel: "milliseconds",
		Note: "A call inside a data center takes less than 10 ms. A call to Anywhere takes 60 or " +
			"70 ms, and more at the 95th percentile, where the far data centers are. The " +
			"distributions are chosen to fit these words; the document's own graph gives no numbers.",
		Table: &report.Table{Columns: []string{"counter", "p50", "p75", "p90", "p95", "p99"}},
	}
	r := source(seed, f.ID)
	near := func() time.Duration { return inside().Draw(r) + inside().Draw(r) }
	far := func() time.Duration {
		way := pick(distances(), r.Float64())
		return way.Draw(r) + way.Draw(r)
	}
	for _, call := range []struct {
		name string
		draw func() time.Duration
	}{{"in the data center", near}, {"Anywhere", far}} {
		took := make([]float64, draws)
		for i := range took {
			took[i] = call.draw().Seconds() * 1000
		}
		slices.Sort(took)
		s, row := report.Series{Name: call.name}, []any{call.name}
		for p := 50; p <= 99; p++ {
			s.Add(float64(p), took[p*draws/100-1])
		}
		for _, p := range []int{50, 75, 90, 95, 99} {
			row = append(row, fmt.Sprintf("%.1f ms", s.Y[p-50]))
		}
		f.Series = append(f.Series, s)
		addRow(f.Table, row...)
	}
	return f
}

// pick returns the distance at x in 0..1, laid out by their shares.
func pick(list []distance, x float64) sim.Delay {
	for _, d := range list {
		if x -= d.share; x < 0 {
			return d.way
		}
	}
	return list[len(list)-1].way
}
