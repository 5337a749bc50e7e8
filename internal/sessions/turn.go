package sessions

import (
	"cmp"
	"sync/atomic"
)

// A RuleHistory holds the rules in force and controls how they change. Visitors seen under earlier
// rules are reported by those rules, because their passes may contain ends by them. Until all of
// them are reported, no pass gets an end that is not confirmed. Many goroutines may call Load at
// once; the caller guards the other methods.
type RuleHistory struct {
	now     atomic.Pointer[Rules]
	changes bool   // other rules may follow soon
	before  *Rules // earlier rules with unreported visitors; nil: none
}

// Load returns the rules in force.
func (t *RuleHistory) Load() *Rules { return t.now.Load() }

// Announce declares that next may be in force soon. A Change must follow, either to the new rules
// or to the current ones.
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

// Reporting returns the rules for the next Report.
func (t *RuleHistory) Reporting() *Rules { return cmp.Or(t.before, t.now.Load()) }

// Reported records that such a Report was complete.
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
