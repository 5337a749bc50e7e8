// Package knee tests the limit that finds itself with real processes: an origin with two bottlenecks,
// whose capacity changes while it runs, a real headgate in front, and a crowd of HTTP visitors. The knee
// is measured in the same run: the crowd first visits the origin without headgate, a few more people at
// each step, until the origin misses its target. What headgate finds is judged by that number, and by
// what the origin itself has seen.
//
// The bottleneck that decides is a pool of connections with real waits, so that other programs on the
// machine do not. All bounds are ratios to what was measured, and counts of looks, 5 s each:
// headgate samples the origin as often. A busy machine changes both sides.
package knee
