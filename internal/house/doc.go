// Package house holds the house rules of headgate, so that no reviewer has to.
//
// Each rule is a function from a Tree, the repository read once, to the Faults
// it finds. The tests run every rule over the repository itself, and run every
// rule over a small bad tree too: a rule that cannot fail is no rule.
//
// # What it costs
//
// One parse of every Go file, without types: a second or two. That is why some
// rules are heuristics. Where a heuristic is wrong, the exception is written
// down with its reason in exceptions.go, and an exception that no longer excuses
// anything is itself a fault.
//
// # What it does not do
//
// It repeats nothing that go vet, go fix or staticcheck say: see make lint.
package house
