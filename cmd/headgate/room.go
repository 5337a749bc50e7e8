package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/manage"
	"github.com/headgate/headgate/internal/suggest"
	"github.com/headgate/headgate/status"
)

// roomCommand changes a room.
func roomCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("room", flag.ContinueOnError)
	message := flags.String("message", "", "")
	o, words, err := operatorFlags(flags, "room", args)
	if err != nil {
		return err
	}
	var said *string // the value of --message, if given
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "message" {
			said = message
		}
	})
	if len(words) > 0 && (words[0] == "history" || words[0] == "undo") && said == nil {
		return roomHistory(ctx, o, words, stdout)
	}
	name, pairs, fault := roomChange(words, said)
	if fault != nil {
		return fault
	}
	var s status.Room
	o.scope = "write:" + name
	path := "/v1/rooms/" + url.PathEscape(name)
	if err := o.do(ctx, http.MethodPatch, path, pairs, &s); err != nil {
		return err
	}
	fmt.Fprint(stdout, table([]status.Room{s}))
	if s.Message != "" {
		fmt.Fprintf(stdout, "message: %s\n", strings.ReplaceAll(s.Message, "\n", "\n         "))
	}
	return nil
}

// roomChange converts words to the settings to change. Package config says which can be changed.
func roomChange(words []string, said *string) (name string, pairs map[string]string, err error) {
	verbs := strings.Fields("set queue-all close open message history undo")
	wrong := func(problem, hint string) (string, map[string]string, error) {
		return "", nil, usageFault(problem, hint)
	}
	if len(words) == 0 {
		return wrong("room: what shall be done is missing", "write one of "+strings.Join(verbs, ", ")+"; headgate status shows the rooms")
	}
	verb, words := words[0], words[1:]
	usage := map[string]string{
		"set": "NAME KEY=VALUE...", "queue-all": "NAME on|off", "close": "NAME [--message TEXT]",
		"open": "NAME", "message": "NAME TEXT", "history": "NAME", "undo": "NAME [VERSION]",
	}
	if usage[verb] == "" {
		hint := "write one of " + strings.Join(verbs, ", ") + "; headgate status shows the rooms"
		if near := suggest.Nearest(verb, verbs); near != "" {
			hint = "did you mean headgate room " + near + "?"
		}
		return wrong(fmt.Sprintf("room: there is no %q", verb), hint)
	}
	hint := "write headgate room " + verb + " " + usage[verb]
	if said != nil && verb != "close" {
		return wrong("--message: goes with room close alone",
			"write headgate room message NAME TEXT")
	}
	want := map[string]int{"queue-all": 2, "message": 2, "close": 1, "open": 1}[verb]
	if len(words) == 0 || words[0] == "" || want > 0 && len(words) != want ||
		verb == "set" && len(words) < 2 {
		return wrong("room "+verb+": the arguments are not complete, or too many", hint)
	}
	name, words = words[0], words[1:]
	switch verb {
	case "queue-all":
		on := words[0] == "on"
		if !on && words[0] != "off" {
			return wrong(fmt.Sprintf("room queue-all: %q is neither on nor off", words[0]), hint)
		}
		return name, map[string]string{"queue_all": fmt.Sprint(on)}, nil
	case "close":
		pairs = map[string]string{"closed": "true"}
		if said != nil {
			pairs["message"] = *said
		}
		return name, pairs, nil
	case "open":
		return name, map[string]string{"closed": "false"}, nil
	case "message":
		return name, map[string]string{"message": words[0]}, nil
	}
	pairs = map[string]string{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		_, twice := pairs[key]
		switch {
		case !ok || key == "":
			return wrong(fmt.Sprintf("room set: %q is not KEY=VALUE", w), hint)
		case twice:
			return wrong("room set: "+key+" is given more than once", "keep one of the two")
		}
		pairs[key] = value
	}
	return name, pairs, nil
}

// roomHistory lists the changes of a room created by the API, or undoes one.
func roomHistory(ctx context.Context, o *operator, words []string, stdout io.Writer) error {
	verb, words := words[0], words[1:]
	usage, most := "NAME", 1
	if verb == "undo" {
		usage, most = "NAME [VERSION]", 2
	}
	if len(words) == 0 || len(words) > most || words[0] == "" {
		return usageFault("room "+verb+": the arguments are not complete, or too many",
			"write headgate room "+verb+" "+usage)
	}
	name, version := words[0], ""
	if len(words) > 1 {
		if version = words[1]; !isVersion(version) {
			return usageFault(fmt.Sprintf("room undo: %q is no version", version),
				"headgate room history "+name+" lists them")
		}
	}
	var list struct{ Changes []*manage.Change }
	if version == "" {
		q := url.Values{"room": {name}, "count": {"200"}}
		if verb == "undo" {
			q.Set("count", "1")
		}
		if err := o.do(ctx, http.MethodGet, "/v1/history?"+q.Encode(), nil, &list); err != nil {
			return err
		}
		if len(list.Changes) == 0 {
			return &hint.Error{Text: fmt.Sprintf("no change of a room %q is known to this token", name),
				Do: "a room of the file has none, and old ones are forgotten: " +
					"the audit log of the data folder has all"}
		}
	}
	if verb == "history" {
		printChanges(stdout, list.Changes)
		return nil
	}
	if version == "" {
		version = strconv.FormatInt(list.Changes[0].Version, 10)
	}
	var was manage.Change
	if err := o.do(ctx, http.MethodGet, "/v1/history/"+version, nil, &was); err != nil {
		return err
	}
	if was.Room != name {
		return &hint.Error{Text: fmt.Sprintf("change %s is of the room %q", version, was.Room),
			Do: "headgate room history " + name + " lists those of the other"}
	}
	o.scope = "write:zone/" + was.Zone
	var done struct{ Change *manage.Change }
	if err := o.do(ctx, http.MethodPost, "/v1/history/"+version+"/undo", nil, &done); err != nil {
		return err
	}
	printChanges(stdout, []*manage.Change{done.Change})
	return nil
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
