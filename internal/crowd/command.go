package crowd

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// These are the exit codes of Command.
const (
	exitOK     = 0
	exitFailed = 1 // could not run, or found an error or an overtaken visitor
	exitUsage  = 2
)

const Usage = `usage: headgate crowd URL [flags]

Sends a crowd of simulated visitors to a waiting room, and reports how long they
waited and what went wrong. Each visitor keeps its cookies and polls exactly as
the waiting page does. Ends when all visitors are done, after --duration, or
on an interrupt.

flags:
`

// Command runs "headgate crowd" and returns its exit code: 0 when all went
// well, 1 when it could not run or found errors or overtaken visitors, 2 on
// wrong usage. Progress goes to stderr, the summary to stdout.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	var result *Result
	if err == nil {
		result, err = runWatched(ctx, cfg, stderr)
	}
	if err != nil {
		return complain(stderr, err)
	}
	s := result.Summary()
	fmt.Fprintf(stdout, "crowd of %d for %v, seed %d\n",
		s.Visitors, result.Took.Round(100*time.Millisecond), result.Seed)
	if err := s.Write(stdout); err != nil {
		fmt.Fprintf(stderr, "headgate: crowd: write summary: %v\n", err)
		return exitFailed
	}
	if !s.OK() {
		return exitFailed
	}
	return exitOK
}

// complain prints an error, one fault per line, and returns its exit code.
func complain(stderr io.Writer, err error) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "headgate: crowd: %s\n", line)
	}
	if hint := Hint(err); hint != "" {
		fmt.Fprintf(stderr, "hint: %s\n", hint)
	}
	if _, ok := errors.AsType[*ConfigError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// runWatched runs the crowd and prints a progress line meanwhile.
func runWatched(ctx context.Context, cfg Config, stderr io.Writer) (*Result, error) {
	p := &progress{n: cfg.N}
	var wg sync.WaitGroup
	defer wg.Wait()
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	wg.Go(func() { p.run(watch, stderr, os.Getenv) })
	return Run(ctx, cfg, p.observe)
}

// printFlag prints a flag as the other commands do, with two dashes.
func printFlag(w io.Writer, f *flag.Flag) {
	value, usage := flag.UnquoteUsage(f)
	if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "false" {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(w, "  --%s\n        %s\n", strings.TrimSpace(f.Name+" "+value), usage)
}

func parseFlags(args []string, stderr io.Writer) (Config, error) {
	var cfg Config
	fs := flag.NewFlagSet("crowd", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&cfg.N, "n", 100, "number of visitors")
	fs.DurationVar(&cfg.Arrive, "arrive", defaultArrive, "arrivals are spread over this long")
	fs.Func("shape", "`SHAPE` of arrivals: uniform or burst (default uniform)", text(&cfg.Shape))
	fs.Func("mode", "`MODE` page waits as our page does, json as an app does (default page)",
		text(&cfg.Mode))
	fs.Func("stay", "how long a visitor stays inside, `LO..HI` (default 2s..15s)",
		span(&cfg.SessionMin, &cfg.SessionMax))
	fs.Func("think", "time between two requests inside, `LO..HI` (default 500ms..2s)",
		span(&cfg.ThinkMin, &cfg.ThinkMax))
	fs.StringVar(&cfg.LeavePath, "leave-path", "",
		"`path` below URL whose answer revokes the pass; some visitors load it last")
	revoke := fs.Float64("revoke-share", defaultRevoke, "share of visitors that load --leave-path, 0 to 1")
	fs.Float64Var(&cfg.GiveUpShare, "give-up", 0, "share of visitors that stop waiting, 0 to 1")
	fs.DurationVar(&cfg.GiveUpAfter, "give-up-after", defaultGiveUp,
		"they stop after a random time up to this long")
	fs.DurationVar(&cfg.Duration, "duration", 0, "end after this long (default when all are done)")
	fs.DurationVar(&cfg.Timeout, "timeout", defaultTimeout, "timeout of one request")
	fs.IntVar(&cfg.MaxConns, "max-conns", defaultMaxConns, "connections shared by all visitors")
	solvers := fs.Int("solvers", runtime.GOMAXPROCS(0),
		"processors that solve proofs of work; 0: nobody solves one")
	fs.Func("codes", "`FILE` of headgate codes make: each visitor opens the link of one", func(path string) error {
		var err error
		cfg.Codes, err = readCodes(path)
		return err
	})
	fs.Uint64Var(&cfg.Seed, "seed", 0, "the same seed gives the same visitors")
	fs.StringVar(&cfg.Host, "host", "", "Host header, if not the one in URL")
	fs.Func("user-agent", "`NAME` of the visitors' browser; may be given several times", func(s string) error {
		cfg.UserAgents = append(cfg.UserAgents, s)
		return nil
	})
	fs.BoolVar(&cfg.Foreign, "yes-this-is-my-site", false,
		"allow a URL that is not on this machine")
	urls, err := parseInterspersed(fs, args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stderr, Usage)
		fs.VisitAll(func(f *flag.Flag) { printFlag(stderr, f) })
	}
	if err != nil {
		return cfg, &ConfigError{err}
	}
	if len(urls) != 1 {
		return cfg, &ConfigError{fmt.Errorf("give one URL, not %d", len(urls))}
	}
	cfg.URL = urls[0]
	if *revoke == 0 {
		cfg.LeavePath = "" // a RevokeShare of zero would mean half
	}
	cfg.RevokeShare = *revoke
	if cfg.Solvers = *solvers; cfg.Solvers == 0 {
		cfg.Solvers = -1
	}
	return cfg, nil
}

// parseInterspersed accepts flags before and after the URL.
func parseInterspersed(fs *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return rest, nil
		}
		rest = append(rest, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

// readCodes reads the first column of what headgate codes make has written.
func readCodes(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 2 || rows[0][0] != "code" {
		return nil, fmt.Errorf("%s has no column code: give a file that headgate codes make has written", path)
	}
	codes := make([]string, 0, len(rows)-1)
	for _, row := range rows[1:] {
		codes = append(codes, row[0])
	}
	return codes, nil
}

func text[T ~string](to *T) func(string) error {
	return func(s string) error {
		*to = T(s)
		return nil
	}
}

// span parses "2s..15s", or "5s" for both ends.
func span(lo, hi *time.Duration) func(string) error {
	return func(s string) error {
		from, to, two := strings.Cut(s, "..")
		if !two {
			to = from
		}
		var err1, err2 error
		*lo, err1 = time.ParseDuration(from)
		*hi, err2 = time.ParseDuration(to)
		if err1 != nil || err2 != nil {
			return errors.New("write two durations, such as 2s..15s")
		}
		return nil
	}
}
