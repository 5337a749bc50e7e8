// Package envoy answers Envoy's RateLimitService (version 3) with the limits of headgate.
//
// A [Service] is asked whether a request may pass, as a list of descriptors. [Rules] say which
// limit a descriptor means and whose use it counts; they are read from the YAML of
// envoyproxy/ratelimit, the reference service, by [ParseRules].
//
// # The promise
//
// A call takes from all its descriptors or from none, but for those of limits with an overdraft,
// which count what they refuse. What a descriptor means, and what the answer says, is as the
// reference has it (src/config/config_impl.go and src/service/ratelimit.go at f2fb157) but for
// what docs/operations.md lists in "Envoy".
//
// # Concurrency and cost
//
// All methods may be called by many goroutines at once. A call blocks as long as the
// limiter does: once for what it takes, and once more each when it has descriptors that only
// ask or give back, and when it has quotas. Finding a limit costs one lookup for each entry and
// compares the wildcards of a level one by one. A message has 1 MB at most, a call 1,000
// descriptors with 10,000 entries in all, a descriptor 100 entries. A message with more is
// rejected before it takes memory.
//
// # What it does not do
//
// It holds no counters and reads no files. It sends no quota and no dynamic metadata.
package envoy
