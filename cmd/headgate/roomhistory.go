package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/manage"
)

// roomHistory lists the changes of a room created by the API, or undoes one.
func roomHistory(ctx context.Context, o *operator, words []string, stdout, stderr io.Writer) int {
	verb, words := words[0], words[1:]
	usage, most := "NAME", 1
	if verb == "undo" {
		usage, most = "NAME [VERSION]", 2
	}
	if len(words) == 0 || len(words) > most || words[0] == "" {
		return printFaults(stderr, &config.Fault{
			Problem: "room " + verb + ": the arguments are not complete, or too many",
			Hint:    "write headgate room " + verb + " " + usage})
	}
	name, version := words[0], ""
	if len(words) > 1 {
		if version = words[1]; !isVersion(version) {
			return printFaults(stderr, &config.Fault{
				Problem: fmt.Sprintf("room undo: %q is no version", version),
				Hint:    "headgate room history " + name + " lists them"})
		}
	}
	var list struct{ Changes []*manage.Change }
	if version == "" {
		q := url.Values{"room": {name}, "count": {"200"}}
		if verb == "undo" {
			q.Set("count", "1")
		}
		if err := o.do(ctx, http.MethodGet, "/v1/history?"+q.Encode(), nil, &list); err != nil {
			return o.fail(ctx, stderr, err, "read")
		}
		if len(list.Changes) == 0 {
			fmt.Fprintf(stderr, "headgate: no change of a room %q is known to this token\nhint: a room of the "+
				"file has none, and old ones are forgotten: the audit log of the data folder has all\n", name)
			return exitFailed
		}
	}
	if verb == "history" {
		printChanges(stdout, list.Changes)
		return exitOK
	}
	if version == "" {
		version = strconv.FormatInt(list.Changes[0].Version, 10)
	}
	var was manage.Change
	if err := o.do(ctx, http.MethodGet, "/v1/history/"+version, nil, &was); err != nil {
		return o.fail(ctx, stderr, err, "read")
	}
	if was.Room != name {
		fmt.Fprintf(stderr, "headgate: change %s is of the room %q\nhint: headgate room history %s lists "+
			"those of the other\n", version, was.Room, name)
		return exitFailed
	}
	var done struct{ Change *manage.Change }
	if err := o.do(ctx, http.MethodPost, "/v1/history/"+version+"/undo", nil, &done); err != nil {
		return o.fail(ctx, stderr, err, "write:zone/"+was.Zone)
	}
	printChanges(stdout, []*manage.Change{done.Change})
	return exitOK
}

func isVersion(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && n > 0
}

// printChanges prints a line for each change, and a line for each changed member.
func printChanges(stdout io.Writer, all []*manage.Change) {
	for _, c := range all {
		what := c.What
		if c.Target != "" {
			what += " " + c.Target
		}
		if c.Undoes > 0 {
			what += fmt.Sprintf(", undoes %d", c.Undoes)
		}
		fmt.Fprintf(stdout, "%d  %s  %s  %s %s\n", c.Version, c.At.Local().Format("2006-01-02 15:04:05"),
			c.By, c.Verb, what)
		before, after := c.Differences()
		names := slices.Collect(maps.Keys(before))
		for name := range after {
			if _, both := before[name]; !both {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		for _, name := range names {
			fmt.Fprintf(w, "    %s\t%s\t-> %s\n", name, shortValue(before[name]), shortValue(after[name]))
		}
		w.Flush()
	}
}

// shortValue returns a value on one line.
func shortValue(s string) string {
	if s = strings.Join(strings.Fields(s), " "); s == "" {
		return "none"
	}
	if r := []rune(s); len(r) > 100 {
		s = string(r[:100]) + "…"
	}
	return s
}
