package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/node"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/status"
)

// A foundAmount is the record of an amount or of a rate that was found.
type foundAmount struct {
	// Version is the time of the write in ms since 1970, or one more than the version of the record before
	// if that is later: clocks of processes differ.
	Version uint64            `json:"version"`
	By      string            `json:"by,omitempty"` // drawn by the process that wrote it
	State   []byte            `json:"state"`        // an adaptive.State
	Shown   status.AutoAmount `json:"shown"`
	// InForce differs from Shown.Amount in limit.AutoShadow.
	InForce int64 `json:"in_force"`
}

// next returns the version of the record that follows.
func (x *foundAmount) next() uint64 { return max(uint64(time.Now().UnixMilli()), x.Version+1) }

// amountIn returns the amount in force in a mode, or 0 if the mode puts none into force.
func (x *foundAmount) amountIn(mode string) int64 {
	switch mode {
	case limit.AutoOn:
		return x.Shown.Amount
	case limit.AutoFrozen:
		return cmp.Or(x.InForce, x.Shown.Amount)
	}
	return 0
}

// A known is what a process knows of a record.
type known struct {
	foundAmount // the newest that was read or written
	isRead      bool
	others      bool // another process has written it since this one began to find the amount
	// lower is in force here before it is written. What another process has written ends it.
	lower *foundAmount
}

// inForce returns what is in force here.
func (k *known) inForce() *foundAmount {
	if k.lower != nil {
		return k.lower
	}
	return &k.foundAmount
}

// A finding is a record of what was found, as one process reads and writes it.
type finding struct {
	doc   *store.Doc[foundAmount]
	by    string
	wrote time.Time // only keep uses it

	force func()      // puts what is known into force, if not nil
	mu    *sync.Mutex // guards changes of known, and force
	known atomic.Pointer[known]
}

// newFinding returns the finding of a record.
func newFinding(n *node.Node, key string, mu *sync.Mutex, force func(), log *slog.Logger) *finding {
	f := &finding{doc: foundDoc(n, key, log), by: rand.Text(), force: force, mu: mu}
	f.known.Store(&known{})
	return f
}

// foundDoc returns the record of an amount. One that cannot be read counts as none: nothing would be found
// any more, and changes of all limits would wait for it.
func foundDoc(n *node.Node, key string, log *slog.Logger) *store.Doc[foundAmount] {
	lost := func(err error) { log.Error("what was found is lost: it is found anew", "record", key, "error", err) }
	return &store.Doc[foundAmount]{Store: n.Records, Key: key, Try: editTry, Lost: lost, Log: log,
		Decode: func(b []byte) (x foundAmount, _ error) {
			if err := json.Unmarshal(b, &x); err != nil {
				lost(err)
				return foundAmount{}, nil
			}
			return x, nil
		},
	}
}

// read puts the record into force here.
func (f *finding) read(ctx context.Context) error {
	x, _, err := f.doc.Load(ctx)
	if err == nil {
		f.set(x, false)
	}
	return err
}

// resume reads the record, from which this process goes on to find the amount.
func (f *finding) resume(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, signals.Every)
	defer stop()
	x, _, err := f.doc.Load(ctx)
	if err == nil {
		f.set(x, true)
	}
	return err
}

// set puts a record into force here, unless a newer one is known: a former leader of the store may return an
// old one. begins says that what this process has lowered before is over, and that it goes on from there.
func (f *finding) set(x foundAmount, begins bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.known.Load()
	next := *was
	next.isRead = true
	if x.Version > was.Version {
		next.foundAmount = x
		next.others = was.others || x.By != f.by
	}
	if begins {
		next.others = false
	}
	if begins || next.others {
		next.lower = nil
	}
	f.change(&next)
}

// forget forgets what was read: it may be old.
func (f *finding) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := *f.known.Load()
	next.isRead, next.lower = false, nil
	f.change(&next)
}

// lower puts a lower amount into force here before it is written.
func (f *finding) lower(x foundAmount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := *f.known.Load()
	next.lower = &x
	f.change(&next)
}

func (f *finding) change(next *known) {
	f.known.Store(next)
	if f.force != nil {
		f.force()
	}
}

// keep puts what was found into force and writes it: a lower amount first into force, because the origin is
// overloaded now, and a higher one first into the record, because the next host has to know it. If another
// process has decided meanwhile, that is in force.
func (f *finding) keep(ctx context.Context, x foundAmount, inForce int64) {
	was := f.known.Load()
	changed := was.Shown.Amount != x.Shown.Amount || was.InForce != x.InForce
	if !changed && time.Since(f.wrote) < learnedEach {
		return
	}
	if x.InForce < inForce {
		f.lower(x)
	}
	ctx, stop := context.WithTimeout(ctx, signals.Every)
	defer stop()
	others := false
	_, err := f.doc.Edit(ctx, func(v *foundAmount) (bool, error) {
		// A newer one of our own is a write whose acknowledgment was lost.
		if others = v.Version > was.Version && v.By != f.by; others {
			x = *v
			return false, nil
		}
		x.By, x.Version = f.by, max(v.next(), was.next())
		*v = x
		return true, nil
	})
	if err != nil {
		f.wrote = time.Time{} // it may be written, while another amount is in force
		if ctx.Err() == nil {
			f.doc.Log.Warn("an amount that was found is not written yet", "record", f.doc.Key, "error", err)
		}
		return
	}
	f.wrote = time.Now()
	f.set(x, !others)
}

// erase forgets what was found: the file has a number. Later, the same name may stand for something else.
func (f *finding) erase(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, signals.Every)
	defer stop()
	_, err := f.doc.Edit(ctx, func(v *foundAmount) (bool, error) {
		if v.Shown.Amount == 0 && len(v.State) == 0 {
			return false, nil
		}
		*v = foundAmount{By: f.by, Version: v.next()}
		return true, nil
	})
	return err
}
