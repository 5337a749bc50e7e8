package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/crowd"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/sim/simulate"
	"github.com/headgate/headgate/internal/suggest"
)

// A command is one word after headgate.
type command struct {
	name    string
	summary string // one line, for the list of commands
	run     func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// commands returns all commands in the order of the help text.
func commands() []command {
	return []command{
		{"run", "run headgate in front of an origin", runCommand},
		{"check", "list the mistakes in a configuration", checkCommand},
		{"status", "show the rooms of a running headgate", statusCommand},
		{"room", "change a room while it runs", roomCommand},
		{"codes", "make invitations for a room, and show what one says", codesCommand},
		{"ticket", "show the place of a visitor, and why", ticketCommand},
		{"limit", "show and change limits, and what their keys used", limitCommand},
		{"usage", "show what each key of a limit used, by hour or day", usageCommand},
		{"holder", "make holders of API keys, and manage them", holderCommand},
		{"queue", "put jobs into queues, and manage them", queueCommand},
		{"webhook", "show webhooks, and test one", webhookCommand},
		{"analytics", "show statistics of rooms, limits and queues", analyticsCommand},
		{"reload", "make a running headgate read its file again", reloadCommand},
		{"key", "list, rotate and forget sealing keys", keyCommand},
		{"token", "create and revoke the tokens of operators", tokenCommand},
		{"cluster", "make several machines one room, and manage them", clusterCommand},
		{"edges", "print the configuration of a proxy that asks headgate", edgesCommand},
		{"doctor", "check the data folder, the configuration and the machine", doctorCommand},
		{"backup", "write records, keys and tokens to a file", backupCommand},
		{"restore", "fill a data folder from a backup", restoreCommand},
		{"crowd", "send a crowd of simulated visitors to a room", crowdCommand},
		{"demo", "watch a shop, a room and a crowd, and kill the room", demoCommand},
		{"simulate", "play traffic in virtual time; find the right limits", simulateCommand},
		{"version", "print the version", versionCommand},
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
	help := helpOf(name)
	if len(args) > 0 && isHelp(args[0]) {
		if help != "" {
			return finish(stdout, stderr, help, flag.ErrHelp)
		}
		args, stderr = []string{"-h"}, stdout
	}
	return finish(stdout, stderr, help, all[at].run(ctx, args, stdout, stderr))
}

// helpFiles has a text for each command that does not print its own, and for the parts of commands
// that have one.
//
//go:embed help
var helpFiles embed.FS

// helpOf returns a help text, or "" if there is none. What commands that use a running headgate share
// stands in one file.
func helpOf(name string) string {
	text, _ := helpFiles.ReadFile("help/" + name + ".txt")
	operator, _ := helpFiles.ReadFile("help/operator.txt")
	return strings.Replace(string(text), "{{operator}}\n", "\n"+string(operator), 1)
}

func crowdCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return exited(crowd.Command(ctx, args, stdout, stderr))
}

// simulateCommand plays headgate's own code alone: the shipped binary has no models of other systems.
func simulateCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &simulate.Command{Version: readBuild().Version, Stdout: stdout, Stderr: stderr,
		Terminal: platform.IsScreen(stderr) && os.Getenv("TERM") != "dumb"}
	return exited(c.Run(ctx, args))
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
	var list strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&list, "  %-9s %s\n", c.name, c.summary)
	}
	io.WriteString(w, strings.Replace(helpOf("headgate"), "{{commands}}", list.String(), 1))
}
