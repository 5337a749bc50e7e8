package figure

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/sim/report"
)

const azure = "Azure, “Rate limiting pattern”"

// These constants are the task of the first example: 10,000 records of 10 RU into 20,000 RU a
// second.
const (
	records     = 10_000
	recordUnits = 10
	serviceRate = 20_000
)

// A progress records what a process that writes records has done, step by step.
type progress struct {
	sent, refused, written int64
	done                   time.Duration
	sends, refusals        report.Series // so far, per second
}

// send offers n records to a service.
func (p *progress) send(s *service, at time.Duration, n int64) {
	taken := s.send(at, n)
	p.sent, p.refused, p.written = p.sent+n, p.refused+n-taken, p.written+taken
	p.sends.Add(at.Seconds(), float64(p.sent))
	p.refusals.Add(at.Seconds(), float64(p.refused))
}

// end ends the lines at the time when everything was done.
func (p *progress) end(at time.Duration) {
	p.done = at
	p.sends.Add(at.Seconds(), float64(p.sent))
	p.refusals.Add(at.Seconds(), float64(p.refused))
}

// naive sends all remaining records each second, until none remain.
func naive(s *service) *progress {
	p, at := &progress{}, time.Duration(0)
	for ; p.written < records; at += time.Second {
		p.send(s, at, records-p.written)
	}
	p.end(at)
	return p
}

// paced sends n records at the rate of the partitions that it holds, evenly inside the second. What
// a slice releases is done at the end of the slice.
func paced(s *service, share *partitions, who string, n int64) *progress {
	p, at := &progress{}, time.Duration(0)
	for ; p.written < n && share.rate(who, at) > 0; at += slice {
		p.send(s, at, min(n-p.written, due(share.rate(who, at), at)))
	}
	p.end(at)
	share.release(who, at)
	return p
}

// pacing is the same task with a process that has leased the whole service: 20 partitions of 100
// records a second for 15 s. The number of partitions is from the document's example of 500
// requests a second.
func pacing() *progress {
	share := newPartitions(20, serviceRate/recordUnits/20, 15*time.Second)
	for i := range share.leases {
		share.lease("process", i, 0)
	}
	return paced(&service{perSecond: serviceRate, cost: recordUnits}, share, "process", records)
}

func retries() report.Figure {
	n, p := naive(&service{perSecond: serviceRate, cost: recordUnits}), pacing()
	f := report.Figure{
		ID: "azure-retry", Title: "Naive retry and leased pacing", Source: azure, Step: true,
		XLabel: "seconds", YLabel: "records",
		Note: "10,000 records go into a service that takes 2,000 a second. Who sends again all " +
			"that was refused sends three times as much and is no sooner done.",
		Table: &report.Table{Columns: []string{"process", "sends", "refused", "written", "done after"}},
	}
	for _, run := range []struct {
		name string
		*progress
	}{{"naive retry", n}, {"leased pacing", p}} {
		sent, refused := run.sends, run.refusals
		sent.Name, refused.Name, refused.Dashed = run.name+": sent", run.name+": refused", true
		f.Series = append(f.Series, sent, refused)
		addRow(f.Table, run.name, run.sent, run.refused, run.written, run.done)
	}
	return f
}

// smooth draws the released operations at rate a second, in steps of every.
func smooth(name string, every time.Duration, release func(at time.Duration) int64) report.Series {
	s, sum := report.Series{Name: name}, int64(0)
	for at := time.Duration(0); at <= 2*time.Second; at += every { // two seconds show the step
		sum += release(at)
		s.Add(at.Seconds(), float64(sum))
	}
	return s
}

func smoothing() report.Figure {
	const rate = 100 // operations a second, the document's
	whole := smooth("100 every second", time.Second, func(time.Duration) int64 { return rate })
	whole.Grey = true
	return report.Figure{
		ID: "azure-smoothing", Title: "Rate limiting over time", Source: azure, Step: true,
		XLabel: "seconds", YLabel: "operations released",
		Note: "A limit of 100 operations a second, kept as 20 every 200 ms: the same number " +
			"without the peak at the full second.",
		Series: []report.Series{whole, smooth("20 every 200 ms", slice, func(at time.Duration) int64 {
			return due(rate, at)
		})},
	}
}

// A grant is the result of the process in the document's second example.
type grant struct {
	asked, got, tried int
	rate              int64 // requests a second
	free              int   // free partitions after it has released its own
	*progress
}

// lend runs that example: 20 partitions of 25 requests a second for 10 s. Others hold 18 (derived:
// two were granted), and a process with 100 requests requests 4.
func lend(r *rand.Rand) grant {
	const taken = 18
	share := newPartitions(20, 500/20, 10*time.Second)
	share.ask("others", taken, 0, r)
	g := grant{asked: 4}
	g.got, g.tried = share.ask("process", g.asked, 0, r)
	g.rate = share.rate("process", 0)
	g.progress = paced(&service{perSecond: 500, cost: 1}, share, "process", 100)
	g.free = share.free(g.done)
	return g
}

func granted(seed uint64) report.Figure {
	g := lend(source(seed, "azure-leases"))
	sent := g.sends
	sent.Name = "sent on two partitions"
	wish := line("on the four it asked for", 1, slice.Seconds(), func(x float64) float64 {
		return min(100, 20*(1+x/slice.Seconds())) // 4 × 25 a second
	})
	wish.Grey, wish.Dashed = true, true
	return report.Figure{
		ID: "azure-leases", Title: "Two partitions granted of four", Source: azure, Step: true,
		XLabel: "seconds", YLabel: "requests sent",
		Note: "A process needs 100 requests, asks for four partitions of 25 a second and is granted " +
			"two for 10 s. It keeps to 50 a second, is done in 2 s and releases them.",
		Series: []report.Series{wish, sent},
		Table: &report.Table{
			Columns: []string{"asked", "granted", "tried", "rate", "refused", "done after",
				"free then"},
			Rows: [][]string{{cell(g.asked), cell(g.got), cell(g.tried),
				fmt.Sprintf("%d/s", g.rate), cell(g.refused), cell(g.done), cell(g.free)}},
		},
	}
}
