package lending

import (
	"time"

	"github.com/headgate/headgate/internal/counter"
	"github.com/headgate/headgate/internal/slot"
)

// A writer is a process that hosts a core and keeps its record on a disk. It writes one record at a
// time, as counter.Counter does: requests that arrive during a write share the next one.
type writer struct {
	process
	host    hosting
	desk    *counter.Core
	disk    *disk
	rev     uint64
	writing bool
	more    bool // another round was requested during the write
	lastTry time.Duration
	timer   int // number of the newest wake-up
}

// A hosting is the rest of what hosts a core.
type hosting interface {
	round()                    // builds one write, stores it and answers
	look()                     // runs after each round
	lost()                     // another host has written
	tell(answers []slot.Reply) // sends answers
}

// takeOver makes desk the core by a first write. If another host was faster, it begins again.
func (w *writer) takeOver(desk *counter.Core, again, begun func()) {
	w.desk, w.writing = desk, true
	rev := w.disk.rev
	w.m.write(&w.process, w.disk, rev, desk.TakeOver(w.clk()), func(ok bool) {
		w.writing = false
		if !ok || desk != w.desk {
			again()
			return
		}
		w.rev = rev + 1
		if err := desk.Begin(w.clk()); err != nil {
			panic(err)
		}
		begun()
	})
}

// write builds one write and stores it; stored gets what may be answered after it.
func (w *writer) write(serving, waited bool, stored func([]slot.Reply, []slot.ClaimReply)) {
	if w.writing || !serving {
		w.more = w.writing
		return
	}
	w.more = false
	clk := w.clk()
	if gap := w.lastTry + groupGap - clk; gap > 0 && w.lastTry > 0 {
		w.wake(gap)
		return
	}
	w.lastTry = clk
	now, wr := w.desk.Build(clk, waited)
	w.host.tell(now)
	if wr == nil {
		w.host.look()
		return
	}
	w.writing = true
	rev, desk := w.rev, w.desk
	w.m.write(&w.process, w.disk, rev, wr, func(ok bool) {
		if desk != w.desk { // the process was started again meanwhile
			return
		}
		w.writing = false
		if !ok {
			w.desk.Pool().Fail()
			w.host.lost()
			return
		}
		w.rev = rev + 1
		stored(w.desk.Stored(w.clk()))
		w.host.look()
		if w.more {
			w.host.round()
		}
	})
}

// wake requests a round in d; only the newest request counts.
func (w *writer) wake(d time.Duration) {
	w.timer++
	n := w.timer
	w.after(d, func() {
		if n == w.timer {
			w.host.round()
		}
	})
}
