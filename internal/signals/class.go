package signals

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
	"github.com/headgate/headgate/internal/histogram"
)

// Bounds of the classes. Chosen: a site has some dozens of kinds of pages; what is seen less often
// than 64 others says little about the origin.
const (
	mostClasses   = adaptive.MaxRoutes - 1 // and the rest
	candidates    = 256                    // classes of one interval that may get measurements of their own
	mostSegments  = 4                      // of a path; what is below is the same class
	mostName      = 96                     // bytes of a class's name
	longestPath   = 512                    // longer ones belong to the rest: a candidate keeps its path
	longestMethod = 16
)

// Rest is the class of all requests whose class has no measurements of its own.
const Rest = "*"

// A class measures one kind of requests.
type class struct {
	name     string
	answered atomic.Uint64

	// Of each network, only adaptive.MaxPerNetwork requests of an interval count in these.
	took            histogram.Histogram
	failed, refused atomic.Uint64

	networks networks
	usual    atomic.Int64 // the least mean of an interval, as a duration; it rises slowly; 0: not known

	// Used by Read only.
	weight                             int // networks; it decays: a class outlives a quiet moment
	answeredOld, failedOld, refusedOld uint64
	tookOld                            histogram.Counts
}

// note counts a request; whole says that it counts in everything.
func (c *class) note(o Outcome, took time.Duration, whole bool) {
	if o < Lost {
		c.answered.Add(1)
	}
	if !whole {
		return
	}
	switch o {
	case Failed, Lost, Unreachable:
		c.failed.Add(1)
	case Refused:
		c.refused.Add(1)
	}
	if o != Unreachable {
		c.took.Add(took)
	}
}

// isSlow reports whether an answer took much longer than those of the class usually do. Chosen: twice as
// long as their mean. When the origin is slow for all, the networks of slow answers are many.
func (c *class) isSlow(took time.Duration) bool {
	usual := c.usual.Load()
	return usual > 0 && int64(took) > 2*usual
}

// read returns what was measured since the last read, and whether that is anything.
func (c *class) read() (r adaptive.Route, some bool) {
	since := func(n *atomic.Uint64, old *uint64) uint64 {
		now, was := n.Load(), *old
		*old = now
		return now - was
	}
	r = adaptive.Route{Class: c.name, Answered: since(&c.answered, &c.answeredOld),
		Failed: since(&c.failed, &c.failedOld), Refused: since(&c.refused, &c.refusedOld)}
	now := histogram.Counts(c.took.Read())
	for i := range now {
		r.Latency[i] = now[i] - c.tookOld[i]
	}
	c.tookOld = now
	if n := r.Latency.Total(); n > 0 {
		mean := int64(0)
		for i, k := range r.Latency {
			mean += k * int64(histogram.Value(i)) / n
		}
		was := c.usual.Load()
		if was += was / 500; was == 0 || mean < was {
			was = mean
		}
		c.usual.Store(max(was, 1))
	}
	c.weight = max(c.networks.count(), c.weight-1-c.weight/8)
	c.networks.bits.Store(0)
	return r, r.Answered+r.Failed > 0
}

// networks estimates how many client networks there were: each sets one of 64 bits.
type networks struct{ bits atomic.Uint64 }

func bitOf(network uint64) uint64 { return 1 << (mix(network) >> 58) }

// mix spreads the numbers of neighboring networks.
func mix(network uint64) uint64 { return network * 0x9E3779B97F4A7C15 }

// add notes a network. It writes only what is new, so that cores do not fight for the line.
func (n *networks) add(bit uint64) {
	if n.bits.Load()&bit == 0 {
		n.bits.Or(bit)
	}
}

func (n *networks) count() int { return bits.OnesCount64(n.bits.Load()) }

// amounts counts the requests of client networks in one interval, over all classes. Networks may
// share a place: then they share its amount.
type amounts [1 << placeBits]atomic.Uint32

const placeBits = 12

// take reports whether another request of a network counts. It writes only while it does.
func (a *amounts) take(network uint64) bool {
	p := &a[mix(network)>>(64-placeBits)]
	return p.Load() < adaptive.MaxPerNetwork && p.Add(1) <= adaptive.MaxPerNetwork
}

// reset begins the next interval.
func (a *amounts) reset() {
	for i := range a {
		a[i].Store(0)
	}
}

// A table is one snapshot of the classes.
type table struct {
	of   map[uint64]*class
	rest *class
}

func (t *table) all() []*class {
	all := []*class{t.rest}
	for _, c := range t.of {
		all = append(all, c)
	}
	return all
}

// A candidate is a class that has no measurements of its own yet.
type candidate struct {
	key          uint64
	method, path string
	networks     networks
}

// class returns the class of a request.
func (m *Meter) class(method, path string, network uint64) *class {
	t, key := m.table.Load(), keyOf(method, path)
	bit := bitOf(network)
	if c := t.of[key]; c != nil {
		c.networks.add(bit)
		return c
	}
	if len(path) > longestPath || len(method) > longestMethod {
		return t.rest
	}
	at := &m.found[key%candidates]
	c := at.Load()
	switch {
	case c != nil && c.key == key:
		c.networks.add(bit)
	case c == nil, c.networks.count() == 1 && c.networks.bits.Load() != bit:
		// Another network drives out what only one has asked for: paths that one client invents do
		// not keep the places.
		c = &candidate{key: key, method: method, path: path}
		c.networks.add(bit)
		at.Store(c)
	}
	return t.rest
}

// promote gives measurements of their own to the classes that most networks have asked for.
func (m *Meter) promote(t *table) {
	var all []*candidate
	for i := range m.found {
		if c := m.found[i].Swap(nil); c != nil {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Compare(b.networks.count(), a.networks.count())
	})
	type old struct {
		key uint64
		c   *class
	}
	var olds []old
	next := &table{of: make(map[uint64]*class, len(t.of)+1), rest: t.rest}
	for key, c := range t.of {
		olds, next.of[key] = append(olds, old{key, c}), c
	}
	slices.SortFunc(olds, func(a, b old) int { return cmp.Compare(a.c.weight, b.c.weight) })
	for _, x := range all {
		n := x.networks.count()
		if next.of[x.key] != nil { // its request began before the class was there
			continue
		}
		if len(next.of) == mostClasses {
			// Twice as many: two classes with about the same networks do not take turns.
			if len(olds) == 0 || n <= 2*olds[0].c.weight {
				break
			}
			delete(next.of, olds[0].key)
			olds = olds[1:]
		}
		next.of[x.key] = &class{name: nameOf(x.method, x.path), weight: n}
	}
	m.table.Store(next)
}

// next cuts the first segment off a path: /product/7 is /product and /7. Segments that name one of
// many things are /*.
func next(path string) (segment, rest string) {
	end := len(path)
	if end > 0 {
		if i := strings.IndexByte(path[1:], '/'); i >= 0 {
			end = i + 1
		}
	}
	if segment = path[:end]; isID(segment) {
		segment = "/*"
	}
	return segment, path[end:]
}

// isID reports whether a segment of a path looks like the name of one thing among many: a number, a
// UUID, a hash, an article with its number. Chosen so that v1 and step2 are none.
func isID(segment string) bool {
	digits := 0
	for i := range len(segment) {
		if '0' <= segment[i] && segment[i] <= '9' {
			digits++
		}
	}
	return 2*digits > len(segment)-1 || digits > 1 && len(segment) > 8 || len(segment) > 32
}

// keyOf returns the hash (FNV-1a) of a class.
func keyOf(method, path string) uint64 {
	h := hash(14695981039346656037, method)
	for range mostSegments {
		if path == "" {
			break
		}
		var segment string
		segment, path = next(path)
		h = hash(h, segment)
	}
	return h
}

func hash(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// nameOf returns the name of a class, such as "GET /product/*".
func nameOf(method, path string) string {
	var b strings.Builder
	b.WriteString(method + " ")
	for range mostSegments {
		if path == "" {
			break
		}
		var segment string
		segment, path = next(path)
		b.WriteString(segment)
	}
	return strings.ToValidUTF8(b.String()[:min(b.Len(), mostName)], "")
}
