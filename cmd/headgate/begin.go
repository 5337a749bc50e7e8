package main

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/edges"
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
