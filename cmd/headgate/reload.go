package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/api"
)

// reloadCommand requests a reload and prints the result.
func reloadCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, words, err := operatorFlags(flag.NewFlagSet("reload", flag.ContinueOnError), "reload", args)
	switch {
	case err != nil:
		return err
	case len(words) > 0:
		return noWords(words, "headgate knows its file: write headgate reload alone")
	}
	var got api.ReloadResult
	if err := o.do(ctx, http.MethodPost, "/v1/reload", nil, &got); err != nil {
		return err
	}
	fmt.Fprint(stdout, reloaded(&got))
	return nil
}

// reloaded returns what a reload has changed, as text.
func reloaded(got *api.ReloadResult) string {
	var b strings.Builder
	for _, part := range []struct {
		text  string
		names []string
	}{
		{"rooms added", got.Rooms.Added},
		{"rooms removed", got.Rooms.Removed},
		{"rooms changed", got.Rooms.Changed},
		{"limits added", got.Limits.Added},
		{"limits removed", got.Limits.Removed},
		{"limits changed", got.Limits.Changed},
		{"queues added", got.Queues.Added},
		{"queues removed", got.Queues.Removed},
		{"queues changed", got.Queues.Changed},
		{"webhooks added", got.Webhooks.Added},
		{"webhooks removed", got.Webhooks.Removed},
		{"webhooks changed", got.Webhooks.Changed},
		{"changed", got.Settings},
		{"live changes dropped", got.Dropped},
		{"limits of this name that were made are not in force", got.Covered},
		{"only a restart changes", got.NeedsRestart},
	} {
		if len(part.names) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", part.text, strings.Join(part.names, ", "))
		}
	}
	if len(got.Queues.Removed) > 0 {
		b.WriteString("jobs of a removed queue stay on the disk, and go on when the file has its name again\n")
	}
	if b.Len() == 0 {
		return "reloaded, nothing is different\n"
	}
	return "reloaded\n" + b.String()
}
