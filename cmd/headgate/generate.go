package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/edges"
	"github.com/headgate/headgate/internal/manual"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/setup"
)

// edgesCommand prints the configuration of a proxy.
func edgesCommand(_ context.Context, args []string, stdout, _ io.Writer) error {
	flags := flag.NewFlagSet("edges", flag.ContinueOnError)
	file := flags.String("config", "", "")
	words, rest := splitWords(flags, args)
	err := config.ParseFlags(flags, rest)
	switch {
	case err != nil:
		return err
	case len(words) != 1:
		return usageFault("name one proxy", "one of "+strings.Join(edges.Kinds(), ", "))
	case *file == "":
		return usageFault("--config: is missing", "add --config headgate.yaml")
	}
	cfg, err := config.Load(*file)
	if err != nil {
		return err
	}
	return edges.Write(stdout, words[0], cfg)
}

// initCommand writes a configuration, after questions if there is a terminal.
func initCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &setup.Command{Out: stdout, Questions: stderr,
		Transport: &http.Transport{MaxResponseHeaderBytes: 64 << 10}}
	flags := flag.NewFlagSet("init", flag.ContinueOnError)
	for _, q := range c.Answers.Questions() {
		flags.StringVar(q.Answer, q.Flag, "", "")
	}
	flags.StringVar(&c.File, "config", "headgate.yaml", "")
	flags.BoolVar(&c.Force, "force", false, "")
	yes := flags.Bool("yes", false, "")
	if err := config.ParseFlags(flags, args); err != nil {
		return err
	}
	switch terminal := platform.IsTerminal(os.Stdin); {
	case terminal && !*yes:
		c.Ask = os.Stdin
	case c.Answers.Origin == "" && !terminal:
		return usageFault("--origin: is missing, and there is no terminal to ask at",
			"add --origin http://127.0.0.1:3000; what else is not given has its default")
	}
	return c.Run(ctx)
}

// schemaCommand prints the schema of the configuration.
func schemaCommand(_ context.Context, args []string, stdout, _ io.Writer) error {
	if err := config.ParseFlags(flag.NewFlagSet("schema", flag.ContinueOnError), args); err != nil {
		return err
	}
	return config.Schema().Write(stdout)
}

// explained returns all commands with their help texts, also of those that print them by themselves.
func explained(ctx context.Context) []manual.Command {
	var all []manual.Command
	for _, c := range commands() {
		var help strings.Builder
		dispatch(ctx, []string{"help", c.name}, &help, io.Discard)
		x := manual.Command{Name: c.name, Summary: c.summary, Help: help.String()}
		for _, sub := range x.Subcommands() { // some have a text of their own
			if more := helpOf(c.name + "-" + sub); more != "" {
				x.Help += "\n" + more
			}
		}
		all = append(all, x)
	}
	return all
}

// completionCommand prints the completions of a shell.
func completionCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	words, rest := splitWords(flag.NewFlagSet("completion", flag.ContinueOnError), args)
	err := config.ParseFlags(flag.NewFlagSet("completion", flag.ContinueOnError), rest)
	script := ""
	if len(words) == 1 {
		script = manual.Completion(words[0], explained(ctx))
	}
	switch {
	case err != nil:
		return err
	case script == "":
		return usageFault("name one shell", "one of "+strings.Join(manual.Shells(), ", "))
	}
	_, err = io.WriteString(stdout, script)
	return err
}

// manCommand writes the manual pages into a folder.
func manCommand(ctx context.Context, args []string, stdout, _ io.Writer) error {
	words, rest := splitWords(flag.NewFlagSet("man", flag.ContinueOnError), args)
	if err := config.ParseFlags(flag.NewFlagSet("man", flag.ContinueOnError), rest); err != nil {
		return err
	}
	if len(words) != 1 {
		return usageFault("name one folder", "such as headgate man ~/.local/share/man/man1")
	}
	if err := os.MkdirAll(words[0], 0o755); err != nil {
		return fmt.Errorf("write the manual pages: %w", err)
	}
	var help strings.Builder
	printUsage(&help)
	all := explained(ctx)
	pages := append([]manual.Command{{Summary: "a virtual waiting room", Help: help.String()}}, all...)
	for i := range pages {
		name := strings.TrimSuffix("headgate-"+pages[i].Name, "-") + ".1"
		page := manual.Page(&pages[i], readBuild().Version, all)
		if err := os.WriteFile(filepath.Join(words[0], name), []byte(page), 0o644); err != nil {
			return fmt.Errorf("write the manual pages: %w", err)
		}
	}
	_, err := fmt.Fprintf(stdout, "wrote %d pages; man -l %s shows the first\n", len(pages),
		config.ShellWord(filepath.Join(words[0], "headgate.1")))
	return err
}
