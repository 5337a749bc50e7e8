// Package doctor examines a data folder and reports what is wrong with it, takes backups of it, and
// restores a backup into a new folder.
//
// # The promise
//
// Examine changes nothing: when it must write to check something, it writes elsewhere or removes it
// again. A backup is consistent for each room at any time, also while headgate runs. Restore reads
// and checks the whole backup before it writes, and never writes into a folder that holds anything.
// A headgate that starts in a restored folder admits nobody that an older record might not know.
// Every fault comes with what to do.
//
// # Concurrency and cost
//
// Nothing here may be used by several goroutines at once. A backup is held in memory, a few KB per
// room. Examine copies the engine's folder, up to a gigabyte. In a cluster it connects to all store
// nodes at once and listens, for 10 s at most.
//
// # The files
//
// doctor has Examine. Its checks from the top down: machine (certificates, open files, the clock),
// records (the records of the folder and of its engine), folder (the data folder itself); of a cluster:
// cluster (ports and addresses), quorum (who answers, records, versions, clocks), datacenters, proof
// (certificates) and door (one connection to a port). restore fills a folder from a backup, backup takes
// one, and archive is its form.
//
// # What it does not do
//
// It repairs nothing: headgate repairs what it can when it starts, and the operator must do the
// rest. It does not read the engine of a running headgate, nor the folders of other nodes. Of these
// it sees what any node can see.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/status"
)

// A State is the severity of a result.
type State string

// These are the states. Skipped means that the check could not run.
const (
	OK      State = "ok"
	Skipped State = "skipped"
	Warning State = "warning"
	Fault   State = "fault"
)

// A Check is one line of a report.
type Check struct {
	Name  string `json:"check"`
	State State  `json:"state"`
	What  string `json:"what"`
	Do    string `json:"do,omitempty"`
}

// A Report is what Examine has found.
type Report struct {
	Data   string  `json:"data"`
	OK     bool    `json:"ok"` // no faults
	Checks []Check `json:"checks"`
}

// A Running is what a running headgate reports about itself.
type Running struct {
	About   api.About
	Rooms   []status.Room
	Cluster *api.Cluster // nil: not requested, or Alone
	Alone   bool         // not part of a cluster
}

// A Config defines what to examine.
type Config struct {
	Data     string         // the data folder, "" if unknown
	Config   *config.Config // nil: none, or not readable
	ConfErr  error          // why it is not readable
	Ask      func(context.Context) (*Running, error)
	Temp     string           // parent of the engine's copy; "": the system's
	Now      func() time.Time // default time.Now
	maxCopy  int64
	lowSpace uint64
}

// An examiner is one examination.
type examiner struct {
	cfg    Config
	report Report
	name   string // of the current check

	pid     int // of the headgate in the folder; 0: unknown
	running bool
	fresh   bool     // there is no folder, and none is needed yet
	heard   *Running // from the running headgate
	copies  []store.Copy
}

// Examine runs all checks and returns the results.
func Examine(ctx context.Context, cfg Config) *Report {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.maxCopy == 0 {
		cfg.maxCopy, cfg.lowSpace = maxCopy, lowSpace
	}
	x := &examiner{cfg: cfg, report: Report{Data: cfg.Data, OK: true}}
	x.check("configuration", x.configuration)
	switch {
	case cfg.Data == "":
		x.say(Skipped, "its data folder is not known", "name it: --data DIR")
	case x.check("folder", x.folder) && !x.fresh:
		x.check("writable", x.writable)
		x.check("free space", x.space)
		x.check("headgate", func() { x.process(ctx) })
		x.check("sealing keys", x.keys)
		x.check("tokens", x.tokens)
		x.check("records", x.records)
		x.check("engine", func() { x.engine(ctx) })
		x.check("left aside", x.aside)
	}
	x.cluster(ctx)
	x.check("certificates", x.certificates)
	x.check("open files", x.files)
	x.check("clock", x.clock)
	return &x.report
}

// check runs one check and reports whether it found no fault.
func (x *examiner) check(name string, look func()) bool {
	x.name = name
	from := len(x.report.Checks)
	look()
	return !slices.ContainsFunc(x.report.Checks[from:], func(c Check) bool { return c.State == Fault })
}

// say adds a result to the current check.
func (x *examiner) say(s State, what, do string) {
	x.report.Checks = append(x.report.Checks, Check{Name: x.name, State: s, What: what, Do: do})
	x.report.OK = x.report.OK && s != Fault
}

func (x *examiner) ok(format string, args ...any) { x.say(OK, fmt.Sprintf(format, args...), "") }

// err adds an error as a result, with its own hint or the given one.
func (x *examiner) err(err error, do string) {
	x.say(Fault, err.Error(), cmp.Or(hint.Of(err), do))
}
