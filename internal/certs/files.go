package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lookEvery = 10 * time.Second // chosen: sooner than a person tries the new one
	warnEvery = 24 * time.Hour   // the same warnings again
)

// Files serves one certificate for every host name and takes up new files.
type Files struct {
	log     *slog.Logger
	current atomic.Pointer[Pair]
	good    atomic.Bool

	mu               sync.Mutex // one look at a time; guards what follows
	certificate, key string
	seen             Stamps // of the pair that is served
	told             string // the error that was logged, not to say it each time
	warned           time.Time
}

// Stamps tell whether one of some files has changed; nil is one that is not there.
type Stamps []os.FileInfo

// OpenFiles reads the pair. Without a good one there is nothing to serve, so
// that is an error, an [*Error].
func OpenFiles(certificate, key string, log *slog.Logger) (*Files, error) {
	f := &Files{log: log}
	return f, f.Use(certificate, key)
}

// Use reads the pair from these files, which may be the same as before. On an
// error nothing has changed.
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

// Run looks for new files until ctx ends.
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

// look takes up new files. A pair that is no good is tried again at each look:
// the other half of it may still be on its way.
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
				"hint", err.(*Error).Hint(), "expires", f.current.Load().NotAfter) //nolint:errorlint // ReadPair returns no other
		}
		return
	}
	if !seen.Equal(f.seen) {
		f.log.Info("certificate taken up", "names", p.Names, "expires", p.NotAfter)
	}
	f.takeLocked(p, seen)
}

// Certificate is for tls.Config.GetCertificate.
func (f *Files) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if challenge(hello) {
		return nil, nil // somebody proves a domain to another server
	}
	return f.current.Load().cert, nil
}

// Ready tells that https works for every host.
func (f *Files) Ready(string) bool { return true }

// Token knows of no challenge: who fills the files proves its domains itself.
func (f *Files) Token(string) (string, bool) { return "", false }

// States tells what is served, and whether the last look was good.
func (f *Files) States() ([]State, bool) {
	leaf := f.current.Load().cert.Leaf
	return []State{{Name: nameOf(leaf), NotAfter: leaf.NotAfter}}, f.good.Load()
}

// StampsOf looks at files.
func StampsOf(names ...string) Stamps {
	s := make(Stamps, len(names))
	for i, name := range names {
		if info, err := os.Stat(name); err == nil {
			s[i] = info
		}
	}
	return s
}

// Same compares what the disk says of the files, not their contents.
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
