package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/sim/simulate"
	"github.com/headgate/headgate/internal/suggest"
)

// A command is one word after headgate.
type command struct {
	name    string
	summary string // one line, for the list of commands
	help    string // the full help text; "" when run prints its own for -h
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// commands returns all commands in the order of the help text.
func commands() []command {
	return []command{
		{"run", "run headgate in front of an origin", runHelp, runCommand},
		{"check", "list the mistakes in a configuration", checkHelp, checkCommand},
		{"status", "show the rooms of a running headgate", statusHelp, statusCommand},
		{"room", "change a room while it runs", roomHelp, roomCommand},
		{"ticket", "show the place of a visitor, and why", ticketHelp, ticketCommand},
		{"limit", "show and change limits, and what their keys used", limitHelp, limitCommand},
		{"queue", "put jobs into queues, and manage them", queueHelp, queueCommand},
		{"webhook", "show webhooks, and test one", webhookHelp, webhookCommand},
		{"analytics", "show statistics of rooms, limits and queues", analyticsHelp, analyticsCommand},
		{"reload", "make a running headgate read its file again", reloadHelp, reloadCommand},
		{"key", "list, rotate and forget sealing keys", keyHelp, keyCommand},
		{"token", "create and revoke the tokens of operators", tokenHelp, tokenCommand},
		{"cluster", "make several machines one room, and manage them", clusterHelp, clusterCommand},
		{"doctor", "check the data folder, the configuration and the machine", doctorHelp, doctorCommand},
		{"backup", "write records, keys and tokens to a file", backupHelp, backupCommand},
		{"restore", "fill a data folder from a backup", restoreHelp, restoreCommand},
		{"crowd", "send a crowd of simulated visitors to a room", "", crowdCommand},
		{"demo", "watch a shop, a room and a crowd, and kill the room", demoHelp, demoCommand},
		{"simulate", "play traffic in virtual time; find the right limits", simulate.Help, simulateCommand},
		{"version", "print the version", versionHelp, versionCommand},
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
		return finish(stdout, stderr, "", unknownCommand(name, all))
	}
	cmd := all[at]
	if len(args) > 0 && isHelp(args[0]) {
		if cmd.help != "" {
			return finish(stdout, stderr, cmd.help, flag.ErrHelp)
		}
		args, stderr = []string{"-h"}, stdout
	}
	return finish(stdout, stderr, cmd.help, cmd.run(ctx, args, stdout, stderr))
}

func crowdCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return exited(crowd.Command(ctx, args, stdout, stderr))
}

// exited is the error of a command that prints by itself.
func exited(code int) error {
	if code == exitOK {
		return nil
	}
	return exitCode(code)
}

func isHelp(arg string) bool {
	return slices.Contains([]string{"help", "-h", "-help", "--help"}, arg)
}

func unknownCommand(name string, all []command) error {
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
	return usageFault(fmt.Sprintf("unknown command %q", name), hint)
}

func printUsage(w io.Writer) {
	fmt.Fprint(w, `headgate is a waiting room. It is a proxy in front of a site, and admits only
as many visitors as the site can handle. The others wait in line, in order, on
a page that shows how long.

Try it with a site on port 3000 of this machine:

  headgate run --origin http://127.0.0.1:3000 \
      --total-active-users 200 --new-users-per-minute 200

then open http://127.0.0.1:8080. For several rooms, write a file:

  headgate check --config headgate.yaml
  headgate run --config headgate.yaml

Test it with 500 simulated visitors that wait as browsers do:

  headgate crowd http://127.0.0.1:8080/ -n 500

Commands:

`)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-9s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, `
headgate help COMMAND explains a command. The exit code is 0 for success, 1 for
a failure, and 2 if the arguments or the configuration are wrong.
`)
}
