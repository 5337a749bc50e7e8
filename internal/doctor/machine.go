package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/boot"
	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/platform"
)

// certificates checks the certificate files of the configuration, and those from an ACME issuer.
func (x *examiner) certificates() {
	found := false
	if c := x.cfg.Config; c != nil && c.TLS.Certificate != "" {
		found = true
		x.certificate(c.TLS.Certificate, c.TLS.Key)
	}
	if x.cfg.Data != "" {
		dir := filepath.Join(x.cfg.Data, "certs")
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			x.say(Fault, err.Error(), "run this as headgate's user, who owns the data folder")
			return
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			b, err := os.ReadFile(path)
			// The account key is not a certificate's key. A file with a leading dot is incomplete.
			if err == nil && (strings.HasPrefix(e.Name(), ".") ||
				!strings.Contains(string(b), "BEGIN CERTIFICATE")) {
				continue
			}
			found = true
			x.certificate(path, path)
		}
	}
	if !found {
		x.ok("there are none")
	}
}

// certificate checks a pair of files as the server would read them.
func (x *examiner) certificate(file, key string) {
	now := x.cfg.Now()
	p, err := certs.ReadPair(file, key, now)
	switch {
	case err != nil:
		x.err(err, "name files that headgate may read")
		return
	case now.After(p.NotAfter):
		x.say(Fault, fmt.Sprintf("%s expired at %s", file, p.NotAfter.UTC().Format(time.RFC3339)),
			"renew it; headgate takes a new one up by itself")
		return
	}
	for _, w := range p.Warnings {
		x.say(Warning, w.Problem, w.Hint)
	}
	if len(p.Warnings) == 0 {
		x.ok("%s for %s, until %s", file, strings.Join(p.Names, ", "),
			p.NotAfter.UTC().Format(time.DateOnly))
	}
}

// Each visitor with a request in flight uses two files (package server).
const (
	fewestFiles = 256
	enoughFiles = 8192
)

// files checks the limit of open files: that of headgate if it runs, else that of this process, for
// which a service manager may set another limit.
func (x *examiner) files() {
	const do = "raise it: ulimit -n 65536, or LimitNOFILE=65536 in the systemd unit"
	n, of := uint64(0), "this shell"
	if x.pid > 0 {
		n, of = platform.OpenFilesOf(x.pid), fmt.Sprintf("process %d", x.pid)
	}
	if n == 0 {
		_, most, err := platform.OpenFiles()
		if err != nil {
			x.say(Skipped, "the limit of open files cannot be told: "+err.Error(), "")
			return
		}
		n, of = most, "this shell"
	}
	switch text := fmt.Sprintf("%s may open %d", of, n); {
	case n < fewestFiles:
		x.say(Fault, text, do)
	case n < enoughFiles:
		x.say(Warning, text+": enough for some thousand visitors at a time", do)
	default:
		x.ok("%s", text)
	}
}

// clock checks the two clocks: the one used for decisions, and the one that is shown.
func (x *examiner) clock() {
	if err := boot.Check(); err != nil {
		x.say(Fault, err.Error(), "headgate needs this clock: run it in a sandbox that allows it")
		return
	}
	synced, err := platform.IsWallClockSynced()
	switch {
	case err != nil:
		x.say(Skipped, "whether the wall clock is synchronized cannot be told: "+err.Error(), "")
	case !synced:
		x.say(Warning, "the wall clock is not synchronized: times that are shown may be wrong; "+
			"limits and places do not depend on it", "run a time service, such as chrony")
	default:
		x.ok("synchronized")
	}
}
