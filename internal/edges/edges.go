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
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
)

//go:embed *.tmpl headgate.lua
var files embed.FS

// templates are the names of proxies and their files.
var templates = map[string]string{
	"nginx": "nginx.tmpl", "caddy": "caddy.tmpl", "haproxy": "haproxy.tmpl",
	"haproxy-lua": "headgate.lua", "envoy": "envoy.tmpl",
}

// Kinds returns the proxies that Write knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(templates)) }

// A plan is what a template gets.
type plan struct {
	Listen, Decide, Envoy string // addresses of headgate
	Hosts                 []site
	Origins               []origin
	Choices               []string // lines of HAProxy that choose an origin
}

// A site is a host with its rooms, those with longer paths first.
type site struct {
	Host  string // "": any
	Rooms []room
}

type room struct {
	Name, Path string
	Origin     origin
}

// An origin is the site behind one or more rooms. Name is that of the first.
type origin struct{ Name, Scheme, Hostname, Port string }

// Addr returns host:port.
func (o origin) Addr() string { return net.JoinHostPort(o.Hostname, o.Port) }

// URL returns the address as Caddy writes it.
func (o origin) URL() string {
	if o.Scheme == "https" {
		return "https://" + o.Addr()
	}
	return o.Addr()
}

// Write writes the configuration of a kind of proxy for the rooms of a file. An error says what the
// file lacks, or what no proxy can be told.
func Write(w io.Writer, kind string, c *config.Config) error {
	name, ok := templates[kind]
	if !ok {
		return &hint.Error{Text: fmt.Sprintf("no proxy %q is known", kind), Do: "name one of " + strings.Join(Kinds(), ", ")}
	}
	p, err := planOf(kind, c)
	if err != nil {
		return err
	}
	t, err := template.New(name).Funcs(template.FuncMap{
		"nginx": nginxLocation, "envoyDomains": envoyDomains,
		"envoyMatch": envoyMatch,
		"host":       func(addr string) string { host, _, _ := net.SplitHostPort(addr); return host },
		"port":       func(addr string) string { _, port, _ := net.SplitHostPort(addr); return port },
	}).ParseFS(files, name)
	if err != nil {
		return fmt.Errorf("template of %s: %w", kind, err)
	}
	return t.Execute(w, p)
}

func planOf(kind string, c *config.Config) (*plan, error) {
	p := &plan{Listen: near(c.Listen)}
	switch asks := kind == "envoy"; {
	case asks && (c.Envoy == nil || !c.Envoy.Decide):
		return nil, &hint.Error{Text: "the file has no envoy.decide", Do: `add envoy: {listen: "127.0.0.1:8082", decide: true}`}
	case asks:
		p.Envoy = near(c.Envoy.Listen)
	case c.Decide == nil:
		return nil, &hint.Error{Text: "the file has no decide.listen", Do: `add decide: {listen: "127.0.0.1:8083"}`}
	default:
		p.Decide = near(c.Decide.Listen)
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
			known[key], p.Origins = o, append(p.Origins, o)
		}
		hosts[r.Host] = append(hosts[r.Host], room{r.Name, r.Path, o})
		for _, x := range r.AdditionalRoutes {
			hosts[x.Host] = append(hosts[x.Host], room{r.Name, x.Path, o})
		}
	}
	for _, host := range slices.SortedFunc(maps.Keys(hosts), byHost) {
		rooms := hosts[host]
		slices.SortStableFunc(rooms, func(a, b room) int { return cmp.Compare(len(b.Path), len(a.Path)) })
		p.Hosts = append(p.Hosts, site{host, rooms})
	}
	p.Choices = p.backends()
	return p, nil
}

func pathsOf(r *config.Room) (all []string) {
	for _, x := range r.AdditionalRoutes {
		all = append(all, x.Path)
	}
	return all
}

// byHost sorts the site of any host last.
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

// nginxLocation returns the location of a path. nginx compares the decoded path, and only to choose
// the upstream: headgate decides on the bytes.
func nginxLocation(path string) string {
	if path == "/" {
		return "/"
	}
	return `~* "^` + regexp.QuoteMeta(path) + `(/|$)"`
}

func envoyDomains(host string) string {
	if host == "" {
		return `"*"`
	}
	return host
}

func envoyMatch(path string) string {
	if path == "/" {
		return `{prefix: "/"}`
	}
	return fmt.Sprintf("{path_separated_prefix: %q, case_sensitive: false}", path)
}

// backends returns the lines by which HAProxy chooses the backend of a request.
func (p *plan) backends() (lines []string) {
	if len(p.Origins) == 1 {
		return []string{"default_backend " + p.Origins[0].Name}
	}
	for _, s := range p.Hosts {
		host := ""
		if s.Host != "" {
			host = " { hdr(host),field(1,:) -i " + s.Host + " }"
		}
		for _, r := range s.Rooms {
			switch {
			case r.Path != "/":
				lines = append(lines, "use_backend "+r.Origin.Name+" if"+host+" { path -i "+r.Path+" }",
					"use_backend "+r.Origin.Name+" if"+host+" { path_beg -i "+r.Path+"/ }")
			case host == "":
				lines = append(lines, "default_backend "+r.Origin.Name)
			default:
				lines = append(lines, "use_backend "+r.Origin.Name+" if"+host)
			}
		}
	}
	return lines
}
