package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/proxy"
)

func clientAddr(trusted []netip.Prefix) func(*http.Request) netip.Addr {
	return func(r *http.Request) netip.Addr { return proxy.ClientAddr(r, trusted) }
}

// secure decides whether the cookie is Secure: always over https, also where a
// trusted proxy in front has ended it.
func secure(trusted []netip.Prefix, c config.CookieSecure) func(*http.Request) bool {
	return func(r *http.Request) bool {
		switch {
		case c == config.CookieSecureNever:
			return false
		case c == config.CookieSecureAlways || r.TLS != nil:
			return true
		}
		proto := r.Header.Get("X-Forwarded-Proto")
		return strings.EqualFold(proto, "https") && fromTrusted(r, trusted)
	}
}

func fromTrusted(r *http.Request, trusted []netip.Prefix) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	for _, p := range trusted {
		if p.Contains(peer.Addr().Unmap()) {
			return true
		}
	}
	return false
}

// mostConnections is how many connections an address may have; 0 is any number. A proxy brings the
// visitors of many addresses, and so does an unlisted one on this machine, which is no stranger:
// for loopback the number must be in the file.
func (s *Server) mostConnections(a netip.Addr) int {
	cfg := s.set.Load().cfg
	for _, p := range cfg.TrustedProxies {
		if p.Contains(a) {
			return 0
		}
	}
	if a.IsLoopback() && !cfg.BoundLoopback {
		return 0
	}
	return int(cfg.MaxConnections)
}

// pace is how slow visitors may be.
func (s *Server) pace() guard.Pace {
	cfg := s.set.Load().cfg
	return guard.Pace{Body: cfg.BodyTimeout, Rate: cfg.BodyRate, Write: cfg.WriteTimeout}
}

// Each visitor whose request is under way takes two files, one on each side.
const (
	fewestFiles = 256
	enoughFiles = 8192
)

// A FilesError says that the process may open too few files to serve.
type FilesError struct{ Limit uint64 }

func (e *FilesError) Error() string {
	return fmt.Sprintf("this process may open only %d files, at least %d are needed",
		e.Limit, fewestFiles)
}

// Hint says what to do.
func (e *FilesError) Hint() string {
	return "raise it: ulimit -n 65536, or LimitNOFILE=65536 in the systemd unit"
}

// raiseFiles raises the soft limit of open files to the hard one and checks
// that it is enough.
func raiseFiles(log *slog.Logger) error {
	limit, most, err := platform.OpenFiles()
	if err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit < most && platform.RaiseOpenFiles(most) == nil {
		limit = most
	}
	if limit < fewestFiles {
		return &FilesError{limit}
	}
	if limit < enoughFiles {
		log.Warn("few open files allowed", "limit", limit, "hint", (&FilesError{}).Hint())
	}
	return nil
}
