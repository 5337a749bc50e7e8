package house

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// An importRule says what some packages must not import. Paths inside the
// repository are written without the module: "slot", "internal/ticket", "." is
// the root. A pattern ending in "/..." takes in what is below.
type importRule struct {
	from   []string // these packages…
	except []string // …but not these
	deny   []string // must not import these
	allow  []string // or, when deny is empty, nothing but the standard library and these
	tests  bool     // holds for test files too
	why    string
}

// edges are the packages that face the outside (docs/design.md §9).
func edges() []string {
	return strings.Fields(`cmd/... internal/analytics/... internal/api/... internal/certs/...
		internal/checkout/... internal/config/... internal/dashboard/... internal/deliver/...
		internal/doctor/... internal/envoy/... internal/join/... internal/manage/... internal/pages/...
		internal/proxy/... internal/rules/... internal/server/... internal/unary/... internal/web/...
		internal/webhook/... internal/crowd/... internal/demo/... internal/sim/report/...
		internal/traces/...`)
}

func importRules() []importRule {
	arithmetic := []string{"slot/...", "limit/...", "internal/ticket/..."}
	state := []string{"internal/counter/...", "internal/store/...", "internal/quota/..."}
	tests := []string{"headgatetest/...", "internal/house/...", "tests/...", "testing/...",
		"github.com/google/go-cmp/...", "github.com/rogpeppe/go-internal/...", "github.com/golang-jwt/..."}
	nats := "github.com/nats-io/nats.go/..."
	return []importRule{
		{from: arithmetic, allow: []string{},
			why: "arithmetic stands alone: it is checked against an oracle and read to judge us"},
		// internal/ticket may pool the buffers it hands to a cipher: sync alone.
		{from: []string{"slot/...", "limit/..."}, deny: []string{"sync"},
			why: "one value that its caller guards"},
		{from: arithmetic, deny: []string{"sync/atomic", "net", "net/http/...", "os/...", "log/...",
			"context", "syscall", "unsafe", "runtime/..."},
			why: "arithmetic has no goroutine and no I/O; its caller has"},
		{from: state, deny: append([]string{"."}, edges()...), tests: true,
			why: "imports run one way: edges, faces, state, arithmetic"},
		{from: []string{"internal/sim/..."}, except: []string{"internal/sim/report/..."},
			allow: []string{"slot", "limit", "internal/counter", "internal/sim/..."},
			why:   "a simulation runs the arithmetic and the counter, and nothing that waits"},
		{from: []string{"internal/sim/report/..."}, allow: []string{"internal/sim/..."},
			why: "a report shows what simulations came to"},
		{from: []string{"internal/sim/..."}, except: []string{"internal/sim/report/..."},
			deny: []string{"internal/sim/report/..."}, why: "imports run one way"},
		{from: []string{"..."}, except: []string{"cmd/...", "internal/sim/...", "internal/dashboard"},
			deny: []string{"internal/sim/..."}, why: "only the commands simulate, and the dashboard the last hour"},
		{from: []string{"internal/join/..."}, allow: []string{},
			why: "who may join is read to judge us: the standard library alone"},
		{from: []string{"internal/visits/...", "internal/exclude/...", "internal/callkey/...",
			"internal/boot/...", "internal/route/...", "internal/tally/...", "internal/paths/...",
			"internal/decide/...", "internal/view/..."},
			allow: []string{"slot", "internal/paths", "internal/tally", "internal/wire",
				"golang.org/x/sys/..."},
			why: "parts of the room's own face: what they import, a library's user pays for"},
		{from: []string{"internal/analytics/..."}, allow: []string{"internal/tally"},
			why: "it keeps what others count, and knows none of them"},
		{from: []string{"internal/webhook/..."}, allow: []string{"internal/events"},
			why: "what is told, and when, is arithmetic: the process looks, keeps and sends"},
		{from: []string{"internal/wire/..."}, allow: []string{},
			why: "a library's user does not pay for gRPC: the standard library alone"},
		{from: []string{"."}, allow: []string{"slot", "limit", "internal/boot", "internal/callkey",
			"internal/counter", "internal/decide", "internal/exclude", "internal/guard", "internal/paths",
			"internal/quota", "internal/route", "internal/store",
			"internal/tally", "internal/ticket", "internal/turn", "internal/view", "internal/visits",
			"internal/wire", nats,
			"golang.org/x/sys/..."},
			why: "the root declares Rules and Page and cmd wires who implements them: a library's " +
				"user pays for std, x/sys and nats.go only"},
		{from: []string{"examples/..."}, deny: []string{"internal/..."}, tests: true,
			why: "an example shows what users can do"},
		{from: []string{"..."}, except: []string{"cmd/...", "tests/..."}, deny: []string{"cmd/..."},
			why: "cmd is where the parts are wired; nothing is wired to cmd"},
		{from: []string{"..."},
			except: []string{"headgatetest/...", "internal/house/...", "tests/virtual/...",
				"tests/world/..."},
			deny:   tests, why: "what only tests need is not in the binary"},
		{from: []string{"..."}, except: []string{"embedded/...", "headgatetest/...", "tests/virtual/..."},
			deny: []string{"github.com/nats-io/nats-server/..."}, tests: true,
			why: "nats-server weighs 10 MB: who brings an own NATS does not carry it"},
		{from: []string{"..."}, except: []string{".", "queue", "internal/store/...", "internal/counter/...",
			"embedded/...", "headgatetest/..."}, deny: []string{nats},
			why: "only the store knows subjects, buckets and streams; the root and queue are handed a " +
				"connection, and pass it on"},
		{from: []string{"queue/..."}, allow: []string{".", "limit", "slot", "internal/store", nats,
			"golang.org/x/sys/..."},
			why: "a face of its own beside the root: its user pays for std, x/sys and nats.go only"},
		{from: []string{"."}, deny: []string{"queue/..."}, why: "queue builds upon the root"},
		{from: []string{"..."}, except: []string{"internal/envoy/...", "internal/unary/..."},
			deny: []string{"google.golang.org/grpc/..."},
			why:  "nothing but the ways in of Envoy compiles gRPC"},
		{from: []string{"..."}, except: []string{"internal/traces/..."},
			deny: []string{"go.opentelemetry.io/..."}, why: "what is off must be in nobody's way"},
		{from: []string{"..."}, except: []string{"internal/config/...", "internal/envoy/..."},
			deny: []string{"go.yaml.in/yaml/..."},
			why: "only internal/config reads the configuration, and internal/envoy the rules of " +
				"the reference rate limit service"},
		{from: []string{"..."},
			except: []string{"internal/config/...", "internal/crowd/...", "cmd/...", "examples/..."},
			deny:   []string{"flag"}, why: "only internal/config and the commands read flags"},
	}
}

// Imports holds the direction of imports.
func Imports(t *Tree) []Fault {
	var faults []Fault
	rules := importRules()
	for _, f := range t.Go {
		for _, spec := range f.AST.Imports {
			target, _ := strconv.Unquote(spec.Path.Value)
			target = inside(target)
			for _, r := range rules {
				if r.denies(f, target) {
					faults = append(faults, t.fault(f, spec.Pos(),
						"%s must not import %s: %s", f.Dir, target, r.why))
				}
			}
		}
	}
	return faults
}

func (r importRule) denies(f *File, target string) bool {
	if f.Test && !r.tests || !match(r.from, f.Dir) || match(r.except, f.Dir) {
		return false
	}
	if r.deny != nil {
		return match(r.deny, target) && target != f.Dir
	}
	return !standard(target) && !match(r.allow, target)
}

// inside strips the module from the paths of our own packages.
func inside(target string) string {
	if target == Module {
		return "."
	}
	return strings.TrimPrefix(target, Module+"/")
}

// own are the first elements of our own packages, which look like those of the
// standard library once the module is stripped.
func own() []string {
	return strings.Fields(". slot limit queue embedded headgatetest cmd internal tests examples deploy")
}

// standard reports whether a path is of the standard library: its first
// element has no dot and is none of ours.
func standard(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return !strings.Contains(first, ".") && !slices.Contains(own(), first)
}

func match(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		base, below := strings.CutSuffix(p, "...")
		base = strings.TrimSuffix(base, "/")
		return base == dir || below && (base == "" || strings.HasPrefix(dir, base+"/"))
	})
}

// Clocks keeps the clock out of the arithmetic: it gets the time as an argument.
func Clocks(t *Tree) []Fault {
	var faults []Fault
	reads := strings.Fields("Now Since Until Sleep After AfterFunc Tick NewTimer NewTicker")
	t.code(func(f *File) {
		if !match([]string{"slot/...", "limit/...", "internal/ticket/..."}, f.Dir) {
			return
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if pkg, name := callee(n); pkg == "time" && slices.Contains(reads, name) {
				faults = append(faults, t.fault(f, n.Pos(),
					"time.%s in %s: arithmetic takes the time as an argument", name, f.Dir))
			}
			return true
		})
	})
	return faults
}

// Environment keeps the reading of the environment at the edge.
func Environment(t *Tree) []Fault {
	var faults []Fault
	t.code(func(f *File) {
		if match([]string{"internal/config/...", "cmd/..."}, f.Dir) {
			return
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			pkg, name := callee(n)
			if pkg == "os" && slices.Contains(strings.Fields("Getenv LookupEnv Environ"), name) {
				faults = append(faults, t.fault(f, n.Pos(),
					"os.%s: only internal/config and the commands read the environment", name))
			}
			return true
		})
	})
	return faults
}
