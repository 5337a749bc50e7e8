package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/api"
)

const clusterMoveHelp = `usage: headgate cluster move-anywhere DATACENTER [--home-is-off]
       headgate cluster datacenter-off DATACENTER[,DATACENTER]

When several data centers are one room, one of them is the home: it lends the
slots to all. move-anywhere makes another data center the home, while visitors
are inside and wait. This never happens by itself, because a home that is only
cut off continues to lend.

  headgate cluster move-anywhere lhr

--home-is-off declares that the present home is off and will not come back with
its data. Use it only if no visitor is served there. Run it at a node of the new
home. All slots are presumed lent until each data center has reported what it
holds; those of the lost one come back when the sessions of its visitors have
ended. Before it comes back, clear the data folders of its store nodes.

datacenter-off declares the same of a data center that is not the home: its
slots come back when its sessions have ended, and not ten minutes later.

Both need a token with the scope write: see headgate help token.
` + operatorHelp

// moveCommand moves what belongs to no single data center, or declares data centers off.
func moveCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	gone := flags.Bool("home-is-off", false, "")
	o, words, err := operatorFlags(flags, "cluster", args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, clusterMoveHelp)
		return exitOK
	case err != nil:
		return printFaults(stderr, err)
	case len(words) != 2 || words[0] == "datacenter-off" && *gone:
		return usageFault(stderr, "cluster: name one data center",
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
		return o.fail(ctx, stderr, err, "write")
	}
	if words[0] == "datacenter-off" {
		fmt.Fprintf(stdout, "%s is off: what it holds comes back when its stays have ended\n", words[1])
	} else {
		fmt.Fprintf(stdout, "the slots that belong to no data center live at %s\n", got.Home)
	}
	if len(got.Missing) > 0 {
		fmt.Fprintf(stdout, "not heard since: %s. What may be lent there comes back when no counter can use it\n"+
			"any more; if it is off: headgate cluster datacenter-off %s\n",
			strings.Join(got.Missing, ", "), strings.Join(got.Missing, ","))
	}
	return exitOK
}
