package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/api"
)

const clusterStatusHelp = `usage: headgate cluster status [--json]

Shows the nodes of the cluster as one of them sees them, and which hosts what.
A node that was not heard for two seconds counts as gone.

  --json             for scripts
` + operatorHelp

// clusterStatus prints the nodes of the cluster.
func clusterStatus(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("cluster status", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "")
	o, words, err := operatorFlags(flags, "cluster status", args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, clusterStatusHelp)
		return exitOK
	case err != nil:
		return printFaults(stderr, err)
	case len(words) > 0:
		return usageFault(stderr, fmt.Sprintf("unexpected argument %q", words[0]),
			"headgate cluster status shows all nodes")
	}
	var c api.Cluster
	if err := o.do(ctx, "GET", "/v1/cluster", nil, &c); err != nil {
		return o.fail(ctx, stderr, err, "read")
	}
	if *asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(&c); err != nil {
			return printFaults(stderr, err)
		}
		return exitOK
	}
	fmt.Fprint(stdout, nodeTable(&c))
	return exitOK
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
