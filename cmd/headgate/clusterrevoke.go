package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/join"
)

const clusterRevokeHelp = `usage: headgate cluster revoke FILE|SERIAL

Revokes the certificate of a join file that others have seen, or the certificate
with this serial number. The store nodes close its connections and accept no new
ones at any port. It also makes a new sealing key, which the holder never gets.

  headgate cluster revoke cluster/w7.join

The holder still has the earlier sealing keys and can make passes with them.
When the present visitors have gone, or may lose their places, run headgate key
list, and headgate key forget N for each earlier key.

All workers that share worker.join share its certificate. Make a file for each
worker with headgate cluster node NAME, and revoke one at a time.

A revoked store node keeps its connections to other store nodes until they have
been restarted, one after the other.

Send it to a store node. It needs a token with the scope write: see headgate
help token.` + operatorHelp

// serialNumber matches the serial number of a certificate as headgate prints it.
const serialNumber = `^[0-9a-fA-F]{16,40}$`

// revokeCommand revokes a certificate.
func revokeCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, words, err := operatorFlags(flag.NewFlagSet("cluster revoke", flag.ContinueOnError), "cluster", args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, clusterRevokeHelp)
		return exitOK
	case err != nil:
		return printFaults(stderr, err)
	case len(words) != 2:
		return usageFault(stderr, "cluster revoke: name one join file or serial number",
			"write headgate cluster revoke w7.join")
	}
	serial, node := words[1], ""
	if !regexp.MustCompile(serialNumber).MatchString(serial) {
		f, err := join.Read(words[1])
		if err != nil {
			return printHinted(stderr, err)
		}
		if serial, node, err = f.Serial(); err != nil {
			return printHinted(stderr, err)
		}
	}
	var got api.RotateResult
	in := map[string]string{"serial": serial, "node": node}
	if err := o.do(ctx, http.MethodPost, "/v1/cluster/revoke", in, &got); err != nil {
		return o.fail(ctx, stderr, err, "write")
	}
	fmt.Fprintf(stdout, "the certificate %s is refused\n", serial)
	fmt.Fprintf(stdout, "key %d seals in %.0f s; its holder still has the older keys: headgate key list, "+
		"then headgate key forget N\n", got.Key, got.SealsIn)
	return exitOK
}
