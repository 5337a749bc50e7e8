package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/server"
)

// runCommand parses the flags and the file, and serves.
func runCommand(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := config.ParseRun(args, stderr)
	if err != nil {
		return err
	}
	return serve(ctx, cfg, stdout, stderr)
}

// serve runs the rooms of cfg until ctx is done and returns the exit code.
func serve(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // before Open: an early SIGHUP would end the process
	defer signal.Stop(hangup)
	s, err := server.Open(ctx, cfg, log)
	if err != nil && ctx.Err() != nil && config.Faults(err) == nil { // stopped before it had started
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "visitors  http://%s\n", s.Addr())
	if a := s.TLSAddr(); a != nil {
		fmt.Fprintf(stdout, "          https://%s\n", a)
	}
	fmt.Fprintf(stdout, "operators http://%s/\n", s.AdminAddr())
	if a := s.EnvoyAddr(); a != nil {
		fmt.Fprintf(stdout, "envoy     %s by gRPC\n", a)
	}
	if a := s.DecideAddr(); a != nil {
		fmt.Fprintf(stdout, "proxies   http://%s\n", a)
	}
	for i := range cfg.Rooms {
		r := &cfg.Rooms[i]
		fmt.Fprintf(stdout, "room      %s%s -> %s  %s, sessions of %v\n",
			r.Host, r.Path, r.Origin, r.LimitsText(), r.SessionDuration)
	}
	printNext(stdout, cfg, s.Addr(), s.AdminAddr())
	reloads, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.ReloadOn(reloads, hangup) })
	wg.Go(func() { memory.Keep(reloads, os.Getenv("GOGC") != "", log) })
	err = s.Run(ctx)
	stop()
	wg.Wait()
	return err
}

// printNext says what to open next.
func printNext(w io.Writer, cfg *config.Config, visitors, operators net.Addr) {
	admin := "http://" + reachable(operators) + "/"
	fmt.Fprint(w, "\nnext\n")
	line := func(do, what string) { fmt.Fprintf(w, "  %-58s %s\n", do, what) }
	if len(cfg.Rooms) > 0 {
		r := &cfg.Rooms[0]
		at := config.ShellWord("http://" + reachable(visitors) + r.Path)
		open, host := "open "+at, ""
		if r.Host != "" {
			open, host = "curl -H 'Host: "+r.Host+"' "+at, " --host "+r.Host
		}
		line(open, "your site, behind the room "+r.Name)
		line("headgate crowd "+at+host+" --n 500", "more visitors than slots: see the line")
	}
	line("open "+admin, "the dashboard")
	watch := "headgate status --watch"
	if admin != defaultAdmin+"/" {
		watch += " --admin " + strings.TrimSuffix(admin, "/")
	}
	line(watch, "the same in a terminal")
	line("headgate help", "all commands")
}

// reachable returns an address of this machine: a listener for all addresses answers at the loopback one too.
func reachable(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok || !t.IP.IsUnspecified() {
		return a.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(t.Port))
}
