package main

import (
	"context"
	"flag"
	"io"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/edges"
)

const edgesHelp = `usage: headgate edges PROXY --config FILE

Prints the configuration of a proxy that asks headgate whether a request may
pass, and then forwards the request itself, for the rooms of a file. The file
needs decide.listen; for envoy and k8s, envoy.decide. See docs/edges.md.

  headgate edges nginx --config headgate.yaml > /etc/nginx/conf.d/headgate.conf
  headgate edges haproxy --config headgate.yaml > haproxy.cfg
  headgate edges haproxy-lua --config headgate.yaml > headgate.lua
  headgate edges k8s --config headgate.yaml | kubectl apply -f -

  PROXY          apache, caddy, envoy, haproxy, nginx, traefik;
                 apache-lua, haproxy-lua: their scripts;
                 k8s, k8s-nginx, k8s-traefik: manifests for Envoy Gateway,
                 ingress-nginx, Traefik
  --config FILE  the configuration of headgate
`

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
