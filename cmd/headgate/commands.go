package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/suggest"
)

// These are the exit codes. They are documented in help and do not change.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A command is one word after headgate.
type command struct {
	name    string
	summary string // one line, for the list of commands
	help    string // the full help text; "" when run prints its own for -h
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) int
}

// commands returns all commands in the order of the help text.
func commands() []command {
	return []command{
		{"run", "stand in front of an origin", runHelp, runCommand},
		{"check", "say what is wrong with a configuration", checkHelp, checkCommand},
		{"status", "say where the rooms of a running headgate stand", statusHelp, statusCommand},
		{"room", "change a room while people are inside", roomHelp, roomCommand},
		{"ticket", "say where a visitor stands, and why", ticketHelp, ticketCommand},
		{"limit", "say what the keys of a limit have used", limitHelp, limitCommand},
		{"queue", "put jobs, and say how they fare", queueHelp, queueCommand},
		{"webhook", "say how webhooks fare, and try one", webhookHelp, webhookCommand},
		{"analytics", "say what a room, a limit or a queue did", analyticsHelp, analyticsCommand},
		{"reload", "let a running headgate read its file again", reloadHelp, reloadCommand},
		{"key", "make a new sealing key, without anybody losing a place", keyHelp, keyCommand},
		{"token", "make and revoke the tokens of operators", tokenHelp, tokenCommand},
		{"cluster", "make the files by which machines become one room", clusterHelp, clusterCommand},
		{"doctor", "say what is wrong with the data folder, and what to do", doctorHelp, doctorCommand},
		{"backup", "write records, keys and tokens into a file", backupHelp, backupCommand},
		{"restore", "fill a data folder from a backup", restoreHelp, restoreCommand},
		{"crowd", "rehearse: send a crowd of visitors that waits", "", crowd.Command},
		{"demo", "see it work: a shop, a room, a crowd, and a key that kills it", demoHelp, demoCommand},
		{"simulate", "play traffic in virtual time; find the limits it needs", simulateHelp, simulateCommand},
		{"version", "say which headgate this is", versionHelp, versionCommand},
	}
}

// dispatch runs the command named by args and returns the exit code.
func dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || isHelp(args[0]) && len(args) == 1 {
		printUsage(stdout)
		return exitOK
	}
	name, args := args[0], args[1:]
	switch {
	case name == "--version" || name == "-version" || name == "-v": // accepted by most programs
		name = "version"
	case isHelp(name):
		// Handles both help check and help check -h.
		name, args = args[0], []string{"-h"}
	}
	all := commands()
	at := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if at < 0 {
		return unknownCommand(stderr, name, all)
	}
	cmd := all[at]
	switch asked := len(args) > 0 && isHelp(args[0]); {
	case asked && cmd.help == "":
		return cmd.run(ctx, []string{"-h"}, stdout, stdout)
	case asked:
		fmt.Fprint(stdout, cmd.help)
		return exitOK
	}
	return cmd.run(ctx, args, stdout, stderr)
}

func isHelp(arg string) bool {
	return slices.Contains([]string{"help", "-h", "-help", "--help"}, arg)
}

func unknownCommand(stderr io.Writer, name string, all []command) int {
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	hint := "the commands are " + strings.Join(names, ", ")
	switch near := suggest.Nearest(name, names); {
	case near != "":
		hint = "did you mean " + near + "?"
	case strings.HasPrefix(name, "-"):
		hint = "a command comes first, such as headgate run " + name
	}
	return usageFault(stderr, fmt.Sprintf("unknown command %q", name), hint)
}

// usageFault prints an error in the arguments.
func usageFault(stderr io.Writer, problem, hint string) int {
	fmt.Fprintf(stderr, "headgate: %s\nhint: %s\n", problem, hint)
	return exitUsage
}

// printFaults prints the faults that config found in arguments or a file.
func printFaults(stderr io.Writer, err error) int {
	printFaultList(stderr, config.Faults(err))
	return exitUsage
}

func printFaultList(stderr io.Writer, faults []*config.Fault) {
	for _, f := range faults {
		fmt.Fprintf(stderr, "headgate: %v\nhint: %s\n", f, f.Hint)
	}
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, `headgate stands in front of a site and lets in only as many visitors as it can
take. The others wait in a line, in order, on a page that says how long.

Try it with what runs on port 3000 of this machine:

  headgate run --origin http://127.0.0.1:3000 \
      --total-active-users 200 --new-users-per-minute 200

then open http://127.0.0.1:8080. For several rooms, write a file:

  headgate check --config headgate.yaml
  headgate run --config headgate.yaml

See how it holds, with 500 visitors who wait as a browser would:

  headgate crowd http://127.0.0.1:8080/ -n 500

Commands:

`)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-9s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, `
headgate help COMMAND explains a command. The exit code is 0 when all went well,
1 when it did not, 2 when the arguments or the configuration are wrong.
`)
}
