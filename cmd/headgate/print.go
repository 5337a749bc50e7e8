package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/adminclient"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/platform"
)

// These are the exit codes. They are documented in help and do not change.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// An exitCode is the error of a command that has printed all there is to say.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// finish prints the error of a command and returns the exit code.
func finish(stdout, stderr io.Writer, help string, err error) int {
	code, quiet := errors.AsType[exitCode](err)
	refusal, refused := errors.AsType[*adminclient.Refusal](err)
	switch {
	case err == nil:
		return exitOK
	case quiet:
		return int(code)
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return exitOK
	case refused && len(refusal.Faults) > 0: // of what was sent, not of the arguments
		config.PrintFaults(stderr, refusal.Faults)
		return exitFailed
	}
	config.Print(stderr, err)
	if config.Faults(err) != nil {
		return exitUsage
	}
	return exitFailed
}

// part is the error of a part of a command that has a help text of its own.
func part(stdout io.Writer, name string, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, helpOf(name))
	}
	return err
}

// usageFault is the error of wrong arguments.
func usageFault(problem, hint string) error { return &config.Fault{Problem: problem, Hint: hint} }

// noWords is the error of a command that takes no words; nil if there are none.
func noWords(words []string, hint string) error {
	if len(words) == 0 {
		return nil
	}
	return usageFault(fmt.Sprintf("unexpected argument %q", words[0]), hint)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// about formats a wait with the precision that people need.
func about(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	switch {
	case seconds < 0:
		return "unknown"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Round(time.Minute).Minutes())) + " min"
	}
	return strconv.Itoa(int(d.Round(time.Hour).Hours())) + " h"
}

// count formats a number in at most six characters.
func count(n int64) string {
	for _, unit := range []struct {
		size int64
		sign string
	}{{1e9, "G"}, {1e6, "M"}, {1e5, "k"}} {
		if n >= unit.size {
			if unit.sign == "k" {
				return strconv.FormatInt(n/1000, 10) + "k"
			}
			return strconv.FormatFloat(float64(n/(unit.size/10))/10, 'f', 1, 64) + unit.sign
		}
	}
	return strconv.FormatInt(n, 10)
}

// cut shortens a name that does not fit.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most-1] + "~"
}

// height returns the number of lines of a terminal; ok is false if w is not a terminal.
func height(w io.Writer) (lines int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, false
	}
	size, err := platform.TerminalSize(f)
	if err != nil {
		return 0, false
	}
	return size.Rows, true
}

// firstLines returns at most n lines of s, or all if the height is unknown.
func firstLines(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	if n < 1 || len(lines) <= n {
		return s
	}
	return strings.Join(lines[:n], "")
}
