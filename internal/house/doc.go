// Package house holds the house rules of headgate that no linter knows: what must
// agree with the docs, the Makefile and the decision records, and who waits for a
// goroutine. Everything else is in .golangci.yml, and make lint checks it.
//
// Each rule is a function from a Tree, the repository read once, to the Faults
// it finds. The tests run every rule over the repository itself, and run every
// rule over a small bad tree too: a rule that cannot fail is no rule.
//
// # What it costs
//
// One parse of every Go file, without types: a second or two. That is why some
// rules are heuristics. The files that start goroutines are in exceptions.go, each
// with who waits for them, and a line that no longer excuses anything is itself a
// fault.
package house
