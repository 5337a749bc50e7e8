// Package peers measures headgate beside a named other side: CPU per request of
// a server process, as medians of interleaved pairs, because requests per second
// of two identical programs differ by 10 % on a shared machine.
//
// The tests run only with the build tag bench: make bench.
package peers
