package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/certs"
	"github.com/headgate/headgate/internal/config"
)

// A tlsSummary is what check prints about https.
type tlsSummary struct {
	Listen      string   `json:"listen"`
	Certificate string   `json:"certificate,omitempty"` // the file
	Directory   string   `json:"directory,omitempty"`   // of the ACME issuer
	Names       []string `json:"names"`                 // host names
	Expires     string   `json:"expires,omitempty"`     // of the file's certificate
}

// checkTLS reads the certificate files of the configuration, and adds its warnings to cfg. With
// ACME there is nothing to read before the start.
func checkTLS(cfg *config.Config) (*tlsSummary, error) {
	t := &cfg.TLS
	switch {
	case !t.On():
		return nil, nil
	case len(t.ACME.Domains) > 0:
		_, err := certs.ReadRoots(t.ACME.Root)
		return &tlsSummary{Listen: t.Listen, Directory: t.ACME.Directory, Names: t.ACME.Domains},
			tlsFault(cfg, err)
	}
	pair, err := certs.ReadPair(t.Certificate, t.Key, time.Now())
	if err != nil {
		return nil, tlsFault(cfg, err)
	}
	for _, w := range pair.Warnings {
		cfg.Warnings = append(cfg.Warnings,
			config.Fault{File: cfg.File, Key: "tls", Problem: w.Problem, Hint: w.Hint})
	}
	return &tlsSummary{Listen: t.Listen, Certificate: t.Certificate, Names: pair.Names,
		Expires: pair.NotAfter.UTC().Format(time.RFC3339)}, nil
}

// tlsFault converts an error about a file to a fault.
func tlsFault(cfg *config.Config, err error) error {
	e, ok := errors.AsType[*certs.Error](err)
	if !ok {
		return err
	}
	return &config.Fault{File: cfg.File, Key: "tls", Problem: e.File + ": " + e.Problem, Hint: e.Hint()}
}

func (t *tlsSummary) print(w io.Writer) {
	if t == nil {
		return
	}
	names := strings.Join(t.Names, ", ")
	switch {
	case t.Directory != "":
		fmt.Fprintf(w, "https at %s: certificates from %s for %s\n", t.Listen, t.Directory, names)
	default:
		fmt.Fprintf(w, "https at %s: %s for %s, expires %s\n", t.Listen, t.Certificate, names, t.Expires)
	}
}
