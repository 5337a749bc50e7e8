package headgate

import (
	"net/netip"
	"time"
)

// A Route is one more place of a room: a host, "" for any, and a folder with all below it.
type Route struct{ Host, Path string }

// Exclude names requests that pass and are not counted: probes, payment
// webhooks, preflights. The zero value is the defaults: OPTIONS, HEAD,
// /robots.txt, /favicon.ico and /.well-known/.
type Exclude struct {
	NoDefaults bool
	Paths      []string // ending with / or *: a prefix
	Methods    []string
	CIDRs      []netip.Prefix
	Headers    []string // "Name", or "Name: value"
}

// JoinLimit bounds how many tickets one address prefix may draw. Off by default:
// a whole office or a mobile network may share one address.
type JoinLimit struct {
	Amount   int           // 0 is off
	Window   time.Duration // 1 m
	PrefixV4 int           // 24
	PrefixV6 int           // 56
}
