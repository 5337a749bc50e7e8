package join

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/hint"
)

// A Fault is one fault of a plan or a join file.
type Fault struct {
	Field   string // JSON name: datacenter, node, listen, peers, store, ca, cert or key
	Problem string
	Hint    string
}

func (f *Fault) Error() string { return f.Field + ": " + f.Problem }

// fault returns a fault; the hint comes first because it needs no arguments.
func fault(hint, format string, args ...any) *Fault {
	return &Fault{Problem: fmt.Sprintf(format, args...), Hint: hint}
}

// in sets the field of a fault.
func (f *Fault) in(field string) *Fault {
	if f != nil {
		f.Field = field
	}
	return f
}

// collect returns the faults that are not nil.
func collect(faults ...*Fault) []*Fault {
	return slices.DeleteFunc(faults, func(f *Fault) bool { return f == nil })
}

const (
	longestName = 32 // the longest name of a node or a data center; chosen: a DNS label has 63

	// sharedWorker is the name in the certificate shared by all workers without a name of their
	// own.
	sharedWorker = "worker"
	// anyStore is the common name in the certificates of all store nodes.
	anyStore = "store"
)

// CheckName checks the name of a data center; nil means it is valid.
func CheckName(s string) *Fault {
	const hint = "use 1 to 32 of the letters a-z, digits and -, not first or last"
	if s == "" || len(s) > longestName {
		return fault(hint, "%s is %d characters long", quote(s), len(s))
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return fault(hint, "%s contains %q", quote(s), r)
		}
	}
	if s[0] == '-' || s[len(s)-1] == '-' {
		return fault(hint, "%s begins or ends with -", quote(s))
	}
	return nil
}

// CheckNode checks the name of a node; nil means it is valid.
func CheckNode(s string) *Fault {
	switch s {
	case anyStore:
		return fault("take another name, such as n1", "%q stands for all store nodes", s)
	case sharedWorker:
		return fault("take another name, such as w1", "%q stands for all workers without a name", s)
	}
	return CheckName(s)
}

// CheckAddress checks the address at which others reach a store node; nil means it is valid.
func CheckAddress(s string) *Fault {
	const hint = "write host:port as others reach it, such as 10.0.0.1:7422"
	return checkMachine(s, hint, 1)
}

// CheckLink checks the address of a store node of another data center; nil means it is valid.
func CheckLink(s string) *Fault {
	return checkMachine(s, "write host:port, such as 10.1.0.1:7424: the port is by two above "+
		"that of the store node there", 0)
}

// checkMachine checks the address of one machine. more is the number of ports used after the named
// one.
func checkMachine(s, hint string, more int) *Fault {
	host, f := checkHostPort(s, hint, more)
	if f != nil {
		return f
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return fault(hint, "%s names no machine", quote(s))
	}
	return nil
}

// CheckListen checks the listen address of a store node; nil means it is valid.
func CheckListen(s string) *Fault {
	_, f := checkHostPort(s, "write host:port, such as 10.0.0.1:7422 or :7422", 1)
	return f
}

// checkHostPort returns the host of an address. more is the number of further ports after the named
// one that must be valid too: 0 or 1.
func checkHostPort(s, hint string, more int) (string, *Fault) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fault(hint, "%s is not an address", quote(s))
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535-more || strconv.Itoa(n) != port {
		hint = "write a port from 1 to 65535"
		if more > 0 {
			hint = "write a port from 1 to 65534: the next one is used too"
		}
		return "", fault(hint, "%s is not a port", quote(port))
	}
	ip, err := netip.ParseAddr(host)
	if host == "" || err == nil && ip.Zone() == "" {
		return host, nil
	}
	if len(host) > 253 || host[0] == '-' || strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("-_.", r)
	}) {
		return "", fault(hint, "%s is not an address", quote(s))
	}
	return host, nil
}

func quote(s string) string { return hint.Quote(s) }

// Faults returns all faults of a plan.
func (p *Plan) Faults() []*Fault {
	faults := []*Fault{CheckName(p.Datacenter).in("datacenter"), p.checkStore().in("store")}
	for _, name := range slices.Sorted(maps.Keys(p.Peers)) {
		faults = append(faults, CheckNode(name).in("peers"), CheckAddress(p.Peers[name]).in("peers"))
	}
	faults = collect(faults...)
	if len(faults) == 0 {
		faults = collect(p.checkPorts().in("peers"))
	}
	return faults
}

// checkStore requires one store node or three, each with an address.
func (p *Plan) checkStore() *Fault {
	switch n := len(p.Store); n {
	case 1, 3:
	case 0:
		return fault("name one store node or three, such as [n1, n2, n3]", "names no store node")
	case 2:
		return fault("name one or three: two are worse than one, for both must live",
			"has two nodes")
	default:
		return fault("name one or three: any node may join as a worker", "has %d nodes", n)
	}
	seen := map[string]bool{}
	for _, name := range p.Store {
		_, known := p.Peers[name]
		switch {
		case seen[name]:
			return fault("name each store node once", "has %s twice", quote(name))
		case !known:
			return fault("add "+name+": 10.0.0.1:7422, or what its address is, under peers",
				"%s has no address among peers", quote(name))
		}
		seen[name] = true
	}
	return nil
}

// checkPorts rejects addresses that collide: each node uses a port and the next one.
func (p *Plan) checkPorts() *Fault {
	if a, b, ok := SharedPort(p.Peers, 2); ok {
		return fault("give each node two ports of its own, such as 7422, 7424 and 7426",
			"%s and %s share a port: each needs its own and the next", a, b)
	}
	return nil
}

// SharedPort returns two nodes whose ports collide, if each uses so many ports from its own on. The
// addresses must be valid.
func SharedPort(peers map[string]string, ports int) (a, b string, shared bool) {
	type place struct {
		node, host string
		port       int
	}
	var places []place
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		host, port, _ := net.SplitHostPort(peers[name]) // validated by CheckAddress
		n, _ := strconv.Atoi(port)
		places = append(places, place{name, strings.ToLower(host), n})
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Or(strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
	})
	for i := 1; i < len(places); i++ {
		a, b := places[i-1], places[i]
		if a.host == b.host && b.port-a.port < ports {
			return a.node, b.node, true
		}
	}
	return "", "", false
}

// Faults returns all faults of a join file at a given time. It checks names and addresses first,
// and only if they are valid the certificate.
func (f *File) Faults(now time.Time) []*Fault {
	if faults := f.Layout(); len(faults) > 0 {
		return faults // the certificate is compared with the names
	}
	_, faults := f.prove(now)
	return faults
}

// Layout returns all faults of names and addresses.
func (f *File) Layout() []*Fault {
	faults := f.Plan.Faults()
	if f.Node != "" {
		faults = append(faults, collect(CheckNode(f.Node).in("node"))...)
	}
	switch {
	case f.Listen != "":
		faults = append(faults, collect(CheckListen(f.Listen).in("listen"))...)
	case f.IsStore():
		at := f.Peers[f.Node]
		if at == "" {
			at = "10.0.0.1:7422"
		}
		faults = append(faults, fault("add listen: "+at, "is missing on a store node").in("listen"))
	}
	return faults
}
