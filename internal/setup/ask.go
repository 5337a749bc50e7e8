package setup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/schema"
)

// A Command is one run of headgate init.
type Command struct {
	Answers Answers // from the flags; "" was not given
	File    string
	Force   bool      // overwrite File
	Ask     io.Reader // where answers come from; nil: questions take their defaults

	Out       io.Writer // what was found, and what comes next
	Questions io.Writer
	Transport http.RoundTripper
}

// mostLine bounds a line of input.
const mostLine = 4096

// Run asks, looks at the site, and writes the file.
func (c *Command) Run(ctx context.Context) error {
	if _, err := os.Stat(c.File); err == nil && !c.Force {
		return &config.Fault{Key: "--config", Problem: c.File + " is there already",
			Hint: "write --force to replace it, or --config with another name"}
	}
	if err := c.answer(); err != nil {
		return err
	}
	origin, err := c.Answers.URL()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "looking at %s, for at most %v\n", origin, mostTime)
	site := Look(ctx, c.Transport, origin, c.Answers.Host)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	site.report(c.Out)
	text := []byte(c.Answers.Text(c.File, site))
	if _, err := config.Parse(c.File, text); err != nil {
		return fmt.Errorf("headgate check would refuse the new file, so it was not written: %w", err)
	}
	if err := c.write(text); err != nil {
		return err
	}
	c.next()
	return nil
}

// answer takes each answer from its flag, from the input, or from its default.
func (c *Command) answer() error {
	var in *bufio.Scanner
	if c.Ask != nil {
		in = bufio.NewScanner(c.Ask)
		in.Buffer(nil, mostLine)
	}
	for i := range c.Answers.Questions() {
		q := c.Answers.Questions()[i] // the default of one depends on the one before
		given := *q.Answer != ""
		for {
			if in != nil && !given {
				fmt.Fprintf(c.Questions, "%s\n  %s> ", q.Text, bracket(q.Default))
				if !in.Scan() {
					return errors.Join(in.Err(), errors.New("the input ended before all questions were answered"))
				}
				*q.Answer = strings.TrimSpace(in.Text())
			}
			if *q.Answer == "" {
				*q.Answer = q.Default
			}
			fault := c.Answers.Check(&q)
			if fault == nil && *q.Answer == "" && q.Flag == "origin" {
				fault = &config.Fault{Key: "--origin", Problem: "is missing", Hint: "add --origin http://127.0.0.1:3000"}
			}
			if fault == nil {
				break
			}
			if in == nil || given {
				return fault
			}
			fmt.Fprintf(c.Questions, "  %s\n  %s\n", fault.Problem, fault.Hint)
		}
	}
	return nil
}

func bracket(s string) string {
	if s == "" {
		return ""
	}
	return "[" + s + "] "
}

// report says what the look found, and what it means.
func (s *Findings) report(w io.Writer) {
	if s.Err != nil {
		problem, do := Explain(s.Err)
		fmt.Fprintf(w, "  no answer: %s\n  hint: %s\n", problem, do)
		fmt.Fprintln(w, "  the file says nothing about paths; write it again with --force when the site answers")
		return
	}
	fmt.Fprintf(w, "  it answers %d in %v (median of %d)\n", s.Status, round(s.Median), samples)
	switch {
	case s.Away != "":
		fmt.Fprintf(w, "  it redirects to %s: if visitors use that name, add --host\n", s.Away)
	case s.Status == http.StatusNotFound:
		fmt.Fprintln(w, "  there is no page: is the address right? headgate puts its path in front of each path")
	case s.Status >= 500:
		fmt.Fprintln(w, "  that is an error: what follows may be incomplete")
	}
	if s.Median > time.Second {
		fmt.Fprintln(w, "  that is slow, with nobody waiting: begin with a low limit, or with auto")
	}
	if s.Cut {
		fmt.Fprintf(w, "  not all was seen within %v\n", mostTime)
	}
	s.list(w, "these requests will bypass the room:", Asset, Webhook, Probe)
	s.list(w, "these stay in the room:", API, Checkout)
}

func (s *Findings) list(w io.Writer, title string, kinds ...Kind) {
	for _, kind := range kinds {
		for _, p := range s.Paths[kind] {
			if title != "" {
				fmt.Fprintf(w, "\n  %s\n", title)
				title = ""
			}
			fmt.Fprintf(w, "    %-24s %s\n", p.Path, kind.Reason())
		}
	}
}

func round(d time.Duration) time.Duration {
	if d > 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// write creates the file and the schema beside it. Without Force the file must still not exist.
func (c *Command) write(text []byte) error {
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.Force {
		how = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	// Everybody may read it: secrets are in files of their own.
	f, err := os.OpenFile(c.File, how, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the configuration: make the folder %s first: %w", filepath.Dir(c.File), err)
	} else if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	if _, err = f.Write(text); err != nil {
		return errors.Join(fmt.Errorf("write the configuration: %w", err), f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	// A link in place of the schema may lead to any file of this user.
	name := filepath.Join(filepath.Dir(c.File), schema.File)
	if err = os.Remove(name); err == nil || errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the schema for editors: %w", err)
	}
	return errors.Join(config.Schema().Write(f), f.Close())
}

// next says what to do now.
func (c *Command) next() {
	file := config.ShellWord(c.File)
	fmt.Fprintf(c.Out, "\nwrote %s, and %s for your editor\n\nnext:\n", c.File, schema.File)
	fmt.Fprintf(c.Out, "  headgate check --config %s\n  headgate run --config %s\n", file, file)
}
