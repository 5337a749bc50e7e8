package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/join"
)

// clusterCommand writes join files.
func clusterCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && (args[0] == "move-anywhere" || args[0] == "datacenter-off") {
		return part(stdout, "cluster-move", moveCommand(ctx, args, stdout))
	}
	if len(args) > 0 && args[0] == "revoke" {
		return part(stdout, "cluster-revoke", revokeCommand(ctx, args, stdout))
	}
	if len(args) > 0 && args[0] == "status" {
		return part(stdout, "cluster-status", clusterStatus(ctx, args[1:], stdout))
	}
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	store := flags.String("store", "", "")
	datacenter := flags.String("datacenter", "", "")
	dir := flags.String("dir", "cluster", "")
	words, rest := splitWords(flags, args)
	err := config.ParseFlags(flags, rest)
	verb := strings.Join(words, " ")
	switch {
	case err != nil:
		return err
	case *dir == "":
		return usageFault("--dir: names no folder", "write --dir cluster")
	case verb == "init":
		return initCluster(*dir, clusterFlags{*store, *datacenter}, stdout)
	case *store+*datacenter != "":
		return usageFault("--store and --datacenter go with cluster init alone",
			"see headgate help cluster")
	case len(words) == 2 && words[0] == "node":
		return addNode(*dir, words[1], stdout)
	}
	return usageFault("cluster: what shall be done is missing or not known",
		"write headgate cluster init --store n1=10.0.0.1:7422, cluster node NAME, cluster status, "+
			"cluster revoke FILE, cluster move-anywhere DATACENTER or cluster datacenter-off DATACENTER")
}

type clusterFlags struct{ store, datacenter string }

// plan reads the flags of cluster init.
func (c clusterFlags) plan() (join.Plan, *config.Fault) {
	p := join.Plan{Datacenter: "dc1", Peers: map[string]string{}}
	if c.datacenter != "" {
		p.Datacenter = c.datacenter
	}
	if c.store == "" {
		return p, &config.Fault{Key: "--store", Problem: "is missing",
			Hint: "add --store n1=10.0.0.1:7422, or three of these with commas between"}
	}
	for node := range strings.SplitSeq(c.store, ",") {
		name, addr, ok := strings.Cut(strings.TrimSpace(node), "=")
		_, twice := p.Peers[name]
		switch {
		case !ok:
			return p, &config.Fault{Key: "--store", Problem: fmt.Sprintf("%q has no address", node),
				Hint: "write name=host:port, such as n1=10.0.0.1:7422"}
		case twice:
			return p, &config.Fault{Key: "--store", Problem: fmt.Sprintf("has %q twice", name),
				Hint: "name each store node once"}
		}
		p.Store = append(p.Store, name)
		p.Peers[name] = addr
	}
	return p, nil
}

func initCluster(dir string, c clusterFlags, stdout io.Writer) error {
	p, fault := c.plan()
	if fault != nil {
		return fault
	}
	var faults []error
	for _, f := range p.Faults() {
		key := "--store"
		if f.Field == "datacenter" {
			key = "--datacenter"
		}
		faults = append(faults, &config.Fault{Key: key, Problem: f.Problem, Hint: f.Hint})
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	files, err := join.Init(dir, p, time.Now())
	if err != nil {
		return err
	}
	for _, file := range files {
		printFor(stdout, file, &p)
	}
	return nil
}

// printFor prints what a file is for.
func printFor(stdout io.Writer, file string, p *join.Plan) {
	base := filepath.Base(file)
	name := strings.TrimSuffix(base, ".join")
	what := "the shared join file of workers"
	switch addr := p.Peers[name]; {
	case base == "ca.pem":
		what = "whom the nodes trust"
	case base == "ca.key":
		what = "makes more nodes: keep it away from them"
	case base == "cluster.json":
		what = "what headgate cluster node goes by"
	case addr != "":
		what = "the join file of the store node " + name + " at " + addr
	}
	fmt.Fprintf(stdout, "%s  %s\n", file, what)
}

func addNode(dir, name string, stdout io.Writer) error {
	file, err := join.Node(dir, name, time.Now())
	if f, ok := errors.AsType[*join.Fault](err); ok {
		return usageFault("cluster node: "+f.Problem, f.Hint)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s  a join file\n", file)
	return nil
}

// A clusterSummary is what check prints about the cluster.
type clusterSummary struct {
	Datacenter string   `json:"datacenter"`
	Node       string   `json:"node"`             // "" when it is drawn at random at start
	Listen     string   `json:"listen,omitempty"` // of a store node
	Store      []string `json:"store"`            // the store nodes
	Others     []string `json:"others,omitempty"` // the other data centers
	Home       string   `json:"home,omitempty"`   // host of Anywhere; "" without other data centers
}

// clusterOf returns nil without a cluster.
func clusterOf(cfg *config.Config) *clusterSummary {
	c := cfg.Cluster
	if c == nil {
		return nil
	}
	s := &clusterSummary{Datacenter: c.Datacenter, Node: c.Node, Store: c.Store, Home: c.Home,
		Others: slices.Sorted(maps.Keys(c.Datacenters))}
	if c.IsStore() {
		s.Listen = c.Listen
	}
	return s
}

func (s *clusterSummary) print(w io.Writer) {
	if s == nil {
		return
	}
	who := "worker " + s.Node
	switch {
	case s.Listen != "":
		who = "store node " + s.Node + " at " + s.Listen
	case s.Node == "":
		who = "worker with a name that is drawn at start"
	}
	fmt.Fprintf(w, "cluster %s: %s; the store nodes are %s\n", s.Datacenter, who, strings.Join(s.Store, ", "))
	if len(s.Others) > 0 {
		fmt.Fprintf(w, "data centers beside %s: %s; home is %s\n", s.Datacenter, strings.Join(s.Others, ", "), s.Home)
	}
}

// An engineSummary is what check prints about the operator's own NATS.
type engineSummary struct {
	URLs        []string              `json:"url"`
	Credentials config.CredentialKind `json:"credentials"` // their kind, "" for none
	Replicas    int                   `json:"replicas"`    // 0: as many as NATS allows
	Name        string                `json:"name"`        // "" when it is drawn at random at start
}

// engineOf returns nil if NATS is not the operator's own.
func engineOf(cfg *config.Config) *engineSummary {
	e := cfg.Engine
	if e == nil {
		return nil
	}
	return &engineSummary{URLs: e.URLs, Credentials: e.Kind, Replicas: e.Replicas, Name: e.Name}
}

func (s *engineSummary) print(w io.Writer) {
	if s == nil {
		return
	}
	who, by := s.Name, "no credentials"
	if who == "" {
		who = "a name that is drawn at start"
	}
	if s.Credentials != "" {
		by = "credentials of the kind " + string(s.Credentials)
	}
	fmt.Fprintf(w, "engine %s: %s; this process is %s\n", strings.Join(s.URLs, ", "), by, who)
}

// moveCommand moves what belongs to no single data center, or declares data centers off.
func moveCommand(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	gone := flags.Bool("home-is-off", false, "")
	o, words, err := operatorFlags(flags, "cluster", args)
	switch {
	case err != nil:
		return err
	case len(words) != 2 || words[0] == "datacenter-off" && *gone:
		return usageFault("cluster: name one data center",
			"write headgate cluster move-anywhere lhr, or headgate cluster datacenter-off lhr")
	}
	var got api.MoveResult
	if words[0] == "datacenter-off" {
		err = o.do(ctx, http.MethodPost, "/v1/cluster/off", map[string]string{"datacenters": words[1]}, &got)
	} else {
		in := map[string]any{"to": words[1], "home_is_off": *gone}
		err = o.do(ctx, http.MethodPost, "/v1/cluster/anywhere", in, &got)
	}
	if err != nil {
		return err
	}
	if words[0] == "datacenter-off" {
		fmt.Fprintf(stdout, "%s is off: what it holds comes back when its sessions have ended\n", words[1])
	} else {
		fmt.Fprintf(stdout, "the slots that belong to no data center live at %s\n", got.Home)
	}
	if len(got.Missing) > 0 {
		fmt.Fprintf(stdout, "not heard since: %s. What may be lent there comes back when no counter can use it\n"+
			"any more; if it is off: headgate cluster datacenter-off %s\n",
			strings.Join(got.Missing, ", "), strings.Join(got.Missing, ","))
	}
	return nil
}

// serialNumber matches the serial number of a certificate as headgate prints it.
const serialNumber = `^[0-9a-fA-F]{16,40}$`

// revokeCommand revokes a certificate.
func revokeCommand(ctx context.Context, args []string, stdout io.Writer) error {
	o, words, err := operatorFlags(flag.NewFlagSet("cluster revoke", flag.ContinueOnError), "cluster", args)
	switch {
	case err != nil:
		return err
	case len(words) != 2:
		return usageFault("cluster revoke: name one join file or serial number",
			"write headgate cluster revoke w7.join")
	}
	serial, node := words[1], ""
	if !regexp.MustCompile(serialNumber).MatchString(serial) {
		f, err := join.Read(words[1])
		if err != nil {
			return err
		}
		if serial, node, err = f.Serial(); err != nil {
			return err
		}
	}
	var got api.RotateResult
	in := map[string]string{"serial": serial, "node": node}
	if err := o.do(ctx, http.MethodPost, "/v1/cluster/revoke", in, &got); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "the certificate %s is refused\n", serial)
	fmt.Fprintf(stdout, "key %d seals in %.0f s; its holder still has the older keys: headgate key list, "+
		"then headgate key forget N\n", got.Key, got.SealsIn)
	return nil
}

// clusterStatus prints the nodes of the cluster.
func clusterStatus(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("cluster status", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "")
	o, words, err := operatorFlags(flags, "cluster status", args)
	switch {
	case err != nil:
		return err
	case len(words) > 0:
		return noWords(words, "headgate cluster status shows all nodes")
	}
	var c api.Cluster
	if err := o.do(ctx, "GET", "/v1/cluster", nil, &c); err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(stdout, &c)
	}
	fmt.Fprint(stdout, nodeTable(&c))
	return nil
}

// nodeTable formats the nodes for people.
func nodeTable(c *api.Cluster) string {
	var b strings.Builder
	leader := c.Leader
	if leader == "" && len(c.Store) > 1 {
		leader = "none now"
	}
	store := "store"
	if c.Engine != "" {
		store = "host"
		fmt.Fprintf(&b, "engine %s", c.Engine)
	} else {
		fmt.Fprintf(&b, "data center %s, store nodes %s", c.Datacenter, strings.Join(c.Store, " "))
	}
	if leader != "" {
		fmt.Fprintf(&b, ", leader %s", leader)
	}
	b.WriteString("\n\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tPART\tHEARD\tCLOCK\tUP\tVERSION\tHOSTS")
	alive := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		part, heard := "worker", fmt.Sprintf("%.1f s ago", n.SilentFor)
		if n.CanHost {
			part = store
		}
		if !n.Alive {
			heard = "gone for " + (time.Duration(n.SilentFor) * time.Second).String()
		} else if n.CanHost {
			alive++
		}
		rooms := strings.Join(n.Rooms, " ")
		if !n.Alive || rooms == "" {
			rooms = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%+.1f s\t%s\t%s\t%s\n", n.Name, part, heard, n.Skew,
			time.Since(n.StartedAt).Round(time.Second), n.Version, rooms)
	}
	t.Flush()
	for _, r := range c.Revoked {
		fmt.Fprintf(&b, "\nrevoked %s  %s  %s", r.At.Format(time.RFC3339), r.Serial, r.Node)
	}
	if len(c.Revoked) > 0 {
		b.WriteByte('\n')
	}
	switch {
	case c.Problem != "":
		fmt.Fprintf(&b, "\n%s\n", c.Problem)
	case alive < len(c.Store) && len(c.Store) > 1:
		fmt.Fprintf(&b, "\n%d of %d store nodes are there: one more must not go. Start the others.\n",
			alive, len(c.Store))
	}
	return b.String()
}
