package main

import (
	"context"
	"flag"
	"io"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/edges"
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

// schemaCommand prints the schema of the configuration.
func schemaCommand(_ context.Context, args []string, stdout, _ io.Writer) error {
	if err := config.ParseFlags(flag.NewFlagSet("schema", flag.ContinueOnError), args); err != nil {
		return err
	}
	return config.Schema().Write(stdout)
}
