package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// check validates the values against each other. It skips values that are invalid by themselves, so
// that each mistake is reported once.
func check(d *decoder, c *Config) {
	_, c.BoundLoopback = d.spots["max_connections_per_address"]
	checkListens(d, c)
	checkTLS(d, c)
	checkCluster(d, c)
	checkEngine(d, c)
	checkLimits(d, c)
	checkPlans(d, c)
	checkQueues(d, c)
	checkWebhooks(d, c)
	checkRules(d, c)
	for i := range c.Rooms {
		k := "rooms[" + strconv.Itoa(i) + "]."
		r := &c.Rooms[i]
		r.derive(d, k)
		checkRoutes(d, r, k)
		checkTwins(d, c.Rooms[:i], r, k)
		checkLoop(d, c, r, k)
		checkSpans(d, r, k)
		c.checkIdentity(d, r, k)
		checkEvents(d, r, k)
		c.checkAuto(d, r, k)
		c.warnRoom(d, r, k)
	}
	c.warnOpenings(d)
	slices.SortStableFunc(c.Warnings, func(a, b Fault) int { return byPlace(&a, &b) })
}

// derive fills in the defaults that depend on other keys.
func (r *Room) derive(d *decoder, k string) {
	if r.Title == "" {
		r.Title = r.Name
	}
	if _, written := d.spots[k+"hold_phone"]; !written {
		r.HoldPhone = max(r.HoldPhone, r.Hold)
	}
}

// checkListens rejects two keys that would listen at the same place: the second one would fail only
// when it opens.
func checkListens(d *decoder, c *Config) {
	type place struct{ key, addr string }
	places := []place{{"listen", c.Listen}, {"admin_listen", c.AdminListen}}
	if c.Envoy != nil {
		places = append(places, place{"envoy.listen", c.Envoy.Listen})
	}
	if c.Decide != nil {
		places = append(places, place{"decide.listen", c.Decide.Listen})
	}
	for i, a := range places {
		for _, b := range places[:i] {
			if d.good(a.key, b.key) && collide(b.addr, a.addr) {
				d.clash(wrong("give it another port", "%s %s and %s %s are the same place", b.key, b.addr,
					a.key, a.addr), a.key, b.key)
			}
		}
	}
	if c.Decide != nil && len(c.TrustedProxies) == 0 && d.good("trusted_proxies", "decide.listen") {
		d.clash(wrong("add the address of the proxy that asks: trusted_proxies: [127.0.0.1]",
			"nobody may ask there without trusted_proxies"), "decide.listen")
	}
}

// checkTwins rejects a name, or a host and path, that an earlier room already has.
func checkTwins(d *decoder, earlier []Room, r *Room, k string) {
	if !d.good(strings.TrimSuffix(k, ".")) {
		return
	}
	for i := range earlier {
		e := &earlier[i]
		ek := "rooms[" + strconv.Itoa(i) + "]."
		if r.Name != "" && e.Name == r.Name {
			d.clash(wrong("give each room a name of its own",
				"%s is already the name of rooms[%d]", quote(r.Name), i), k+"name")
		}
		good := d.good(k+"host", k+"path", strings.TrimSuffix(ek, "."), ek+"host", ek+"path")
		at, place, cookie := r.Taken(e)
		if place && good {
			host := "any host"
			if at.Host != "" {
				host = "host " + at.Host
			}
			d.clash(wrong("give each room a host or a path of its own",
				"%s with path %s is already the place of rooms[%d]", host, at.Path, i),
				k+"path", k+"host", strings.TrimSuffix(k, "."))
			return
		}
		if cookie && d.good(k+"cookie_suffix", ek+"cookie_suffix") {
			d.clash(wrong("choose another name, or another cookie_suffix", "makes the name of the cookie that of rooms[%d]", i),
				k+"cookie_suffix", k+"name", strings.TrimSuffix(k, "."))
		}
	}
}

// checkLoop rejects an origin that is headgate itself: each request would loop until the process
// has no sockets left.
func checkLoop(d *decoder, c *Config, r *Room, k string) {
	if r.Origin == nil || r.Origin.Scheme != "http" || !d.good("listen", k+"origin") {
		return
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" {
		return
	}
	origin, originPort := r.Origin.Hostname(), r.Origin.Port()
	if originPort == "" {
		originPort = "80"
	}
	here := host == origin || (anyAddress(host) || loopback(host)) && loopback(origin)
	if port == originPort && here {
		d.clash(wrong("write the address of what is behind headgate, or change listen",
			"%s is where headgate itself listens", r.Origin.Redacted()), k+"origin")
	}
}

// checkSpans checks durations against each other. The fault is at the key that was written; a
// default is not at fault.
func checkSpans(d *decoder, r *Room, k string) {
	order := func(shortKey, longKey string, shorter, longer time.Duration, orEqual bool) {
		if !d.good(k+shortKey, k+longKey) || shorter < longer || orEqual && shorter == longer {
			return
		}
		relation := "not longer than"
		if orEqual {
			relation = "shorter than"
		}
		hint := "raise " + longKey + ", or lower " + shortKey
		_, written := d.spots[k+longKey]
		if written {
			d.clash(wrong(hint, "%s is %s %s (%s)", short(longer), relation, shortKey,
				short(shorter)), k+longKey)
			return
		}
		d.clash(wrong(hint, "%s is too long beside %s (%s)", short(shorter), longKey,
			short(longer)), k+shortKey)
	}
	if r.HardEnd != 0 {
		order("session_duration", "hard_end", r.SessionDuration, r.HardEnd, true)
	}
	order("poll_min", "poll_max", r.PollMin, r.PollMax, true)
	// A visitor who polls less often than the hold would lose the place between two polls.
	order("poll_max", "hold", r.PollMax, r.Hold, false)
	order("poll_max", "hold_phone", r.PollMax, r.HoldPhone, false)
}

// checkIdentity rejects what a room cannot know people by.
func (c *Config) checkIdentity(d *decoder, r *Room, k string) {
	if !r.Identity.Knows() || !d.good(k+"identity") {
		return
	}
	if r.Identity.Header != "" && len(c.TrustedProxies) == 0 && d.good("trusted_proxies") {
		d.clash(wrong("add the address of the proxy that sets it: trusted_proxies: [127.0.0.1]",
			"nobody may send %s without trusted_proxies", r.Identity.Header), k+"identity.header", k+"identity")
	}
	switch i := &r.Identity; {
	case c.Cluster == nil || len(c.Cluster.Datacenters) == 0:
	case i.CodesFile != "":
		d.clash(wrong("use one data center, or know people by a jwt or a header",
			"a room of several data centers cannot know invitations"), k+"identity.codes", k+"identity")
	case !i.Required:
		d.clash(wrong("write required: true, and where people sign in: sign_in: /login",
			"a room of several data centers knows people only if all have to sign in"), k+"identity")
	}
}

// warnRoom adds warnings for settings of a room that are allowed but probably not intended.
func (c *Config) warnRoom(d *decoder, r *Room, k string) {
	if total := r.most(); r.NewUsersPerMinute > total && !r.Auto.New {
		c.warn(d, wrong("a tenth of total_active_users up to all of it is usual",
			"%d is more than total_active_users (%d), which fills within a minute",
			r.NewUsersPerMinute, total), k+"new_users_per_minute")
	}
	if most, stay := r.reachable(); most < r.most() {
		c.warn(d, wrong("raise new_users_per_minute, or lower total_active_users",
			"is never reached: %d new users a minute who stay %s are about %d at once",
			r.NewUsersPerMinute, short(stay), most), k+"total_active_users")
	}
	if r.HardEnd != 0 && !r.SessionRenewal {
		c.warn(d, wrong("leave hard_end out, or let sessions renew",
			"has no effect: without session_renewal a session ends after session_duration"), k+"hard_end")
	}
	if r.HardEnd == r.SessionDuration && r.SessionRenewal {
		c.warn(d, wrong("write session_renewal: false, or raise hard_end",
			"is as long as session_duration, so that renewal has no effect"), k+"hard_end")
	}
	if r.Checkout.Warn >= r.SessionDuration {
		c.warn(d, wrong("make it shorter: a tenth to a half of a session is usual",
			"%s is not shorter than session_duration (%s): pages warn all the time",
			short(r.Checkout.Warn), short(r.SessionDuration)), k+"checkout.warn")
	}
	if r.Suspended && r.QueueAll {
		c.warn(d, wrong("keep one of the two",
			"has no effect: the room is suspended, so everyone passes"), k+"queue_all")
	}
	if r.Suspended && r.Closed {
		c.warn(d, wrong("keep one of the two",
			"has no effect: the room is suspended, so everyone passes"), k+"closed")
	}
	if r.HoldPhone < r.Hold {
		c.warn(d, wrong("phones sleep: give them at least as long as hold",
			"%s is shorter than hold (%s)", short(r.HoldPhone), short(r.Hold)), k+"hold_phone")
	}
	if r.CallHold != 0 && r.CallHold < 2*r.PollMin {
		c.warn(d, wrong("leave call_hold out, or make it at least twice poll_min",
			"%s may end before a called visitor asks again", short(r.CallHold)), k+"call_hold")
	}
	if r.Identity.CodesFile != "" && !r.Identity.Required {
		c.warn(d, wrong("write required: true",
			"visitors without an invitation wait and come in as well"), k+"identity.codes", k+"identity")
	}
	c.warnExclude(d, &r.Exclude, k+"exclude")
}

// reachable returns how many visitors can be inside at once by new_users_per_minute alone, and the
// session length that this follows from. Sessions without an end have no such bound.
func (r *Room) reachable() (int64, time.Duration) {
	stay := r.HardEnd
	if !r.SessionRenewal {
		stay = r.SessionDuration
	}
	if stay == 0 {
		return maxUsers, 0
	}
	// Sliding minutes: a session of 90 s sees parts of two minutes, so round up.
	minutes := int64((stay + time.Minute - 1) / time.Minute)
	return r.NewUsersPerMinute * minutes, stay
}

func (c *Config) warnExclude(d *decoder, e *Exclude, key string) {
	for _, p := range e.Paths {
		if p == "/" || p == "/*" {
			c.warn(d, wrong("take it out, or write suspended: true",
				"%s excludes every request, so nobody waits", p), key+".paths")
		}
	}
	if slices.Contains(e.Methods, "GET") {
		c.warn(d, wrong("exclude paths, networks or headers instead",
			"GET excludes every page, so hardly anyone waits"), key+".methods")
	}
	for _, p := range e.CIDRs {
		if p.Bits() == 0 {
			c.warn(d, wrong("name smaller networks", "%s excludes every visitor", p), key+".cidrs")
		}
	}
}

// warnOpenings adds warnings for settings that expose headgate more widely than was probably
// intended.
func (c *Config) warnOpenings(d *decoder) {
	for i, p := range c.TrustedProxies {
		if p.Bits() == 0 {
			c.warn(d, wrong("name the networks of your own proxies",
				"%s lets every client choose the address it is counted under", p),
				fmt.Sprintf("trusted_proxies[%d]", i), "trusted_proxies")
		}
	}
	host, _, err := net.SplitHostPort(c.AdminListen)
	if err == nil && !loopback(host) {
		c.warn(d, wrong("listen on 127.0.0.1, or let a firewall guard the port",
			"%s can be reached from other machines, and tokens travel there unencrypted",
			c.AdminListen), "admin_listen")
	}
}
