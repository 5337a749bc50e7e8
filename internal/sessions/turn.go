package sessions

import (
	"cmp"
	"sync/atomic"
)

// A Turn is the rules in force, and how they change: what was seen by those of before is reported by
// them, for passes may say so; until all of that is reported no pass notes an end that is not confirmed.
// Load may be called by many goroutines at once; the caller guards the rest.
type RuleHistory struct {
	now     atomic.Pointer[Rules]
	changes bool   // others are on their way
	before  *Rules // whose sightings are not all reported; nil: there are none
}

// Load gives the rules in force.
func (t *RuleHistory) Load() *Rules { return t.now.Load() }

// Announce says that other rules may be in force soon. After it Change must follow, or Change of the
// rules in force.
func (t *RuleHistory) Announce(next *Rules) {
	old := *t.now.Load()
	old.Changing = next.Changing
	t.changes = old != *next
	t.store(old)
}

// Change puts rules into force.
func (t *RuleHistory) Change(next *Rules) {
	if t.changes && t.before == nil {
		t.before = t.now.Load()
	}
	t.changes = false
	t.store(*next)
}

// Reporting gives the rules by which the next Report is to be made.
func (t *RuleHistory) Reporting() *Rules { return cmp.Or(t.before, t.now.Load()) }

// Reported notes that such a Report was all.
func (t *RuleHistory) Reported() {
	if t.before != nil {
		t.before = nil
		t.store(*t.now.Load())
	}
}

func (t *RuleHistory) store(to Rules) {
	to.Changing = t.changes || t.before != nil
	t.now.Store(&to)
}
