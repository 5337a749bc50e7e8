package rules

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/suggest"
)

const (
	// maxList is the maximum number of items of a list. Chosen: 5 MB of addresses.
	maxList = 100_000
	// maxListName is Cloudflare's limit.
	maxListName = 50
)

// A List is a named list of addresses or of texts, which expressions refer to by $name.
type List struct {
	texts     map[string]bool // nil for a list of addresses
	addresses spans[netip.Addr]
}

func (l *List) holds() string {
	if l.texts == nil {
		return "addresses"
	}
	return "texts"
}

// NewAddressList returns a list of addresses, networks and ranges: 192.0.2.1, 192.0.2.0/24,
// 192.0.2.3..192.0.2.7.
func NewAddressList(items []string) (*List, error) {
	if err := tooMany(len(items)); err != nil {
		return nil, err
	}
	l := &List{}
	var errs []error
	for i, item := range items {
		lo, hi, problem, hint := network(item)
		if problem != "" {
			errs = append(errs, fmt.Errorf("item %d, %q: %s; %s", i+1, item, problem, hint))
			continue
		}
		l.addresses.add(lo, hi)
	}
	l.addresses.sort(netip.Addr.Compare)
	return l, errors.Join(errs...)
}

// NewTextList returns a list of texts, such as hosts.
func NewTextList(items []string) (*List, error) {
	if err := tooMany(len(items)); err != nil {
		return nil, err
	}
	l := &List{texts: make(map[string]bool, len(items))}
	for _, item := range items {
		l.texts[item] = true
	}
	return l, nil
}

func tooMany(n int) error {
	if n > maxList {
		return fmt.Errorf("%d items; %d are the most: write networks instead of addresses", n, maxList)
	}
	return nil
}

// CheckListName returns an error if a list cannot have this name. Names consist of lower-case
// letters, digits and _, as at Cloudflare.
func CheckListName(name string) error {
	ok := name != "" && len(name) <= maxListName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
	}
	if !ok {
		return fmt.Errorf("%q is not a list name: use 1 to 50 of a-z, 0-9 and _", name)
	}
	return nil
}

func nearList(name string, lists map[string]*List) string {
	known := slices.Sorted(maps.Keys(lists))
	if meant := suggest.Nearest(name, known); meant != "" {
		return "did you mean $" + meant + "?"
	}
	if len(known) == 0 {
		return "no lists are defined"
	}
	return "there are $" + strings.Join(known[:min(len(known), 10)], ", $")
}

// network parses an address, a network or a range, and returns its first and last address.
func network(text string) (lo, hi netip.Addr, problem, hint string) {
	if first, last, ok := strings.Cut(text, ".."); ok {
		lo, err := netip.ParseAddr(first)
		hi, err2 := netip.ParseAddr(last)
		switch {
		case err != nil || err2 != nil || !plain(lo) || !plain(hi):
			return lo, hi, "not a range of addresses", "such as 192.0.2.3..192.0.2.7"
		case lo.BitLen() != hi.BitLen():
			return lo, hi, "a range from IPv4 to IPv6", "write two"
		case hi.Less(lo):
			return lo, hi, "a range that ends before it begins", "write " + last + ".." + first
		}
		return lo, hi, "", ""
	}
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || !plain(a) {
			return a, a, "not an address or a network", "such as 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32"
		}
		return a, a, "", ""
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || !plain(p.Addr()):
		return lo, hi, "not a network", "such as 192.0.2.0/24 or 2001:db8::/32"
	// A typing error more often than a shorthand, and which network was meant is a guess.
	case p.Masked() != p:
		return lo, hi, "the network has bits set behind its length", "write " + p.Masked().String()
	}
	return p.Addr(), lastOf(p), "", ""
}

// plain reports whether an address has no zone and is not IPv4 in IPv6. The address of a visitor
// has neither.
func plain(a netip.Addr) bool { return a.Zone() == "" && !a.Is4In6() }

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// A spans is a set of ranges, including both ends. After sort they are in order and do not overlap.
type spans[T any] struct {
	order func(a, b T) int
	all   [][2]T
}

func (s *spans[T]) add(lo, hi T) { s.all = append(s.all, [2]T{lo, hi}) }

func (s *spans[T]) sort(order func(a, b T) int) {
	s.order = order
	slices.SortFunc(s.all, func(a, b [2]T) int { return order(a[0], b[0]) })
	kept := s.all[:0]
	for _, next := range s.all {
		if n := len(kept); n == 0 || order(kept[n-1][1], next[0]) < 0 {
			kept = append(kept, next)
		} else if order(kept[n-1][1], next[1]) < 0 {
			kept[n-1][1] = next[1]
		}
	}
	s.all = slices.Clip(kept)
}

// has finds x by binary search.
func (s *spans[T]) has(x T) bool {
	lo, hi := 0, len(s.all)
	for lo < hi {
		mid := (lo + hi) / 2
		switch {
		case s.order(x, s.all[mid][0]) < 0:
			hi = mid
		case s.order(x, s.all[mid][1]) > 0:
			lo = mid + 1
		default:
			return true
		}
	}
	return false
}
