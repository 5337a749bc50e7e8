package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/invite"
)

// codesCommand makes invitations and shows what one says, for which it needs no running headgate, or revokes
// some at one.
func codesCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) > 0 && slices.Contains([]string{"revoke", "allow", "revoked"}, args[0]) {
		return reviseCodes(ctx, args, stdout)
	}
	flags := flag.NewFlagSet("codes", flag.ContinueOnError)
	file := flags.String("config", "", "")
	batch, first, count := flags.Int("batch", 0, ""), flags.Int("first", 1, ""), flags.Int("count", 0, "")
	until, link, uses := flags.String("until", "", ""), flags.String("link", "", ""), flags.Int("uses", 1, "")
	words, rest := splitWords(flags, args)
	if err := config.ParseFlags(flags, rest); err != nil {
		return err
	}
	verb := ""
	if len(words) > 0 {
		verb = words[0]
	}
	usage := map[string]string{
		"make": "ROOM --config FILE --batch N --count N --until TIME", "show": "ROOM CODE --config FILE",
	}
	switch want := map[string]int{"make": 2, "show": 3}[verb]; {
	case want == 0:
		return usageFault(fmt.Sprintf("codes: there is no %q", verb), "write headgate codes make, show, revoke, allow or revoked")
	case len(words) != want:
		return usageFault("codes "+verb+": the arguments are not complete, or too many",
			"write headgate codes "+verb+" "+usage[verb])
	case *file == "":
		return usageFault("--config: is missing", "add --config headgate.yaml")
	}
	key, err := keyOfCodes(*file, words[1])
	if err != nil {
		return err
	}
	if verb == "show" {
		return showCode(stdout, key, words[2])
	}
	c := invite.Code{Batch: *batch, Serial: *first, Uses: *uses}
	end, err := time.Parse(time.RFC3339, *until)
	if err != nil || end.After(invite.Latest()) {
		return usageFault("--until: "+strconv.Quote(*until)+" is no time until "+strconv.Itoa(invite.Latest().Year()),
			"write the end of the invitations, such as --until 2026-12-24T20:00:00Z")
	}
	c.End = invite.EndAt(end)
	return makeCodes(stdout, key, c, *count, *link)
}

// reviseCodes revokes invitations, allows them again, or lists which are revoked.
func reviseCodes(ctx context.Context, args []string, stdout io.Writer) error {
	o, words, err := operatorFlags(flag.NewFlagSet("codes", flag.ContinueOnError), "codes", args)
	if err != nil {
		return err
	}
	verb, words := words[0], words[1:]
	usage, wants := " ROOM BATCH|BATCH-SERIAL|CODE...", len(words) > 1
	if verb == "revoked" {
		usage, wants = " ROOM", len(words) == 1
	}
	if !wants || words[0] == "" {
		return usageFault("codes "+verb+": the arguments are not complete, or too many",
			"write headgate codes "+verb+usage)
	}
	path := "/v1/rooms/" + url.PathEscape(words[0]) + "/codes/revoked"
	var now struct{ Revoked []string }
	if verb == "revoked" {
		err = o.do(ctx, http.MethodGet, path, nil, &now)
	} else {
		o.scope = "write:" + words[0]
		err = o.do(ctx, http.MethodPost, path, map[string][]string{verb: words[1:]}, &now)
	}
	if err != nil {
		return err
	}
	for _, name := range now.Revoked {
		fmt.Fprintln(stdout, name)
	}
	return nil
}

// keyOfCodes returns the key of the invitations of a room in a file.
func keyOfCodes(file, room string) (*invite.Key, error) {
	cfg, err := config.Load(file)
	if err != nil {
		return nil, err
	}
	for i := range cfg.Rooms {
		if r := &cfg.Rooms[i]; r.Name == room && r.Identity.CodesFile != "" {
			return invite.ReadKey(room, r.Identity.CodesFile)
		}
	}
	return nil, &hint.Error{Text: fmt.Sprintf("%s has no room %q with invitations", file, room),
		Do: "add identity: {codes: {secret_file: codes.key}} to the room"}
}

func makeCodes(w io.Writer, key *invite.Key, c invite.Code, count int, link string) error {
	if count < 1 {
		return usageFault("--count: is missing or below 1", "write how many, such as --count 1000")
	}
	last := c
	last.Serial += count - 1
	for _, c := range []invite.Code{c, last} {
		if err := c.Check(); err != nil {
			return usageFault(err.Error(), "each batch has its own number, such as --batch 1; --uses is 1 to 1023")
		}
	}
	u, err := url.Parse(link)
	if err != nil || link != "" && (u.Host == "" || !strings.HasPrefix(u.Scheme, "http")) {
		return usageFault("--link: is not the URL of a page", "write --link https://shop.example.com/")
	}
	buffered := bufio.NewWriterSize(w, 1<<16)
	out := csv.NewWriter(buffered)
	record := []string{"code", "batch", "serial", "uses", "until", "link"}
	if link == "" {
		record = record[:5]
	}
	_ = out.Write(record) // Flush has its error
	query := u.Query()
	for end := c.Until().Format(time.RFC3339); c.Serial <= last.Serial; c.Serial++ {
		record[0] = key.New(c)
		record[1], record[2], record[3], record[4] = strconv.Itoa(c.Batch), strconv.Itoa(c.Serial),
			strconv.Itoa(c.Uses), end
		if link != "" {
			query.Set(invite.Field, record[0])
			u.RawQuery = query.Encode()
			record[5] = u.String()
		}
		_ = out.Write(record)
	}
	if out.Flush(); out.Error() != nil {
		return out.Error()
	}
	return buffered.Flush()
}

// showCode prints what a code says, if it is one of the room.
func showCode(w io.Writer, key *invite.Key, text string) error {
	c, err := key.Verify(text, time.Now())
	if c.Batch == 0 {
		return &hint.Error{Text: err.Error(), Do: "compare it with what was sent, and look whether it is of another room"}
	}
	what := "valid until"
	if err != nil {
		what = "ended at"
	}
	if c.Uses > 1 {
		what = strconv.Itoa(c.Uses) + " uses, " + what
	}
	_, err = fmt.Fprintf(w, "%s  batch %d, serial number %d, %s %s\n", c, c.Batch, c.Serial, what,
		c.Until().Format(time.RFC3339))
	return err
}
