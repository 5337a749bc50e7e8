// Package traffic creates the arrivals of a scenario from a file: a CSV table with a column of
// times, or the access log of a web server.
//
// It accepts a file as a whole or not at all. An error names the line and what to do. The arrivals
// are in order of time, and the same each time they are read.
//
// [Open] reads the file once, as a stream, which may be compressed by gzip. It stores the result in
// an unnamed temporary file, 20 bytes for each visitor, so that further runs need neither the input
// file nor memory. Memory grows with the unfinished sessions of a log, at most about 300 MB. A core
// reads two to five million lines a second.
//
// A Traffic may be used by one goroutine at a time.
//
// The package cannot distinguish robots from people, nor people behind the same address.
package traffic

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/sim"
)

// A Format is the format of a file.
type Format string

// These are the formats. Auto detects the format from the first line.
const (
	Auto Format = ""
	CSV  Format = "csv"
	Log  Format = "log"
)

// Options define how to read a file.
type Options struct {
	Format           Format
	TimeColumn       string                // of CSV; "": the first of time, timestamp, ts, date, at
	DatacenterColumn string                // of CSV; "": the first of site, colo, datacenter, if any
	Session          time.Duration         // a longer gap between lines starts a new visit
	Auto             *adaptive.Settings    // of the limit that a log would have shown; nil: none
	Progress         func(done float64)    // called at intervals, may be nil
	Space            func() (space, error) // for tests; nil: a temporary file
}

// A Traffic is the content of a file.
type Traffic struct {
	Name        string
	Format      Format
	Lines       int64 // lines that contain a request
	Visitors    int64
	First       time.Time
	Last        time.Duration // the last arrival, relative to the first
	Datacenters []string      // empty: not in the file
	Dwells      bool          // the file contains the length of visits
	Found       *Found        // of a log, if it was asked for

	spool      *spool
	err        error
	oneAddress bool
}

// Open reads a file. Its error is a *hint.Error when the file or an option is wrong. The caller must
// call Close.
func Open(ctx context.Context, name string, o Options) (*Traffic, error) {
	in, err := openInput(name)
	if err != nil {
		return nil, err
	}
	defer in.close()
	return read(ctx, in, o)
}

// Close removes the temporary file.
func (t *Traffic) Close() error { return t.spool.close() }

// Err returns the first error of the temporary file since Open. If it is not nil, the arrivals
// ended early.
func (t *Traffic) Err() error { return t.err }

// These are the workers of a data center, and the one-way delays to its counter and to the home of
// Anywhere. The numbers of workers are those of Cloudflare's example of 2023 (3 per data center, 10
// in all). The delays are half of its round trips of "under 10 ms" and "60 to 70 ms".
const (
	siteWorkers = 3
	allWorkers  = 10
	stateLag    = 5 * time.Second // "within seconds", chosen
)

// Scenario returns the traffic in front of a room with these limits. It ends a window after the
// last arrival. To see the line drain, make it longer.
func (t *Traffic) Scenario(l sim.Limits) sim.Scenario {
	local := sim.Delay{Least: time.Millisecond, Mean: 3 * time.Millisecond}
	home := sim.Delay{Least: 30 * time.Millisecond, Mean: 33 * time.Millisecond}
	sites := []sim.Datacenter{{Name: "one site", Workers: allWorkers, Local: local, Home: home}}
	if len(t.Datacenters) > 0 {
		sites = sites[:0]
		for _, name := range t.Datacenters {
			sites = append(sites, sim.Datacenter{Name: name, Workers: siteWorkers, Local: local, Home: home})
		}
	}
	return sim.Scenario{
		Name: "file", About: fmt.Sprintf("the %s of %s", amount(t.Visitors, "visitor"), t.Name),
		Source: "the file; delays and workers after Cloudflare 2023, the lag of state chosen",
		Limits: l, Datacenters: sites, Length: t.Last + l.Window, StateLag: stateLag,
		Arrivals: func(seed uint64) iter.Seq[sim.Arrival] { return t.arrivals(seed, sites) },
	}
}

// arrivals returns the visitors; the seed determines their workers.
func (t *Traffic) arrivals(seed uint64, sites []sim.Datacenter) iter.Seq[sim.Arrival] {
	return func(yield func(sim.Arrival) bool) {
		r := rand.New(rand.NewPCG(seed, 2))
		err := t.spool.each(func(v visit) bool {
			worker := int32(r.IntN(sites[v.site].Workers))
			return yield(sim.Arrival{At: v.at, Datacenter: v.site, Worker: worker, Dwell: v.dwell})
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

// String returns a sentence on what the file contains.
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

// OneAddress reports whether a log has many requests but only one address. The log then probably
// shows a proxy in front of the server.
func (t *Traffic) OneAddress() bool { return t.Format == Log && t.oneAddress && t.Lines >= 10 }
