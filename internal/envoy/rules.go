package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/ratelimit"
)

// Rules map descriptors to limits. They are immutable.
type Rules struct {
	domains map[string]*domain
	limits  []ratelimit.Limit
}

// A domain is the content of one file.
type domain struct {
	file string
	top  node
}

// A node is one level of descriptors, with the rule for a descriptor that ends here.
type node struct {
	next  map[string]*node // by key_value, or by key for all other values
	wild  []wildcard       // those of next with a *, in the order of the file
	rule  *rule            // nil: a descriptor that ends here is not limited
	share string           // key_value with its *, if all its values share one count
}

// A wildcard is a key_value, split at each *.
type wildcard struct {
	parts []string
	node  *node
}

// A rule is the rate_limit of one descriptor.
type rule struct {
	limit     string // name in the limiter; "" if unlimited
	shown     *pb.RateLimitResponse_RateLimit
	window    time.Duration // length of the window in answers
	name      string        // name for the replaces of other rules; may be ""
	replaces  []string
	unlimited bool
	quota     bool // rejects only together with all other quotas
	overdraft bool // also counts what it rejects
}

// Limits returns the limits that the limiter must have before a [Service] uses the rules. Their
// names begin with the domain and the descriptor, and stay the same as long as these do.
func (r *Rules) Limits() []ratelimit.Limit { return slices.Clone(r.limits) }

// Domains returns the sorted names of all domains.
func (r *Rules) Domains() []string { return slices.Sorted(maps.Keys(r.domains)) }

// Join merges the rules of several files. It returns an error if two files have the same domain.
func Join(files ...*Rules) (*Rules, error) {
	all := &Rules{domains: map[string]*domain{}}
	var errs []error
	for _, f := range files {
		for _, name := range f.Domains() {
			if first, ok := all.domains[name]; ok {
				errs = append(errs, fmt.Errorf("%s: domain %q is that of %s already",
					f.domains[name].file, name, first.file))
				continue
			}
			all.domains[name] = f.domains[name]
		}
		all.limits = append(all.limits, f.limits...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// find follows the entries down the tree like GetLimit of the reference: first key_value, then the
// first wildcard that matches, then the key alone. It never goes back up. The number of entries
// must equal the number of levels of the rule. find appends the key to count to key.
func (d *domain) find(entries []*common.RateLimitDescriptor_Entry, key []byte) (*rule, []byte) {
	at := &d.top
	var space [128]byte
	word := space[:0]
	for i, e := range entries {
		var value string
		at, value = at.step(e, word)
		if at == nil {
			return nil, key
		}
		key = appendEntry(key, e.GetKey(), value)
		if i == len(entries)-1 {
			return at.rule, key
		}
	}
	return nil, key
}

// step follows one entry down the tree, and returns the value to count. word is memory to use.
func (n *node) step(e *common.RateLimitDescriptor_Entry, word []byte) (next *node, value string) {
	word = append(append(append(word[:0], e.GetKey()...), '_'), e.GetValue()...)
	value = e.GetValue()
	next = n.next[string(word)]
	if next == nil && len(n.wild) > 0 {
		i := slices.IndexFunc(n.wild, func(w wildcard) bool { return w.fits(string(word)) })
		if i >= 0 {
			next = n.wild[i].node
		}
		if i >= 0 && next.share != "" {
			value = strings.TrimPrefix(next.share, e.GetKey()+"_")
		}
	}
	if next == nil {
		next = n.next[e.GetKey()]
	}
	return next, value
}

// fits reports whether word begins with the first part, ends with the last part, and contains the
// others between them in order.
func (w wildcard) fits(word string) bool {
	first, last := w.parts[0], w.parts[len(w.parts)-1]
	if len(word) < len(first)+len(last) ||
		!strings.HasPrefix(word, first) || !strings.HasSuffix(word, last) {
		return false
	}
	word = word[len(first) : len(word)-len(last)]
	for _, part := range w.parts[1 : len(w.parts)-1] {
		_, after, found := strings.Cut(word, part)
		if !found {
			return false
		}
		word = after
	}
	return true
}

// appendEntry appends key=value, with | before it if it is not the first entry. It escapes \ and |,
// and = in a key, with a backslash, so that two different lists of entries never make the same key.
func appendEntry(b []byte, key, value string) []byte {
	if len(b) > 0 {
		b = append(b, '|')
	}
	b = appendEscaped(b, key, `\|=`)
	b = append(b, '=')
	return appendEscaped(b, value, `\|`)
}

func appendEscaped(b []byte, s, signs string) []byte {
	for {
		i := strings.IndexAny(s, signs)
		if i < 0 {
			return append(b, s...)
		}
		b = append(append(b, s[:i]...), '\\', s[i])
		s = s[i+1:]
	}
}

// shorten turns the output of appendEntry into a key. A key that is too long for the limiter ends
// with a hash, after a | that no entry follows, so that it never equals a short key.
func shorten(key []byte) string {
	if len(key) <= ratelimit.MaxKey {
		return string(key)
	}
	sum := sha256.Sum256(key)
	end := ratelimit.MaxKey - len("|#") - hex.EncodedLen(len(sum))
	for end > 0 && !utf8.RuneStart(key[end]) {
		end--
	}
	head := strings.TrimRight(string(key[:end]), `\`)
	return head + "|#" + hex.EncodeToString(sum[:])
}

// limitName returns the name of a limit from the path that leads to it: domain/key_value/…. No
// limit of headgate's own configuration has such a name, because those contain no /. If the path is
// not valid as a name, the name ends with // and 48 bits of a hash.
func limitName(path ...string) string {
	const most, bits = 64, 48 // ratelimit/limit.go; chosen: a collision among 10,000 once in 5 million cases
	fits := true
	plain := make([]string, len(path))
	for i, p := range path {
		plain[i] = strings.Map(func(r rune) rune {
			if r == '-' || r == '_' || '0' <= r && r <= '9' ||
				'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
				return r
			}
			return '_'
		}, p)
		fits = fits && p != "" && plain[i] == p
	}
	name := strings.Join(plain, "/")
	if fits && len(name) <= most {
		return name
	}
	h := sha256.New()
	for _, p := range path {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	hash := "//" + hex.EncodeToString(h.Sum(nil)[:bits/8])
	return strings.TrimRight(name[:min(len(name), most-len(hash))], "/") + hash
}

// windowOf returns the length of a unit, as UnitToDivider of the reference does
// (src/utils/utilities.go): a month has 30 days and a year 365.
func windowOf(unit pb.RateLimitResponse_RateLimit_Unit) (time.Duration, bool) {
	const day = 24 * time.Hour
	switch unit {
	case pb.RateLimitResponse_RateLimit_SECOND:
		return time.Second, true
	case pb.RateLimitResponse_RateLimit_MINUTE:
		return time.Minute, true
	case pb.RateLimitResponse_RateLimit_HOUR:
		return time.Hour, true
	case pb.RateLimitResponse_RateLimit_DAY:
		return day, true
	case pb.RateLimitResponse_RateLimit_WEEK:
		return 7 * day, true
	case pb.RateLimitResponse_RateLimit_MONTH:
		return 30 * day, true
	case pb.RateLimitResponse_RateLimit_YEAR:
		return 365 * day, true
	}
	return 0, false
}
