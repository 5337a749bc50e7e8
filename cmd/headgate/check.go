package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/limit"
)

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
	Name              string       `json:"name"`
	Host              string       `json:"host"`
	Path              string       `json:"path"`
	Origin            string       `json:"origin"`
	TotalActiveUsers  int64        `json:"total_active_users"`
	NewUsersPerMinute int64        `json:"new_users_per_minute"`
	Auto              *autoSummary `json:"auto,omitempty"`
	SessionDuration   string       `json:"session_duration"`
}

// An autoSummary says how a room finds its limits.
type autoSummary struct {
	Mode         string  `json:"mode"`
	Min          int64   `json:"min"`
	Max          int64   `json:"max"`
	New          bool    `json:"new_users_per_minute"` // found too, up to the number of the room
	TargetP95    string  `json:"target_p95,omitempty"` // else learned
	TargetErrors float64 `json:"target_errors,omitempty"`
	Prometheus   string  `json:"prometheus,omitempty"`
	Query        string  `json:"query,omitempty"`
}

func autoOf(r *config.Room) *autoSummary {
	a := &r.Auto
	if a.Mode == "" {
		return nil
	}
	s := &autoSummary{Mode: a.Mode, Min: a.Min, Max: a.Max, New: a.New,
		TargetErrors: a.TargetErrors, Query: a.Query}
	if a.TargetP95 > 0 {
		s.TargetP95 = a.TargetP95.String()
	}
	if a.Prometheus != nil {
		s.Prometheus = a.Prometheus.String()
	}
	return s
}

// checkCommand reads a file and prints its faults.
func checkCommand(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	file := flags.String("config", "", "")
	format := flags.String("format", "text", "")
	err := config.ParseFlags(flags, args)
	switch {
	case err != nil:
		return err
	case *file == "":
		return usageFault("--config: is missing", "add --config headgate.yaml")
	case *format != "text" && *format != "json":
		return usageFault(fmt.Sprintf("--format: %q is not allowed here", *format),
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
	switch {
	case *format == "json":
		if err := writeJSON(stdout, judge(*file, cfg, secure, err)); err != nil {
			return err
		}
	case err != nil:
		config.Print(stderr, err)
	default:
		printRooms(stdout, *file, cfg, secure)
	}
	if err != nil {
		return exitCode(exitUsage)
	}
	return nil
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
			SessionDuration: r.SessionDuration.String(), Auto: autoOf(r),
		})
	}
	return v
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
		fmt.Fprintf(w, "envoy: %s, rules %s\n", cfg.Envoy.Listen, cmp.Or(strings.Join(cfg.Envoy.Rules, ", "), "none"))
	}
	if cfg.Decide != nil {
		fmt.Fprintf(w, "decide: %s\n", cfg.Decide.Listen)
	}
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		host := r.Host
		if host == "" {
			host = "any host"
		}
		fmt.Fprintf(w, "room %s: %s, path %s -> %s: %s, session %s%s\n",
			r.Name, host, r.Path, r.Origin, r.LimitsText(), r.SessionDuration, standing(r))
		if len(r.Events) > 0 && r.Challenge.Asked() == "" {
			fmt.Fprintf(w, "advice: room %s has events: with challenge: {kind: work}, many places cost many times "+
				"what one costs\n", r.Name)
		}
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

// A queueSummary is what check prints about a queue.
type queueSummary struct {
	Name         string     `json:"name"`
	Method       string     `json:"method"`
	Address      string     `json:"address"`
	Pull         string     `json:"pull,omitempty"` // the lease of workers, which claim the jobs
	Limits       []string   `json:"limits"`
	TenantLimits []string   `json:"tenant_limits"`
	Rate         int64      `json:"rate"` // jobs a second; 0: no limit
	Auto         *shownAuto `json:"auto,omitempty"`
	Concurrency  int        `json:"concurrency"`

	Completion *completionSummary `json:"completion,omitempty"`
}

// A completionSummary is what check prints about the completions of a queue.
type completionSummary struct {
	Queue string   `json:"queue"`
	On    []string `json:"on"`
}

// A webhookSummary is what check prints about a webhook.
type webhookSummary struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	On      []string `json:"on"`
	Rooms   []string `json:"rooms"` // empty: all rooms and limits
}

func limitsOf(cfg *config.Config) (all []shownLimit) {
	for i := range cfg.Limits {
		l := &cfg.Limits[i]
		all = append(all, shownLimit{
			Name: l.Name, Algorithm: l.Algorithm.String(), Amount: l.Amount, Unit: l.Unit,
			Window: windowOf(&l.Rule), Align: l.Align.String(), Burst: l.Burst,
			Soft: l.Soft, Shadow: l.Shadow, Source: "file", Auto: foundOf(&l.Auto),
		})
	}
	return all
}

// foundOf returns how a number is found, or nil.
func foundOf(a *config.Auto) *shownAuto {
	if a.Mode == "" {
		return nil
	}
	return &shownAuto{Mode: a.Mode, Min: a.Min, Max: a.Max}
}

func windowOf(r *limit.Rule) string {
	if r.Window == 0 {
		return ""
	}
	return r.Window.String()
}

func queuesOf(cfg *config.Config) (all []queueSummary) {
	for i := range cfg.Queues {
		q := &cfg.Queues[i]
		one := queueSummary{
			Name: q.Name, Method: q.Target.Method, Address: addressOf(q.Target.URL),
			Limits: append([]string{}, q.Limits...), TenantLimits: append([]string{}, q.TenantLimits...),
			Rate: q.Rate, Concurrency: q.Concurrency, Auto: foundOf(&q.Auto),
		}
		if q.Completion.Queue != "" {
			one.Completion = &completionSummary{q.Completion.Queue, q.Completion.On}
		}
		if q.Pull.Lease > 0 {
			one.Method, one.Address, one.Pull = "", "", q.Pull.Lease.String()
		}
		all = append(all, one)
	}
	return all
}

func webhooksOf(cfg *config.Config) (all []webhookSummary) {
	for i := range cfg.Webhooks {
		h := &cfg.Webhooks[i]
		all = append(all, webhookSummary{Name: h.Name, Address: addressOf(h.URL),
			On: append([]string{}, h.On...), Rooms: append([]string{}, h.Rooms...)})
	}
	return all
}

// addressOf returns scheme and host of a URL. Many services have a secret in the rest.
func addressOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// String returns the queue as one line.
func (q *queueSummary) String() string {
	s := q.Method + " to " + q.Address
	if q.Pull != "" {
		s = "claimed by workers for " + q.Pull
	}
	if len(q.Limits) > 0 {
		s += ", limits " + strings.Join(q.Limits, ", ")
	}
	if len(q.TenantLimits) > 0 {
		s += ", limits of each tenant " + strings.Join(q.TenantLimits, ", ")
	}
	if q.Rate > 0 {
		s += fmt.Sprintf(", %d jobs a second", q.Rate)
	}
	if q.Auto != nil {
		s += q.Auto.String()
	}
	s += fmt.Sprintf(", %d at once", q.Concurrency)
	if c := q.Completion; c != nil {
		s += ", completions of " + strings.Join(c.On, ", ") + " jobs to queue " + c.Queue
	}
	return s
}

// String returns the webhook as one line.
func (h *webhookSummary) String() string {
	s := h.Address + ", on " + strings.Join(h.On, ", ")
	if len(h.Rooms) > 0 {
		s += ", of rooms " + strings.Join(h.Rooms, ", ")
	}
	return s
}

// A tlsSummary is what check prints about https.
type tlsSummary struct {
	Listen      string   `json:"listen"`
	Certificate string   `json:"certificate,omitempty"` // the file
	Directory   string   `json:"directory,omitempty"`   // of the ACME issuer
	Names       []string `json:"names"`                 // host names
	Expires     string   `json:"expires,omitempty"`     // of the file's certificate
}

// checkTLS reads the certificate files of the configuration, and adds its warnings to cfg. With
// ACME there is nothing to read before the start.
func checkTLS(cfg *config.Config) (*tlsSummary, error) {
	t := &cfg.TLS
	switch {
	case !t.On():
		return nil, nil
	case len(t.ACME.Domains) > 0:
		_, err := certs.ReadRoots(t.ACME.Root)
		return &tlsSummary{Listen: t.Listen, Directory: t.ACME.Directory, Names: t.ACME.Domains},
			cfg.TLSFault(err)
	}
	pair, err := certs.ReadPair(t.Certificate, t.Key, time.Now())
	if err != nil {
		return nil, cfg.TLSFault(err)
	}
	for _, w := range pair.Warnings {
		cfg.Warnings = append(cfg.Warnings,
			config.Fault{File: cfg.File, Key: "tls", Problem: w.Problem, Hint: w.Hint})
	}
	return &tlsSummary{Listen: t.Listen, Certificate: t.Certificate, Names: pair.Names,
		Expires: pair.NotAfter.UTC().Format(time.RFC3339)}, nil
}

func (t *tlsSummary) print(w io.Writer) {
	if t == nil {
		return
	}
	names := strings.Join(t.Names, ", ")
	switch {
	case t.Directory != "":
		fmt.Fprintf(w, "https at %s: certificates from %s for %s\n", t.Listen, t.Directory, names)
	default:
		fmt.Fprintf(w, "https at %s: %s for %s, expires %s\n", t.Listen, t.Certificate, names, t.Expires)
	}
}
