// Package mutants puts faults into copies of the code, one at a time, and wants the scenarios in
// virtual time to find each, or the tests of the package if the fault breaks a rule that one process shows.
//
//	go test -tags mutants -timeout 60m ./tests/mutants
//
// A mutant is a few lines of a file that go test -overlay builds in place of it: the code itself
// has no switches. Without the tag only the list is checked, that each mutant still fits.
package mutants
