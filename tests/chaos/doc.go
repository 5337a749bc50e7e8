// Package chaos plays rooms in which everything happens at once: a crowd, operators who change
// everything, and failures, in one process, several nodes or several data centers. Processes use the
// public API, in virtual time; only their records are kept by the tests, which see each write and can
// make it fail.
//
//	go test ./tests/chaos                          the worlds of make test
//	go test ./tests/chaos -chaos-first 9 -chaos-seeds 1 -chaos-talks -v
package chaos
