package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/headgate/headgate/status"
)

// ticketCommand finds a ticket.
func ticketCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("ticket", flag.ContinueOnError)
	room := flags.String("room", "", "")
	asJSON := flags.Bool("json", false, "")
	o, words, err := operatorFlags(flags, "ticket", args)
	switch {
	case err != nil:
		return err
	case len(words) > 0 && words[0] == "release": // no ID: it has seven letters
		return releaseTicket(ctx, o, words[1:], *room+map[bool]string{true: "--json"}[*asJSON], stdout)
	case len(words) != 1 || words[0] == "":
		return usageFault("ticket: one ID is needed",
			"it stands at the foot of the waiting page: headgate ticket ID")
	}
	path := "/v1/tickets/" + url.PathEscape(words[0])
	if *room != "" {
		path = "/v1/rooms/" + url.PathEscape(*room) + "/tickets/" + url.PathEscape(words[0])
		o.scope = "read:" + *room
	}
	var w status.Ticket
	if err := o.do(ctx, http.MethodGet, path, nil, &w); err != nil {
		return err
	}
	if *asJSON {
		return writeJSON(stdout, w)
	}
	fmt.Fprintf(stdout, "ticket    %s in room %s\n", w.Ticket, w.Room)
	if w.Lane != "" {
		fmt.Fprintf(stdout, "lane      %s\n", w.Lane)
	}
	fmt.Fprintf(stdout, "status    %s\n", w.Status)
	if w.Position > 0 {
		fmt.Fprintf(stdout, "position  %d, %d ahead\n", w.Position, w.Ahead)
		fmt.Fprintf(stdout, "wait      %s\n", about(w.Expected))
	}
	if w.SilentFor >= 0 {
		fmt.Fprintf(stdout, "silent    for %s\n", about(w.SilentFor))
	}
	if w.KeptFor >= 0 {
		fmt.Fprintf(stdout, "kept      for another %s of silence\n", about(w.KeptFor))
	}
	fmt.Fprintf(stdout, "why       %s\n", w.Reason)
	return nil
}

// releaseTicket gives the visitor of a ticket the place of its arrival.
func releaseTicket(ctx context.Context, o *operator, words []string, other string, stdout io.Writer) error {
	if len(words) != 2 || words[0] == "" || words[1] == "" || other != "" {
		return usageFault("ticket release: a room and an ID are needed, and nothing else",
			"write headgate ticket release ROOM ID")
	}
	o.scope = "release:" + words[0]
	path := "/v1/rooms/" + url.PathEscape(words[0]) + "/tickets/" + url.PathEscape(words[1]) + "/release"
	var w status.Ticket
	if err := o.do(ctx, http.MethodPost, path, nil, &w); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "ticket %s in room %s is released: its visitor has the place of its arrival\n", w.Ticket, w.Room)
	return nil
}
