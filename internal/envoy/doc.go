// Package envoy implements Envoy's RateLimitService (version 3) with the limits of headgate.
//
// Envoy sends a [Service] a list of descriptors and receives the decision whether a request may
// pass. [Rules] map a descriptor to a limit and a key. [ParseRules] reads them from the YAML format
// of envoyproxy/ratelimit, the reference service.
//
// # Guarantees
//
// A call takes from all its descriptors or from none. The exception are limits with an overdraft,
// which also count what they reject. The meaning of descriptors and the content of answers follow
// the reference (src/config/config_impl.go and src/service/ratelimit.go at f2fb157), except for the
// differences listed in docs/configuration.md under "Envoy".
//
// # Concurrency and cost
//
// All methods are safe for concurrent use. A call blocks as long as the limiter does: once for what
// it takes, and once more each for descriptors that only query or return hits, and for quotas.
// Finding a limit costs one lookup for each entry, plus one comparison for each wildcard of a
// level. A message has at most 1 MB, a call 1,000 descriptors with 10,000 entries in all, and a
// descriptor 100 entries. Larger messages are rejected before they use memory.
//
// # Limits of the package
//
// It holds no counters and reads no files. RLS answers have no quota and no dynamic metadata.
//
// # The files
//
// From the top down:
//
//	serve              bytes to requests, and requests that are too large
//	rls                the Service: reads a request
//	answer, decide     its answer with headers, and its decision by the limiter
//	authorize          external authorization: the rooms decide
//	question           reads what it is asked from the wire
//	override           limits that requests bring along
//	call               the state of a request
//	quota              streams of RLQS: reports and grants
//	pool, grant        shares a key of a limit among Envoys; what a grant needs of it
//	parse, nodes       the files of rules: what they mean, and their YAML
//	rules              from a descriptor to its limit and key
package envoy
