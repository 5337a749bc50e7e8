package control

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/signals"
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

// A seeker finds one amount or rate.
type seeker struct {
	*finding
	meter *signals.Meter
	shown atomic.Pointer[status.AutoAmount] // nil: another process finds it

	// Only Seek uses what follows.
	refused uint64            // calls, until the last report
	alone   signals.Collector // in a process that shares no limits
	of      adaptive.Settings
	control *adaptive.Controller // nil: another process finds it
	mode    string
	said    adaptive.Reason // why the amount was held when that was logged last
}

// rest leaves it to another process to find the amount.
func (k *seeker) rest() {
	k.control = nil
	k.shown.Store(nil)
}

// seekersOf returns the seekers of the limits of a file; those of before go on.
func (s *Limits) seekersOf(defined map[string]Definition, was map[string]*seeker) *map[string]*seeker {
	all := map[string]*seeker{}
	for name, f := range defined {
		if f.Auto.Mode == "" {
			continue
		}
		if all[name] = was[name]; all[name] == nil {
			all[name] = &seeker{finding: s.newFinding(name), meter: signals.NewCallMeter()}
		}
	}
	return &all
}

func (s *Limits) newFinding(name string) *finding {
	f := newFinding(s.node, foundKey+name, &s.finding, func() { s.force(name) }, s.log)
	f.doc.Bus, f.doc.Topic = s.node.Bus, LimitsTopic
	return f
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
	if k := (*s.seekers.Load())[limit]; k != nil {
		if x := k.known.Load(); x.Version > 0 {
			return &x.Shown
		}
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
	k := (*s.seekers.Load())[l.Name]
	if k == nil {
		return
	}
	if n := k.known.Load().inForce().amountIn(l.Auto.Mode); n > 0 {
		l.Amount = min(max(n, l.Auto.Min), l.Auto.Max)
	}
}

// force puts the amount that was found into force here. The caller holds finding.
func (s *Limits) force(name string) {
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

// takeFound puts the amounts of the records into force here.
func (s *Limits) takeFound(ctx context.Context) error {
	for _, k := range *s.seekers.Load() {
		if err := k.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// numbers returns the limits of a file that have a number, and may have had an amount that was found.
func numbers(defined map[string]Definition) map[string]bool {
	all := map[string]bool{}
	for name, f := range defined {
		if f.Auto.Mode == "" && f.Algorithm == limit.Concurrency && !IsEnvoys(name) {
			all[name] = true
		}
	}
	return all
}

// eraseFound forgets the amounts of limits that have a number now. The caller holds the turn.
func (s *Limits) eraseFound(ctx context.Context) {
	for name := range s.erases {
		var err error
		if _, found := (*s.seekers.Load())[name]; !found && !s.node.Worker { // a worker must not write it
			err = s.newFinding(name).erase(ctx)
		}
		if err != nil {
			s.log.Warn("an amount that was found is not forgotten yet", "limit", name, "error", err)
			return
		}
		delete(s.erases, name)
	}
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
		k.rest()
		return
	}
	begins := k.begins()
	if begins {
		if err := k.resume(ctx); err != nil {
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
	next := k.step(&seeking{log: s.log.With("limit", name), mode: a.Mode, begins: begins,
		of: adaptive.Settings{Min: a.Min, Max: a.Max, Start: a.Start, TargetP95: a.TargetP95,
			TargetErrors: a.TargetErrors, Calls: true},
		inForce: l.Amount, senders: senders}, x)
	k.keep(ctx, next, l.Amount)
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

// begins reports whether this process has to begin with the record: another one has found the amount before.
func (k *seeker) begins() bool {
	if k.known.Load().others {
		k.control = nil
	}
	return k.control == nil
}

// A seeking is what a step needs to know.
type seeking struct {
	log     *slog.Logger
	mode    string
	of      adaptive.Settings
	begins  bool // what was reported until now is only a part
	inForce int64
	senders int
}

// step finds the next amount, and shows and logs it.
func (k *seeker) step(s *seeking, x *signals.Report) (next foundAmount) {
	if k.control == nil || k.of != s.of {
		var learned adaptive.State
		if k.control != nil {
			learned = k.control.State()
		} else if b := k.known.Load().State; len(b) > 0 {
			if err := learned.UnmarshalBinary(b); err != nil {
				s.log.Warn("what was learned cannot be read: it is learned anew", "error", err)
			}
		}
		k.of, k.control = s.of, adaptive.New(s.of, learned)
	}
	sample := adaptive.Sample{
		At: time.Now(), Length: cmp.Or(x.Length, signals.Every), Inside: x.Inside, Waiting: x.Entered,
		Limit: s.inForce, InFlight: x.InFlight, Routes: x.Routes, Load: cmp.Or(x.Load, math.NaN()),
		Frozen: s.mode == limit.AutoFrozen,
		Behind: s.mode == limit.AutoOn && k.mode == s.mode && k.shown.Load() != nil &&
			k.shown.Load().Amount > s.inForce,
	}
	if s.begins {
		sample.Length = 0
	}
	d := k.control.Step(sample)
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
