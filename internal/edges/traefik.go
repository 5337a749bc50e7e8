package edges

import "strings"

// traefikRule returns the rule of a room of a host, with its own priority: without one, the longest
// rule comes first.
func traefikRule(host string, r room) string {
	var all []string
	if host != "" {
		all = append(all, "Host(`"+host+"`)")
	}
	if r.path != "/" {
		all = append(all, "PathRegexp(`"+r.caseless()+r.pattern()+"`)")
	}
	if len(all) == 0 {
		return "PathPrefix(`/`)"
	}
	return strings.Join(all, " && ")
}

// priority returns the order of Traefik's routers: longer paths before shorter ones, a host before any
// host.
func priority(host, p string) int {
	n := min(len(p), 1000)
	if host != "" {
		n += 5000
	}
	return n
}

// anyHost returns the condition of Traefik that a request is for a room, or "" if each is.
func (p *plan) anyHost() string {
	var all []string
	for _, h := range p.hosts {
		if h.name == "" {
			return ""
		}
		all = append(all, "Host(`"+h.name+"`)")
	}
	return "(" + strings.Join(all, " || ") + ") && "
}
