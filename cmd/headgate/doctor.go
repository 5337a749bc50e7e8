package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/doctor"
	"github.com/headgate/headgate/status"
)

// doctorCommand prints the faults and what to do.
func doctorCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	data := flags.String("data", "", "")
	file := flags.String("config", "", "")
	asJSON := flags.Bool("json", false, "")
	o, words, err := operatorFlags(flags, "doctor", args)
	switch {
	case err != nil:
		return err
	case len(words) > 0:
		return noWords(words, "name the data folder with --data DIR")
	}
	cfg := doctor.Config{Data: *data}
	if *file != "" {
		if cfg.Config, cfg.ConfErr = config.Load(*file); cfg.ConfErr == nil {
			if cfg.Data == "" {
				cfg.Data = cfg.Config.Data
			}
			if o.URL == defaultAdmin {
				o.URL = adminURL(cfg.Config.AdminListen)
			}
		}
	} else if cfg.Data == "" {
		cfg.Data = "./headgate-data"
	}
	cfg.Ask = func(ctx context.Context) (*doctor.Running, error) { return o.running(ctx) }
	report := doctor.Examine(ctx, cfg)
	if *asJSON {
		err = writeJSON(stdout, report)
	} else {
		err = printReport(stdout, report)
	}
	if err == nil && !report.OK {
		return exitCode(exitFailed)
	}
	return err
}

// adminURL returns the address on this machine of a headgate with this admin_listen.
func adminURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return defaultAdmin
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// askWait is the timeout for a running headgate's report. Chosen: it takes milliseconds, and a
// headgate that hangs must not block the other checks of doctor.
const askWait = 5 * time.Second

// running requests the state of the headgate that runs in the folder.
func (o *operator) running(ctx context.Context) (*doctor.Running, error) {
	ctx, stop := context.WithTimeout(ctx, askWait)
	defer stop()
	r := &doctor.Running{}
	if err := o.do(ctx, http.MethodGet, "/v1/status", nil, &r.About); err != nil {
		return nil, err
	}
	var all struct {
		Rooms []status.Room `json:"rooms"`
	}
	if err := o.do(ctx, http.MethodGet, "/v1/rooms", nil, &all); err != nil {
		return nil, err
	}
	r.Rooms = all.Rooms
	c := &api.Cluster{}
	err := o.do(ctx, http.MethodGet, "/v1/cluster", nil, c)
	if p, ok := errors.AsType[*adminclient.Refusal](err); ok && p.Code == "no_cluster" {
		r.Alone = true
		return r, nil
	}
	// An older headgate does not have this address. Then the other nodes give enough information.
	if err == nil {
		r.Cluster = c
	}
	return r, nil
}

func printReport(w io.Writer, r *doctor.Report) error {
	var b strings.Builder
	faults, warnings := 0, 0
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%-7s  %s: %s\n", c.State, c.Name, c.What)
		if c.Do != "" {
			fmt.Fprintf(&b, "         %s\n", c.Do)
		}
		switch c.State {
		case doctor.Fault:
			faults++
		case doctor.Warning:
			warnings++
		}
	}
	fmt.Fprintf(&b, "%s, %s\n", plural(faults, "fault"), plural(warnings, "warning"))
	_, err := io.WriteString(w, b.String())
	return err
}
