package server

import (
	"context"
	"net"
	"time"
)

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A Machine is what a process meets outside of itself. What is nil is that of the machine it
// runs on. Tests provide others, to run many nodes in one process and to do to each what happens
// to machines.
type Machine struct {
	// Listen opens the addresses of visitors, operators and Envoy.
	Listen func(network, addr string) (net.Listener, error)
	// Dial opens the connections to origins and to targets of queues and webhooks.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Engine opens a connection to the engine, for an account of it, in place of one that
	// headgate starts or finds by its address.
	Engine func(account string) (net.Conn, error)
	// Boot is the clock that decides.
	Boot func() time.Duration
}

func (m *Machine) listen(addr, key string) (l net.Listener, err error) {
	if m.Listen != nil {
		l, err = m.Listen("tcp", addr)
	} else {
		l, err = net.Listen("tcp", addr)
	}
	if err != nil {
		return nil, &AddressError{Key: key, Addr: addr, Err: err}
	}
	return l, nil
}
