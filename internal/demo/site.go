package demo

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// A site is a server of the demo.
type site struct {
	server *http.Server
	done   chan error
}

// serve serves on ln until the site is closed.
func serve(ln net.Listener, h http.Handler) *site {
	s := &site{done: make(chan error, 1), server: &http.Server{Handler: h,
		ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}}
	go func() { s.done <- s.server.Serve(ln) }()
	return s
}

// close stops the site and waits for its end.
func (s *site) close() error {
	err := s.server.Close()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
