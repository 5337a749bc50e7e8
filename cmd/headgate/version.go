package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/headgate/headgate/internal/config"
)

// A build describes the origin of a binary. Revision, Time and Modified are empty when it was built
// outside a checkout.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Time     string `json:"time"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func versionCommand(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("version", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "")
	if err := config.ParseFlags(flags, args); err != nil {
		return err
	}
	b := readBuild()
	if *asJSON {
		return writeJSON(stdout, b)
	}
	fmt.Fprintf(stdout, "headgate %s%s, %s, %s/%s\n",
		b.Version, b.commit(), b.Go, b.OS, b.Arch)
	return nil
}

func readBuild() build {
	b := build{Version: "unknown", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if bi.Main.Version != "" {
		b.Version = bi.Main.Version
	}
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// commit returns the commit and its date, if they are known: a binary from a module cache has none.
func (b *build) commit() string {
	if len(b.Revision) < 12 {
		return ""
	}
	s := ", commit " + b.Revision[:12]
	if date, _, ok := strings.Cut(b.Time, "T"); ok {
		s += " of " + date
	}
	if b.Modified {
		s += ", modified"
	}
	return s
}
