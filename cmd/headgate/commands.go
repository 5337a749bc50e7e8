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

// A task has the commands that people use for it.
type task struct {
	name     string
	commands []command
}

// tasks returns all commands in the order of the help text.
func tasks() []task {
	return []task{
		{"Start", []command{
			{"init", "look at a site, and write a configuration for it", initCommand},
			{"run", "run headgate in front of an origin", runCommand},
			{"check", "list the mistakes in a configuration", checkCommand},
			{"demo", "watch a shop, a room and a crowd, and kill the room", demoCommand},
		}},
		{"Watch", []command{
			{"status", "show the rooms of a running headgate", statusCommand},
			{"ready", "say whether visitors are accepted, for health checks", readyCommand},
			{"ticket", "show the place of a visitor, and why", ticketCommand},
			{"analytics", "show statistics of rooms, limits and queues", analyticsCommand},
		}},
		{"Steer rooms", []command{
			{"room", "change a room while it runs", roomCommand},
			{"codes", "make invitations for a room, and show what one says", codesCommand},
			{"reload", "make a running headgate read its file again", reloadCommand},
		}},
		{"Limits", []command{
			{"limit", "show and change limits, and what their keys used", limitCommand},
			{"usage", "show what each key of a limit used, by hour or day", usageCommand},
			{"holder", "make holders of API keys, and manage them", holderCommand},
		}},
		{"Queues", []command{
			{"queue", "put jobs into queues, and manage them", queueCommand},
			{"webhook", "show webhooks, and test one", webhookCommand},
		}},
		{"Plan", []command{
			{"simulate", "play traffic in virtual time; find the right limits", simulateCommand},
			{"crowd", "send a crowd of simulated visitors to a room", crowdCommand},
		}},
		{"Operate", []command{
			{"doctor", "check the data folder, the configuration and the machine", doctorCommand},
			{"token", "create and revoke the tokens of operators", tokenCommand},
			{"key", "list, rotate and forget sealing keys", keyCommand},
			{"backup", "write records, keys and tokens to a file", backupCommand},
			{"restore", "fill a data folder from a backup", restoreCommand},
			{"upgrade", "say what this version would do with a data folder", upgradeCommand},
			{"cluster", "make several machines one room, and manage them", clusterCommand},
			{"edges", "print the configuration of a proxy that asks headgate", edgesCommand},
		}},
		{"Set up this program", []command{
			{"schema", "print the JSON Schema of the configuration, for editors", schemaCommand},
			{"completion", "print the completions of bash, zsh or fish", completionCommand},
			{"man", "write the manual pages", manCommand},
			{"version", "print the version", versionCommand},
		}},
	}
}

// commands returns all commands.
func commands() (all []command) {
	for _, t := range tasks() {
		all = append(all, t.commands...)
	}
	return all
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
	return finish(stdout, stderr, help, all[at].runWithOutput(ctx, args, stdout, stderr))
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
	hint := "headgate help lists the commands"
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
	for _, t := range tasks() {
		fmt.Fprintf(&list, "%s:\n", t.name)
		for _, c := range t.commands {
			fmt.Fprintf(&list, "  %-11s%s\n", c.name, c.summary)
		}
		list.WriteString("\n")
	}
	io.WriteString(w, strings.Replace(helpOf("headgate"), "{{commands}}\n\n", list.String(), 1))
}
