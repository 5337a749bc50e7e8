// Package house contains the project rules of headgate that no linter knows. They check that code
// agrees with the docs, the Makefile and the decision records, and that something waits for each
// goroutine. Everything else is in .golangci.yml, and make lint checks it.
//
// Each rule is a function from a Tree, which is the repository read once, to the Faults it finds.
// The tests run every rule over the repository itself, and over a small bad tree too: a rule that
// cannot fail is no rule.
//
// # What it costs
//
// One parse of every Go file, without types: a second or two. Without types, some rules are
// heuristics. exceptions_test.go lists the files that start goroutines, and what waits for them. An
// entry that is no longer needed is itself a fault.
package house
