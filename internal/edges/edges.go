// Package edges writes the configuration of a proxy that asks headgate about each request and
// forwards it itself, for the rooms of a headgate configuration. docs/edges.md shows them; its
// blocks are what this package writes for the example there.
package edges

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/route"
)

//go:embed *.txtar headgate.lua
var files embed.FS

// kinds are the names of proxies and their files. Each file has a section main, and sections for
// what main repeats:
//
//	origin  for each origin, in place of [[origins]]
//	host    for each host, in place of [[hosts]]
//	room    for each path of a host, in place of [[rooms]]; root is the same for the path /
//	waiting for each path of a host, in place of [[waiting]]: what goes to headgate's listen
//	https   of an origin with TLS, in place of [[https]]
//
// text/template would keep every exported method of the program alive: 6 MB.
var kinds = map[string]string{
	"nginx": "nginx.txtar", "caddy": "caddy.txtar", "haproxy": "haproxy.txtar",
	"haproxy-lua": "headgate.lua", "envoy": "envoy.txtar", "apache": "apache.txtar",
	"apache-lua": "apache-lua.txtar", "traefik": "traefik.txtar", "k8s": "k8s.txtar",
	"k8s-nginx": "k8s-nginx.txtar", "k8s-traefik": "k8s-traefik.txtar",
}

// Kinds returns the proxies that Write knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// A plan is what a proxy has to be told.
type plan struct {
	listen, decide, envoy string   // addresses of headgate
	cookies               []string // names, of all rooms
	hosts                 []host
	origins               []origin
}

// A host has its rooms, those with longer paths first.
type host struct {
	name  string // "": any
	rooms []room
}

type room struct {
	name, path string
	anyCase    bool // /Shop is /shop
	origin     origin
}

// An origin is the server behind one or more rooms. Its name is that of the first.
type origin struct{ name, scheme, hostname, port string }

// addr returns host:port.
func (o origin) addr() string { return net.JoinHostPort(o.hostname, o.port) }

// url returns the address as Caddy writes it.
func (o origin) url() string {
	if o.scheme == "https" {
		return "https://" + o.addr()
	}
	return o.addr()
}

// Write writes the configuration of a kind of proxy for the rooms of a file. An error says what the
// file lacks, or what no proxy can be told.
func Write(w io.Writer, kind string, c *config.Config) error {
	name, ok := kinds[kind]
	if !ok {
		return &hint.Error{Text: fmt.Sprintf("no proxy %q is known", kind), Do: "name one of " + strings.Join(Kinds(), ", ")}
	}
	p, err := planOf(kind, c)
	if err != nil {
		return err
	}
	text, err := files.ReadFile(name)
	if err != nil {
		return fmt.Errorf("file of %s: %w", kind, err)
	}
	out := string(text)
	if path.Ext(name) == ".txtar" {
		f := &form{kind: kind, sections: map[string]string{}}
		for _, s := range txtar.Parse(text).Files {
			f.sections[s.Name] = string(s.Data)
		}
		out = f.main(p)
	}
	_, err = io.WriteString(w, out)
	return err
}

// A form is the file of a kind of proxy.
type form struct {
	kind     string
	sections map[string]string
}

// fill returns a section with its names replaced: pairs of a name and its text. [[https]] and the
// names in the plural stand for whole lines, or none.
func (f *form) fill(section string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		switch name := pairs[i]; name {
		case "https", "origins", "hosts", "rooms", "waiting", "choices", "hostnames":
			pairs[i] = "[[" + name + "]]\n"
		default:
			pairs[i] = "[[" + name + "]]"
		}
	}
	return strings.NewReplacer(pairs...).Replace(f.sections[section])
}

func (f *form) main(p *plan) string {
	var origins, hosts strings.Builder
	for _, o := range p.origins {
		origins.WriteString(f.origin("origin", o))
	}
	for _, h := range p.hosts {
		hosts.WriteString(f.host(h, p))
	}
	near, _, _ := net.SplitHostPort(p.listen)
	envoy, _, _ := net.SplitHostPort(p.envoy)
	return f.fill("main", append(p.ports(), "origins", origins.String(), "hosts", hosts.String(), "choices", p.choices(),
		"listen", p.listen, "decide", p.decide, "listen host", near, "envoy host", envoy,
		"any host", p.anyHost(), "cookies", strings.Join(p.cookies, ", "))...)
}

// ports returns the ports of headgate, for fill.
func (p *plan) ports() []string {
	port := func(addr string) string {
		_, port, _ := net.SplitHostPort(addr)
		return port
	}
	return []string{"listen port", port(p.listen), "decide port", port(p.decide), "envoy port", port(p.envoy)}
}

func (f *form) host(h host, p *plan) string {
	var rooms, waiting strings.Builder
	for i, r := range h.rooms {
		waiting.WriteString(f.fill("waiting", append(p.ports(), "match", r.routeMatch(), "below", r.below())...))
		section := "room"
		if _, ok := f.sections["root"]; ok && r.path == "/" {
			section = "root"
		}
		rooms.WriteString(f.origin(section, r.origin, "path", r.path, "match", match(f.kind, h.name, r),
			"number", strconv.Itoa(i), "host", h.name, "priority", strconv.Itoa(priority(h.name, r.path))))
	}
	name, isDefault := h.name, ""
	switch {
	case f.kind == "apache" && name != "":
		name = "ServerName " + name
	case f.kind == "apache":
		name = "ServerAlias *"
	case name == "":
		name, isDefault = map[string]string{"nginx": "_", "envoy": `"*"`}[f.kind], " default_server"
	}
	hostnames := "  hostnames: [" + h.name + "]\n"
	switch {
	case h.name == "":
		hostnames = ""
	case f.kind == "k8s-nginx":
		hostnames = "      host: " + h.name + "\n"
	}
	return f.fill("host", append(p.ports(), "rooms", rooms.String(), "waiting", waiting.String(), "hostnames", hostnames,
		"host", name, "default", isDefault, "room", h.rooms[0].name, "route", cmp.Or(h.name, "any-host"),
		"listen", p.listen, "decide", p.decide)...)
}

// origin fills a section with what an origin is, and with pairs.
func (f *form) origin(section string, o origin, pairs ...string) string {
	https := ""
	if o.scheme == "https" {
		https = f.fill("https", "hostname", o.hostname)
	}
	return f.fill(section, append(pairs, "https", https, "origin", o.name, "name to 8", fmt.Sprintf("%-8s", o.name),
		"addr", o.addr(), "scheme", o.scheme, "hostname", o.hostname, "port", o.port, "url", o.url(), "service", o.service())...)
}

// match returns how a proxy writes that a path of a host is that of a room or below. Most compare the
// decoded path, and only to choose the upstream: headgate decides on the bytes.
func match(kind, host string, r room) string {
	switch {
	case kind == "traefik" || kind == "k8s-traefik":
		return traefikRule(host, r)
	case kind == "k8s":
		return r.routeMatch()
	case kind == "k8s-nginx":
		return r.ingressPath()
	case kind == "nginx" && r.path == "/":
		return r.path
	case kind == "nginx" && r.anyCase:
		return `~* "` + r.pattern() + `"`
	case kind == "nginx":
		return `~ "` + r.pattern() + `"`
	case kind == "apache":
		return `"` + r.caseless() + r.pattern() + `"`
	case kind == "caddy" && r.anyCase:
		return "path " + r.path + " " + r.path + "/*"
	case kind == "caddy":
		return "path_regexp `" + r.pattern() + "`"
	case r.path == "/":
		return `{prefix: "/"}`
	}
	return fmt.Sprintf("{path_separated_prefix: %q, case_sensitive: %t}", r.path, !r.anyCase)
}

// pattern returns the regular expression of the room's path and what is below it.
func (r room) pattern() string { return "^" + regexp.QuoteMeta(r.path) + "(/|$)" }

// caseless returns the flag of a regular expression by which it ignores case, where the room does.
func (r room) caseless() string {
	if r.anyCase {
		return "(?i)"
	}
	return ""
}

func planOf(kind string, c *config.Config) (*plan, error) {
	p := &plan{listen: near(c.Listen)}
	switch asks := kind == "envoy" || kind == "k8s"; {
	case asks && (c.Envoy == nil || !c.Envoy.Decide):
		return nil, &hint.Error{Text: "the file has no envoy.decide", Do: `add envoy: {listen: "127.0.0.1:8082", decide: true}`}
	case asks:
		p.envoy = near(c.Envoy.Listen)
	case c.Decide == nil:
		return nil, &hint.Error{Text: "the file has no decide.listen", Do: `add decide: {listen: "127.0.0.1:8083"}`}
	default:
		p.decide = near(c.Decide.Listen)
	}
	known := map[string]origin{}
	hosts := map[string][]room{}
	for i := range c.Rooms {
		r := &c.Rooms[i]
		if r.Origin.Path != "" && r.Origin.Path != "/" {
			return nil, &hint.Error{Text: fmt.Sprintf("the origin of room %q has a path", r.Name),
				Do: "let your proxy change paths behind headgate's decision: write that location by hand"}
		}
		for _, path := range append([]string{r.Path}, pathsOf(r)...) {
			if strings.Contains(path, "*") {
				return nil, &hint.Error{Text: fmt.Sprintf("room %q has the path %s, with a star", r.Name, path),
					Do: "write that location by hand: each proxy has its own patterns"}
			}
		}
		key := r.Origin.Scheme + "://" + r.Origin.Host
		o, ok := known[key]
		if !ok {
			o = originOf(r.Name, r.Origin)
			if err := o.refusal(kind); err != nil {
				return nil, err
			}
			known[key], p.origins = o, append(p.origins, o)
		}
		plain, secure := route.CookieNames(r.Name, r.CookieSuffix, true)
		p.cookies = append(p.cookies, plain[0], secure[0])
		hosts[r.Host] = append(hosts[r.Host], room{r.Name, r.Path, !r.PathCaseSensitive, o})
		for _, x := range r.AdditionalRoutes {
			hosts[x.Host] = append(hosts[x.Host], room{r.Name, x.Path, !r.PathCaseSensitive, o})
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(hosts), byHost) {
		rooms := hosts[name]
		slices.SortStableFunc(rooms, func(a, b room) int { return cmp.Compare(len(b.path), len(a.path)) })
		p.hosts = append(p.hosts, host{name, rooms})
	}
	return p, nil
}

func pathsOf(r *config.Room) (all []string) {
	for _, x := range r.AdditionalRoutes {
		all = append(all, x.Path)
	}
	return all
}

// byHost sorts any host last.
func byHost(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

func originOf(name string, u *url.URL) origin {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return origin{name, u.Scheme, u.Hostname(), port}
}

// near returns an address at which a proxy on this machine reaches a listener.
func near(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// choices returns the lines by which HAProxy chooses the backend of a request.
func (p *plan) choices() string {
	if len(p.origins) == 1 {
		return "    default_backend " + p.origins[0].name + "\n"
	}
	var lines strings.Builder
	add := func(backend, test string) {
		lines.WriteString("    " + backend + test + "\n")
	}
	for _, h := range p.hosts {
		is := ""
		if h.name != "" {
			is = " { hdr(host),field(1,:) -i " + h.name + " }"
		}
		for _, r := range h.rooms {
			flag := ""
			if r.anyCase {
				flag = "-i "
			}
			switch {
			case r.path != "/":
				add("use_backend "+r.origin.name+" if"+is, " { path "+flag+r.path+" }")
				add("use_backend "+r.origin.name+" if"+is, " { path_beg "+flag+r.path+"/ }")
			case is == "":
				add("default_backend ", r.origin.name)
			default:
				add("use_backend "+r.origin.name, " if"+is)
			}
		}
	}
	return lines.String()
}
