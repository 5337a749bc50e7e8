package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/nats-io/nats.go"
)

// An External is an existing NATS that headgate does not run. Its files are read at each
// connection.
type External struct {
	Name  string   // of this process, in the servers' lists
	URLs  []string // nats://host:port or tls://host:port
	Creds string   // file with a user's JWT and seed; "" none
	Seed  string   // file with a user's seed alone; "" none
	// Login returns a user's name and password; nil for none.
	Login func() (user, password string)

	CA        string       // PEM file of trusted CAs; "": those of the system
	Cert, Key string       // PEM files of this process, both or none
	Log       *slog.Logger // default: discard

	// Dial, if not nil, opens the connection instead of one to URLs.
	Dial func(account string) (net.Conn, error)

	// Look, if not nil, is called at each connection; its error is logged.
	Look func(*nats.Conn) error
}

// ConnectExternal is Connect for a NATS outside headgate's cluster. It works with or without TLS,
// authenticates with credentials, and uses all servers that the first one announces.
func ConnectExternal(ctx context.Context, o External) (*nats.Conn, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	options, err := o.options()
	if err != nil {
		return nil, err
	}
	return connect(ctx, o.URLs, options)
}

// options returns how to sign in and how to reach the servers.
func (o *External) options() ([]nats.Option, error) {
	told := reporter{who: "NATS", log: o.Log, look: o.Look}
	options := append(told.options(), steady(o.Name)...)
	switch {
	case o.Creds != "":
		options = append(options, nats.UserCredentials(o.Creds))
	case o.Seed != "":
		seed, err := nats.NkeyOptionFromSeed(o.Seed)
		if err != nil {
			return nil, fmt.Errorf("%s: holds no seed of a user: %w", o.Seed, err)
		}
		options = append(options, seed)
	case o.Login != nil:
		options = append(options, nats.UserInfoHandler(o.Login))
	}
	if o.Dial != nil {
		options = append(options, nats.InProcessServer(dialer{o.Dial, ""}))
	}
	if o.CA != "" {
		options = append(options, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		options = append(options, nats.ClientCert(o.Cert, o.Key))
	}
	return options, nil
}
