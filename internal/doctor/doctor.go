// Package doctor looks at a data folder and says what is wrong with it, takes
// backups of it, and fills a new one from a backup.
//
// # The promise
//
// Examine changes nothing: what it must write to find something out, it writes
// elsewhere or takes away again. A backup is consistent room by room at any
// moment, also while headgate runs. Restore reads and checks the whole backup
// before it writes, never writes into a folder that holds anything, and leaves a
// folder in which a headgate lets nobody in whom an older record might not know.
// Every fault comes with what to do.
//
// # Concurrency and cost
//
// Nothing here is for use by several goroutines. A backup is held in memory, a
// few KB a room. Examine copies the engine's folder, up to a gigabyte. Of a cluster
// it knocks at all store nodes at once and listens: 10 s at the most.
//
// # What it does not do
//
// It repairs nothing: headgate does that itself when it starts, and an operator
// the rest. It does not look into the engine of a headgate that runs, nor into the
// folders of other nodes: of these it sees what they show to any node.
package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/store"
)

// A State says how bad what a check has found is.
type State string

// The states. Skipped is what could not be looked at.
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

// Running is what a headgate that runs tells of itself.
type Running struct {
	About   api.About
	Rooms   []headgate.Status
	Cluster *api.Cluster // nil: not asked, or Alone
	Alone   bool         // it is not part of a cluster
}

// Config says what to look at.
type Config struct {
	Data     string         // the data folder, "" if it is not known
	Config   *config.Config // nil: none, or it could not be read
	ConfErr  error          // why
	Ask      func(context.Context) (*Running, error)
	Temp     string           // where the engine is copied to; "": the system's
	Now      func() time.Time // default time.Now
	maxCopy  int64
	lowSpace uint64
}

// examiner is one examination.
type examiner struct {
	cfg    Config
	report Report
	name   string // of the check under way

	pid     int // of the headgate that works in the folder; 0: not known
	running bool
	fresh   bool     // there is no folder, and none is needed yet
	heard   *Running // by the headgate that runs
	copies  []store.Copy
}

// Examine looks at everything and returns what it has found.
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
	for _, c := range x.report.Checks[from:] {
		if c.State == Fault {
			return false
		}
	}
	return true
}

// say adds a line to the check under way.
func (x *examiner) say(s State, what, do string) {
	x.report.Checks = append(x.report.Checks, Check{Name: x.name, State: s, What: what, Do: do})
	x.report.OK = x.report.OK && s != Fault
}

func (x *examiner) ok(format string, args ...any) { x.say(OK, fmt.Sprintf(format, args...), "") }

// err says what an error says, with its hint or another.
func (x *examiner) err(err error, do string) {
	if h, ok := err.(interface{ Hint() string }); ok {
		do = h.Hint()
	}
	x.say(Fault, err.Error(), do)
}
