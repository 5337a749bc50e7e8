package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
)

const checkHelp = `usage: headgate check --config FILE [--format text|json]

Reads a configuration as headgate run does, and lists all mistakes with file,
line, column, key, and what to do. It starts and changes nothing. It also reads
the files that the configuration names: certificates of tls, and the files of
cluster, engine, envoy and the pages of rooms.

  headgate check --config headgate.yaml

  --config FILE    the configuration
  --format FORMAT  text, the default, or json for editors and scripts

The exit code is 0 if headgate run would accept the file, else 2. A warning is
about something allowed but unusual, and does not change the exit code.

A whole configuration can be as short as this:

  rooms:
    - name: shop
      origin: http://127.0.0.1:3000
      total_active_users: 200
      new_users_per_minute: 200
`

// A verdict is the answer of check as JSON. Durations are text such as 5m0s.
type verdict struct {
	OK       bool             `json:"ok"`
	File     string           `json:"file"`
	Faults   []*config.Fault  `json:"faults"`
	Warnings []config.Fault   `json:"warnings"`
	TLS      *tlsSummary      `json:"tls,omitempty"`
	Cluster  *clusterSummary  `json:"cluster,omitempty"`
	Engine   *engineSummary   `json:"engine,omitempty"`
	Limits   []shownLimit     `json:"limits"`
	Rooms    []roomSummary    `json:"rooms"`
	Queues   []queueSummary   `json:"queues"`
	Webhooks []webhookSummary `json:"webhooks"`
}

type roomSummary struct {
	Name              string `json:"name"`
	Host              string `json:"host"`
	Path              string `json:"path"`
	Origin            string `json:"origin"`
	TotalActiveUsers  int64  `json:"total_active_users"`
	NewUsersPerMinute int64  `json:"new_users_per_minute"`
	SessionDuration   string `json:"session_duration"`
}

// checkCommand reads a file and prints its faults.
func checkCommand(_ context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	file := flags.String("config", "", "")
	format := flags.String("format", "text", "")
	err := config.ParseFlags(flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, checkHelp)
		return exitOK
	case err != nil:
		return printFaults(stderr, err)
	case *file == "":
		return usageFault(stderr, "--config: is missing", "add --config headgate.yaml")
	case *format != "text" && *format != "json":
		return usageFault(stderr, fmt.Sprintf("--format: %q is not allowed here", *format),
			"write text or json")
	}
	cfg, err := config.Load(*file)
	var secure *tlsSummary
	if err == nil {
		secure, err = checkTLS(cfg)
	}
	if err == nil {
		err = server.CheckFiles(cfg)
	}
	if *format == "json" {
		return checkJSON(stdout, stderr, judge(*file, cfg, secure, err))
	}
	if err != nil {
		return printFaults(stderr, err)
	}
	printRooms(stdout, *file, cfg, secure)
	return exitOK
}

func judge(file string, cfg *config.Config, secure *tlsSummary, err error) verdict {
	// Lists in JSON are empty, never null, so that scripts can walk them.
	v := verdict{OK: err == nil, File: file, Faults: []*config.Fault{},
		Warnings: []config.Fault{}, Limits: []shownLimit{}, Queues: []queueSummary{},
		Webhooks: []webhookSummary{}, Rooms: []roomSummary{}}
	v.Faults = append(v.Faults, config.Faults(err)...)
	if err != nil {
		return v
	}
	v.Warnings = append(v.Warnings, cfg.Warnings...)
	v.TLS, v.Cluster, v.Engine = secure, clusterOf(cfg), engineOf(cfg)
	v.Limits = append(v.Limits, limitsOf(cfg)...)
	v.Queues = append(v.Queues, queuesOf(cfg)...)
	v.Webhooks = append(v.Webhooks, webhooksOf(cfg)...)
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		v.Rooms = append(v.Rooms, roomSummary{
			Name: r.Name, Host: r.Host, Path: r.Path, Origin: r.Origin.String(),
			TotalActiveUsers: r.TotalActiveUsers, NewUsersPerMinute: r.NewUsersPerMinute,
			SessionDuration: r.SessionDuration.String(),
		})
	}
	return v
}

func checkJSON(stdout, stderr io.Writer, v verdict) int {
	if err := writeJSON(stdout, v); err != nil {
		fmt.Fprintf(stderr, "headgate: write the answer: %v\n", err)
		return exitFailed
	}
	if !v.OK {
		return exitUsage
	}
	return exitOK
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func printRooms(w io.Writer, file string, cfg *config.Config, secure *tlsSummary) {
	for i := range cfg.Warnings {
		fmt.Fprintf(w, "warning: %v\nhint: %s\n", &cfg.Warnings[i], cfg.Warnings[i].Hint)
	}
	secure.print(w)
	clusterOf(cfg).print(w)
	engineOf(cfg).print(w)
	for _, l := range limitsOf(cfg) {
		fmt.Fprintf(w, "limit %s: %v\n", l.Name, &l)
	}
	if cfg.Envoy != nil {
		fmt.Fprintf(w, "envoy: %s, rules %s\n", cfg.Envoy.Listen, strings.Join(cfg.Envoy.Rules, ", "))
	}
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		host := r.Host
		if host == "" {
			host = "any host"
		}
		fmt.Fprintf(w, "room %s: %s, path %s -> %s: %d at once, %d new a minute, stay %s%s\n",
			r.Name, host, r.Path, r.Origin, r.TotalActiveUsers, r.NewUsersPerMinute,
			r.SessionDuration, standing(r))
	}
	for _, q := range queuesOf(cfg) {
		fmt.Fprintf(w, "queue %s: %v\n", q.Name, &q)
	}
	for _, h := range webhooksOf(cfg) {
		fmt.Fprintf(w, "webhook %s: %v\n", h.Name, &h)
	}
	fmt.Fprintf(w, "%s is good\n", file)
}

// standing returns what keeps a room from normal operation.
func standing(r *config.Room) string {
	s := ""
	if r.Suspended {
		s += ", suspended"
	}
	if r.Closed {
		s += ", closed"
	}
	if r.QueueAll {
		s += ", holds the line"
	}
	if r.Shadow {
		s += ", shadow"
	}
	if !r.OpensAt.IsZero() {
		s += ", opens at " + r.OpensAt.Format(time.RFC3339)
	}
	return s
}
