package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"

	"github.com/headgate/headgate/internal/api"
)

const keyHelp = `usage: headgate key rotate

Makes a new key that seals the cookies of visitors from now on. Cookies of the
old keys stay good: nobody loses a place, nobody is sent out. headgate does this
by itself each week; do it by hand when a key may have been seen by others, and
again after the longest session has passed, then remove keys/NNN.key of the old
one in the data folder and reload.

  headgate key rotate

It needs a token with the scope write: see headgate help token.
` + operatorHelp

// keyCommand asks for a new sealing key.
func keyCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, words, err := operatorFlags(flag.NewFlagSet("key", flag.ContinueOnError), "key rotate", args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, keyHelp)
		return exitOK
	case err != nil:
		return printFaults(stderr, err)
	case len(words) != 1 || words[0] != "rotate":
		return usageFault(stderr, "key: what is to be done?", "write headgate key rotate")
	}
	var got api.Rotated
	if err := o.do(ctx, http.MethodPost, "/v1/keys/rotate", nil, &got); err != nil {
		return o.fail(ctx, stderr, err, "write")
	}
	when := "from now on"
	if got.SealsIn > 0 {
		when = fmt.Sprintf("in %.0f s, when all nodes know it", got.SealsIn)
	}
	fmt.Fprintf(stdout, "key %d seals %s, the others still open\n", got.Key, when)
	return exitOK
}
