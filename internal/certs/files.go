package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/hint"
)

const (
	lookEvery = 10 * time.Second // chosen: sooner than a person tries the new one
	warnEvery = 24 * time.Hour   // interval of repeated warnings
)

// A Files serves one certificate for every host name, and reloads changed files.
type Files struct {
	log     *slog.Logger
	current atomic.Pointer[Pair]
	good    atomic.Bool

	mu               sync.Mutex // one look at a time; guards the following
	certificate, key string
	seen             Stamps // of the pair that is served
	told             string // the last logged error, to log it only once
	warned           time.Time
}

// Stamps detect whether one of several files has changed; nil stands for a missing file.
type Stamps []os.FileInfo

// OpenFiles reads the pair. An invalid pair is a [*hint.Error], because there would be nothing to
// serve.
func OpenFiles(certificate, key string, log *slog.Logger) (*Files, error) {
	f := &Files{log: log}
	return f, f.Use(certificate, key)
}

// Use reads the pair from these files, which may be the same as before. On an error nothing
// changes.
func (f *Files) Use(certificate, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := StampsOf(certificate, key)
	p, err := ReadPair(certificate, key, time.Now())
	if err != nil {
		return err
	}
	f.certificate, f.key = certificate, key
	f.takeLocked(p, seen)
	return nil
}

func (f *Files) takeLocked(p *Pair, seen Stamps) {
	f.current.Store(p)
	f.good.Store(true)
	f.seen, f.told, f.warned = seen, "", time.Now()
	for _, w := range p.Warnings {
		f.log.Warn("certificate", "problem", w.Problem, "hint", w.Hint)
	}
}

// Run checks for changed files until ctx ends.
func (f *Files) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.look()
		}
	}
}

// look loads changed files. It retries an invalid pair at each look, because the other file of the
// pair may not be written yet.
func (f *Files) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := StampsOf(f.certificate, f.key)
	again := time.Since(f.warned) >= warnEvery
	if seen.Equal(f.seen) && f.good.Load() && !again {
		return
	}
	p, err := ReadPair(f.certificate, f.key, time.Now())
	if err != nil {
		f.good.Store(false)
		if f.told != err.Error() {
			f.told = err.Error()
			f.log.Error("new certificate refused, the old one stays", "error", err,
				"hint", hint.Of(err), "expires", f.current.Load().NotAfter)
		}
		return
	}
	if !seen.Equal(f.seen) {
		f.log.Info("certificate taken up", "names", p.Names, "expires", p.NotAfter)
	}
	f.takeLocked(p, seen)
}

// Certificate implements tls.Config.GetCertificate.
func (f *Files) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if challenge(hello) {
		return nil, nil // a tls-alpn-01 proof for another server
	}
	return f.current.Load().cert, nil
}

// Ready reports true: the certificate serves every host.
func (f *Files) Ready(string) bool { return true }

// Token has no challenges. The owner of the files proves the domains.
func (f *Files) Token(string) (string, bool) { return "", false }

// States returns the served certificate, and whether the last look succeeded.
func (f *Files) States() ([]State, bool) {
	leaf := f.current.Load().cert.Leaf
	return []State{{Name: nameOf(leaf), NotAfter: leaf.NotAfter}}, f.good.Load()
}

// StampsOf returns the stamps of files.
func StampsOf(names ...string) Stamps {
	s := make(Stamps, len(names))
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			s[i] = info
		}
	}
	return s
}

// Equal compares the file metadata, not the contents.
func (s Stamps) Equal(old Stamps) bool {
	if len(s) != len(old) {
		return false
	}
	for i := range s {
		switch a, b := s[i], old[i]; {
		case a == nil || b == nil:
			if a != b {
				return false
			}
		case !os.SameFile(a, b) || !a.ModTime().Equal(b.ModTime()) || a.Size() != b.Size():
			return false
		}
	}
	return true
}
