package control

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/signals"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/ratelimit"
	"github.com/headgate/headgate/status"
)

// Each process measures the calls that hold a slot of a limit, and sends what it has measured to the host
// of the limit: the process that decides about its calls. The host finds the amount. It lowers it at once,
// and writes it before it raises it; the others follow the record, so the next host goes on with it.

// foundKey, with the name of a limit, is the key of the record with the amount that was found.
const foundKey = "limit-found."

// learnedEach is how often what was learned is written while the amount stays. Chosen.
const learnedEach = 30 * time.Second

// A foundAmount is the record of an amount that was found.
type foundAmount struct {
	Version uint64            `json:"version"` // as of a limitChange
	State   []byte            `json:"state"`   // an adaptive.State
	Shown   status.AutoAmount `json:"shown"`
	// InForce differs from Shown.Amount in limit.AutoShadow.
	InForce int64 `json:"in_force"`
}

// in returns the amount of a mode that puts one into force, or 0.
func (x *foundAmount) in(mode string) int64 {
	switch mode {
	case limit.AutoOn:
		return x.Shown.Amount
	case limit.AutoFrozen:
		return cmp.Or(x.InForce, x.Shown.Amount)
	}
	return 0
}

// A seeker finds the amount of one limit of a file.
type seeker struct {
	meter *signals.Meter
	shown atomic.Pointer[status.AutoAmount] // nil: another process finds it

	// Only Seek uses what follows.
	refused uint64            // calls, until the last report
	alone   signals.Collector // in a process that shares no limits
	of      adaptive.Settings
	control *adaptive.Controller // nil: another process finds it
	mode    string
	said    adaptive.Reason // why the amount was held when that was logged last
	wrote   time.Time
	written uint64 // version
}

// seekersOf returns the seekers of the limits of a file; those of before go on.
func seekersOf(defined map[string]Definition, was map[string]*seeker) *map[string]*seeker {
	all := map[string]*seeker{}
	for name, f := range defined {
		if f.Auto.Mode == "" {
			continue
		}
		if all[name] = was[name]; all[name] == nil {
			all[name] = &seeker{meter: signals.NewCallMeter()}
		}
	}
	return &all
}

// Meter returns the meter of the calls of a limit, or nil if its amount is a number.
func (s *Limits) Meter(limit string) *signals.Meter {
	if k := (*s.seekers.Load())[limit]; k != nil {
		return k.meter
	}
	return nil
}

// Found returns what was found about the amount of a limit, or nil.
func (s *Limits) Found(limit string) *status.AutoAmount {
	if x := s.FoundHere(limit); x != nil {
		return x
	}
	if x, ok := (*s.found.Load())[limit]; ok {
		return &x.Shown
	}
	return nil
}

// FoundHere returns what this process has found about the amount of a limit, or nil if it finds none.
func (s *Limits) FoundHere(limit string) *status.AutoAmount {
	if k := (*s.seekers.Load())[limit]; k != nil {
		return k.shown.Load()
	}
	return nil
}

// fit sets the amount that was found, within its bounds.
func (s *Limits) fit(l *ratelimit.Limit) {
	x := (*s.found.Load())[l.Name]
	if n := x.in(l.Auto.Mode); n > 0 {
		l.Amount = min(max(n, l.Auto.Min), l.Auto.Max)
	}
}

// adopt puts an amount that was found into force here, unless a newer one is.
func (s *Limits) adopt(name string, x foundAmount) {
	s.finding.Lock()
	defer s.finding.Unlock()
	was := *s.found.Load()
	if x.Version <= was[name].Version {
		return
	}
	next := map[string]foundAmount{name: x}
	for other, y := range was {
		if other != name {
			next[other] = y
		}
	}
	s.found.Store(&next)
	l, err := s.Rules.Limit(name)
	if err != nil { // a reload has just removed it
		return
	}
	fitted := *l
	if s.fit(&fitted); fitted.Amount == l.Amount {
		return
	}
	if err := s.Rules.Update(name, func(l *ratelimit.Limit) error { s.fit(l); return nil }); err != nil {
		s.log.Warn("an amount that was found is not in force here", "limit", name, "error", err)
	}
}

// foundDoc returns the record of an amount. One that cannot be read counts as none: changes of all limits
// would wait for it.
func (s *Limits) foundDoc(name string) *store.Doc[foundAmount] {
	lost := func(err error) {
		s.log.Error("the amount that was found is lost: it is found anew", "limit", name, "error", err)
	}
	return &store.Doc[foundAmount]{Store: s.node.Records, Key: foundKey + name, Try: editTry,
		Lost: lost,
		Decode: func(b []byte) (x foundAmount, _ error) {
			if err := json.Unmarshal(b, &x); err != nil {
				lost(err)
				return foundAmount{}, nil
			}
			return x, nil
		},
		Bus: s.node.Bus, Topic: LimitsTopic, Log: s.log,
	}
}

// takeFound puts the amounts of the records into force here.
func (s *Limits) takeFound(ctx context.Context) error {
	for name := range *s.seekers.Load() {
		x, _, err := s.foundDoc(name).Load(ctx)
		if err != nil {
			return err
		}
		s.adopt(name, x)
	}
	return nil
}

// Seek finds the amounts of the limits, until ctx ends.
func (s *Limits) Seek(ctx context.Context) {
	signals.Each(ctx, func(wg *sync.WaitGroup) {
		all := *s.seekers.Load()
		if shared := s.node.Rooms.SharedLimits(); shared != nil {
			shared.KeepSignals(func(name string) bool { return all[name] != nil })
		}
		for name, k := range all {
			wg.Go(func() { s.seek(ctx, name, k) })
		}
	})
}

// seek sends what this process has measured, and finds the amount if it decides about the calls.
func (s *Limits) seek(ctx context.Context, name string, k *seeker) {
	l, err := s.Rules.Limit(name)
	if err != nil { // a reload has just removed it
		return
	}
	x, senders, hosted := s.report(ctx, l, k)
	if !hosted || l.Auto.Mode == "" {
		k.control = nil
		k.shown.Store(nil)
		return
	}
	if k.control == nil {
		if err := s.resume(ctx, name); err != nil {
			if ctx.Err() == nil {
				s.log.Warn("the amount that was found is not read yet", "limit", name, "error", err)
			}
			return
		}
		if l, err = s.Rules.Limit(name); err != nil {
			return
		}
	}
	a := &l.Auto
	next := k.step(&seeking{log: s.log.With("limit", name), found: (*s.found.Load())[name], mode: a.Mode,
		of: adaptive.Settings{Min: a.Min, Max: a.Max, Start: a.Start, TargetP95: a.TargetP95,
			TargetErrors: a.TargetErrors, Calls: true},
		inForce: l.Amount, senders: senders}, x)
	adopt := func(x foundAmount) { s.adopt(name, x) }
	k.keep(ctx, s.foundDoc(name), (*s.found.Load())[name], next, l.Amount, adopt)
}

// resume takes the record of the process that found the amount before this one. It may be newer than what
// this one knows.
func (s *Limits) resume(ctx context.Context, name string) error {
	ctx, stop := context.WithTimeout(ctx, signals.Every)
	defer stop()
	x, _, err := s.foundDoc(name).Load(ctx)
	if err == nil {
		s.adopt(name, x)
	}
	return err
}

// report sends what this process has measured, and returns what all have, if this one finds the amount.
func (s *Limits) report(
	ctx context.Context, l *ratelimit.Limit, k *seeker,
) (all *signals.Report, senders int, hosted bool) {
	x := k.meter.Read()
	x.Inside = x.InFlight
	if t, err := s.Rules.Totals(l.Name); err == nil {
		x.Entered = int64(t.Refused - min(k.refused, t.Refused)) // fewer: the limit is another one
		k.refused = t.Refused
	}
	shared := s.node.Rooms.SharedLimits()
	if shared == nil {
		k.alone.Put(x)
		all, senders = k.alone.Take()
		return all, senders, true
	}
	global := ofAll(Definition{Limit: *l})
	if x.Length > 0 && l.Auto.Mode != "" {
		if err := shared.SendSignals(ctx, l.Name, global, x); err != nil && ctx.Err() == nil {
			s.log.Debug("signals of a limit not sent", "limit", l.Name, "error", err)
		}
	}
	return shared.TakeSignals(l.Name, global)
}

// A seeking is what a step needs to know.
type seeking struct {
	log     *slog.Logger
	mode    string
	of      adaptive.Settings
	found   foundAmount // until now
	inForce int64
	senders int
}

// step finds the next amount, and shows and logs it.
func (k *seeker) step(s *seeking, x *signals.Report) (next foundAmount) {
	if k.control == nil || k.of != s.of {
		var learned adaptive.State
		if k.control != nil {
			learned = k.control.State()
		} else if b := s.found.State; len(b) > 0 {
			if err := learned.UnmarshalBinary(b); err != nil {
				s.log.Warn("what was learned cannot be read: it is learned anew", "error", err)
			}
		}
		k.of, k.control = s.of, adaptive.New(s.of, learned)
	}
	d := k.control.Step(adaptive.Sample{
		At: time.Now(), Length: cmp.Or(x.Length, signals.Every), Inside: x.Inside, Waiting: x.Entered,
		Limit: s.inForce, InFlight: x.InFlight, Routes: x.Routes, Load: cmp.Or(x.Load, math.NaN()),
		Frozen: s.mode == limit.AutoFrozen,
	})
	state, err := k.control.State().MarshalBinary()
	if err != nil {
		state = nil
	}
	shown := &status.AutoAmount{Amount: d.Active, Knee: d.Knee, P95: d.P95, InUse: x.Inside,
		Signal: string(d.Signal), Reason: string(d.Reason), Held: d.Held, Senders: s.senders}
	if math.IsNaN(d.P95) {
		shown.P95 = -1
	}
	k.tell(s, shown)
	k.shown.Store(shown)
	next = foundAmount{State: state, Shown: *shown, InForce: shown.Amount}
	if s.mode == limit.AutoShadow {
		next.InForce = s.inForce
	}
	return next
}

// keep puts what was found into force and writes it: a lower amount first into force, because the origin is
// overloaded now, and a higher one first into the record, because the next host has to know it.
func (k *seeker) keep(
	ctx context.Context, doc *store.Doc[foundAmount], was, x foundAmount, inForce int64,
	adopt func(foundAmount),
) {
	changed := was.Shown.Amount != x.Shown.Amount || was.InForce != x.InForce || k.written != was.Version
	if !changed && time.Since(k.wrote) < learnedEach {
		return
	}
	x.Version = max(uint64(time.Now().UnixMilli()), was.Version+1)
	if x.InForce < inForce {
		adopt(x)
	}
	ctx, stop := context.WithTimeout(ctx, signals.Every)
	defer stop()
	others := false
	_, err := doc.Edit(ctx, func(v *foundAmount) (bool, error) {
		if others = v.Version > was.Version; others {
			x = *v
			return false, nil
		}
		*v = x
		return true, nil
	})
	if err != nil {
		if ctx.Err() == nil {
			doc.Log.Warn("an amount that was found is not written yet", "record", doc.Key, "error", err)
		}
		return
	}
	if others { // another process has decided meanwhile: this one goes on with that
		k.control = nil
	} else {
		k.written, k.wrote = x.Version, time.Now()
	}
	adopt(x)
}

// tell logs an amount that has changed, and why another stays although the signals say otherwise.
func (k *seeker) tell(s *seeking, a *status.AutoAmount) {
	was := k.shown.Load()
	changed := was == nil || was.Amount != a.Amount || k.mode != s.mode
	reason := adaptive.Reason("")
	if a.Held {
		reason = adaptive.Reason(a.Reason)
	}
	if !changed && k.said == reason {
		return
	}
	k.said, k.mode = reason, s.mode
	s.log.Info("amount found", "mode", s.mode, "amount", a.Amount, "knee", a.Knee, "p95_of_target", a.P95,
		"in_use", a.InUse, "signal", a.Signal, "reason", a.Reason, "held", a.Held)
}
