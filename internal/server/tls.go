package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/config"
)

// openTLS reads the certificates and binds the address, if HTTPS is on.
func (s *Server) openTLS(ctx context.Context, cfg *config.Config) error {
	if !cfg.TLS.On() {
		return nil
	}
	h := &https{}
	h.set.Store(&cfg.TLS)
	var err error
	if h.keeper, err = s.openKeeper(ctx, cfg); err != nil {
		return err
	}
	if h.listener, err = s.machine.listen(cfg.TLS.Listen, "tls.listen"); err != nil {
		return err
	}
	s.https = h
	return nil
}

func (s *Server) openKeeper(ctx context.Context, cfg *config.Config) (keeper, error) {
	a := &cfg.TLS.ACME
	if len(a.Domains) == 0 {
		return certs.OpenFiles(cfg.TLS.Certificate, cfg.TLS.Key, s.log)
	}
	roots, err := certs.ReadRoots(a.Root)
	if err != nil {
		return nil, err
	}
	vault, err := certs.OpenFolder(filepath.Join(cfg.Data, "certs", certs.Place(a.Directory)))
	if err != nil {
		return nil, err
	}
	return certs.OpenACME(ctx, certs.ACMEConfig{
		Domains: a.Domains, Email: a.Email, Directory: a.Directory,
		Roots: roots, Vault: vault, Log: s.log,
	}), nil
}

// TLSAddr returns the address of the HTTPS listener, or nil without HTTPS.
func (s *Server) TLSAddr() net.Addr {
	if s.https == nil {
		return nil
	}
	return s.https.listener.Addr()
}

// secureServer returns the server for HTTPS and HTTP/2, or nil without HTTPS. A slow handshake ends
// with headerTimeout, as slow headers do.
func (s *Server) secureServer(next http.Handler) *http.Server {
	if s.https == nil {
		return nil
	}
	h := s.httpServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if age := s.https.set.Load().HSTS; age > 0 {
			w.Header().Set("Strict-Transport-Security",
				"max-age="+strconv.FormatInt(int64(age/time.Second), 10))
		}
		next.ServeHTTP(w, r)
	}))
	h.Protocols.SetUnencryptedHTTP2(false)
	h.Protocols.SetHTTP2(true)
	h.TLSConfig = certs.Config(s.https.keeper.Certificate)
	return h
}

// startTLS serves HTTPS and renews its certificates; the caller waits for wg.
func (s *Server) startTLS(ctx context.Context, h *http.Server, wg *sync.WaitGroup, fail func(error)) {
	if h == nil {
		return
	}
	wg.Go(func() {
		err := h.ServeTLS(s.conns.Listen(s.https.listener), "", "")
		if !errors.Is(err, http.ErrServerClosed) {
			fail(err)
		}
	})
	wg.Go(func() { fail(s.https.keeper.Run(ctx)) })
}

// plainHTTP wraps the rooms at the HTTP listener. It answers the challenges of certificate issuers,
// and redirects visitors to HTTPS.
func (s *Server) plainHTTP(next http.Handler) http.Handler {
	if s.https == nil {
		return next
	}
	h := s.https
	to := &certs.Redirect{Ready: h.keeper.Ready, Listen: port(h.listener), Plain: port(s.public)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, certs.ChallengePath) {
			if answer, ok := h.keeper.Token(r.URL.Path); ok {
				w.Header().Set("Content-Type", "text/plain")
				io.WriteString(w, answer)
				return
			}
			next.ServeHTTP(w, r) // the origin may answer challenges too
			return
		}
		// Behind a trusted proxy that terminates TLS, a redirect would loop.
		if !h.set.Load().Redirect || secure(s.set.Load().cfg.TrustedProxies, config.CookieSecureAuto)(r) {
			next.ServeHTTP(w, r)
			return
		}
		target, ok := to.Target(r)
		switch {
		case !ok:
			http.Error(w, "this request cannot be sent to https", http.StatusBadRequest)
		case target == "":
			next.ServeHTTP(w, r)
		default:
			to.Answer(w, target)
		}
	})
}

func port(l net.Listener) string {
	_, p, _ := net.SplitHostPort(l.Addr().String()) // our own address, always valid
	return p
}

// reloadTLS applies what can change while the listener stays, and returns the keys that need a
// restart. On an error nothing has changed.
func (s *Server) reloadTLS(ctx context.Context, next *config.TLS) (restart []string, err error) {
	if s.https == nil || !next.On() {
		if next.On() != (s.https != nil) {
			restart = append(restart, "tls")
		}
		return restart, nil
	}
	now := s.https.set.Load()
	set := *next
	if now.Listen != set.Listen {
		restart, set.Listen = append(restart, "tls.listen"), now.Listen
	}
	switch k := s.https.keeper.(type) {
	case *certs.Files:
		if len(next.ACME.Domains) > 0 {
			restart, set.ACME = append(restart, "tls.acme"), now.ACME
			break
		}
		if err := k.Use(next.Certificate, next.Key); err != nil {
			return nil, s.cfg.TLSFault(err) // the API answers with faults
		}
	case *certs.ACME:
		a, b := &now.ACME, &next.ACME
		if a.Email != b.Email || a.Directory != b.Directory || a.Root != b.Root {
			restart, set.ACME = append(restart, "tls.acme"), now.ACME
			break
		}
		k.SetDomains(ctx, next.ACME.Domains)
	}
	s.https.set.Store(&set)
	return restart, nil
}

// drainAll lets requests in flight finish, on all servers at once, and closes the remaining
// connections when ctx ends.
func drainAll(ctx context.Context, servers ...*http.Server) {
	var wg sync.WaitGroup
	for _, h := range servers {
		if h == nil {
			continue
		}
		wg.Go(func() {
			if h.Shutdown(ctx) != nil {
				h.Close()
			}
		})
	}
	wg.Wait()
}
