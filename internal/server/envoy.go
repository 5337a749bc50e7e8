package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/envoy"
)

// maxRuleFile bounds the size of a file of rules. Package envoy has the same limit.
const maxRuleFile = 4 << 20

// readRules reads the files of rules and reports all faults in them.
func readRules(files []string) (*envoy.Rules, error) {
	var all []*envoy.Rules
	var errs []error
	for _, name := range files {
		st, err := os.Stat(name)
		if err == nil && st.Size() > maxRuleFile {
			err = fmt.Errorf("%s: %d bytes, more than %d", name, st.Size(), maxRuleFile)
		}
		var text []byte
		if err == nil {
			text, err = os.ReadFile(name)
		}
		if err != nil {
			errs = append(errs, &config.Fault{File: name, Key: "envoy.rules",
				Problem: "cannot be read: " + err.Error(), Hint: "name files as envoyproxy/ratelimit has them"})
			continue
		}
		r, err := envoy.ParseRules(name, text)
		all, errs = append(all, r), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return envoy.Join(all...)
}

// openEnvoy reads the rules and binds the address.
func (s *Server) openEnvoy(cfg *config.Config) (err error) {
	c := cfg.Envoy
	if c == nil {
		return nil
	}
	g := &envoyGate{}
	if g.rules, err = readRules(c.Rules); err != nil {
		return err
	}
	if err = s.limits.Define(g.rules.Limits()); err != nil {
		return err
	}
	ec := envoy.Config{Rules: g.rules, Limiter: s.limits.Rules, Lender: s.limits.Rules,
		Waits: s.node.Bus != nil}
	if c.Headers {
		ec.Headers = envoy.StandardHeaders()
	}
	if c.Decide {
		ec.Decide, ec.Unvouched = http.HandlerFunc(s.relay), s.unvouched
	}
	g.service = envoy.New(ec)
	if g.listener, err = s.machine.listen(c.Listen, "envoy.listen"); err != nil {
		return err
	}
	s.envoy = g
	return nil
}

// close closes the listener if Run has not served it.
func (g *envoyGate) close() {
	if g != nil {
		g.listener.Close()
	}
}

// EnvoyAddr returns the address of the Envoy service, or nil if there is none.
func (s *Server) EnvoyAddr() net.Addr {
	if s.envoy == nil {
		return nil
	}
	return s.envoy.listener.Addr()
}

// serve serves Envoy until ctx ends.
func (g *envoyGate) serve(ctx context.Context) error {
	if g == nil {
		return nil
	}
	return g.service.Serve(ctx, g.listener)
}

// reload puts new rules into force and removes the limits that only the old rules had. Limits that
// calls bring along stay.
func (g *envoyGate) reload(l *callLimits, next *envoy.Rules) error {
	if g == nil || next == nil {
		return nil
	}
	if err := l.Define(next.Limits()); err != nil {
		return err
	}
	g.service.SetRules(next)
	kept := map[string]bool{}
	for _, c := range next.Limits() {
		kept[c.Name] = true
	}
	for _, c := range g.rules.Limits() {
		if !kept[c.Name] {
			l.Undefine(c.Name)
		}
	}
	g.rules = next
	return nil
}
