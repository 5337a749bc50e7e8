package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/api"
)

// keyCommand manages the sealing keys.
func keyCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, words, err := operatorFlags(flag.NewFlagSet("key", flag.ContinueOnError), "key", args)
	switch {
	case err != nil:
		return err
	case len(words) == 1 && words[0] == "list":
		var keys []api.Key
		if err := o.do(ctx, http.MethodGet, "/v1/keys", nil, &keys); err != nil {
			return err
		}
		printKeys(stdout, keys)
	case len(words) == 1 && words[0] == "rotate":
		var got api.RotateResult
		if err := o.do(ctx, http.MethodPost, "/v1/keys/rotate", nil, &got); err != nil {
			return err
		}
		when := "from now on"
		if got.SealsIn > 0 {
			when = fmt.Sprintf("in %.0f s, when all nodes know it", got.SealsIn)
		}
		fmt.Fprintf(stdout, "key %d seals %s, the others still open\n", got.Key, when)
	case len(words) == 2 && words[0] == "forget":
		var left []api.Key
		if err := o.do(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(words[1]), nil, &left); err != nil {
			return err
		}
		printKeys(stdout, left)
	default:
		return usageFault("key: what is to be done?",
			"write headgate key list, key rotate or key forget N")
	}
	return nil
}

func printKeys(w io.Writer, keys []api.Key) {
	for _, k := range keys {
		does := "opens"
		if k.Seals {
			does = "seals"
		}
		if k.Datacenter != "" {
			does += "  " + k.Datacenter
		}
		fmt.Fprintf(w, "%3d  made %s  %s\n", k.Key, k.MadeAt.UTC().Format(time.RFC3339), does)
	}
}
