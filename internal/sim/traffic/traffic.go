// Package traffic makes the arrivals of a scenario from a file: a CSV table with
// a column of times, or the access log of a web server.
//
// The promise: a file is taken whole or not at all. What cannot be read is told
// with its line and what to do; the arrivals that come out are in order of time,
// and the same each time they are asked for.
//
// [Open] reads the file once, as a stream, which may be compressed by gzip. What
// it found lies in a temporary file without a name, 20 bytes for each visitor, so
// that many runs need neither the file nor memory. Memory is bounded by the
// visitors of a log whose sessions are not over, at most some 300 MB. A core
// reads two to five million lines a second.
//
// It belongs to one goroutine at a time.
//
// What it does not do: it does not tell robots from people, nor people behind one
// address from each other.
package traffic

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/sim"
)

// A Format is how a file is written.
type Format string

// The formats. Auto looks at the first line.
const (
	Auto Format = ""
	CSV  Format = "csv"
	Log  Format = "log"
)

// Options say how a file is to be read.
type Options struct {
	Format     Format
	TimeColumn string                // of CSV; "": the first of time, timestamp, ts, date, at
	SiteColumn string                // of CSV; "": the first of site, colo, datacenter, if any
	Session    time.Duration         // after this long without a line an address is a new visitor
	Progress   func(done float64)    // called now and then, may be nil
	Space      func() (space, error) // for tests; nil: a temporary file
}

// A Traffic is what a file held.
type Traffic struct {
	Name     string
	Format   Format
	Lines    int64 // with a visitor's request in them
	Visitors int64
	First    time.Time
	Last     time.Duration // the last arrival, after the first
	Sites    []string      // empty: the file says none
	Dwells   bool          // the file says how long visitors stay

	spool      *spool
	err        error
	oneAddress bool
}

// Open reads a file. Its error is an *Error when the file or an option is wrong.
// Close must follow.
func Open(ctx context.Context, name string, o Options) (*Traffic, error) {
	in, err := openInput(name)
	if err != nil {
		return nil, err
	}
	defer in.close()
	return read(ctx, in, o)
}

// Close gives back the temporary file.
func (t *Traffic) Close() error { return t.spool.close() }

// Err is what went wrong with the temporary file since Open: the arrivals ended
// early if it is not nil.
func (t *Traffic) Err() error { return t.err }

// The workers of a data centre, one way of a message to its counter and to where
// Anywhere lives. The numbers of workers are those of Cloudflare's example of
// 2023 (3 of a data centre, 10 in all), the delays halves of its "under 10 ms" and
// "60 to 70 ms" for the way there and back.
const (
	siteWorkers = 3
	allWorkers  = 10
	stateLag    = 5 * time.Second // "within seconds", chosen
)

// Scenario is the traffic before a room with these limits. It ends a window after
// the last arrival; who wants to see the line drain makes it longer.
func (t *Traffic) Scenario(l sim.Limits) sim.Scenario {
	local := sim.Delay{Least: time.Millisecond, Mean: 3 * time.Millisecond}
	home := sim.Delay{Least: 30 * time.Millisecond, Mean: 33 * time.Millisecond}
	sites := []sim.Site{{Name: "one site", Workers: allWorkers, Local: local, Home: home}}
	if len(t.Sites) > 0 {
		sites = sites[:0]
		for _, name := range t.Sites {
			sites = append(sites, sim.Site{Name: name, Workers: siteWorkers, Local: local, Home: home})
		}
	}
	return sim.Scenario{
		Name: "file", About: fmt.Sprintf("the %s of %s", amount(t.Visitors, "visitor"), t.Name),
		Source: "the file; delays and workers after Cloudflare 2023, the lag of state chosen",
		Limits: l, Sites: sites, Length: t.Last + l.Window, StateLag: stateLag,
		Arrivals: func(seed uint64) iter.Seq[sim.Arrival] { return t.arrivals(seed, sites) },
	}
}

// arrivals gives the visitors again; the seed draws their workers.
func (t *Traffic) arrivals(seed uint64, sites []sim.Site) iter.Seq[sim.Arrival] {
	return func(yield func(sim.Arrival) bool) {
		r := rand.New(rand.NewPCG(seed, 2))
		err := t.spool.each(func(v visit) bool {
			worker := int32(r.IntN(sites[v.site].Workers))
			return yield(sim.Arrival{At: v.at, Site: v.site, Worker: worker, Dwell: v.dwell})
		})
		if err != nil {
			t.err = err
		}
	}
}

func amount(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// String says in a sentence what the file held.
func (t *Traffic) String() string {
	s := fmt.Sprintf("%s: %s from %s UTC, over %s", t.Name, amount(t.Visitors, "visitor"), show(t.First),
		t.Last.Round(time.Second))
	if t.Format == Log {
		return s + ", in " + amount(t.Lines, "request")
	}
	if !t.Dwells {
		return s + ", with one request each: there is no column dwell"
	}
	return s
}

// OneAddress reports whether a log has many requests and one visitor: that of a
// proxy before the server.
func (t *Traffic) OneAddress() bool { return t.Format == Log && t.oneAddress && t.Lines >= 10 }
