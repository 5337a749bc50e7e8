package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/platform"
)

// These are the exit codes. They are documented in help and do not change.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageFault prints an error in the arguments.
func usageFault(stderr io.Writer, problem, hint string) int {
	fmt.Fprintf(stderr, "headgate: %s\nhint: %s\n", problem, hint)
	return exitUsage
}

// printFaults prints the faults that config found in arguments or a file.
func printFaults(stderr io.Writer, err error) int {
	config.Print(stderr, err)
	return exitUsage
}

// printHinted prints an error and its hint.
func printHinted(stderr io.Writer, err error) int {
	config.Print(stderr, err)
	return exitFailed
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
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
